import math
from collections import Counter

import pytest
from worker_fakes import Clock, Pool

from proxy.errors import ConnectFailed, ConnectionBroken, NotReady, Retry, WorkersBusy
from proxy.placement.load_table import LoadTable
from proxy.placement.policy import Placement
from proxy.workers.outcome import LegOutcome
from proxy.workers.states import State
from proxy.workers.worker import Role


def end(reservation, outcome=LegOutcome.OK, **options):
    reservation.report(outcome, **options)
    reservation.release()


def fail(pool, worker, times=3, outcome=LegOutcome.RESET):
    for _ in range(times):
        worker.health.leg_ended(outcome)


# Counting


def test_a_leg_is_counted_from_its_choice_to_its_end():
    fakes = Pool(2)
    with fakes.pool.reserve(Placement(tokens=500)) as worker:
        assert (worker.in_flight, fakes.table.legs_of(worker.column)) == (1, 1)
        assert fakes.table.tokens()[worker.column] == 500
    assert (worker.in_flight, worker.placed) == (0, 1)
    assert not fakes.table.legs().any()
    assert not fakes.table.tokens().any()


def test_a_place_is_given_back_once():
    fakes = Pool(1)
    reservation = fakes.pool.reserve()
    reservation.release()
    reservation.release()
    with reservation:
        pass
    assert fakes.loads() == [0]


@pytest.mark.parametrize("size", [1, 4, 40])
def test_held_legs_are_spread_evenly(size):
    fakes = Pool(size)
    held = [fakes.pool.reserve() for _ in range(16 * size)]
    assert fakes.loads() == [16] * size
    for reservation in held:
        reservation.release()


def test_held_legs_of_three_processes_are_spread_evenly():
    memory = memoryview(bytearray(LoadTable.bytes_needed(3, 16)))
    fleet = [Pool(4, table=LoadTable(rows=3, columns=16, row=row, buffer=memory)) for row in range(3)]
    for number in range(64):
        fleet[number % 3].pool.reserve()
    totals = fleet[0].table.legs()[:4].tolist()
    assert sum(totals) == 64
    assert all(abs(total - 16) <= 3 for total in totals)


# Outcomes


def test_only_the_first_report_counts():
    fakes = Pool(1)
    with fakes.pool.reserve() as worker:
        pass
    for _ in range(5):
        reservation = fakes.pool.reserve()
        reservation.report(LegOutcome.OK)
        reservation.report(LegOutcome.RESET)
        reservation.release()
    assert worker.ready


@pytest.mark.parametrize("error", [ConnectFailed("x"), ConnectionBroken("x", retry=Retry.NEVER)])
def test_an_error_that_nobody_reported_counts(error):
    fakes = Pool(1)
    for _ in range(3):
        with pytest.raises(type(error)), fakes.pool.reserve():
            raise error
    assert fakes.workers[0].state is State.EJECTED


def test_a_cancelled_leg_says_nothing():
    fakes = Pool(1)
    for _ in range(10):
        with pytest.raises(KeyboardInterrupt), fakes.pool.reserve():
            raise KeyboardInterrupt
    assert fakes.workers[0].ready


# Who may be chosen


@pytest.mark.parametrize(
    "policy", ["round_robin", "random", "load_balancing", "two_choices", "conversation", "prefix"]
)
def test_every_policy_leaves_out_who_is_not_available(policy):
    fakes = Pool(6, policy)
    starting = fakes.add(100, answers=False)
    busy, ejected, failing, *sound = fakes.workers[:6]
    busy.health.leg_ended(LegOutcome.BUSY)
    fail(fakes, ejected)
    for _ in range(3):
        failing.health.probe_failed(timed_out=False)
    used = Counter(fakes.pool.reserve(Placement(number, number)).worker for number in range(300))
    assert set(used) == set(sound)
    assert starting.state is State.STARTING
    assert fakes.pool.available() == sound


def test_excluded_and_avoided_workers():
    fakes = Pool(3)
    first, second, third = (worker.address for worker in fakes.workers)
    assert fakes.pool.reserve(exclude={first, second}).worker.address == third
    assert fakes.pool.reserve(exclude={first}, avoid={second}).worker.address == third
    assert fakes.pool.reserve(exclude={first, second}, avoid={third}).worker.address == third
    with pytest.raises(NotReady) as caught:
        fakes.pool.reserve(exclude={first, second, third})
    assert (caught.value.status, caught.value.code) == (503, "no_context_worker")
    assert fakes.loads() == [0, 0, 3]


