"""Conversations over several processes that share a load table, and a second fleet that knows nothing of the first."""

import random

from worker_fakes import Clock, Pool

from proxy.placement.bound import load_limit
from proxy.placement.load_table import LoadTable
from proxy.placement.policy import Placement

PROCESSES = 3
WORKERS = 4
CONVERSATIONS = 200
TURNS = 10
AT_ONCE = 24  # legs in flight over both fleets


def fleet(policy="conversation"):
    memory = memoryview(bytearray(LoadTable.bytes_needed(PROCESSES, 16)))
    return [
        Pool(
            WORKERS,
            policy,
            clock=Clock(),
            table=LoadTable(rows=PROCESSES, columns=16, row=row, buffer=memory),
        )
        for row in range(PROCESSES)
    ]


def test_turns_find_the_worker_of_the_first_turn_in_every_process_of_every_fleet():
    chance = random.Random(5)
    processes = [*fleet(), *fleet()]
    turns = [key for key in range(CONVERSATIONS) for _ in range(TURNS)]
    chance.shuffle(turns)
    keys = [chance.getrandbits(64) for _ in range(CONVERSATIONS)]
    home: dict[int, object] = {}
    running = []
    stayed = 0
    for conversation in turns:
        if len(running) == AT_ONCE:
            running.pop(chance.randrange(AT_ONCE)).release()
        reservation = chance.choice(processes).pool.reserve(Placement(keys[conversation]))
        running.append(reservation)
        stayed += home.setdefault(conversation, reservation.worker.address) == reservation.worker.address
    assert stayed / len(turns) >= 0.97
    for reservation in running:
        reservation.release()
    assert not any(any(process.loads()) for process in processes)


def test_one_hot_conversation_stays_within_the_bound_of_its_fleet():
    chance = random.Random(6)
    processes = fleet()
    for number in range(400):
        key = 42 if number % 2 else chance.getrandbits(64)
        chance.choice(processes).pool.reserve(Placement(key))
        totals = processes[0].table.legs()[:WORKERS]
        assert totals.max() <= load_limit(number, WORKERS)


def test_two_fleets_with_one_hot_conversation_reach_at_most_twice_the_bound():
    fleets = [fleet(), fleet()]
    for number in range(400):
        fleets[number % 2][number % PROCESSES].pool.reserve(Placement(42))
    loads = sum(each[0].table.legs()[:WORKERS].astype(int) for each in fleets)
    assert loads.max() <= 2 * load_limit(200, WORKERS)
