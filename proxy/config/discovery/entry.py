"""What every entry of `proxy.discovery` has."""

from __future__ import annotations

import msgspec

CONFIGURATION = "configuration"
"""Name of the source that the configuration itself is: the sections' urls and `proxy.workers`."""


OPERATOR = "operator"
"""Name of the source that the operators are (`proxy.workers.discovery.operator`)."""


DISAGG_CLUSTER = "disagg_cluster"
"""Name of the source that upstream's key of that name describes."""

METADATA_SERVER = "metadata_server"
"""Name of the source that upstream's option `-m` describes."""

RESERVED_NAMES = frozenset({CONFIGURATION, OPERATOR, DISAGG_CLUSTER, METADATA_SERVER})


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """One source of workers; the kinds are subclasses with a `tag`, which `type` names.

    A subclass checks what its fields mean together in `__post_init__` and raises `ValueError` with a sentence.

    Attributes:
        name: in metrics and logs, unique; filled in when the configuration does not say it.
    """

    name: str = ""

    @property
    def default_name(self) -> str:
        """The name of an entry that has none."""
        return str(self.__struct_config__.tag)
