"""A real name server; the waiting between two look-ups is where each test changes its records."""

from contextlib import aclosing

import pytest
from dns_zone import Zone
from loop_lag import LoopLag
from told import told_by

from proxy.config.discovery.dns import DnsEntry
from proxy.workers.discovery.dns import DnsSource

HOST, A, AAAA = "ctx.test", ("ctx.test", "A"), ("ctx.test", "AAAA")


@pytest.fixture
def zone():
    zone = Zone({A: ["10.0.0.1"], AAAA: []}).start()
    yield zone
    zone.stop()


class Looks:
    """A source whose sleeps carry out the steps, one after the other."""

    def __init__(self, zone, *steps, **options):
        self.steps = list(steps)
        self.slept = []
        fields = {"role": "context", "host": HOST, "port": 8001, "shortest": 2.0, "longest": 60.0, **options}
        entry = DnsEntry(name="dns", nameservers=(f"127.0.0.1:{zone.port}",), **fields)
        self.source = DnsSource(entry, sleep=self.sleep)

    async def sleep(self, seconds):
        self.slept.append(seconds)
        if self.steps:
            self.steps.pop(0)()

    async def lists(self, number=1):
        """What the next looks tell; a problem ends them."""
        return await told_by(self.source, number, "text")


async def test_every_address_is_a_worker(zone):
    zone.records[A] = ["10.0.0.2", "10.0.0.1"]
    looks = Looks(zone, role="mixed", model="m", labels={"zone": "z"}, scheme="https")
    async with aclosing(looks.source.changes()) as changes:
        listed = await anext(changes)
    assert [(w.address.text, w.role, w.model, w.labels, w.draining) for w in listed] == [
        (f"https://10.0.0.{n}:8001", role, "m", {"zone": "z"}, False)
        for n in (1, 2)
        for role in ("context", "generation")
    ]


async def test_records_come_and_go(zone):
    def change(*addresses):
        def step():
            zone.records[A] = list(addresses)

        return step

    looks = Looks(zone, change("10.0.0.1", "10.0.0.9"), change("10.0.0.9"))
    assert await looks.lists(3) == [["10.0.0.1:8001"], ["10.0.0.1:8001", "10.0.0.9:8001"], ["10.0.0.9:8001"]]


@pytest.mark.parametrize(("ttl", "waits"), [(30, 30), (0, 2), (1, 2), (60, 60), (86400, 60)])
async def test_the_time_to_live_is_respected_within_bounds(zone, ttl, waits):
    zone.ttl = ttl
    looks = Looks(zone)
    await looks.lists(2)
    assert looks.slept == [waits]


@pytest.mark.parametrize("when_empty", ["keep", "remove"])
@pytest.mark.parametrize("exists", [True, False])
async def test_a_name_without_records(zone, when_empty, exists):
    def empty():
        if exists:
            zone.records[A] = []
        else:
            zone.records.clear()

    looks = Looks(zone, empty, when_empty=when_empty)
    good, told, *_ = await looks.lists(3)
    assert good == ["10.0.0.1:8001"]
    if when_empty == "keep":
        assert told == "ctx.test does not exist or has no records"
    else:
        assert told == []
        assert looks.slept == [30, 7]


@pytest.mark.parametrize("code", ["SERVFAIL", "REFUSED"])
async def test_a_server_that_fails(zone, code):
    looks = Looks(zone, lambda: setattr(zone, "code", code), timeout=0.3, when_empty="remove")
    good, told = await looks.lists(2)
    assert good == ["10.0.0.1:8001"]
    assert told.startswith("ctx.test A")
    zone.code = None
    assert await looks.lists() == [["10.0.0.1:8001"]]


async def test_a_server_that_is_down_and_comes_back(zone):
    looks = Looks(zone, zone.stop, timeout=0.3, when_empty="remove")
    good, told = await looks.lists(2)
    assert good == ["10.0.0.1:8001"]
    assert "ctx.test" in told
    zone.start()
    assert await looks.lists() == [["10.0.0.1:8001"]]


async def test_more_addresses_than_a_datagram_holds(zone):
    zone.records[A] = [f"10.1.{n // 250}.{n % 250 + 1}" for n in range(400)]
    (listed,) = await Looks(zone).lists()
    assert len(listed) == 400
    assert zone.tcp_asked == 1


@pytest.mark.parametrize(
    ("family", "addresses"),
    [
        ("auto", ["10.0.0.1:8001"]),
        ("ipv4", ["10.0.0.1:8001"]),
        ("ipv6", ["[fd00::1]:8001"]),
        ("both", ["10.0.0.1:8001", "[fd00::1]:8001"]),
    ],
)
async def test_families(zone, family, addresses):
    zone.records[AAAA] = ["fd00::1"]
    assert await Looks(zone, family=family).lists() == [addresses]


async def test_ipv6_alone(zone):
    zone.records = {AAAA: ["fd00::1"]}
    assert await Looks(zone).lists() == [["[fd00::1]:8001"]]


async def test_a_server_that_cannot_be_asked_for_ipv6(zone):
    zone.silent = {"AAAA"}
    assert await Looks(zone, timeout=0.3).lists() == [["10.0.0.1:8001"]]
    (told,) = await Looks(zone, timeout=0.3, family="both").lists()
    assert "ctx.test AAAA" in told


async def test_half_an_answer_is_none(zone):
    zone.records[AAAA] = ["fd00::1"]
    zone.silent = {"A"}
    (told,) = await Looks(zone, timeout=0.3).lists()
    assert "ctx.test A" in told


SERVICE = ("_http._tcp.gen.test", "SRV")


async def test_targets_of_srv_records(zone):
    zone.ttl = 12
    zone.records[SERVICE] = [
        "10 0 8002 gen-1.gen.test",
        "10 5 8001 GEN-0.gen.test",
        "20 0 8003 spare.gen.test",
    ]
    looks = Looks(zone, srv=SERVICE[0], host=None, port=None, role="generation")
    assert await looks.lists(2) == [["gen-0.gen.test:8001", "gen-1.gen.test:8002"]] * 2
    assert looks.slept == [12]


async def test_there_is_no_such_service(zone):
    zone.records[SERVICE] = ["0 0 0 ."]
    looks = Looks(zone, srv=SERVICE[0], host=None, port=None, when_empty="remove")
    assert await looks.lists() == [[]]


async def test_the_event_loop_turns_while_a_server_is_silent(zone):
    zone.silent = {HOST}
    async with LoopLag() as lag:
        (told,) = await Looks(zone, timeout=0.5).lists()
    assert "ctx.test" in told
    assert lag.worst < 0.25
