"""The behaviour of the HTTP cluster storage, without HTTP, by a clock that only the test moves."""

import pytest

from proxy.workers.discovery.key_storage import (
    LONGEST_KEY,
    LONGEST_VALUE,
    MOST_KEYS,
    KeyChange,
    KeyStorage,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(clock: Clock) -> KeyStorage:
    return KeyStorage(clock)


def test_set_and_get(storage: KeyStorage) -> None:
    assert storage.get("a") is None
    assert storage.set("a", "1")
    assert storage.get("a") == "1"


def test_an_existing_key_is_overwritten_only_on_demand(storage: KeyStorage) -> None:
    storage.set("a", "1")
    assert not storage.set("a", "2")
    assert storage.get("a") == "1"
    assert storage.set("a", "2", overwrite=True)
    assert storage.get("a") == "2"


def test_delete(storage: KeyStorage) -> None:
    storage.set("a", "1")
    assert storage.delete("a")
    assert storage.get("a") is None
    assert not storage.delete("a")


def test_a_ttl_counts_on_the_storage_s_clock(storage: KeyStorage, clock: Clock) -> None:
    storage.set("a", "1", ttl=10)
    clock.now += 9.9
    assert storage.get("a") == "1"
    clock.now += 0.1
    assert storage.get("a") is None


@pytest.mark.parametrize("ttl", [-1, 0])
def test_without_a_ttl_a_key_stays(storage: KeyStorage, clock: Clock, ttl: int) -> None:
    storage.set("a", "1", ttl=ttl)
    clock.now += 1e6
    assert storage.get("a") == "1"


def test_an_expire_time_outdoes_the_ttl(storage: KeyStorage, clock: Clock) -> None:
    storage.set("a", "1", ttl=100, expire_time=clock.now + 2)
    clock.now += 2
    assert storage.get("a") is None


def test_expire_lets_a_key_live_on(storage: KeyStorage, clock: Clock) -> None:
    storage.set("a", "1", ttl=10)
    for _ in range(5):
        clock.now += 9
        assert storage.expire("a", 10)
    clock.now += 10
    assert not storage.expire("a", 10)
    assert not storage.expire("never", 10)


def test_expire_gives_a_key_an_end(storage: KeyStorage, clock: Clock) -> None:
    storage.set("a", "1")
    assert storage.expire("a", 3)
    clock.now += 3
    assert storage.get("a") is None


def test_an_expired_key_can_be_set_before_the_sweep(storage: KeyStorage, clock: Clock) -> None:
    storage.set("a", "1", ttl=1)
    clock.now += 1
    assert storage.set("a", "2", ttl=1)
    assert storage.get("a") == "2"
    clock.now += 1
    assert not storage.delete("a")


def test_get_prefix(storage: KeyStorage, clock: Clock) -> None:
    storage.set("/x/a", "1")
    storage.set("/x/b", "2", ttl=1)
    storage.set("/y/a", "3")
    assert storage.get_prefix("/x/") == {"/x/a": "1", "/x/b": "2"}
    assert storage.get_prefix("/x/", keys_only=True) == {"/x/a": "", "/x/b": ""}
    clock.now += 1
    assert storage.get_prefix("/x/") == {"/x/a": "1"}
    assert storage.get_prefix("/z/") == {}


def test_a_watch_hears_of_each_change_below_its_prefix(storage: KeyStorage, clock: Clock) -> None:
    seen: list[KeyChange] = []
    stop = storage.watch("/x/", seen.append)
    storage.set("/x/a", "1")
    storage.set("/x/b", "2", ttl=5)
    storage.set("/y/a", "3")
    storage.set("/x/a", "4", overwrite=True)
    storage.set("/x/a", "5")  # refused
    storage.expire("/x/b", 5)  # a heartbeat is no change
    storage.delete("/x/a")
    clock.now += 5
    assert len(seen) == 4
    storage.sweep()
    assert seen == [
        KeyChange("/x/a", "1"),
        KeyChange("/x/b", "2"),
        KeyChange("/x/a", "4"),
        KeyChange("/x/a", None),
        KeyChange("/x/b", None),
    ]
    storage.sweep()
    stop()
    storage.set("/x/c", "6")
    assert len(seen) == 5


def test_whoever_meets_an_expired_key_removes_it(storage: KeyStorage, clock: Clock) -> None:
    seen: list[KeyChange] = []
    storage.watch("", seen.append)
    storage.set("a", "1", ttl=1)
    clock.now += 1
    assert storage.get("a") is None
    assert seen == [KeyChange("a", "1"), KeyChange("a", None)]
    storage.sweep()
    assert len(seen) == 2


def test_a_worker_whose_heartbeat_was_lost_may_register_again(storage: KeyStorage, clock: Clock) -> None:
    storage.set("a", "1", ttl=10)
    clock.now += 4.9
    assert not storage.set("a", "1", ttl=10)
    clock.now += 0.1
    assert not storage.set("a", "2", ttl=10), "another value is another worker"
    assert storage.set("a", "1", ttl=10)
    clock.now += 9
    assert storage.get("a") == "1"
    # A heartbeat shows that it is well: a second worker with its key is a mistake again.
    storage.expire("a", 10)
    assert not storage.set("a", "1", ttl=10)


def test_a_key_without_an_end_is_never_registered_again(storage: KeyStorage, clock: Clock) -> None:
    storage.set("a", "1")
    clock.now += 1e6
    assert not storage.set("a", "1")


def test_what_anybody_could_fill_has_bounds(storage: KeyStorage, clock: Clock) -> None:
    assert storage.set("k" * LONGEST_KEY, "v" * LONGEST_VALUE)
    assert not storage.set("k" * (LONGEST_KEY + 1), "1")
    assert not storage.set("a", "v" * (LONGEST_VALUE + 1))
    for number in range(MOST_KEYS - 1):
        assert storage.set(str(number), "1", ttl=1)
    assert not storage.set("one more", "1")
    assert storage.set("0", "2", overwrite=True)
    clock.now += 1
    storage.sweep()
    assert storage.set("one more", "1")
