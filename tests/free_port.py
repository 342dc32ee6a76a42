"""A port that nobody uses at the moment."""

import socket


def free_port() -> int:
    """Below the ephemeral range, so that no connection of another test gets it meanwhile."""
    for port in range(20_000, 30_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")
