import errno
import socket

import pytest

from proxy.fleet.listeners import Listeners


def close(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def test_sets_share_a_free_port() -> None:
    listeners = Listeners("127.0.0.1", 0)
    sets = [listeners.open() for _ in range(3)]
    assert listeners.port > 0
    assert [sock.getsockname() for sockets in sets for sock in sockets] == [("127.0.0.1", listeners.port)] * 3
    with socket.create_connection(("127.0.0.1", listeners.port)):
        pass
    for sockets in sets:
        assert not sockets[0].getblocking()
        assert not sockets[0].get_inheritable()
        close(sockets)


def test_a_set_can_be_opened_again() -> None:
    listeners = Listeners("127.0.0.1", 0)
    first, second = listeners.open(), listeners.open()
    close(first)
    first = listeners.open()
    assert first[0].getsockname()[1] == second[0].getsockname()[1]
    close(first + second)


def test_a_name_with_two_addresses() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    listeners = Listeners("localhost", 0)
    sockets = listeners.open()
    assert {sock.family for sock in sockets} >= {socket.AF_INET}
    assert {sock.getsockname()[1] for sock in sockets} == {listeners.port}
    close(sockets)


def test_a_port_in_use_is_refused_even_if_it_could_be_shared() -> None:
    first = Listeners("127.0.0.1", 0)
    sockets = first.open()
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1 port {first.port}") as caught:
        Listeners("127.0.0.1", first.port)
    assert caught.value.errno == errno.EADDRINUSE
    close(sockets)


def test_addresses_of_other_machines_are_refused() -> None:
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1"):
        Listeners("192.0.2.1", 0)
