import pytest

from proxy.errors import ClientGone
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.middleware.errors import ErrorsMiddleware
from proxy.middleware.record import RecordMiddleware


class World:
    def __init__(self, app) -> None:
        self.settled: list[RequestRecord] = []
        self.sent: list[dict] = []
        self.app = RecordMiddleware(app, settle=(lambda record, scope: self.settled.append(record),))

    async def send(self, message) -> None:
        self.sent.append(message)

    async def request(self, *headers, **scope) -> RequestRecord:
        await self.app({"type": "http", "headers": list(headers), **scope}, None, self.send)
        return self.settled[-1]


async def ok(scope, receive, send) -> None:
    await send({"type": "http.response.start", "status": 201})
    await send({"type": "http.response.body", "body": b""})


async def test_a_request_is_settled_once_with_its_status() -> None:
    world = World(ok)
    record = await world.request()
    assert len(world.settled) == 1
    assert record.status == 201
    assert record.received > 0
    assert len(world.sent) == 2


async def test_whatever_happens_inside() -> None:
    async def fails(scope, receive, send) -> None:
        raise ValueError("a bug")

    world = World(fails)
    with pytest.raises(ValueError, match="a bug"):
        await world.request()
    assert len(world.settled) == 1


async def test_the_clients_id_is_kept_if_it_is_fit_for_logs() -> None:
    world = World(ok)
    assert (await world.request((b"x-request-id", b"abc-1"))).request_id == "abc-1"
    made = {
        (await world.request((b"x-request-id", value))).request_id
        for value in (b"", b"a\nb", b"a b", b"x" * 200)
    }
    made.add((await world.request()).request_id)
    assert len(made) == 5
    assert all(len(each) == 32 for each in made)


async def test_what_is_no_request_passes() -> None:
    seen = []

    async def app(scope, receive, send) -> None:
        seen.append(scope)

    world = World(app)
    await world.app({"type": "lifespan"}, None, world.send)
    assert seen == [{"type": "lifespan"}]
    assert world.settled == []


async def test_the_record_is_in_the_scope() -> None:
    async def app(scope, receive, send) -> None:
        scope[RECORD].route = "/a"

    assert (await World(app).request()).route == "/a"


async def test_every_answer_carries_the_id() -> None:
    world = World(ok)
    record = await world.request((b"x-request-id", b"mine"))
    assert record.request_id == "mine"
    (start,) = (message for message in world.sent if message["type"] == "http.response.start")
    assert [value for name, value in start["headers"] if name == b"x-request-id"] == [b"mine"]


async def test_a_client_that_leaves_while_an_endpoint_sends(caplog) -> None:
    """No fault of ours. Those who know the ASGI spec still see an `OSError`."""

    class Gone(World):
        async def send(self, message) -> None:
            raise OSError("the client has disconnected")

    caught = []

    async def app(scope, receive, send) -> None:
        try:
            await ok(scope, receive, send)
        except OSError as error:
            caught.append(error)
            raise

    world = Gone(ErrorsMiddleware(app))
    record = await world.request()
    assert (record.status, record.outcome) == (499, "client_closed")
    assert isinstance(caught[0], ClientGone)
    assert caplog.records == []
