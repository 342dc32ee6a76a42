"""What is sent to a generation worker: with a hand-off, or without one in the two forms that bypass prefill.

A leg is made for the worker that was chosen, since workers of different versions take different members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from proxy.errors import BrokenAnswer, ConnectionBroken, LegFault, Retry, Source
from proxy.lifecycle.rewriters import choose_rewriters
from proxy.wire.errors import BrokenHandOff
from proxy.wire.history import last_message
from proxy.wire.legs import generation_body, generation_parameters
from proxy.wire.members import JSONBytes, Members, join_object
from proxy.wire.signing import AUTH_HEADER, sign_parameters
from proxy.workers.worker import Role

if TYPE_CHECKING:
    from proxy.lifecycle.passage import Passage
    from proxy.wire.handoff import ContextAnswer
    from proxy.workers.worker import Worker

Leg = tuple[Sequence[JSONBytes], bytes]
"""Body, in pieces, and encoded header lines."""


class GenerationLegs(Protocol):
    """Makes one request's generation leg for whichever worker is chosen.

    Attributes:
        near: the worker that ran the context leg: never chosen, but its domain is preferred.
    """

    near: Worker | None

    def make(self, worker: Worker) -> Leg:
        """The leg for a worker."""
        ...

    @property
    def context_lost(self) -> LegFault | None:
        """Why the KV may be gone although no generation worker has taken it, or None."""
        ...

    def abandon(self) -> None:
        """No worker has got the leg and none will."""
        ...

    def lose(self) -> None:
        """A worker has got the leg and failed: nobody knows what it has done."""
        ...


class HandedOff:
    """The ordinary leg: the context worker holds KV until a generation worker has pulled it."""

    def __init__(self, passage: Passage, hand_off: ContextAnswer) -> None:
        self.near = near = passage.record.context_worker
        self._passage = passage
        self._hand_off = hand_off
        self._ended_before = near.pool.ended_by_worker if near else 0
        passage.record.disagg_request_id = hand_off.request_id

    def make(self, worker: Worker) -> Leg:
        """See `GenerationLegs`.

        Raises:
            BrokenAnswer: the hand-off has the right members but not in the right form.
        """
        passage = self._passage
        body, headers, parameters = self._leg(worker, passage.request.members)
        passage.rewriters = choose_rewriters(passage, self._hand_off, parameters)
        return body, headers

    @property
    def context_lost(self) -> LegFault | None:
        """See `GenerationLegs`. The connection that brought the hand-off was idle since: a worker that dies ends it."""
        near = self.near
        if near is None or (not near.health.unreachable and near.pool.ended_by_worker == self._ended_before):
            return None
        fault = ConnectionBroken("the context worker has gone", retry=Retry.NEVER)
        fault.source = Source.CONTEXT
        return fault

    def abandon(self) -> None:
        """Hand the KV over to nobody: see `proxy.lifecycle.orphans`."""
        passage = self._passage
        orphans = passage.service.orphans
        if passage.service.settings.proxy.on_disconnect_after_prefill == "drop":
            orphans.drop()
            return
        members = {name: value for name, value in passage.request.members.items() if name != "stream_options"}
        members["stream"] = msgspec.Raw(b"true")
        orphans.drain(
            passage.pool(Role.GENERATION),
            (self.near.address,) if self.near else (),
            passage.target,
            lambda worker: self._leg(worker, members)[:2],
        )

    def lose(self) -> None:
        """Count the hand-off, which may have been taken or not."""
        self._passage.service.orphans.lose()

    def _leg(
        self, worker: Worker, members: Members
    ) -> tuple[Sequence[JSONBytes], bytes, Mapping[str, JSONBytes]]:
        service, request, hand_off = self._passage.service, self._passage.request, self._hand_off
        accepted = service.accepted(worker)
        key = service.settings.internal_request_auth_key
        try:
            parameters = generation_parameters(hand_off, accepted, conversation=request.conversation)
            body = generation_body(
                members,
                hand_off,
                parameters,
                chat=request.chat,
                last_message=self._only_message(members),
                base64_ids=accepted.base64_ids,
                without=service.withheld(worker, request),
            )
            signature = sign_parameters(key, parameters) if key is not None else None
        except BrokenHandOff as error:
            fault = BrokenAnswer(str(error))
            fault.source = Source.CONTEXT
            raise fault from None
        if signature is None:
            return body, self._passage.headers, parameters
        return body, self._passage.headers + b"%b: %b\r\n" % (AUTH_HEADER, signature), parameters

    def _only_message(self, members: Members) -> msgspec.Raw | None:
        """The message to which the history is cut, if it may be cut."""
        service, request = self._passage.service, self._passage.request
        wanted = service.settings.gen_strip_message_history and request.chat
        if not wanted or self._hand_off.token_ids is None or service.is_harmony(request):
            return None
        return last_message(members)


class Aggregated:
    """No hand-off: the generation worker prefills by itself (`fallback_aggregated`)."""

    near: Worker | None = None
    context_lost: LegFault | None = None

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        passage.record.bypass = "context_down"

    def make(self, worker: Worker) -> Leg:
        """See `GenerationLegs`."""
        self._passage.stamp()
        self._passage.rewriters = choose_rewriters(self._passage, None)
        withheld = self._passage.service.withheld(worker, self._passage.request)
        members = self._passage.request.members
        if withheld:
            members = {name: value for name, value in members.items() if name not in withheld}
        return (join_object(members),), self._passage.headers

    def abandon(self) -> None:
        """Nothing is held anywhere."""

    lose = abandon


class GenerationOnly:
    """A hand-off of nothing, to measure generation workers alone (`TRTLLM_DISAGG_BENCHMARK_GEN_ONLY`)."""

    near: Worker | None = None
    context_lost: LegFault | None = None
    _PARAMETERS = msgspec.Raw(b'{"request_type":"generation_only","first_gen_tokens":[7],"ctx_request_id":1}')

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        passage.record.bypass = "benchmark"

    def make(self, worker: Worker) -> Leg:
        """See `GenerationLegs`."""
        self._passage.stamp()
        self._passage.rewriters = choose_rewriters(self._passage, None)
        members = {
            **self._passage.request.members,
            "ignore_eos": msgspec.Raw(b"true"),
            "disaggregated_params": self._PARAMETERS,
        }
        return (join_object(members),), self._passage.headers

    def abandon(self) -> None:
        """Nothing is held anywhere."""

    lose = abandon
