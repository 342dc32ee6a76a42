"""Makes the tokenizers and golden ids of this folder, without any code of `proxy`: run once, by hand, in an environment
with transformers, openai and pydantic (they were made with 5.24.0, 3.57.0 and 2.14.4):

    python tests/tokenisation/make_golden.py

The messages go through the types of OpenAI's library and the tools through pydantic models, as in a worker, then
through transformers' own `apply_chat_template` and `encode`.
"""

import json
from pathlib import Path
from typing import Any, Literal

from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, ConfigDict, TypeAdapter
from tokenisation_cases import CASES, NOT_FOR
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

HERE = Path(__file__).parent
MODELS = HERE / "models"
VOCABULARY = 600
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = {
    "qwen_like": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama_like": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}
CONFIG: dict[str, dict[str, Any]] = {
    "qwen_like": {"eos_token": "<|im_end|>", "bos_token": None, "model_max_length": 32768},
    "llama_like": {
        "bos_token": "<|begin_of_text|>",
        "eos_token": {
            "__type": "AddedToken",
            "content": "<|eot_id|>",
            **dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False),
        },
        "model_max_length": 10**30,
    },
}


class Function(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["function"] = "function"
    function: Function


class Custom(BaseModel):
    model_config = ConfigDict(extra="allow")
    role: str


MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])


def make_tokenizer(name: str) -> None:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    corpus = [(HERE.parents[1] / "LICENSE").read_text(), *map(json.dumps, CASES.values())]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens(SPECIAL[name])
    if name == "qwen_like":
        tokenizer.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>"])
    else:
        begin = SPECIAL[name][0]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))]
        )
    directory = MODELS / name
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **CONFIG[name]}
    if name == "llama_like":
        config["chat_template"] = (HERE / "llama_template.jinja").read_text()
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def conversation(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a worker's prompt builder makes it of validated messages."""
    made = []
    for given, message in zip(messages, MESSAGES.validate_python(messages), strict=True):
        content = message.get("content") or []
        if not isinstance(content, str):
            content = "\n".join(part["text"] for part in content if part["text"])
        built: dict[str, Any] = {"role": message["role"], "content": content}
        if message["role"] == "assistant":
            reasoning = given.get("reasoning", given.get("reasoning_content"))
            if reasoning is not None:
                built["reasoning_content"] = reasoning
            if message.get("tool_calls") is not None:
                built["tool_calls"] = [dict(call) for call in message["tool_calls"]]
                for call in built["tool_calls"]:
                    call["function"] = dict(call["function"])
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if message["role"] == "tool":
            built["tool_call_id"] = message["tool_call_id"]
        made.append(built)
    return made


def golden(name: str) -> dict[str, list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(MODELS / name)
    found = {}
    for case, body in CASES.items():
        if case in NOT_FOR[name]:
            continue
        if "prompt" in body:
            found[case] = tokenizer.encode(body["prompt"])
            continue
        tools = body.get("tools")
        text = tokenizer.apply_chat_template(
            conversation(body["messages"]),
            tokenize=False,
            add_generation_prompt=body.get("add_generation_prompt", True),
            tools=None if tools is None else [Tool.model_validate(tool).model_dump() for tool in tools],
            documents=body.get("documents"),
            **body.get("chat_template_kwargs", {}),
        )
        found[case] = tokenizer.encode(text, add_special_tokens=False)
    return found


def main() -> None:
    for name in SPECIAL:
        make_tokenizer(name)
        lines = [
            f"{json.dumps(case)}: {json.dumps(ids, separators=(',', ':'))}"
            for case, ids in golden(name).items()
        ]
        (MODELS / name / "golden.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
