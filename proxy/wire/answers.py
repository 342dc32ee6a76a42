"""Take hand-off members out of an answer before a client sees it, and leave every other byte alone.

Workers put `disaggregated_params` into each choice and `prompt_token_ids` or `prompt_token_ids_b64` at the
top level of non-streamed answers; they are the workers' business and can be hundreds of kilobytes.
"""

from proxy.wire.errors import MalformedJSON
from proxy.wire.members import join_object, split_array, split_object
from proxy.wire.spans import element_spans, member_spans, without

_TOP_LEVEL = frozenset({"prompt_token_ids", "prompt_token_ids_b64", "disaggregated_params"})
_IN_CHOICE = frozenset({"disaggregated_params"})


def _without_members(source: bytes, names: frozenset[str]) -> bytes:
    members = split_object(source)
    if names.isdisjoint(members):
        return source
    spans = member_spans(source, members)
    if spans is None:
        return join_object({name: value for name, value in members.items() if name not in names})
    return without(source, spans, names)


def _clean_choices(source: bytes) -> bytes:
    elements = split_array(source)
    cleaned = [_without_members(bytes(element), _IN_CHOICE) for element in elements]
    spans = element_spans(source, elements)
    if spans is None:
        return b"[" + b",".join(cleaned) + b"]"
    parts: list[bytes] = []
    at = 0
    for span, choice in zip(spans, cleaned, strict=True):
        parts += (source[at : span.start], choice)
        at = span.end
    parts.append(source[at:])
    return b"".join(parts)


def clean_answer(source: bytes) -> bytes:
    """Remove hand-off members from a worker's JSON answer.

    An answer that is not a JSON object (or has choices of another shape) is none of ours and stays as it is.
    """
    if b"disaggregated_params" not in source and b"prompt_token_ids" not in source:
        return source
    try:
        members = split_object(source)
        choices = members.get("choices")
        top = _without_members(source, _TOP_LEVEL)
        if choices is None:
            return top
        before = bytes(choices)
        after = _clean_choices(before)
        if after == before:
            return top
        return _replace_choices(top, after)
    except MalformedJSON:
        return source


def _replace_choices(source: bytes, choices: bytes) -> bytes:
    members = split_object(source)
    spans = member_spans(source, members)
    if spans is None:
        return join_object({**members, "choices": choices})
    span = spans["choices"]
    return source[: span.value] + choices + source[span.end :]
