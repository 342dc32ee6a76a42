"""`type: file`: workers that a file lists."""

from __future__ import annotations

from proxy.config.discovery.entry import SourceEntry
from proxy.config.scalars import Name, PositiveSeconds


class FileEntry(SourceEntry, frozen=True, kw_only=True, tag="file"):
    """A YAML file of the same shape as `proxy.workers`.

    Attributes:
        interval: seconds between two looks at the file.
    """

    path: Name
    interval: PositiveSeconds = 1.0
