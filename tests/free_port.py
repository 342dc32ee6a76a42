"""Ports that nobody uses at the moment."""

import itertools
import os
import socket

# Below the ephemeral range, so that no connection of another test gets one meanwhile.
_FIRST, _MANY = 20_000, 10_000
# Processes that run tests at the same time begin in different places, and go on from there: a server that is stopped
# finds its port still free when it comes back.
_turns = itertools.count(os.getpid() * 997)


def free_port(neighbours: int = 0) -> int:
    """Another one with each call, behind which so many more are free and not given out."""
    for turn in itertools.islice(_turns, _MANY):
        port = _FIRST + turn % _MANY
        if all(map(_is_free, range(port, port + neighbours + 1))):
            for _ in range(neighbours):
                next(_turns)
            return port
    raise AssertionError("no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
