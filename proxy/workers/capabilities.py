"""What each worker accepts on the wire, how the proxy knows, and what all of them have in common.

The set of accepted members differs between versions of TensorRT-LLM and one unknown member is a 400, so the proxy asks:

1. the worker's `/openapi.json`: exact
2. else its `/version`, and the built-in tables
3. else the keys of the first `disaggregated_params` that it returns: workers write all keys that they know
4. and if it still refuses a member that the proxy added, that one is never sent to it again

`proxy.worker_version` other than `auto` replaces the first three. A worker that comes back is asked again: it may be
another version.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from proxy.wire.fields.accepted import ACCEPTED, WITHOUT_EFFECT, Accepted, common
from proxy.wire.fields.policy import FieldPolicy, Options
from proxy.wire.fields.refusals import refused_members
from proxy.wire.fields.routes import Routes, read_routes
from proxy.wire.fields.schema import read_parameter_names, read_schema
from proxy.wire.versions import WorkerVersion

if TYPE_CHECKING:
    from proxy.config.settings import ProxySettings
    from proxy.workers.instance import Instance

_logger = logging.getLogger("proxy.workers")

SCHEMA_PATH = b"/openapi.json"
LONGEST_SCHEMA = 8 * 1024 * 1024
"""Bytes. FastAPI writes out every variant of a message, which makes hundreds of kilobytes."""

_NOTHING: frozenset[str] = frozenset()

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?rc(\d+))?")
_RELEASE = 10_000  # a release comes after its candidates

SINCE: tuple[tuple[tuple[int, int, int, int], WorkerVersion], ...] = (
    # parallel_tool_calls (TRT#19459, merged on 2026-09-20), resolved_thinking
    ((1, 3, 0, 30), WorkerVersion.NEW),
    # conversation_params, base64 ids (TRT#15698)
    ((1, 3, 0, 24), WorkerVersion.JUL),
)
"""First version of each generation, newest first: (major, minor, patch, release candidate)."""


_KINDS: dict[Accepted, Accepted] = {each: each for each in ACCEPTED.values()}


class Known(StrEnum):
    """How it is known what a worker accepts."""

    CONFIGURED = "configured"
    SCHEMA = "schema"
    VERSION = "version"
    ANSWER = "answer"
    ASSUMED = "assumed"
    """Not at all: what every version accepts is assumed."""


class Source(Protocol):
    """Asks a worker; `proxy.workers.ping.Pinger`."""

    async def document(self, path: bytes, longest: int) -> bytes | None:
        """The body of a GET that was answered with 200 within the time of a probe, or None. Never raises."""
        ...


class Capabilities:
    """Those of one worker.

    Args:
        fixed: from the configuration; None to find out.
        changed: called after every change.

    Attributes:
        routes: that it has, None if it does not tell them.
    """

    __slots__ = ("_changed", "_refused", "accepted", "known", "routes")

    def __init__(
        self, fixed: WorkerVersion | None = None, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._changed = changed
        self._refused: set[tuple[str, ...]] = set()
        self.routes: Routes | None = None
        self.accepted = ACCEPTED[fixed or WorkerVersion.OLD]
        self.known = Known.ASSUMED if fixed is None else Known.CONFIGURED

    async def look_up(self, source: Source, version: str | None) -> None:
        """Ask a worker that has become healthy; never raises (but can be cancelled).

        Args:
            source: to ask.
            version: what it answered to `/version`, if it did.
        """
        document = await source.document(SCHEMA_PATH, LONGEST_SCHEMA)
        self.routes = None if document is None else read_routes(document)
        if self.known is Known.CONFIGURED:
            return
        self.told(None if document is None else read_schema(document), version)

    def told(self, accepted: Accepted | None, version: str | None) -> None:
        """Take over what a worker says of itself; what was learnt about its predecessor is forgotten.

        Args:
            accepted: from its schema, or None.
            version: from `/version`, or None.
        """
        generation = generation_of(version)
        if accepted is not None:
            self._set(accepted, Known.SCHEMA)
        elif generation is not None:
            self._set(ACCEPTED[generation], Known.VERSION)
        else:
            self._set(ACCEPTED[WorkerVersion.OLD], Known.ASSUMED)

    @property
    def learns(self) -> bool:
        """Whether `answered` would say something new."""
        return self.known is Known.ASSUMED or self.known is Known.VERSION

    def answered(self, parameters: Iterable[str]) -> None:
        """A context answer has come with these keys in its `disaggregated_params`."""
        if self.learns:
            self._set(read_parameter_names(frozenset(parameters)), Known.ANSWER)

    def refused(self, body: bytes, *, chat: bool) -> bool:
        """Learn from the body of a 400; whether there was something to learn, so that the leg is worth another try."""
        new = [path for path in refused_members(body) if path not in self._refused]
        accepted = self.accepted
        for path in new:
            self._refused.add(path)
            accepted = accepted.without(path, chat=chat)
        if accepted == self.accepted:
            return False
        _logger.warning("workers refuse %s: it is left out from now on", ", ".join(map(".".join, new)))
        self._set(accepted, self.known, forget=False)
        return True

    def follow(self, other: Capabilities) -> None:
        """Believe what another worker of the same kind has taught."""
        self._set(other.accepted, self.known, forget=False)

    def _set(self, accepted: Accepted, known: Known, *, forget: bool = True) -> None:
        if forget:
            self._refused.clear()
        self.known = known
        if accepted != self.accepted:
            # One object for all workers of a kind, so that they are told apart by identity.
            self.accepted = _KINDS.setdefault(accepted, accepted)
            self._changed()


class PoolCapabilities:
    """Those of all workers together, and the field policies that follow from them.

    A member without effect on the answer is kept when some worker accepts it and left out of the legs of the others;
    any other one must be accepted by all of them: a request's meaning must not depend on where it is placed.

    Args:
        fixed: from the configuration; None to find out.
        options: of the field policies.
    """

    def __init__(self, fixed: WorkerVersion | None, options: Options) -> None:
        self._fixed = fixed
        self._options = options
        self._instances: Callable[[], Sequence[Instance]] = tuple
        self._common: Accepted | None = None
        self._policies: dict[bool, FieldPolicy] = {}
        self._withheld: dict[tuple[int, bool], frozenset[str]] = {}

    def watch(self, instances: Callable[[], Sequence[Instance]]) -> None:
        """Say where the workers are to be found."""
        self._instances = instances

    def of_new_worker(self) -> Capabilities:
        """For a worker that has been listed."""
        self.changed()
        return Capabilities(self._fixed, self.changed)

    def changed(self) -> None:
        """A worker came, went, or is known better: what follows from it is found out again when it is needed."""
        self._common = None
        self._policies.clear()
        self._withheld.clear()

    @property
    def common(self) -> Accepted:
        """What all workers accept."""
        if self._common is None:
            found = self._found()
            self._common = common(found) if found else ACCEPTED[self._fixed or WorkerVersion.OLD]
        return self._common

    @property
    def base64_ids(self) -> bool:
        """Whether token ids can travel in base64: context workers must know the request, generation workers the ids."""
        accepted = self.common
        return accepted.base64_ids and "return_prompt_token_ids_b64" in accepted.parameters

    def policy(self, *, chat: bool) -> FieldPolicy:
        """The field rules of a route."""
        policy = self._policies.get(chat)
        if policy is None:
            some = frozenset().union(*(each.of_route(chat=chat) for each in self._found()))
            policy = self._policies[chat] = FieldPolicy(
                self.common, chat=chat, options=self._options, some=some & WITHOUT_EFFECT
            )
        return policy

    def withheld(self, instance: Instance, *, chat: bool) -> frozenset[str]:
        """Members that the policy may have kept for others and this worker does not accept."""
        if self._options.dialect != "trtllm":
            return _NOTHING
        accepted = instance.capabilities.accepted
        key = (id(accepted), chat)
        names = self._withheld.get(key)
        if names is None:
            names = self._withheld[key] = WITHOUT_EFFECT - accepted.of_route(chat=chat)
        return names

    def answered(self, instance: Instance, parameters: Iterable[str]) -> None:
        """Learn from a context answer, for this worker and for those that nothing is known of."""
        if not instance.capabilities.learns:
            return
        names = frozenset(parameters)
        for each in self._instances():
            if each is instance or each.capabilities.known is Known.ASSUMED:
                each.capabilities.answered(names)

    def refused(self, instance: Instance, body: bytes, *, chat: bool) -> bool:
        """Learn from a worker's 400, for it and for those that are believed to be like it; whether there was
        something to learn."""
        before = instance.capabilities.accepted
        if not instance.capabilities.refused(body, chat=chat):
            return False
        for each in self._instances():
            if each is not instance and each.capabilities.accepted == before:
                each.capabilities.follow(instance.capabilities)
        return True

    def _found(self) -> list[Accepted]:
        all_known = [each.capabilities for each in self._instances()]
        known = [each for each in all_known if each.known is not Known.ASSUMED]
        return [each.accepted for each in known or all_known]


def field_options(proxy: ProxySettings) -> Options:
    """What the configuration says about fields."""
    return Options(
        dialect=proxy.worker_dialect,
        unknown=proxy.unknown_fields,
        accept_prompt_token_ids=proxy.accept_prompt_token_ids,
        developer_as_system=frozenset(proxy.developer_as_system),
        rules=proxy.field_rules,
    )


def generation_of(version: str | None) -> WorkerVersion | None:
    """The generation that a version string of TensorRT-LLM belongs to, None when it cannot be read."""
    found = _VERSION.match(version) if version is not None else None
    if found is None:
        return None
    major, minor, patch, candidate = found.groups()
    number = int(major), int(minor), int(patch or 0), int(candidate) if candidate else _RELEASE
    return next((generation for since, generation in SINCE if number >= since), WorkerVersion.OLD)
