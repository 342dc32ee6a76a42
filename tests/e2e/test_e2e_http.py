"""HTTP as clients speak it: old versions, pipelines, expectations, upgrades, limits."""

import json
import time

import pytest
from e2e_bodies import CHAT, answer_text, chat, completion, streamed_text
from e2e_raw import RawClient, request

from proxy.sim import expected_text

MIB = 1 << 20


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request):
    return request.param


@pytest.fixture
def client(stack):
    with RawClient(stack.port) as client:
        yield client


@pytest.fixture
def kind():
    """These are our own server's; what uvicorn does is uvicorn's business."""
    return "own"


def error_of(answer, status, code):
    got, head, body = answer
    assert got == status
    assert b"content-type: application/json" in head
    error = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == code
    return head


def check_body(body, data):
    text = streamed_text(data.decode()) if body.get("stream") else answer_text(json.loads(data))
    assert text == expected_text(body)


class TestVersions:
    def test_http_1_0(self, client, stream):
        """No chunks for such a client: the end of the connection is the end of the stream."""
        body = chat(stream=stream)
        client.send(request(body, version="1.0"))
        head, _, data = client.read_to_end().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"transfer-encoding" not in head
        check_body(body, data)

    def test_http_1_0_without_a_host(self, client):
        client.send(b"GET /health HTTP/1.0\r\n\r\n")
        assert client.read_to_end().startswith(b"HTTP/1.1 200 OK\r\n")

    @pytest.mark.parametrize("path", ["/version", "/v1/models"])
    def test_head(self, client, path):
        client.send(request(b"", method="HEAD", path=path, length=False))
        head = client.read_until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"content-length: " in head
        client.send(request(b"", method="GET", path="/version", length=False))
        assert client.read_answer()[0] == 200

    def test_connection_close(self, client, stream):
        body = chat(stream=stream)
        client.send(request(body, "connection: close"))
        status, head, data = client.read_answer()
        assert status == 200
        assert b"connection: close" in head
        check_body(body, data)
        assert client.is_closed()

    def test_keep_alive(self, client, stream):
        for tokens in (3, 5, 7):
            body = chat(stream=stream, max_tokens=tokens)
            client.send(request(body))
            status, head, data = client.read_answer()
            assert status == 200
            assert b"connection: close" not in head
            check_body(body, data)


