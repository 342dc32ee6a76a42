"""One worker as a list names it: where it is and what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from proxy.config.address import WorkerAddress

RoleName = Literal["context", "generation"]


class ListedWorker(msgspec.Struct, frozen=True):
    """A worker in one role; one that serves in both is listed twice.

    Attributes:
        model: the model that it serves, where the proxy serves several; None takes every model that no other list
            entry names.
        labels: `domain` is the NVLink domain of its GPUs; others are free.
        draining: still listed, but about to go: it gets no new legs.
    """

    address: WorkerAddress
    role: RoleName
    model: str | None = None
    labels: Mapping[str, str] = {}
    draining: bool = False

    def completed(self, other: ListedWorker) -> ListedWorker:
        """This entry with what another one for the same worker adds: labels that this one lacks, and that it drains."""
        return replace(self, labels={**other.labels, **self.labels}, draining=self.draining or other.draining)
