"""Rewrite an answer on its way to the client, for the few requests that need it.

A rewriter is a small object that one request owns. Several of them work on one answer, in their order, each on what
the one before has made of it. They see a whole JSON answer as its top-level members, and a stream as one event after
the other: complete, and as it came, to the byte. What they do not touch passes verbatim.

To add one, write a class with the three methods of `Rewriter` and choose it in `proxy.lifecycle.rewriters`. `Untouched`
has methods that leave everything as it is. Look at an event's bytes before parsing it: only those that have to be
changed are worth `split_object(data_of(event))`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from proxy.wire.errors import MalformedJSON
from proxy.wire.members import JSONBytes, join_object, split_object
from proxy.wire.sse import EventSplitter, Tail


class Rewriter(Protocol):
    """See the module's docstring. Methods that meet something unknown leave it as it is; they do not raise."""

    def answer(self, members: dict[str, JSONBytes]) -> None:
        """Change the top-level members of a whole JSON answer with status 200; the values are encoded JSON."""

    def event(self, event: bytes) -> bytes:
        """What takes the place of one event of a stream with status 200.

        Args:
            event: with the blank line at its end (see `data_of`, `with_data`). Only the last one may lack that, when
                the worker's answer ends inside it.

        Returns:
            The same object to pass it verbatim, nothing to drop it, or one or several events with their blank lines.
        """
        ...

    def end(self) -> bytes:
        """Events to be added behind the last one (`[DONE]` as a rule); not called if the stream breaks off."""
        ...


class Untouched:
    """A base for rewriters that change only one of the forms."""

    __slots__ = ()

    def answer(self, members: dict[str, JSONBytes]) -> None:
        """See `Rewriter`."""

    def event(self, event: bytes) -> bytes:
        """See `Rewriter`."""
        return event

    def end(self) -> bytes:
        """See `Rewriter`."""
        return b""


class Rewriters:
    """Those of one request, as one.

    Args:
        rewriters: in the order in which they see the answer.
    """

    __slots__ = ("_rewriters", "_splitter")

    def __init__(self, rewriters: Sequence[Rewriter]) -> None:
        self._rewriters = rewriters
        self._splitter = EventSplitter()

    def answer(self, body: bytes) -> bytes:
        """A whole JSON answer, rewritten; anything but a JSON object stays as it is."""
        try:
            members: dict[str, JSONBytes] = dict(split_object(body))
        except MalformedJSON:
            return body
        for rewriter in self._rewriters:
            rewriter.answer(members)
        return join_object(members)

    def stream(self, body: bytes) -> bytes:
        """A whole event stream, rewritten."""
        return self.feed(body) + self.finish()

    def feed(self, piece: bytes) -> bytes:
        """What to send for a piece of a stream: whole events only, the beginning of one is held back.

        Raises:
            BrokenFraming: an event has no end.
        """
        return _through(self._rewriters, self._splitter.feed(piece))

    def finish(self) -> bytes:
        """What to send at the stream's end."""
        last = bytes(self._splitter.rest)
        last = _through(self._rewriters, [last]) if last else b""
        parts: list[bytes] = []
        for place, rewriter in enumerate(self._rewriters, 1):
            if added := rewriter.end():
                parts.append(_through(self._rewriters[place:], EventSplitter().feed(added)))
        if not parts:
            return last
        tail = Tail()
        tail.saw(last)
        return b"".join((last, b"" if tail.between_events else b"\n\n", *parts))


def _through(rewriters: Sequence[Rewriter], events: Iterable[bytes]) -> bytes:
    return b"".join([_rewritten(rewriters, event) for event in events])


def _rewritten(rewriters: Sequence[Rewriter], event: bytes) -> bytes:
    for place, rewriter in enumerate(rewriters, 1):
        rewritten = rewriter.event(event)
        if rewritten is not event:
            others = rewriters[place:]
            # It may be several events by now, or none.
            return _through(others, EventSplitter().feed(rewritten)) if others else rewritten
    return event
