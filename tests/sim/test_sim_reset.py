"""A reset that comes too late."""

import asyncio
import socket
from typing import Any

from proxy.sim.connection import SimProtocol


class Gone(asyncio.Transport):
    """Its client has closed first."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self._socket = socket.socket()
        self._socket.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" else default

    def abort(self) -> None:
        self.aborted = True


def test_a_connection_that_is_gone_already() -> None:
    connection = SimProtocol.__new__(SimProtocol)
    connection.transport = Gone()
    connection.reset()
    assert connection.transport.aborted
