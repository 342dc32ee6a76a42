"""What TensorRT-LLM workers write into their cluster storage about themselves, in either flavour."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from proxy.config.address import parse_worker_address
from proxy.config.listed_worker import ListedWorker, RoleName

_logger = logging.getLogger("proxy.workers")

WORKER_ID_LABEL = "worker_id"
"""The label of a `ListedWorker` that holds its `worker_id`."""

ROLE_NUMBERS: dict[RoleName, int] = {"context": 0, "generation": 1}
"""`ServerRole`; the others (encoders, image generators) take part in no leg."""

_ROLES = {number: role for role, number in ROLE_NUMBERS.items()}
# Addresses to listen on, not to connect to.
_ANY_HOST = frozenset({"0.0.0.0", "::", ""})  # noqa: S104


class _WorkerInfo(msgspec.Struct):
    worker_id: str
    host: str
    port: int
    role: int


_decoder = msgspec.json.Decoder(_WorkerInfo)


def worker_prefix(cluster_name: str) -> str:
    """Where the workers' keys begin; the rest of a key is the worker's id."""
    return f"/trtllm-disagg/{cluster_name}/workers/"


class RegisteredWorkers:
    """Turns keys and values into a worker list; what cannot be read is told once and left out."""

    def __init__(self) -> None:
        self._values: Mapping[str, str] = {}
        self._listed: tuple[ListedWorker, ...] = ()
        self._told: set[str] = set()

    def listed(self, values: Mapping[str, str]) -> tuple[ListedWorker, ...]:
        """The workers, context workers first. One that has registered twice, as after a crash, is listed once.

        Args:
            values: key -> JSON of `worker_id`, `host`, `port` and `role`.
        """
        if values != self._values:  # usually they are only confirmed
            self._values = values
            self._listed = self._read_all(values)
        return self._listed

    def _read_all(self, values: Mapping[str, str]) -> tuple[ListedWorker, ...]:
        self._told &= values.keys()
        found: dict[tuple[RoleName, str], ListedWorker] = {}
        # The id contains the time of the registration: the last one stays.
        for key in sorted(values):
            worker = self._read(key, values[key])
            if worker is not None:
                found[worker.role, worker.address.text] = worker
        return tuple(found[place] for place in sorted(found))

    def _read(self, key: str, value: str) -> ListedWorker | None:
        try:
            info = _decoder.decode(value)
            role = _ROLES.get(info.role)
            if role is None:
                return None
            if info.host in _ANY_HOST:
                raise ValueError("it has registered an address that nobody can connect to")
            host = f"[{info.host}]" if ":" in info.host else info.host
            address = parse_worker_address(f"{host}:{info.port}")
        except (msgspec.DecodeError, ValueError) as error:
            if key not in self._told:
                self._told.add(key)
                _logger.error("the worker %s is ignored: %s", key, error)
            return None
        return ListedWorker(address, role, labels={WORKER_ID_LABEL: info.worker_id})