def test_nobody_is_there():
    with pytest.raises(NotReady, match="no generation worker is ready"):
        Pool(0, role=Role.GENERATION).pool.reserve()


def test_all_are_busy_for_a_second():
    fakes = Pool(2)
    end(fakes.pool.reserve(), LegOutcome.BUSY, retry_after=2.5)
    end(fakes.pool.reserve(), LegOutcome.BUSY, retry_after=4)
    with pytest.raises(WorkersBusy) as caught:
        fakes.pool.reserve()
    assert (caught.value.status, caught.value.code) == (429, "workers_busy")
    assert caught.value.headers == ((b"retry-after", b"3"),)
    fakes.clock.advance(2.5)
    assert fakes.pool.reserve().worker is fakes.workers[0] or fakes.workers[1].health.busy_until > 0


def test_the_rest_is_busy():
    fakes = Pool(2)
    first, second = fakes.workers
    first.health.leg_ended(LegOutcome.BUSY)
    fail(fakes, second)
    with pytest.raises(WorkersBusy):
        fakes.pool.reserve()
    with pytest.raises(NotReady):
        fakes.pool.reserve(exclude={first.address})


# Ejection


def test_an_ejected_worker_gets_one_trial_at_a_time():
    fakes = Pool(2)
    sick = fakes.workers[0]
    fail(fakes, sick)
    held = [fakes.pool.reserve() for _ in range(10)]
    assert fakes.loads() == [0, 10]
    fakes.clock.advance(2)
    held += [fakes.pool.reserve() for _ in range(10)]
    assert fakes.loads() == [1, 19]
    trial = next(reservation for reservation in held if reservation.worker is sick)
    end(trial, LegOutcome.OK)
    assert sick.ready
    held += [fakes.pool.reserve() for _ in range(18)]
    assert fakes.loads()[0] > 15


def test_a_trial_that_tells_nothing_frees_the_place():
    fakes = Pool(1, fail_open=False)
    sick = fakes.workers[0]
    fail(fakes, sick)
    fakes.clock.advance(2)
    for _ in range(3):
        with fakes.pool.reserve(), pytest.raises(NotReady):
            fakes.pool.reserve()
    assert sick.state is State.EJECTED


def test_fail_open_to_the_least_bad():
    fakes = Pool(3)
    answering, *silent = fakes.workers
    fail(fakes, answering)
    for worker in silent:
        for _ in range(3):
            worker.health.probe_failed(timed_out=False)
    for _ in range(5):
        reservation = fakes.pool.reserve()
        assert reservation.worker is answering
        end(reservation, LegOutcome.RESET)
    assert fakes.pool.last_resorts == 5
    assert fakes.pool.reserve(exclude={answering.address} - {answering.address}).worker is answering
    end(fakes.pool.reserve(), LegOutcome.OK)
    assert answering.ready
    assert fakes.pool.reserve().worker is answering


def test_fail_open_when_nobody_answers():
    fakes = Pool(2)
    for worker in fakes.workers:
        for _ in range(3):
            worker.health.probe_failed(timed_out=True)
    assert fakes.pool.reserve().worker in fakes.workers
    assert fakes.pool.answering == []


def test_fail_open_leaves_those_out_that_have_never_answered():
    fakes = Pool(0)
    fakes.add(1, answers=False)
    with pytest.raises(NotReady):
        fakes.pool.reserve()


def test_not_failing_open():
    fakes = Pool(1, fail_open=False)
    fail(fakes, fakes.workers[0])
    with pytest.raises(NotReady):
        fakes.pool.reserve()


def refuse(fakes, sick, rounds=25, healthy=LegOutcome.OK):
    for _ in range(rounds):
        for worker in fakes.workers:
            address = {other.address for other in fakes.workers if other is not worker}
            if worker in fakes.pool.available():
                end(
                    fakes.pool.reserve(exclude=address),
                    LegOutcome.CLIENT_ERROR if worker in sick else healthy,
                )


def test_a_worker_that_alone_refuses_everything_is_ejected():
    fakes = Pool(4)
    sick = fakes.workers[1]
    refuse(fakes, [sick])
    assert [worker.ready for worker in fakes.workers] == [True, False, True, True]
    assert sick.health.ejections == {"client_errors": 1}
    fakes.clock.advance(2)
    refuse(fakes, [sick], rounds=1)  # the trial
    assert sick.health.breaker.open_until == fakes.clock() + 4


def test_bad_clients_eject_nobody():
    fakes = Pool(4)
    refuse(fakes, fakes.workers)
    refuse(fakes, [], healthy=LegOutcome.CLIENT_ERROR)
    assert all(worker.ready for worker in fakes.workers)


