"""Members of nested objects, whose models forbid unknown ones too."""

import msgspec

from proxy.wire.fields.draft import Draft, split_member
from proxy.wire.members import is_null, join_object


def trimmed(
    draft: Draft,
    name: str,
    value: msgspec.Raw,
    accepted: frozenset[str],
    harmless: frozenset[str],
    *,
    label: str | None = None,
) -> msgspec.Raw:
    """An object without the members that the workers do not know.

    Args:
        draft: collects the names.
        name: where the object is, for errors: `tools[0].function`.
        value: the object.
        accepted: what the workers know in it.
        harmless: what may be left out of it whatever becomes of unknown fields.
        label: where the object is, for the header and metrics: `tools.function`.

    Raises:
        InvalidField: it is not an object, or a member of it is refused.
    """
    nested = split_member(value, name)
    if accepted.issuperset(nested) and not any(map(is_null, nested.values())):
        return value
    kept = {}
    for inner, each in nested.items():
        if is_null(each):
            continue
        if inner in accepted or (inner not in harmless and not draft.forbid(f"{name}.{inner}")):
            kept[inner] = each
        else:
            draft.dropped.append(f"{label or name}.{inner}")
    return msgspec.Raw(join_object(kept))
