"""`stream_options`, which workers refuse without `stream: true`."""

from proxy.wire.fields.draft import Draft
from proxy.wire.fields.nested import trimmed
from proxy.wire.fields.rule import Rule, Translate
from proxy.wire.members import NULL, equals

_HARMLESS = frozenset({"include_obfuscation"})


def _stream_options(draft: Draft, name: str) -> None:
    if not equals(draft.members.get("stream", NULL), b"true"):
        draft.drop(name)
        return
    value = draft.members[name]
    draft.members[name] = trimmed(draft, name, value, draft.accepted.stream_options, _HARMLESS)


STREAM_OPTIONS = (
    Rule(
        "stream_options",
        Translate(_stream_options, "dropped unless stream is true; include_obfuscation is dropped from it"),
        "workers refuse it without stream, and unknown members in it",
        late=True,
    ),
)
