"""What entries of `proxy.discovery` have whose source knows addresses only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from proxy.config.discovery.entry import SourceEntry
from proxy.config.scalars import Name


class RoleEntry(SourceEntry, frozen=True, kw_only=True):
    """All workers of the source are alike.

    Attributes:
        role: `mixed` ones are listed in both roles.
        model, labels: as in `ListedWorker`.
        scheme: how they are spoken to.
    """

    role: Literal["context", "generation", "mixed"]
    model: Name | None = None
    labels: Mapping[str, str] = {}
    scheme: Literal["http", "https"] = "http"
