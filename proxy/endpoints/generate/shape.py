"""What a shape is: how a request becomes a completions body, and what the answer looks like."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from proxy.endpoints.generate.generated import Generated
from proxy.wire.members import JSONBytes


class Asked(msgspec.Struct):
    """A request, read.

    Attributes:
        members: of the completions body; `model` may be missing.
        request_id: the client's name for it, or None.
        stream: events are wanted.
        logprobs: log-probabilities are wanted.
        ids: the workers are asked for ids, not for text.
        prompt_tokens: if they are known by the request, else None.
        keep_special: special tokens stay in texts.
    """

    members: dict[str, JSONBytes]
    request_id: str | None = None
    stream: bool = False
    logprobs: bool = False
    ids: bool = True
    prompt_tokens: int | None = None
    keep_special: bool = False


class Shape(Protocol):
    """See the module's docstring."""

    def read(self, body: bytes) -> Asked:
        """Read a request.

        Raises:
            InvalidRequest: it cannot be served.
        """
        ...

    def answer(self, asked: Asked, generated: Generated, request_id: str, seconds: float) -> Any:
        """The answer, or what a stream tells at this point.

        Args:
            asked: the request.
            generated: so far.
            request_id: of the request.
            seconds: since its arrival.
        """
        ...

    def aborted(self, asked: Asked, generated: Generated, request_id: str, message: str) -> Any:
        """The answer to a request that was aborted, with what had been generated."""
        ...
