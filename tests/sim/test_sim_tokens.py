import pytest
from sim_client import chat, completion

from proxy.sim import prompt_token_ids
from proxy.sim.tokens import (
    PromptError,
    content_text,
    decode_ids,
    encode_ids,
    pack_ids,
    prompts_of,
    render_chat,
    tokenize,
    unpack_ids,
)


def test_tokenize_is_deterministic_and_covers_each_byte() -> None:
    assert unpack_ids(tokenize("")) == [1]
    assert unpack_ids(tokenize("abcd"))[0] == 1
    assert len(unpack_ids(tokenize("abcde"))) == 3
    assert tokenize("größe") != tokenize("grosse")
    assert all(2_000 <= token < 32_000 for token in unpack_ids(tokenize("é" * 100))[1:])


@pytest.mark.parametrize(
    ("ids", "encoded"), [([1, 2], "AQAAAAIAAAA="), ([1, 733, 16289, 28793], "AQAAAN0CAAChPwAAeXAAAA==")]
)
def test_base64_of_ids(ids: list[int], encoded: str) -> None:
    assert encode_ids(pack_ids(ids)) == encoded
    assert unpack_ids(decode_ids(encoded)) == ids


@pytest.mark.parametrize("text", ["AQAA", "A", "AQAAAA==\n", "####"])
def test_bad_base64(text: str) -> None:
    with pytest.raises(PromptError):
        decode_ids(text)


def test_ids_that_do_not_fit() -> None:
    with pytest.raises(PromptError):
        pack_ids([1 << 31])


def test_the_chat_prompt_depends_on_what_the_prompt_builder_reads() -> None:
    base = render_chat(chat())
    assert base.endswith("<|assistant|>")
    extra = chat()
    extra["messages"][1] = {**extra["messages"][1], "prompt_token_ids": [1], "name": "x"}
    assert render_chat(extra) == base
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "f", "strict": True}}
    for changed in (
        chat(messages=[{"role": "user", "content": "x"}]),
        chat(chat_template_kwargs={"a": 1}),
        chat(tools=[tool]),
        chat(messages=[{"role": "assistant", "tool_calls": [call]}]),
        chat(messages=[{"role": "assistant", "reasoning": "r", "content": "x"}]),
        chat(messages=[{"role": "tool", "tool_call_id": "1", "content": "x"}]),
        chat(add_generation_prompt=False),
    ):
        assert render_chat(changed) != base


def test_content_parts() -> None:
    assert content_text([{"type": "text", "text": "a"}, "b"]) == "a\nb"
    assert content_text([{"type": "image_url", "image_url": {"url": "u"}}]).startswith("<image_url:")
    assert content_text(None) == ""
    for part in ({"type": "refusal", "refusal": "x"}, {"text": "x"}):
        with pytest.raises(PromptError, match="Unknown part type"):
            content_text([part])


def test_tool_call_arguments_must_be_json() -> None:
    call = {"function": {"name": "f", "arguments": "{"}}
    with pytest.raises(PromptError, match="valid JSON"):
        render_chat(chat(messages=[{"role": "assistant", "tool_calls": [call]}]))


def test_sources_of_prompt_ids() -> None:
    assert prompt_token_ids(completion(prompt=[5, 6])) == [5, 6]
    assert len(prompts_of(completion(prompt=["a", "b"]))) == 2
    assert len(prompts_of(completion(prompt=[[1], [2, 3]]))) == 2
    assert prompt_token_ids(chat(prompt_token_ids=[7], prompt_token_ids_b64="AQAAAAIAAAA=")) == [7]
    assert prompt_token_ids(chat(prompt_token_ids_b64="AQAAAAIAAAA=")) == [1, 2]
    with pytest.raises(PromptError):
        prompts_of(completion(prompt=[]))