class TestRequests:
    def test_pipelining(self, client):
        bodies = [chat(stream=True), completion(), completion(stream=True, max_tokens=4), chat(max_tokens=2)]
        client.send(b"".join(map(request, bodies)))
        for body in bodies:
            status, _, data = client.read_answer()
            assert status == 200
            check_body(body, data)

    def test_byte_by_byte(self, client):
        body = completion(max_tokens=2)
        for byte in request(body):
            client.send(bytes((byte,)))
        check_body(body, client.read_answer()[2])

    def test_a_chunked_body(self, client, stream):
        body = chat(stream=stream)
        data = json.dumps(body).encode()
        pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
        chunks = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        head = request(b"", "transfer-encoding: chunked", path=CHAT, length=False)
        client.send(head + chunks)
        check_body(body, client.read_answer()[2])

    def test_expect_100_continue(self, client):
        """curl does this with larger bodies."""
        body = chat()
        data = json.dumps(body).encode()
        whole = request(body, "expect: 100-continue")
        client.send(whole[: -len(data)])
        assert client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(data)
        check_body(body, client.read_answer()[2])

    def test_expect_100_continue_that_is_refused_before(self, make_stack):
        stack = make_stack(max_body_bytes=1000)
        with RawClient(stack.port) as client:
            head = f"POST {CHAT} HTTP/1.1\r\nhost: p\r\nexpect: 100-continue\r\ncontent-length: 5000\r\n\r\n"
            client.send(head.encode())
            error_of(client.read_answer(), 413, "request_too_large")

    def test_upgrade_to_h2c(self, client, stream):
        """Java's HTTP client offers it with each request and sends the body all the same."""
        body = chat(stream=stream)
        headers = ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAEAAEAAAAI")
        client.send(request(body, *headers))
        status, _, data = client.read_answer()
        assert status == 200
        check_body(body, data)

    @pytest.mark.parametrize(
        "data",
        [
            b"GET /health HTTP/1.1\r\n\r\n",
            b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
            b"NONSENSE\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        ],
        ids=["no-host", "two-hosts", "nonsense", "tls", "two-lengths", "gzip", "bad-chunk"],
    )
    def test_broken_requests(self, client, data):
        client.send(data)
        head = error_of(client.read_answer(), 400, "invalid_http")
        assert b"connection: close" in head
        assert client.is_closed()


class TestLimits:
    def test_a_large_body(self, stack, stream):
        """64 MiB, most of it in a member that goes to both workers."""
        body = chat(stream=stream, user="x" * (64 * MIB))
        response = stack.http.post(CHAT, json=body)
        assert response.status_code == 200
        check_body(body, response.content)
        assert [stack.only_request(leg).size > 64 * MIB for leg in ("context", "generation")] == [True, True]

    @pytest.fixture
    def small(self, make_stack):
        return make_stack(max_body_bytes=MIB, max_header_bytes=8192, header_timeout=0.3)

    def test_a_body_above_the_limit(self, small):
        for size in (MIB + 1, 64 * MIB):
            with RawClient(small.port) as client:
                client.send(request(b"", f"content-length: {size}", path=CHAT, length=False))
                head = error_of(client.read_answer(), 413, "request_too_large")
                assert b"connection: close" in head
        assert not small.requests("context")

    def test_the_client_sees_the_refusal_while_it_sends(self, small):
        """What is on its way is swallowed for a while, so that a reset does not overtake the answer."""
        with RawClient(small.port) as client:
            client.send(request(b"x" * (MIB + MIB // 2), path=CHAT)[: MIB - 1])  # as much as is swallowed
            error_of(client.read_answer(), 413, "request_too_large")

    def test_a_chunked_body_above_the_limit(self, small):
        chunk = b"%x\r\n%b\r\n" % (MIB // 4, b"x" * (MIB // 4))
        with RawClient(small.port) as client:
            client.send(request(b"", "transfer-encoding: chunked", path=CHAT, length=False))
            for _ in range(5):
                client.send(chunk)
            error_of(client.read_answer(), 413, "request_too_large")

    def test_a_body_at_the_limit(self, small):
        body = chat(user="")
        body["user"] = "x" * (MIB - len(json.dumps(body)))
        with RawClient(small.port) as client:
            client.send(request(body))
            status, _, data = client.read_answer()
        assert status == 200
        check_body(body, data)

    @pytest.mark.parametrize("ended", [True, False], ids=["complete", "endless"])
    def test_a_large_header_section(self, small, ended):
        with RawClient(small.port) as client:
            data = request(b"", f"x-large: {'x' * 9000}", path="/health", method="GET", length=False)
            client.send(data if ended else data[:-2])
            error_of(client.read_answer(), 431, "headers_too_large")
            assert client.is_closed()

    @pytest.mark.parametrize("data", [b"GET /health HTTP/1.1\r\nhost: a\r\n", b"P"], ids=["head", "byte"])
    def test_a_head_that_does_not_arrive(self, small, data):
        started = time.monotonic()
        with RawClient(small.port) as client:
            client.send(data)
            error_of(client.read_answer(), 408, "request_timeout")
            assert client.is_closed()
        assert 0.25 < time.monotonic() - started < 3

    def test_a_connection_that_asks_nothing(self, small):
        with RawClient(small.port) as client:
            assert client.is_closed(3)

    def test_a_head_that_drips(self, small):
        """Progress does not buy time: the whole head has its deadline."""
        with RawClient(small.port) as client:
            started = time.monotonic()
            for byte in b"GET /health HTTP/1.1\r\nhost: a\r\nx-a: ":
                client.socket.sendall(bytes((byte,)))
                time.sleep(0.015)
                if time.monotonic() - started > 0.4:
                    break
            error_of(client.read_answer(), 408, "request_timeout")

    def test_idle_clients_are_kept(self, make_stack):
        """The keep-alive time is another limit than the header's."""
        stack = make_stack(header_timeout=0.2)
        with RawClient(stack.port) as client:
            for _ in range(2):
                client.send(request(b"", path="/health", method="GET", length=False))
                assert client.read_answer()[0] == 200
                time.sleep(0.4)


BROKEN = {
    "cut": {"kind": "cut", "after_events": 3},
    "silent": {"kind": "stall", "after_events": 3},
    "behind comments": {"kind": "slow_first_byte", "seconds": 5},
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("choices", [1, 3])
def test_a_connection_outlives_an_error_event(make_stack, fault, choices):
    """No close was announced, so a client may send its next request as soon as it has the whole message."""
    stack = make_stack(timeout_idle=0.3, timeout_first_byte=0.3, sse_keepalive_seconds=0.05)
    stack.most_leftover = choices
    stack.cluster.generation_workers[0].add_fault(leg="generation", count=1, **BROKEN[fault])
    good = chat()
    with RawClient(stack.port) as client:
        client.send(request(chat(stream=True, n=choices)))
        status, head, data = client.read_answer()
        assert status == 200
        assert b"connection: close" not in head
        assert b'"error"' in data.split(b"\n\n")[-2]
        client.send(request(good))
        check_body(good, client.read_answer()[2])


def test_limits_of_the_application_under_another_server(stacks):
    """413 comes from the application there, once the body has been read to the limit."""
    stack = stacks.get("uvicorn", {}, {"max_body_bytes": MIB})
    stack.begin()
    response = stack.http.post(CHAT, content=b"x" * (MIB + 1))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"
    stack.reconnect()
    body = chat(user="x" * (MIB // 2))
    check_body(body, stack.post(body).content)


def test_default_headers(stack):
    response = stack.http.get("/version")
    assert "server" not in response.headers
    assert response.headers["date"].endswith("GMT")
