"""Prompts become token ids in the proxy, so that the context workers need not render and tokenise.

The work is done in a few threads: neither the tokenizer nor the event loop waits for the other. Whatever is not surely
the same as a worker's own prompt, or would have to wait for a thread for long, goes to the worker as text.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic, perf_counter
from typing import NamedTuple

import msgspec
import numpy as np

from proxy.tokenisation.prompts import NotReproducible, check_members, read_chat, read_text
from proxy.tokenisation.shadow import Trust
from proxy.tokenisation.threads import TokenThreads
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.errors import WireError
from proxy.wire.fields.accepted import Accepted
from proxy.wire.members import JSONBytes, Members
from proxy.wire.token_ids import base64_of_ids, ids_of

_LONGEST = 2 * 1024 * 1024  # bytes, half a second of work; others would wait for it
_LOG_SECONDS = 60.0
_WINDOW = 12  # ids on either side of the first difference

_logger = logging.getLogger("proxy.tokenisation")


class Prompt(msgspec.Struct):
    """The part of a request that the prompt is made of.

    Attributes:
        members: after the field policy; a copy, since the request's own are forgotten when its answer begins.
        chat: the route.
        strict_tools: see `read_chat`.
        ids: encoded for the context leg; None when the worker is to tokenise, whose ids are then to be compared.
    """

    members: Members
    chat: bool
    strict_tools: bool
    ids: bytes | None = None


class Difference(NamedTuple):
    """Where two lists of ids part.

    Attributes:
        at: index of the first difference.
        ours, theirs: the ids around it.
        lengths: of both lists.
    """

    at: int
    ours: list[int]
    theirs: list[int]
    lengths: tuple[int, int]


class FrontendTokenisation:
    """Of one process. To be made inside the event loop.

    Args:
        tokenizer: the model's.
        shadow: share of the requests that are sent as text, to compare.
        max_mismatch: share of the comparisons that may differ.
        threads: where it is done, and nothing else.
        observe: told the seconds that each prompt has taken.
        chance: uniform numbers in [0, 1).

    Attributes:
        outcomes: requests by who tokenises, `proxy` or `worker`, and why the worker does.
        trust: what the comparisons say.
    """

    def __init__(
        self,
        tokenizer: PromptTokenizer,
        *,
        shadow: float,
        max_mismatch: float,
        threads: TokenThreads,
        observe: Callable[[float], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._tokenizer = tokenizer
        self._shadow = shadow
        self._observe = observe
        self._chance = chance
        self._threads = threads
        self._next_log = 0.0
        self._not_logged = 0
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.trust = Trust(max_mismatch)

    def close(self) -> None:
        """Begin nothing any more."""
        self._threads.close()

    async def prompt(self, members: Members, accepted: Accepted, *, chat: bool) -> Prompt | None:
        """Tokenise a request's prompt.

        Args:
            members: after the field policy.
            accepted: what the context workers know.
            chat: the route.

        Returns:
            The prompt with its ids, or without them when it is only to be compared. None: the worker tokenises.
        """
        reason = self._obstacle(members, accepted, chat=chat)
        if reason:
            self.outcomes["worker", reason] += 1
            return None
        prompt = Prompt(dict(members), chat, "strict" in accepted.function)
        if self.trust.warming_up or self._chance() < self._shadow:
            self.outcomes["worker", "shadow"] += 1
            return prompt
        began = perf_counter()
        try:
            prompt.ids = await self._threads.run(lambda: self._encoded(prompt))
        except NotReproducible as why:
            self.outcomes["worker", str(why)] += 1
            return None
        except Exception:
            _logger.exception("a prompt could not be tokenised")
            self.outcomes["worker", "failed"] += 1
            return None
        self._observe(perf_counter() - began)
        self.outcomes["proxy", ""] += 1
        return prompt

    def compare(self, prompt: Prompt, theirs: JSONBytes | None, request_id: str) -> None:
        """Compare a prompt with the worker's ids, in a thread and after the fact.

        Args:
            prompt: from `prompt`; one whose ids were sent would come back as it is and is passed over.
            theirs: the encoded ids of the context answer.
            request_id: for the log.
        """
        if prompt.ids is not None or theirs is None or self._threads.busy or self.trust.lost:
            return
        encoded = bytes(theirs)  # a slice would keep the whole answer alive
        job = self._threads.run(lambda: self._difference(prompt, encoded))
        job.add_done_callback(lambda done: self._compared(done, request_id))

    def _obstacle(self, members: Members, accepted: Accepted, *, chat: bool) -> str:
        if self.trust.lost:
            return "switched_off"
        if chat and not accepted.base64_ids:
            return "version"
        if self._threads.busy:
            return "busy"
        value = members["messages" if chat else "prompt"]
        if len(memoryview(value)) > _LONGEST:
            return "size"
        try:
            check_members(members, chat=chat)
        except NotReproducible as why:
            return str(why)
        return ""

    def _ids(self, prompt: Prompt) -> list[int]:
        """In a thread. Raises `NotReproducible`."""
        if not prompt.chat:
            # The workers' default on this route; on chat the template writes the special tokens.
            return self._tokenizer.encode(read_text(prompt.members), add_special_tokens=True)
        chat = read_chat(prompt.members, strict_tools=prompt.strict_tools)
        return self._tokenizer.encode(chat.render(self._tokenizer), add_special_tokens=False)

    def _encoded(self, prompt: Prompt) -> bytes:
        """In a thread."""
        ids = self._ids(prompt)
        if not ids:
            raise NotReproducible("prompt")
        return base64_of_ids(ids) if prompt.chat else msgspec.json.encode(ids)

    def _difference(self, prompt: Prompt, encoded: bytes) -> Difference | None:
        """In a thread."""
        return find_difference(self._ids(prompt), ids_of(encoded))

    def _compared(self, done: asyncio.Future[Difference | None], request_id: str) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, NotReproducible | WireError):
            return
        if error is not None:
            _logger.error("token ids could not be compared", exc_info=error)
            return
        difference = done.result()
        was_lost = self.trust.lost
        self.trust.note(same=difference is None)
        if difference is not None:
            self._log(difference, request_id)
        if self.trust.lost and not was_lost:
            _logger.error(
                "the proxy's token ids differ too often from the workers': the workers tokenise from now on"
            )

    def _log(self, difference: Difference, request_id: str) -> None:
        """One warning a minute. What prompts say is shown at log level debug only."""
        now = monotonic()
        if now < self._next_log:
            self._not_logged += 1
            return
        self._next_log = now + _LOG_SECONDS
        more, self._not_logged = self._not_logged, 0
        _logger.warning(
            "token ids of request %s differ from the worker's at %d (of %d and %d)%s",
            request_id,
            difference.at,
            *difference.lengths,
            f"; {more} more differences since the last such line" if more else "",
        )
        if _logger.isEnabledFor(logging.DEBUG):
            _logger.debug(
                "request %s: the proxy has %r, the worker %r",
                request_id,
                self._tokenizer.decode(difference.ours),
                self._tokenizer.decode(difference.theirs),
            )


def find_difference(ours: Sequence[int], theirs: Sequence[int]) -> Difference | None:
    """Where two lists of ids part; None when they are the same."""
    shorter = min(len(ours), len(theirs))
    unequal = np.nonzero(np.asarray(ours[:shorter]) != np.asarray(theirs[:shorter]))[0]
    if not len(unequal) and len(ours) == len(theirs):
        return None
    at = int(unequal[0]) if len(unequal) else shorter
    start, end = max(0, at - _WINDOW), at + _WINDOW
    return Difference(at, list(ours[start:end]), list(theirs[start:end]), (len(ours), len(theirs)))
