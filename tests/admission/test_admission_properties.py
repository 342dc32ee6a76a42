"""Any sequence of events leaves nothing behind, admits in order and never exceeds a limit."""

import asyncio

from admission_world import World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.admission.capacity import Capacity
from proxy.admission.permit import Permit
from proxy.errors import ClientGone, Overloaded, Paused

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from(["", "a", "b"]), st.integers(0, 10)),
        st.tuples(
            st.sampled_from(["finish", "context", "abort", "cancel", "withdraw"]), st.integers(0, 1000)
        ),
        st.tuples(st.sampled_from(["pause", "resume", "tick", "abort running"])),
    ),
    max_size=80,
)
LIMITS = st.fixed_dictionaries(
    {
        "max_inflight": st.integers(0, 3),
        "max_inflight_per_key": st.integers(0, 2),
        "max_queued": st.integers(0, 5),
        "max_queued_bytes": st.sampled_from([0, 20]),
        "pause_mode": st.sampled_from(["queue", "refuse"]),
    }
)


class Run:
    """Requests as the lifecycle would drive them, without tasks."""

    def __init__(self, limits, capacity):
        self.world = World(capacity=lambda: Capacity(*capacity), **limits)
        self.limits = limits
        self.capacity = capacity
        self.waiting = []  # (number, waiter, future) in order of arrival
        self.running = []
        self.number = 0
        self.order = []  # numbers of the admitted, in the order of their admission

    def act(self, action):
        name, *arguments = action
        if name == "arrive":
            self.arrive(*arguments)
        elif name in ("finish", "context"):
            self.with_one(self.running, arguments[0], name)
        elif name in ("abort", "cancel", "withdraw"):
            self.with_one(self.waiting, arguments[0], name)
        elif name == "pause":
            self.world.admission.pause()
        elif name == "resume":
            self.world.admission.resume()
        elif name == "tick":
            self.world.timers.advance(0.1)
        else:
            self.world.admission.abort_running(lambda: ClientGone("x"))
        self.collect()
        self.check()

    def arrive(self, key, size):
        admission = self.world.admission
        self.number += 1
        try:
            permit = admission.enter(key)
            if permit is not None:
                assert not self.waiting, "overtook"
                self.running.append(permit)
                return
            waiter, future = self.world.wait(key=key, size=size)
        except (Overloaded, Paused):
            return
        self.waiting.append((self.number, waiter, future))

    def with_one(self, requests, index, name):
        if not requests:
            return
        chosen = requests[index % len(requests)]
        if name == "finish":
            requests.remove(chosen)
            chosen.release()
        elif name == "context":
            chosen.context_done()
        else:
            requests.remove(chosen)
            _, waiter, future = chosen
            if name == "abort":
                waiter.abort(0, ClientGone("x"))
                assert future.exception() is not None
            else:
                if name == "cancel":
                    future.cancel()
                    self.world.timers.advance(0.1)
                waiter.withdraw()

    def collect(self):
        ready = [entry for entry in self.waiting if entry[2].done()]
        for entry in ready:
            self.waiting.remove(entry)
            assert isinstance(entry[2].result(), Permit)
            self.running.append(entry[2].result())
            self.order.append(entry[0])

    def check(self):
        admission, limits = self.world.admission, self.limits
        assert admission.in_flight == len(self.running)
        assert admission.in_context == sum(permit.in_context for permit in self.running)
        assert admission.queued == len(self.waiting) <= limits["max_queued"]
        for limit in (limits["max_inflight"], self.capacity[1]):
            assert not limit or admission.in_flight <= limit
        assert not self.capacity[0] or admission.in_context <= self.capacity[0]
        assert self.order == sorted(self.order), "not first come, first served"

    def end(self):
        """Everybody who waits gets in sooner or later, as the others finish."""
        self.world.admission.resume()
        self.collect()
        while self.running:
            self.running.pop(0).release()
            self.collect()
            self.check()
        assert not self.waiting, "starved"
        self.world.assert_empty()


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(limits=LIMITS, capacity=st.tuples(st.integers(0, 2), st.integers(0, 2)), actions=ACTIONS)
def test_every_sequence_of_events(limits, capacity, actions):
    async def play():
        run = Run(limits, capacity)
        for action in actions:
            run.act(action)
        run.end()

    asyncio.run(play())
