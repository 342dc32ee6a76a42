"""One simulated worker: its state, its counts, its life."""

import asyncio
import itertools
import time
from collections import Counter, deque
from email.utils import formatdate
from functools import partial
from typing import Any, Literal

from uvicorn.config import Config
from uvicorn.server import ServerState

from proxy.sim.application import Application
from proxy.sim.blocks import BlockCache
from proxy.sim.connection import ConnectionCounts, SimProtocol
from proxy.sim.engine import Engine
from proxy.sim.faults import Fault, FaultBoard, FaultLike
from proxy.sim.handover import ContextAddress, KvReach
from proxy.sim.inference import Inference
from proxy.sim.kv import KvRegistry
from proxy.sim.listener import Listener
from proxy.sim.perf import metrics_record
from proxy.sim.profiles import PROFILES
from proxy.sim.recorded import RecordedRequest
from proxy.sim.registration import Registration
from proxy.sim.settings import WorkerSettings
from proxy.sim.tokens import continued_ids, unpack_ids
from proxy.sim.validation import Validator

Role = Literal["context", "generation"]

MOST_METRICS = 1000  # `perf_metrics_max_requests`
STOP_SECONDS = 5.0
ANSWER_SECONDS = 0.01  # what an answer to a control request needs to leave


class SimWorker:
    """A worker on a real socket, in the running event loop.

    ``role`` says which list of the proxy's configuration it belongs to; as with the real one, each request
    chooses its leg by itself.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        settings: WorkerSettings,
        kv: KvRegistry,
        *,
        reach: KvReach | None = None,
        siblings: dict[str, "SimWorker"] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str | None = None,
    ) -> None:
        self.name = name
        self.role = role
        self.settings = settings
        self.profile = PROFILES[settings.profile]
        self.validator = Validator(self.profile)
        self.prompt_ids = settings.prompt_ids or (continued_ids if self.profile.tells_ids else None)
        self.kv = kv
        self.reach = reach or KvReach(kv)
        self.siblings = siblings if siblings is not None else {name: self}
        self.board = FaultBoard(settings.faults)
        self.engine = Engine(settings.speed)
        self.connections = ConnectionCounts()
        self.control_calls: list[RecordedRequest] = []
        self.released_memory: set[str] = set()
        self.requests: deque[RecordedRequest] = deque(maxlen=settings.record)
        self.legs: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.metrics: deque[dict[str, Any]] = deque(maxlen=MOST_METRICS)
        self.clock_offset = 0.0
        self.blocks = (
            BlockCache(settings.tokens_per_block, settings.hash_algorithm) if settings.kv_events else None
        )
        self._engine_ids = itertools.count(1)
        self._where = (host, port, path)
        self._state = ServerState()
        self._listener: Listener | None = None
        self.registration: Registration | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """``host:port`` or ``unix:/path``; known after `start`."""
        if self._listener is None:
            raise RuntimeError("the worker has not been started")
        return self._listener.address

    @property
    def url(self) -> str:
        """``http://host:port``."""
        return f"http://{self.address}"

    @property
    def context_address(self) -> ContextAddress:
        """How generation workers find this one."""
        return ContextAddress(self.name, self.address)

    @property
    def has_metrics(self) -> bool:
        """Whether answers carry performance metrics when asked."""
        return self.settings.perf_metrics and self.profile.perf_metrics

    def now(self) -> float:
        """The steady clock, seconds."""
        return time.monotonic()

    def next_engine_id(self) -> int:
        """A worker-local request id."""
        return next(self._engine_ids)

    def cached_tokens(self, inference: Inference) -> int:
        """How many prompt tokens were cached: true with KV events, else 0."""
        if self.blocks is None:
            return 0
        salt = inference.body.get("cache_salt")
        return sum(self.blocks.add(unpack_ids(prompt), salt) for prompt in inference.prompts)

    def note_metrics(self, inference: Inference) -> None:
        """Keep a record for ``GET /perf_metrics``."""
        if self.settings.perf_metrics:
            self.metrics.append(metrics_record(self.next_engine_id(), inference, self.clock_offset))

    async def start(self) -> None:
        """Listen, unless the fault ``refuse`` is on."""
        loop = self._loop = asyncio.get_running_loop()
        config = Config(
            Application(self),
            loop="none",
            http=SimProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        config.load()
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode()), (b"server", b"uvicorn")]
        factory = partial(
            SimProtocol,
            config,
            self._state,
            {},
            loop,
            board=self.board,
            counts=self.connections,
            keep_alive_seconds=self.settings.keep_alive_seconds,
        )
        host, port, path = self._where
        self._listener = Listener(factory, host, port, path)
        self.kv.register(self.name)
        for fault in self.board.faults:
            self._end_later(fault)
        await self.sync_listener()
        if self.settings.registration is not None:
            self.registration = Registration(self.settings.registration, self.role, self.address)
            self.registration.start()

    async def stop(self) -> None:
        """Deregister, refuse connections, end the open ones, wait for the running requests."""
        if self.registration is not None:
            await self.registration.stop()
        for timer in self._timers:
            timer.cancel()
        if self._listener is not None:
            self._listener.release()
        self.drop_connections()
        running = {*self._state.tasks, *self._tasks}
        if running:
            _, late = await asyncio.wait(running, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
        self.engine.stop()
        # Closed transports tell their protocols in the loop's next turn.
        await asyncio.sleep(0)

    def drop_connections(self) -> None:
        """Reset each open connection."""
        for connection in list(self._state.connections):
            if isinstance(connection, SimProtocol):
                connection.reset()

    async def refuse(self) -> None:
        """Play dead: refuse connections and reset the open ones, until `accept`."""
        self.board.add({"kind": "refuse"})
        await self.sync_listener()

    async def accept(self) -> None:
        """End `refuse`."""
        self.board.clear("refuse")
        await self.sync_listener()

    async def crash(self) -> None:
        """As `refuse`, and the cluster storage hears no more, until `restart`."""
        if self.registration is not None:
            await self.registration.crash()
        await self.refuse()

    async def restart(self) -> None:
        """End `crash`; the worker registers as a new process does."""
        await self.accept()
        if self.registration is not None:
            self.registration.start()

    async def sync_listener(self) -> None:
        """Open or close the listener as the fault ``refuse`` says."""
        if self._listener is None:
            return
        if self.board.has("refuse"):
            self._listener.close()
            self.drop_connections()
        else:
            await self._listener.open()

    def add_fault(self, fault: FaultLike | None = None, /, **fields: Any) -> Fault:
        """Switch a fault on: ``add_fault(kind="status", status=503, count=2)``. Callable from any thread."""
        added = self.board.add(fields if fault is None else fault)
        self._on_loop(self._end_later, added)
        if added.kind == "refuse":
            self._on_loop(self._sync_soon)
        return added

    def clear_faults(self, kind: str | None = None) -> None:
        """Switch all faults off, or those of a kind. Callable from any thread."""
        self.board.clear(kind)
        self._on_loop(self._spawn_sync)

    def clear_records(self) -> None:
        """Forget the recorded requests and the counts of legs and statuses."""
        self.requests.clear()
        self.control_calls.clear()
        self.legs.clear()
        self.statuses.clear()

    def _on_loop(self, call: Any, *arguments: Any) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call, *arguments)

    def _sync_soon(self) -> None:
        # The answer to the request that has asked for it must get out first.
        if self._loop is not None:
            self._timers.append(self._loop.call_later(ANSWER_SECONDS, self._spawn_sync))

    def _spawn_sync(self) -> None:
        if self._loop is not None:
            task = self._loop.create_task(self.sync_listener())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _end_later(self, fault: Fault) -> None:
        # For the other kinds `seconds` is a delay within an answer.
        if fault.kind in ("refuse", "starting") and fault.seconds is not None and self._loop is not None:
            self._timers.append(self._loop.call_later(fault.seconds, self._end, fault))

    def _end(self, fault: Fault) -> None:
        self.board.remove(fault)
        self._spawn_sync()

    def stats(self) -> dict[str, Any]:
        """The counts of ``GET /sim/stats``."""
        return {
            "name": self.name,
            "role": self.role,
            "profile": self.profile.name,
            "requests": {
                "context": self.legs["context"],
                "generation": self.legs["generation"],
                "aggregated": self.legs["aggregated"],
                "total": self.legs.total(),
            },
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "running": self.engine.running,
            "waiting": self.engine.waiting,
            "max_running": self.engine.max_running,
            "aborts": self.engine.aborts,
            "kv": self.kv.counts(self.name).as_dict(),
            "connections": {
                "open": self.connections.open,
                "total": self.connections.total,
                "max_open": self.connections.max_open,
            },
        }
