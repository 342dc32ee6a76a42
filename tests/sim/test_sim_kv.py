import pytest

from proxy.sim.handover import ContextAddress
from proxy.sim.kv import HandoffError, KvRegistry


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def registry(clock: Clock) -> KvRegistry:
    made = KvRegistry(60.0, clock)
    made.register("a")
    made.register("b")
    return made


def test_taken_once() -> None:
    kv = registry(Clock())
    handoff = kv.hold("a", 1, "digest", 5, (7,))
    assert kv.peek("a", 1)
    assert not kv.peek("b", 1)
    assert kv.held_ids() == [1]
    assert kv.held_ids("b") == []
    with pytest.raises(HandoffError):
        kv.take("b", 1)
    assert kv.take("a", 1) is handoff
    assert handoff.taken
    with pytest.raises(HandoffError):
        kv.take("a", 1)
    assert kv.counts("a").as_dict() == {"held": 0, "stored": 1, "taken": 1, "expired": 0, "refused": 1}
    assert kv.counts().refused == 2
    assert kv.leftover == 0


def test_expires() -> None:
    clock = Clock()
    kv = registry(clock)
    kv.hold("a", 1, "d", 5, (7,))
    clock.now = 30
    kv.hold("a", 2, "d", 5, (7,))
    clock.now = 59.9
    assert kv.counts("a").held == 2
    clock.now = 60
    assert kv.counts("a").held == 1
    assert kv.counts("a").expired == 1
    assert kv.leftover == 2
    with pytest.raises(HandoffError):
        kv.take("a", 1)
    kv.take("a", 2)


def test_ids_are_used_once() -> None:
    kv = registry(Clock())
    kv.claim(1)
    with pytest.raises(HandoffError, match="already in use"):
        kv.claim(1)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "unix:/tmp/x.sock", "[::1]:9"])
def test_addresses_travel_in_the_state_or_the_endpoint(address: str) -> None:
    context = ContextAddress("context-0", address)
    assert ContextAddress.from_params({"encoded_opaque_state": context.as_state()}) == context
    assert ContextAddress.from_params({"ctx_info_endpoint": context.as_endpoint()}) == context


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"encoded_opaque_state": "AAECAw=="},
        {"encoded_opaque_state": "#"},
        {"encoded_opaque_state": "e30="},
        {"ctx_info_endpoint": "tcp://1"},
    ],
)
def test_unreadable_addresses(params: dict[str, str]) -> None:
    with pytest.raises(HandoffError):
        ContextAddress.from_params(params)
