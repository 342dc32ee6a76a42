"""Tokens in, tokens out: /generate as SGLang has it and /inference/v1/generate as vLLM has it, over the two legs of
/v1/completions. `endpoint` is the way through, `sglang` and `vllm` are the two shapes."""
