"""Every internal of uvicorn that we use, override or replace.

A failure here after an upgrade names what to look at; `proxy/downstream` says why it is used.
"""

import asyncio
import inspect
from typing import Any

import httptools
import pytest
import uvicorn
import uvicorn.server
from fake_transport import FakeTransport
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from proxy.downstream.protocol import RelayProtocol
from proxy.downstream.server import ProxyServer

LOOK = "uvicorn has changed: see proxy/downstream/{}"


def names(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise NotImplementedError


@pytest.fixture
async def parent() -> HttpToolsProtocol:
    """The parent class as uvicorn makes it."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    return HttpToolsProtocol(config=config, server_state=ServerState(), app_state={"a": 1}, _loop=None)


def test_the_version_is_the_one_that_was_read() -> None:
    assert uvicorn.__version__.startswith("0.54."), (
        "read the new httptools_impl.py and server.py, then move the pin"
    )


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("__init__", ["self", "config", "server_state", "app_state", "_loop"]),
        ("connection_made", ["self", "transport"]),
        ("connection_lost", ["self", "exc"]),
        ("data_received", ["self", "data"]),
        ("eof_received", ["self"]),
        ("pause_writing", ["self"]),
        ("resume_writing", ["self"]),
        ("shutdown", ["self"]),
        ("send_400_response", ["self", "msg"]),
        ("timeout_keep_alive_handler", ["self"]),
        ("on_message_begin", ["self"]),
        ("on_url", ["self", "url"]),
        ("on_header", ["self", "name", "value"]),
        ("on_headers_complete", ["self"]),
        ("on_body", ["self", "body"]),
        ("on_message_complete", ["self"]),
        ("_unset_keepalive_if_required", ["self"]),
    ],
)
def test_methods_that_are_overridden_or_inherited(method: str, parameters: list[str]) -> None:
    inherited = getattr(HttpToolsProtocol, method, None)
    assert inherited is not None, LOOK.format(f"protocol.py ({method} is gone)")
    assert names(inherited) == parameters, LOOK.format(f"protocol.py ({method})")
    assert names(getattr(RelayProtocol, method)) == parameters


def test_there_is_no_method_that_we_do_not_know() -> None:
    """A new callback of the parser or the transport would run code of the parent's that we have replaced."""
    known = {
        *(
            "connection_made",
            "connection_lost",
            "data_received",
            "eof_received",
            "pause_writing",
            "resume_writing",
        ),
        *("on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body", "on_message_complete"),
        *("shutdown", "send_400_response", "timeout_keep_alive_handler", "_unset_keepalive_if_required"),
        # Called only by methods that we override.
        *("_get_upgrade", "_should_upgrade_to_ws", "_unsupported_upgrade_warning", "_should_upgrade"),
        *("handle_websocket_upgrade", "_start_asgi_task", "on_response_complete"),
    }
    found = {name for name, value in vars(HttpToolsProtocol).items() if inspect.isfunction(value)} - {
        "__init__"
    }
    assert found == known, LOOK.format("protocol.py")


async def test_attributes_that_the_constructor_sets(parent: HttpToolsProtocol) -> None:
    assert parent.app is not None, LOOK.format("protocol.py (app)")
    assert parent.loop is asyncio.get_running_loop()
    assert parent.connections is parent.server_state.connections
    assert parent.tasks is parent.server_state.tasks
    assert parent.timeout_keep_alive == parent.config.timeout_keep_alive
    assert parent.timeout_keep_alive_task is None
    assert parent.root_path == ""
    assert parent.asgi_version == "3.0"
    assert parent.app_state == {"a": 1}
    assert hasattr(parent, "__dict__"), "a subclass must be able to add attributes"


async def test_what_the_parser_callbacks_leave_behind(parent: HttpToolsProtocol) -> None:
    parent.connection_made(FakeTransport(parent))  # type: ignore[arg-type]
    parent.on_message_begin()
    parent.on_url(b"/a")
    parent.on_url(b"b")
    parent.on_header(b"Expect", b"100-Continue")
    parent.on_header(b"X-A", b"1")
    scope: dict[str, Any] = dict(parent.scope)
    assert parent.url == b"/ab"
    assert parent.expect_100_continue is True
    assert parent.headers == [(b"expect", b"100-Continue"), (b"x-a", b"1")]
    assert scope.pop("headers") is parent.headers
    assert scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 50000),
        "scheme": "http",
        "root_path": "",
        "state": {"a": 1},
    }, LOOK.format("protocol.py (_fill_scope adds method, path, raw_path, query_string and replaces asgi)")
    assert scope["state"] is not parent.app_state


async def test_the_keep_alive_timer_is_cancelled_by_the_inherited_method(parent: HttpToolsProtocol) -> None:
    timer = parent.timeout_keep_alive_task = asyncio.get_running_loop().call_later(60, print)
    parent._unset_keepalive_if_required()
    assert timer.cancelled()
    assert parent.timeout_keep_alive_task is None