def test_a_single_worker_is_never_ejected_for_refusing():
    fakes = Pool(1)
    refuse(fakes, fakes.workers, rounds=100)
    assert fakes.workers[0].ready


def test_bad_clients_cannot_get_one_worker_after_the_other_ejected():
    """A client whose conversation moves to the next worker each time."""
    fakes = Pool(3)
    refuse(fakes, [])
    for victim in fakes.workers:
        refuse(fakes, [victim])
    assert sum(worker.ready for worker in fakes.workers) == 2


# Slow start


@pytest.mark.parametrize("policy", ["round_robin", "load_balancing", "conversation"])
def test_a_worker_that_comes_back_is_filled_slowly(policy):
    fakes = Pool(4, policy, slow_start=10.0)
    back = fakes.workers[0]
    fail(fakes, back)
    held = [fakes.pool.reserve(Placement(number)) for number in range(60)]
    fakes.clock.advance(2)
    back.health.begin_trial()
    back.health.leg_ended(LegOutcome.OK, trial=True)
    most = []
    for _ in range(4):
        held += [fakes.pool.reserve(Placement(key)) for key in range(len(held), len(held) + 20)]
        mean = len(held) / 4
        most.append(back.in_flight / mean)
        fakes.clock.advance(2.5)
    assert 0 < most[0] <= 0.2
    assert most == sorted(most)
    assert most[-1] <= 0.8
    before = back.in_flight
    held += [fakes.pool.reserve(Placement(key)) for key in range(140, 300)]
    assert back.in_flight - before >= 30


# Topology


LABELS = {0: {"domain": "a"}, 1: {"domain": "a"}, 2: {"domain": "b"}, 3: {}}


def near(domain):
    return Pool(1, labels={0: {"domain": domain} if domain else {}}).workers[0]


def domains(fakes, number, **options):
    return Counter(fakes.pool.reserve(**options).worker.domain for _ in range(number))


def test_the_context_workers_domain_is_preferred_within_the_bound():
    fakes = Pool(4, labels=LABELS)
    assert domains(fakes, 4, near=near("a")) == {"a": 4}
    used = domains(fakes, 36, near=near("a"))
    # The mean is 10, the bound 14 on each of the two; the others take the rest.
    assert all(13 <= load <= 14 for load in fakes.loads()[:2])
    assert used[None] + used["b"] == 40 - sum(fakes.loads()[:2])


@pytest.mark.parametrize("other", [near("elsewhere"), near(None), None])
def test_no_domain_no_preference(other):
    fakes = Pool(4, labels=LABELS)
    domains(fakes, 40, near=other)
    assert fakes.loads() == [10] * 4


def test_strict_topology_refuses_to_cross():
    fakes = Pool(4, labels=LABELS, strict=True)
    assert domains(fakes, 40, near=near("a")) == {"a": 40}
    with pytest.raises(NotReady):
        fakes.pool.reserve(near=near("c"))
    domains(fakes, 4, near=near(None))
    fail(fakes, fakes.workers[2])
    with pytest.raises(NotReady):
        fakes.pool.reserve(near=near("b"))


def test_nothing_is_computed_again_without_a_change():
    fakes = Pool(3)
    fakes.pool.reserve()
    candidates = fakes.pool._candidates
    fakes.clock.advance(1e6)
    fakes.pool.reserve()
    assert fakes.pool._candidates is candidates
    assert fakes.pool._stale_at == math.inf


def test_pools_do_not_share_a_clock_by_accident():
    clock = Clock()
    assert Pool(1, clock=clock).clock is clock


def test_trials_go_on_until_one_succeeds():
    """Each failed trial moves the next one; nothing else happens that would make the pool look again."""
    fakes = Pool(2)
    sick = fakes.pool.workers[0]
    fail(fakes, sick)
    trials = 0
    for _ in range(600):
        fakes.clock.advance(0.5)
        # The second leg makes the pool look while the trial is running.
        for reservation in [fakes.pool.reserve() for _ in range(2)]:
            is_sick = reservation.worker is sick
            trials += is_sick
            end(reservation, LegOutcome.SERVER_ERROR if is_sick else LegOutcome.OK)
    # After 2, 4, 8, 16, 32, 60, 60, ... seconds.
    assert 7 <= trials <= 9
    fakes.clock.advance(60)
    held = [fakes.pool.reserve() for _ in range(2)]
    assert sick in [reservation.worker for reservation in held]
