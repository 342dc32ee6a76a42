import random
from collections import Counter

import numpy as np
import pytest
from worker_fakes import Pool

from proxy.config.address import parse_worker_address
from proxy.config.settings import RouterSettings
from proxy.placement.bound import load_limit
from proxy.placement.candidates import FEW, address_seed
from proxy.placement.policy import Needs, Placement
from proxy.placement.rendezvous import few_scores, scores
from proxy.placement.table import POLICIES, make_policy

AFFINITY = ["conversation", "prefix", "consistent_hash"]
SIZES = [4, FEW, FEW + 1, 64]


def keys(number, seed=1):
    chance = random.Random(seed)
    return [chance.getrandbits(64) for _ in range(number)]


def place(fakes, key, **options):
    return fakes.pool.reserve(Placement(key, key), **options)


def worker_of(fakes, key, **options):
    with place(fakes, key, **options) as worker:
        return worker.address


@pytest.mark.parametrize("size", SIZES)
def test_round_robin_goes_round(size):
    fakes = Pool(size, "round_robin")
    for _ in range(3 * size):
        fakes.pool.reserve()
    assert fakes.loads() == [3] * size


@pytest.mark.parametrize("size", SIZES)
def test_random_takes_anyone(size):
    fakes = Pool(size, "random")
    for _ in range(100 * size):
        fakes.pool.reserve()
    assert all(50 < load < 150 for load in fakes.loads())


@pytest.mark.parametrize("size", SIZES)
def test_two_choices_stay_close_together(size):
    fakes = Pool(size, "two_choices")
    for _ in range(100 * size):
        fakes.pool.reserve()
    assert max(fakes.loads()) - min(fakes.loads()) < 12


@pytest.mark.parametrize("size", SIZES)
def test_the_least_loaded_is_chosen(size):
    fakes = Pool(size)
    held = [fakes.pool.reserve() for _ in range(2 * size)]
    held[size + 1].release()
    assert fakes.pool.reserve().worker is held[size + 1].worker
    assert fakes.loads() == [2] * size


def test_ties_begin_anywhere_and_take_turns():
    first = Counter()
    for _ in range(200):
        fakes = Pool(4)
        used = []
        for _ in range(8):
            with fakes.pool.reserve() as worker:
                used.append(worker.address.port)
        assert Counter(used) == dict.fromkeys([1, 2, 3, 4], 2)
        first[used[0]] += 1
    assert len(first) == 4
    assert min(first.values()) > 20


@pytest.mark.parametrize("size", SIZES)
def test_prompt_tokens_as_load(size):
    fakes = Pool(size)
    fakes.pool.policy = make_policy(RouterSettings("load_balancing", use_tokens=True))
    assert fakes.pool.policy.needs is Needs.TOKENS
    long = fakes.pool.reserve(Placement(tokens=1_000_000))
    others = [fakes.pool.reserve(Placement(tokens=10)) for _ in range(20 * size)]
    assert long.worker.in_flight == 1
    assert all(other.worker is not long.worker for other in others)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_worker_gets_everything(policy):
    fakes = Pool(1, policy)
    for key in keys(20):
        place(fakes, key)
    assert fakes.loads() == [20]


# Affinity


@pytest.mark.parametrize("policy", AFFINITY)
@pytest.mark.parametrize("size", SIZES)
def test_a_key_stays_on_its_worker(policy, size):
    fakes = Pool(size, policy)
    first = [worker_of(fakes, key) for key in keys(100)]
    assert first == [worker_of(fakes, key) for key in keys(100)]
    assert len(set(first)) > size * 0.7
    counts = fakes.pool.policy.affinity
    assert (counts.hits, counts.spills, counts.misses) == (200, 0, 0)


@pytest.mark.parametrize("policy", AFFINITY)
def test_without_a_key_the_least_loaded_is_chosen(policy):
    fakes = Pool(4, policy)
    for _ in range(40):
        fakes.pool.reserve()
    assert fakes.loads() == [10] * 4
    assert fakes.pool.policy.affinity.misses == 40


