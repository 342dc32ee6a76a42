"""Fields that change the meaning of a request and that workers have nothing like: refused, never dropped.

Where a value asks for nothing (false, zero), that value is dropped.
"""

from proxy.wire.fields.rule import DropIf, Refuse, Rule

_NONE = "is not supported by TensorRT-LLM workers"
_ROUTE = "belongs to another route; send temperature, top_p, ... as members of the request"

REFUSED = (
    # What comes out.
    Rule("modalities", DropIf((["text"], []), 'must be ["text"]: the workers produce text only')),
    Rule("audio", Refuse("is not supported: the workers produce text only")),
    Rule("web_search_options", Refuse("is not supported: there is no search")),
    Rule("prompt_logprobs", Refuse(_NONE)),
    Rule("logprob_token_ids", Refuse(_NONE)),
    Rule("return_logprob", DropIf((False,), "belongs to another route; use logprobs")),
    # How tokens are chosen.
    Rule("allowed_token_ids", Refuse(_NONE)),
    Rule("bad_words", DropIf(([],), _NONE)),
    Rule("bad_words_token_ids", DropIf(([],), _NONE)),
    Rule("watermarking", DropIf((False,), _NONE)),
    Rule("repetition_detection", DropIf((False,), _NONE)),
    Rule("custom_logit_processor", DropIf(("",), _NONE)),
    Rule("custom_params", DropIf(({},), _NONE)),
    Rule("logits_processors", DropIf(([],), _NONE)),
    Rule("stop_regex", DropIf(("", []), "is not supported; use stop")),
    Rule("typical_p", DropIf((1,), _NONE)),
    Rule("top_a", DropIf((0,), _NONE)),
    Rule("sampling_params", DropIf(({},), _ROUTE)),
    # What goes in.
    Rule("prompt_embeds", DropIf(([],), _NONE)),
    Rule("text", Refuse("belongs to another route; use messages or prompt")),
    Rule("continue_final_message", DropIf((False,), "is not supported: an answer cannot be continued")),
    Rule("max_dynamic_patch", Refuse("is not supported; use mm_processor_kwargs if the model knows it")),
    Rule("images_config", Refuse("is not supported; use mm_processor_kwargs if the model knows it")),
    Rule("use_audio_in_video", DropIf((False,), "is not supported; use mm_processor_kwargs")),
    Rule("truncation_side", DropIf(("left",), 'must be "left": the workers keep the end of a prompt')),
    Rule("lora_path", Refuse("is not supported; use lora_request")),
    Rule("ngram_corpus_id", Refuse(_NONE)),
    Rule("task", Refuse(_NONE)),
)
