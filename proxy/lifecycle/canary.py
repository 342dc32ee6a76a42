"""The end-to-end canary's request: a completion of two tokens through a given pair of workers.

Two, since a context worker answers a request for one token completely by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from proxy.errors import InternalFault, ProxyError
from proxy.wire.errors import BrokenHandOff
from proxy.wire.handoff import Outcome, read_context_answer
from proxy.wire.legs import context_body, generation_body, generation_parameters
from proxy.wire.members import JSONBytes, Members, is_null
from proxy.wire.signing import AUTH_HEADER, sign_parameters

if TYPE_CHECKING:
    from proxy.lifecycle.service import Service
    from proxy.upstream.connection import Answer
    from proxy.workers.worker import Worker

_TARGET = b"/v1/completions"
_SECONDS = 30.0
_BUSY = frozenset({429, 503})
_REQUEST: dict[str, object] = {"prompt": "hi", "max_tokens": 2, "temperature": 0.0, "ignore_eos": True}


class ServiceCanary:
    """See `proxy.workers.canary.Canary`. It takes no place in the load table: two tokens are no load.

    Args:
        service: mints the ids and knows the keys.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, context: Worker, generation: Worker) -> bool:
        """Whether both workers did their part within half a minute; a busy one is not blamed. A pause is one for the
        canary too."""
        if self._service.admission.paused:
            return True
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._run(context, generation)
        except (ProxyError, BrokenHandOff, TimeoutError):
            return False

    async def _run(self, context: Worker, generation: Worker) -> bool:
        service = self._service
        models = (context.model, *context.instance.models, "canary")
        model = next(name for name in models if name is not None)
        members: Members = {
            name: msgspec.Raw(msgspec.json.encode(value))
            for name, value in {"model": model, **_REQUEST}.items()
        }
        request_id = service.request_ids.mint()
        body = context_body(members, request_id, service.accepted(context), base64_ids=False)
        own = service.registry.access.key_line
        answer = await _ask(context, body, own)
        if answer.head.status != 200:
            return answer.head.status in _BUSY
        hand_off = read_context_answer(answer.body)
        if hand_off.outcome is not Outcome.HAND_OFF:
            return True
        accepted = service.accepted(generation)
        parameters = generation_parameters(hand_off, accepted)
        pieces = generation_body(members, hand_off, parameters, chat=False, base64_ids=accepted.base64_ids)
        key = service.settings.internal_request_auth_key
        signature = sign_parameters(key, parameters) if key is not None else None
        headers = own if signature is None else b"%b%b: %b\r\n" % (own, AUTH_HEADER, signature)
        answer = await _ask(generation, pieces, headers)
        if answer.head.status != 200:
            return answer.head.status in _BUSY
        return not is_null(answer.body.strip())


async def _ask(worker: Worker, body: Sequence[JSONBytes], headers: bytes) -> Answer:
    """One exchange on a new connection, which cannot have been closed a moment ago."""
    attempt = worker.pool.connect()
    try:
        connection = await attempt.future
    except BaseException:
        attempt.give_up()
        raise
    length = sum(len(memoryview(piece)) for piece in body)
    head = b"%b%bcontent-length: %d\r\n\r\n" % (worker.request_head(_TARGET), headers, length)
    exchange = connection.send((head, *body))
    try:
        return await connection.answer()
    finally:
        connection.abort(exchange, InternalFault("the canary is over"))
