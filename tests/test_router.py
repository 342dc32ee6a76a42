import pytest

from proxy.errors import MethodNotAllowed, NotFound
from proxy.lifecycle.record import RECORD, RequestRecord
from proxy.router import REST, Router


def endpoint(name):
    async def serve(scope, receive, send) -> None:
        await send(name)

    return serve


ROUTES = {
    "/a": {"GET": endpoint("get a")},
    "/b/c": {"POST": endpoint("post b"), "GET": endpoint("get b")},
    "/p": {"POST": endpoint("post p")},
}


async def route(method: str, path: str, root_path: str = "") -> tuple[str, str]:
    """Who served it, and the label it is counted under."""
    scope = {"type": "http", "method": method, "path": path, RECORD: RequestRecord("id", 0.0)}
    served: list[str] = []

    async def send(name: str) -> None:
        served.append(name)

    await Router(ROUTES, root_path)(scope, None, send)
    return served[0], scope[RECORD].route


@pytest.mark.parametrize(
    ("method", "path", "served"),
    [
        ("GET", "/a", "get a"),
        ("HEAD", "/a", "get a"),
        ("GET", "/a/", "get a"),
        ("GET", "/a//", "get a"),
        ("POST", "/b/c", "post b"),
        ("GET", "/b/c/", "get b"),
    ],
)
async def test_routes(method, path, served) -> None:
    assert await route(method, path) == (served, path.rstrip("/"))


@pytest.mark.parametrize("path", ["/a", "/root/a", "/root/a/"])
async def test_with_and_without_the_prefix(path) -> None:
    assert await route("GET", path, "/root") == ("get a", "/a")


@pytest.mark.parametrize(
    "path", ["/", "", "/A", "/a/b", "/b", "/root", "/rootx/a", "/root/root/a", "//a", "/a;x", "*", "/€"]
)
async def test_unknown_routes(path) -> None:
    with pytest.raises(NotFound) as caught:
        await route("GET", path, "/root")
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/a", b"GET, HEAD"),
        ("DELETE", "/b/c", b"GET, POST, HEAD"),
        ("GET", "/p", b"POST"),
        ("HEAD", "/p", b"POST"),
        ("OPTIONS", "/p", b"POST"),
    ],
)
async def test_wrong_methods(method, path, allow) -> None:
    with pytest.raises(MethodNotAllowed) as caught:
        await route(method, path)
    assert caught.value.status == 405
    assert caught.value.headers == ((b"allow", allow),)


async def test_what_is_not_served_is_counted_under_one_label() -> None:
    record = RequestRecord("id", 0.0)
    for method, path in (("GET", "/x"), ("POST", "/a")):
        scope = {"type": "http", "method": method, "path": path, RECORD: record}
        with pytest.raises((NotFound, MethodNotAllowed)):
            await Router(ROUTES)(scope, None, None)
        assert record.route == "other"


async def test_paths_below_a_prefix() -> None:
    rests = []

    async def below(scope, receive, send) -> None:
        rests.append((scope[REST], scope[RECORD].route))

    routes = {"/w": {"GET": endpoint("all")}, "/w/*": {"GET": below}, "/w/known": {"GET": endpoint("known")}}
    router = Router(routes, "/root")
    for path in ("/w/1", "/root/w/1/2/", "/w/http://a:1", "/w/*", "/w/known"):
        scope = {"type": "http", "method": "GET", "path": path, RECORD: RequestRecord("id", 0.0)}
        await router(scope, None, ignore)
    assert rests == [("1", "/w/*"), ("1/2", "/w/*"), ("http://a:1", "/w/*"), ("*", "/w/*")]
    scope = {"type": "http", "method": "POST", "path": "/w/1", RECORD: RequestRecord("id", 0.0)}
    with pytest.raises(MethodNotAllowed):
        await router(scope, None, ignore)


async def ignore(_: object) -> None:
    pass
