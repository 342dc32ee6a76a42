"""Serves requests for several choices by requests for one each; all others pass as they are.

Each of these requests takes both legs and has limits, retries and deadlines of its own; the client's leave ends all.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.admission.admission import Admission
from proxy.endpoints.several.choice import Choice, ChoiceFailed
from proxy.endpoints.several.merge import Stream, run_all, send_as_is, send_whole
from proxy.errors import BrokenAnswer, ClientGone, InvalidRequest, ProxyError, Source
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.middleware.body import REQUEST_BODY, RequestBody
from proxy.wire.choices import Wanted, members_for_one, wanted_choices

_ASKING = ("n", "best_of")


class SeveralChoicesMiddleware:
    """See the module's docstring.

    Args:
        app: the endpoint, which serves one choice.
        chat: chat completions, otherwise completions.
        most: choices that a request may ask for.
        admission: each choice counts as a request of the client's API key.
    """

    def __init__(self, app: ASGIApp, *, chat: bool, most: int, admission: Admission) -> None:
        self._app = app
        self._chat = chat
        self._most = most
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidField, InvalidRequest, KeyLimitReached, and what the endpoint raises: nothing has been sent.
        """
        members = scope[REQUEST_BODY].members
        if not members.keys().isdisjoint(_ASKING):
            wanted = wanted_choices(members)
            if wanted.made > 1:
                del members
                self._check(scope[RECORD].key, wanted.made)
                await self._serve(scope, send, wanted)
                return
        del members  # this frame lives as long as the answer
        await self._app(scope, receive, send)

    def _check(self, key: str, choices: int) -> None:
        """All of them or none: what the first ones had done would be lost with the last one."""
        of_key = self._admission.most_of_key(key)
        most = min(self._most, of_key) if of_key else self._most
        if choices > most:
            message = f"at most {most} choices are made for one request"
            raise InvalidRequest(message, code="unsupported_value", param="n")
        self._admission.check_key(key, choices)

    async def _serve(self, scope: Scope, send: Send, wanted: Wanted) -> None:
        record: RequestRecord = scope[RECORD]
        body: RequestBody = scope[REQUEST_BODY]
        streams = bytes(body.members.get("stream", b"")) == b"true"
        stream = Stream(send, record, wanted.made) if streams else None
        choices = [
            Choice(
                number,
                scope,
                members_for_one(body.members, number, wanted, chat=self._chat),
                None if stream is None else stream.take,
            )
            for number in range(wanted.made)
        ]
        body.members, body.priority = {}, None  # slices of the body, which they would keep alive
        try:
            if stream is None:
                await self._whole(choices, body, send, wanted, record)
            else:
                await self._streamed(choices, body, send, stream)
        finally:
            _sum_up(record, choices)

    async def _whole(
        self, choices: list[Choice], body: RequestBody, send: Send, wanted: Wanted, record: RequestRecord
    ) -> None:
        try:
            await run_all(choices, self._app, body.client)
        except ChoiceFailed as failed:
            await _answer_instead(failed, send)
        else:
            await send_whole(send, choices, wanted, record)

    async def _streamed(self, choices: list[Choice], body: RequestBody, send: Send, stream: Stream) -> None:
        try:
            await run_all(choices, self._app, body.client)
            await stream.end(choices)
        except asyncio.CancelledError:
            await stream.stop()
            raise
        except ChoiceFailed as failed:
            if not stream.begun:
                await _answer_instead(failed, send)
            elif failed.error is None and failed.choice.refusal():
                await stream.refuse(failed.choice)
            else:
                await stream.break_off(failed.error or _no_choice())
        except ClientGone:
            raise
        except ProxyError as error:
            if not stream.begun:
                raise
            await stream.break_off(error)


async def _answer_instead(failed: ChoiceFailed, send: Send) -> None:
    """What one of the choices was answered with, when that is no choice and nothing has been sent."""
    if failed.error is not None:
        raise failed.error
    choice = failed.choice
    if choice.status == 200:
        raise _no_choice()
    await send_as_is(send, choice.status, choice.headers, bytes(choice.body))


def _no_choice() -> BrokenAnswer:
    fault = BrokenAnswer("the worker's answer is not of the kind that was asked for")
    fault.source = Source.GENERATION
    return fault


def _sum_up(record: RequestRecord, choices: list[Choice]) -> None:
    """Fill the client's record: times, workers and ids of the choice that came last, the retries of all."""
    records = [choice.record for choice in choices]
    last = max(records, key=lambda each: each.generation_head or each.context_done or each.context_sent)
    record.take_over(last)
    firsts = [each.first_byte for each in records if each.first_byte]
    record.first_byte = min(firsts, default=0.0) if record.stream else perf_counter()
    record.retries = sum(each.retries for each in records)
    record.generation_retries = sum(each.generation_retries for each in records)
