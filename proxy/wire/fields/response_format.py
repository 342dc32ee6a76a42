"""Constrained output: the dialects of vLLM and SGLang become `response_format`."""

from __future__ import annotations

import msgspec

from proxy.wire.errors import InvalidField
from proxy.wire.fields.draft import Draft, decoded, split_member
from proxy.wire.fields.rule import Drop, Refuse, Rule, Translate, boolean, string
from proxy.wire.members import JSONBytes, equals, first_byte, is_null, join_object, split_object

# Members of `response_format` that only repeat what is known.
_HARMLESS = frozenset({"strict", "name", "description"})
_SPECIAL = frozenset(r"\.^$*+?{}[]|()")
_LARK = "must be an EBNF grammar (rules with ::=); Lark grammars are not supported"


def _set(draft: Draft, source: str, kind: bytes, member: str, value: JSONBytes) -> None:
    if "response_format" in draft.members:
        raise InvalidField(
            source, f"{source} and response_format cannot be combined", code="conflicting_fields"
        )
    draft.put("response_format", join_object({"type": b'"%b"' % kind, member: value}), source=source)


def _json(draft: Draft, source: str, value: msgspec.Raw) -> None:
    schema: JSONBytes = value
    if first_byte(value) == ord('"'):
        schema = str(decoded(value, source)).encode()
    try:
        split_object(bytes(schema))
    except ValueError:
        raise InvalidField(source, f"{source} must be a JSON schema", code="invalid_type") from None
    _set(draft, source, b"json_schema", "json_schema", join_object({"schema": schema}))


def _regex(draft: Draft, source: str, value: msgspec.Raw) -> None:
    _set(draft, source, b"regex", "regex", value)


def _grammar(draft: Draft, source: str, value: msgspec.Raw) -> None:
    if "::=" not in str(decoded(value, source)):
        draft.refuse(source, _LARK)
    _set(draft, source, b"ebnf", "ebnf", value)


def _choice(draft: Draft, source: str, value: msgspec.Raw) -> None:
    choices = decoded(value, source)
    if not isinstance(choices, list) or not choices or not all(isinstance(each, str) for each in choices):
        raise InvalidField(source, f"{source} must be a list of strings", code="invalid_type")
    pattern = "|".join(map(_escaped, choices))
    _set(draft, source, b"regex", "regex", msgspec.json.encode(f"({pattern})"))


def _json_object(draft: Draft, source: str, value: msgspec.Raw) -> None:
    if equals(value, b"true"):
        if "response_format" in draft.members:
            raise InvalidField(source, f"{source} and response_format cannot be combined")
        draft.put("response_format", b'{"type":"json_object"}', source=source)


def _structural_tag(draft: Draft, source: str, value: msgspec.Raw) -> None:
    text: bytes = bytes(value)
    if first_byte(value) == ord('"'):
        text = str(decoded(value, source)).encode()
    try:
        tag = split_object(text)
    except ValueError:
        raise InvalidField(source, f"{source} must be an object", code="invalid_type") from None
    if "format" not in tag:
        draft.refuse(source, "must have a format (xgrammar's structural tags)")
    _set(draft, source, b"structural_tag", "format", tag["format"])


_CONSTRAINTS = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
    "structural_tag": _structural_tag,
}
# Of vLLM's structured_outputs: how it is done, not what comes out.
_MEANS = frozenset(
    {"disable_fallback", "disable_additional_properties", "backend", "_backend", "_backend_was_auto"}
)


def _constraint(kind: str) -> Translate:
    def translate(draft: Draft, name: str) -> None:
        _CONSTRAINTS[kind](draft, name, draft.take(name))

    what = {"json": "json_schema", "grammar": "ebnf", "choice": "regex of the alternatives"}.get(kind, kind)
    return Translate(translate, f"becomes response_format ({what}); refused together with another one")


def _structured_outputs(draft: Draft, name: str) -> None:
    nested = draft.object(name)
    draft.take(name)
    for inner, value in nested.items():
        source = f"{name}.{inner}"
        if is_null(value):
            continue
        if inner in _CONSTRAINTS:
            _CONSTRAINTS[inner](draft, source, value)
        elif inner in _MEANS or equals(value, b"false"):
            draft.dropped.append(source)
        else:
            draft.refuse(source, "has no equivalent on the workers")


def _response_format(draft: Draft, name: str) -> None:
    value = draft.members[name]
    known = draft.accepted.response_format
    nested = split_member(value, name)
    kind = decoded(nested["type"], f"{name}.type") if "type" in nested else None
    if kind == "grammar":
        grammar = nested.get("grammar", nested.get("value"))
        if grammar is None:
            raise InvalidField(name, "response_format of type grammar has no grammar")
        draft.take(name)
        _grammar(draft, name, grammar)
        return
    if all(inner in known and not is_null(each) for inner, each in nested.items()):
        return
    kept = {}
    for inner, each in nested.items():
        if inner in known and not is_null(each):
            kept[inner] = each
        elif is_null(each):
            continue
        elif inner in _HARMLESS:
            draft.dropped.append(f"{name}.{inner}")
        elif draft.unknown == "pass":
            kept[inner] = each
        else:
            draft.refuse(f"{name}.{inner}", "is not supported by the workers")
    draft.members[name] = msgspec.Raw(join_object(kept))


def _whitespace(draft: Draft, name: str) -> None:
    if boolean(draft, name):
        draft.refuse(name, "is not supported by the workers")
    draft.drop(name)


def _escaped(text: str) -> str:
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in text)


def _text_grammar(draft: Draft, name: str) -> None:
    string(draft, name)
    _grammar(draft, name, draft.take(name))


RESPONSE_FORMAT = (
    Rule("guided_json", _constraint("json"), "vLLM"),
    Rule("guided_regex", _constraint("regex"), "vLLM"),
    Rule("guided_choice", _constraint("choice"), "vLLM"),
    Rule("guided_grammar", _constraint("grammar"), "vLLM"),
    Rule("guided_json_object", _constraint("json_object"), "vLLM"),
    Rule("structural_tag", _constraint("structural_tag"), "vLLM"),
    Rule(
        "structured_outputs",
        Translate(_structured_outputs, "becomes response_format; refused together with another one"),
        "vLLM",
    ),
    Rule("json_schema", _constraint("json"), "SGLang"),
    Rule("regex", _constraint("regex"), "SGLang"),
    Rule("ebnf", Translate(_text_grammar, "becomes response_format (ebnf)"), "SGLang"),
    Rule("guided_decoding_backend", Drop(), "vLLM: how it is done, not what comes out"),
    Rule("guided_decoding_disable_fallback", Drop(), "vLLM: how it is done, not what comes out"),
    Rule("guided_decoding_disable_additional_properties", Drop(), "vLLM: how it is done"),
    Rule(
        "guided_decoding_disable_any_whitespace",
        Translate(_whitespace, "dropped when false, else refused"),
        "vLLM",
    ),
    Rule("guided_whitespace_pattern", Refuse("is not supported by the workers"), "vLLM"),
    Rule(
        "response_format",
        Translate(
            _response_format,
            "strict, name and description beside its type are dropped, type grammar becomes ebnf, "
            "other unknown members are refused",
        ),
        "its model forbids unknown members",
    ),
)