@pytest.mark.parametrize(
    ("policy", "placement", "key"),
    [
        ("conversation", Placement(1, 2), 1),
        ("conversation", Placement(None, 2), 2),
        ("conversation", Placement(0, 2), 0),
        ("prefix", Placement(1, 2), 2),
        ("prefix", Placement(1, None), None),
        ("consistent_hash", Placement(1, 2), 1),
        ("consistent_hash", Placement(None, 2), None),
    ],
)
def test_what_the_key_is(policy, placement, key):
    assert make_policy(RouterSettings(policy)).key(placement) == key


@pytest.mark.parametrize("size", SIZES)
def test_a_hot_conversation_never_exceeds_the_bound(size):
    fakes = Pool(size, "conversation")
    for number in range(20 * size):
        place(fakes, 42)
        total = number + 1
        assert max(fakes.loads()) <= max(1.25 * total / size, total / size + 4)
    counts = fakes.pool.policy.affinity
    assert counts.hits + counts.spills == 20 * size
    assert counts.spills > 0
    # Another conversation is not driven away by it.
    quiet = next(
        key for key in keys(1000) if worker_of(Pool(size, "conversation"), key) == fakes.workers[-1].address
    )
    if fakes.loads()[-1] < load_limit(20 * size, size):
        assert worker_of(fakes, quiet) == fakes.workers[-1].address


def test_an_overloaded_worker_spills_to_the_next_in_its_ranking():
    fakes = Pool(4, "conversation")
    first = worker_of(fakes, 7)
    second = worker_of(fakes, 7, exclude={first})
    for _ in range(5):
        fakes.pool.reserve(exclude={worker.address for worker in fakes.workers} - {first})
    assert worker_of(fakes, 7) == second


@pytest.mark.parametrize("size", [4, FEW, 32, 64])
def test_a_worker_that_joins_takes_its_share_of_the_keys_and_no_others_move(size):
    fakes = Pool(size, "conversation")
    before = {key: worker_of(fakes, key) for key in keys(2000)}
    new = fakes.add(1000).address
    after = {key: worker_of(fakes, key) for key in before}
    moved = [key for key in before if before[key] != after[key]]
    assert {after[key] for key in moved} == {new}
    assert len(moved) / 2000 == pytest.approx(1 / (size + 1), rel=0.4)


@pytest.mark.parametrize("size", [5, FEW + 1, 65])
def test_a_worker_that_leaves_spreads_its_keys(size):
    fakes = Pool(size, "conversation")
    before = {key: worker_of(fakes, key) for key in keys(2000)}
    gone = fakes.workers[2]
    for _ in range(3):
        gone.health.probe_failed(timed_out=False)
    after = {key: worker_of(fakes, key) for key in before}
    moved = [key for key in before if before[key] != after[key]]
    assert {before[key] for key in moved} == {gone.address}
    assert len({after[key] for key in moved}) > min(size, len(moved)) * 0.4


def test_few_and_many_workers_are_computed_alike():
    seeds = keys(200, 2)
    for key in keys(50, 3):
        assert scores(np.array(seeds, np.uint64), key).tolist() == few_scores(seeds, key)


def test_hashes_are_the_same_in_every_process_and_version():
    """Replicas of different versions must agree, so these numbers are for ever."""
    assert address_seed(parse_worker_address("ctx0:8001")) == 0x5080D2796C40B657
    assert few_scores([1, 2], 3) == [0x3ABF2A20785916F7, 0xB456BCFC6EE99552]


def test_keys_are_spread_evenly():
    fakes = Pool(8, "conversation")
    used = Counter(worker_of(fakes, key) for key in range(8000))  # keys that hardly differ
    assert all(850 < number < 1150 for number in used.values())


@pytest.mark.parametrize("size", SIZES)
def test_a_worker_that_failed_twice_is_avoided_once(size):
    """It is in the list as often; nobody else must leave for that."""
    fakes = Pool(size, "round_robin")
    addresses = [worker.address for worker in fakes.pool.workers]
    for failed in (0, 1, size - 1):
        avoid = [addresses[failed]] * 3
        found = {worker_of(fakes, None, avoid=avoid) for _ in range(size - 1)}
        assert found == set(addresses) - set(avoid)
    assert worker_of(fakes, None, avoid=addresses * 2) in addresses
