"""The proxy's own tokenizer: the extra `tokenize`. Only `proxy.tokenisation.setup` may be imported without it."""
