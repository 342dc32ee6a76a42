"""What a process gets from the supervisor at its start, through a memfd: secrets stay off command lines."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.config.settings import Settings
from proxy.fleet.columns import Grant
from proxy.fleet.memory import create_memory


class KeptCommand(msgspec.Struct, frozen=True):
    """A command whose effect lasts (`pause`): a process that starts later carries it out before it serves.

    Attributes:
        addresses: of the workers that it names, as text: the process needs their columns.
    """

    command: str
    arguments: Any = None
    addresses: tuple[str, ...] = ()


class Handover(msgspec.Struct, frozen=True):
    """Everything; numbers of descriptors are those of the new process.

    Attributes:
        index, processes: which one it is, of how many.
        settings: the configuration in force, with the present worker lists (`for_a_process`).
        control: socket to the supervisor.
        listeners: listening sockets.
        load_table, metrics: shared memory.
        columns: of the load table.
        grants: this process's columns by worker address.
        kept: to be carried out first.
        successor: another process had this index before.
    """

    index: int
    processes: int
    settings: Settings
    control: int
    listeners: tuple[int, ...]
    load_table: int
    metrics: int
    columns: int
    grants: dict[str, Grant]
    kept: tuple[KeptCommand, ...] = ()
    successor: bool = False

    def write(self) -> int:
        """Return the descriptor of a memfd with the contents."""
        data = msgspec.msgpack.encode(self)
        descriptor = create_memory("disagg-proxy-handover", len(data))
        os.pwrite(descriptor, data, 0)
        return descriptor

    @classmethod
    def read(cls, descriptor: int) -> Handover:
        """Read what `write` wrote, and close the descriptor."""
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        os.close(descriptor)
        return msgspec.msgpack.decode(data, type=Handover)


def for_a_process(settings: Settings) -> Settings:
    """A configuration without what only concerns workers and the log at start (any YAML value may be among it)."""
    return replace(
        settings,
        inherited={},
        warnings=(),
        context_servers=replace(settings.context_servers, inherited={}),
        generation_servers=replace(settings.generation_servers, inherited={}),
    )
