"""What can be asked of a process: named commands, registered by the parts of the application that carry them out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

Handler = Callable[[Any], Awaitable[Any]]


class UnknownCommand(Exception):
    """Nobody has registered a command of that name."""


class CommandFailed(Exception):
    """A command was carried out elsewhere and failed there, or no answer came; the text says why."""


class MemberAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one process answered.

    Attributes:
        process: its index.
        result: plain JSON values, as the handler returned them.
        error: why there is no result, or None.
    """

    process: int
    result: Any = None
    error: str | None = None


class ControlCommands:
    """The commands of one process.

    Built-in ones: `status`, `drain`, `hurry` and `workers` (see `proxy.serve`).
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def register(self, name: str, handler: Handler) -> None:
        """Add a command.

        Args:
            name: what callers ask for.
            handler: gets the arguments (plain JSON values) and returns plain JSON values; an exception becomes the
                caller's `CommandFailed`.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._handlers:
            raise ValueError(f"the command {name} is registered already")
        self._handlers[name] = handler

    async def run(self, name: str, arguments: Any = None) -> Any:
        """Carry a command out in this process.

        Raises:
            UnknownCommand, and whatever the handler raises.
        """
        handler = self._handlers.get(name)
        if handler is None:
            raise UnknownCommand(f"there is no command {name}")
        return await handler(arguments)
