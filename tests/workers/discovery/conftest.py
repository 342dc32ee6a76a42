from collections.abc import Iterator
from pathlib import Path

import pytest
from etcd_server import EtcdServer


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path).start()
    yield server
    server.stop()
