"""A port that nobody uses at the moment."""

import os
import socket


def port_to_come_back_to() -> int:
    """A free port for a server that is stopped and started again: meanwhile, another run of the tests that looks for a
    port begins elsewhere."""
    return free_port(20_500 + os.getpid() % 9_000)


def free_port(above: int = 19_999) -> int:
    """Below the ephemeral range, so that no connection of another test gets it meanwhile."""
    for port in range(above + 1, 30_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")