async def test_flow_control(parent: HttpToolsProtocol) -> None:
    transport = FakeTransport(parent)
    flow = FlowControl(transport)
    assert (flow.read_paused, flow.write_paused) == (False, False), LOOK.format("protocol.py (flow)")
    flow.pause_reading()
    assert not transport.reading
    flow.resume_reading()
    assert transport.reading
    flow.pause_writing()
    assert flow.write_paused
    waiting = asyncio.create_task(flow.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    flow.resume_writing()
    await waiting


def test_status_lines() -> None:
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n", LOOK.format("cycle.py (_encode_head)")
    assert STATUS_LINE[599] == b"HTTP/1.1 599 \r\n"
    assert set(range(100, 600)) == STATUS_LINE.keys(), "proxy/upstream/head.py lets workers use these"


async def test_addresses(parent: HttpToolsProtocol) -> None:
    transport = FakeTransport(parent)
    assert get_local_addr(transport) == ("127.0.0.1", 8000)
    assert get_remote_addr(transport) == ("127.0.0.1", 50000)
    assert is_ssl(transport) is False


def test_server_state() -> None:
    state = ServerState()
    assert vars(state).keys() == {"total_requests", "connections", "tasks", "default_headers"}, LOOK.format(
        "server.py"
    )
    assert state.default_headers == []
    assert hash(state) is not None, "servers that stop are kept in a set"


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("__init__", ["self", "config"]),
        ("serve", ["self", "sockets"]),
        ("shutdown", ["self", "sockets"]),
        ("capture_signals", ["self"]),
    ],
)
def test_server_methods(method: str, parameters: list[str]) -> None:
    assert names(getattr(uvicorn.Server, method)) == parameters, LOOK.format("server.py")
    if method != "__init__":
        assert names(getattr(ProxyServer, method)) == parameters


def test_how_the_server_calls_what_we_override() -> None:
    serve = inspect.getsource(uvicorn.Server.serve) + inspect.getsource(uvicorn.Server._serve)
    for call in ("with self.capture_signals():", "await self.shutdown(sockets=sockets)", "self.lifespan ="):
        assert call in serve, LOOK.format(f"server.py ({call})")
    startup = inspect.getsource(uvicorn.Server.startup)
    for part in (
        "config.http_protocol_class(",
        "app_state=self.lifespan.state",
        "_loop=_loop",
        "self.servers =",
    ):
        assert part in startup, LOOK.format(f"server.py ({part})")
    tick = inspect.getsource(uvicorn.Server.on_tick)
    assert "self.server_state.default_headers = " in tick, "the date's list must be replaced, not changed"
    assert "if self.should_exit:" in tick
    assert vars(uvicorn.Server(uvicorn.Config(app))).keys() >= {
        "config",
        "server_state",
        "started",
        "should_exit",
    }


def test_the_options_that_we_set_exist() -> None:
    options = {
        *(
            "app",
            "host",
            "port",
            "loop",
            "http",
            "ws",
            "lifespan",
            "log_config",
            "access_log",
            "server_header",
        ),
        *("timeout_keep_alive", "root_path", "backlog", "date_header"),
        *("ssl_certfile", "ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs", "ssl_cert_reqs"),
    }
    assert options <= set(names(uvicorn.Config.__init__)), LOOK.format("server.py (server_config)")


def test_a_class_can_be_given_as_the_protocol() -> None:
    config = uvicorn.Config(app, http=RelayProtocol, log_config=None)
    config.load()
    assert config.http_protocol_class is RelayProtocol
    assert {"loaded_app", "http_protocol_class", "ssl"} <= set(dir(config))


def test_httptools() -> None:
    """Requests' heads are parsed alone: the parser must report all of them and not wait for bodies."""
    seen: list[Any] = []

    class Callbacks:
        def on_message_begin(self) -> None:
            seen.append("begin")

        def on_url(self, url: bytes) -> None:
            seen.append(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            seen.append((name, value))

        def on_headers_complete(self) -> None:
            seen.append("headers")

    parser = httptools.HttpRequestParser(Callbacks())
    parser.feed_data(b"POST /a HTTP/1.1\r\nA: b\r\ncontent-length: 5\r\n\r\n")
    assert seen == ["begin", b"/a", (b"A", b"b"), (b"content-length", b"5"), "headers"]
    assert (parser.get_http_version(), parser.get_method()) == ("1.1", b"POST")
    with pytest.raises(httptools.HttpParserUpgrade):
        httptools.HttpRequestParser(Callbacks()).feed_data(
            b"GET / HTTP/1.1\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
        )
    assert issubclass(httptools.HttpParserInvalidURLError, httptools.HttpParserError)
    assert httptools_impl.httptools is httptools
