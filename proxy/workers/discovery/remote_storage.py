"""The workers that have registered in the cluster storage of a proxy that runs already: for `disagg-proxy check`."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Sequence

import httpx
import msgspec

from proxy.config.discovery.entry import DISAGG_CLUSTER
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.registration import RegisteredWorkers, worker_prefix
from proxy.workers.discovery.source import SourceLost

_SECONDS = 5.0


class _Answer(msgspec.Struct):
    result: dict[str, str]


class RemoteStorageSource:
    """See `proxy.workers.discovery.source.Source`. Tells one list.

    Args:
        uri: of the storage, `http(s)://host:port`.
        cluster_name: of `disagg_cluster`.
        key: bearer token, None if none is needed.
    """

    name = DISAGG_CLUSTER
    longest_pause = 1.0

    def __init__(self, uri: str, cluster_name: str, key: str | None = None) -> None:
        self._uri = uri.rstrip("/")
        self._prefix = worker_prefix(cluster_name)
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}

    async def changes(self) -> AsyncGenerator[Sequence[ListedWorker], None]:
        """See `Source`."""
        tls = ssl.create_default_context() if self._uri.startswith("https:") else None
        async with httpx.AsyncClient(
            verify=tls or False, timeout=_SECONDS, headers=self._headers, trust_env=False
        ) as client:
            try:
                answer = await client.get(f"{self._uri}/get_prefix", params={"key_prefix": self._prefix})
                values = msgspec.json.decode(answer.content, type=_Answer).result
            except httpx.HTTPError as error:
                problem = str(error) or type(error).__name__
                raise SourceLost(f"the proxy at {self._uri} does not answer: {problem}") from None
            except msgspec.DecodeError:
                problem = f"status {answer.status_code}"
                raise SourceLost(f"the proxy at {self._uri} does not tell: {problem}") from None
        yield RegisteredWorkers().listed(values)
