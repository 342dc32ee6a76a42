"""Commands to all processes of the fleet, and their answers taken together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from proxy.errors import ProxyError
from proxy.fleet.commands import CommandFailed, MemberAnswer
from proxy.fleet.member import Member
from proxy.lifecycle.commands import ADMISSION, AdmissionStatus
from proxy.workers.discovery.discovery import DISCOVERY


class FleetIncomplete(ProxyError):
    """Not every process has carried out a command; those that could have."""

    status = 502
    default_code = "fleet_incomplete"


class FleetAdmission(msgspec.Struct, frozen=True):
    """The admission of all processes together. See `AdmissionStatus`."""

    paused: bool
    in_flight: int
    in_context: int
    queued: int
    queued_bytes: int
    orphans: int
    refused: dict[str, int]

    @property
    def idle(self) -> bool:
        """Nothing of this fleet runs on any worker."""
        return not self.in_flight and not self.orphans


async def ask(
    member: Member,
    command: str,
    arguments: Any = None,
    *,
    keep: str | None = None,
    addresses: Sequence[str] = (),
) -> list[MemberAnswer]:
    """Have every process carry out a command; an answer per process. See `Member.broadcast`.

    Raises:
        FleetIncomplete: not every process has.
    """
    answers = await ask_each(member, command, arguments, keep=keep, addresses=addresses)
    failed = [f"{answer.process}: {answer.error}" for answer in answers if answer.error is not None]
    if failed:
        raise FleetIncomplete(f"not every process has carried out {command!r} ({'; '.join(failed)})")
    return answers


async def ask_each(
    member: Member,
    command: str,
    arguments: Any = None,
    *,
    keep: str | None = None,
    addresses: Sequence[str] = (),
) -> list[MemberAnswer]:
    """As `ask`, with failures among the answers.

    Raises:
        FleetIncomplete: the supervisor cannot be reached.
    """
    try:
        return await member.broadcast(command, arguments, keep=keep, addresses=addresses)
    except CommandFailed as error:
        raise FleetIncomplete(f"the processes cannot be reached: {error}") from None


async def discovery(member: Member) -> list[dict[str, Any]]:
    """How the sources of workers are; see `proxy.workers.discovery.follower.SourceStatus`.

    Raises:
        FleetIncomplete: the supervisor did not tell.
    """
    try:
        statuses: list[dict[str, Any]] = await member.ask_central(DISCOVERY)
    except CommandFailed as error:
        raise FleetIncomplete(f"the sources of workers are not known: {error}") from None
    return statuses


async def fleet_admission(member: Member) -> FleetAdmission:
    """The present state of all processes.

    Raises:
        FleetIncomplete: one of them did not tell.
    """
    return together(await ask(member, ADMISSION))


def together(answers: list[MemberAnswer]) -> FleetAdmission:
    """Add up the answers of processes that have carried out one of the commands of `proxy.lifecycle.commands`."""
    each = [msgspec.convert(answer.result, AdmissionStatus) for answer in answers]
    refused: dict[str, int] = {}
    for status in each:
        for code, count in status.refused.items():
            refused[code] = refused.get(code, 0) + count
    return FleetAdmission(
        paused=all(status.paused for status in each),
        in_flight=sum(status.in_flight for status in each),
        in_context=sum(status.in_context for status in each),
        queued=sum(status.queued for status in each),
        queued_bytes=sum(status.queued_bytes for status in each),
        orphans=sum(status.orphans for status in each),
        refused=refused,
    )
