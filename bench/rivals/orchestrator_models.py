"""Request and answer models as today's orchestrator validates them (all refuse unknown keys)."""

from typing import Any, Literal, Required

from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class CustomMessage(TypedDict, total=False):
    """Roles and keys that the OpenAI types do not know."""

    role: Required[str]
    content: str | list[dict[str, Any]]


class UsageInfo(Strict):
    prompt_tokens: int = 0
    total_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: dict[str, int | None] | None = None


class DisaggregatedParams(Strict):
    request_type: str
    first_gen_tokens: list[int] | None = None
    first_gen_log_probs: list[Any] | None = None
    first_gen_logits: list[Any] | None = None
    ctx_request_id: int | None = None
    encoded_opaque_state: str | None = None
    draft_tokens: list[int] | None = None
    disagg_request_id: int | None = None
    ctx_dp_rank: int | None = None
    ctx_info_endpoint: str | None = None
    schedule_style: int | None = None
    ctx_usage: UsageInfo | None = None
    return_prompt_token_ids_b64: bool = False
    resolved_thinking: bool | None = None


class StreamOptions(Strict):
    include_usage: bool | None = True
    continuous_usage_stats: bool | None = False


class ResponseFormat(Strict):
    type: Literal["text", "json", "json_schema", "json_object", "regex", "ebnf", "structural_tag"]
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    json_schema: dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    format: dict[str, Any] | None = None


class FunctionDefinition(Strict):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"] = "function"
    function: FunctionDefinition


class ConversationParams(Strict):
    conversation_id: str


class _Sampling(Strict):
    model: str
    frequency_penalty: float | None = 0.0
    logit_bias: dict[str, float] | None = None
    n: int = 1
    presence_penalty: float | None = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    lora_request: dict[str, Any] | None = None
    prompt_ignore_length: int | None = 0
    best_of: int | None = None
    use_beam_search: bool = False
    top_k: int = 0
    top_p_min: float = 0.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    thinking_token_budget: int | None = None
    response_format: ResponseFormat | None = None
    disaggregated_params: DisaggregatedParams | None = None
    conversation_params: ConversationParams | None = None
    priority: float | None = None


class ChatCompletionRequest(_Sampling):
    messages: list[ChatCompletionMessageParam | CustomMessage]
    prompt_token_ids: list[int] | None = None
    prompt_token_ids_b64: str | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = 0
    max_completion_tokens: int | None = Field(None, validation_alias="max_tokens")
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = "none"
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = "low"
    echo: bool = False
    add_generation_prompt: bool = True
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, Any] | None = None
    cache_salt: str | None = None


class ToolCall(Strict):
    id: str
    type: Literal["function"] = "function"
    function: dict[str, Any]


class ChatMessage(Strict):
    role: str
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] = []


class Choice(Strict):
    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    mm_embedding_handle: dict[str, Any] | None = None
    disaggregated_params: DisaggregatedParams | None = None
    avg_decoded_tokens_per_iter: float | None = None


class ChatCompletionResponse(Strict):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: UsageInfo
    prompt_token_ids: list[int] | None = None
    prompt_token_ids_b64: str | None = None
