"""Which workers are in EndpointSlices, as the API documents their fields."""

import msgspec
import pytest
from fake_kubernetes import endpoint, endpoint_slice

from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.workers.discovery.endpoint_slices import EndpointSlice, workers_in
from proxy.workers.discovery.source import SourceLost


def found(*slices, **fields):
    entry = KubernetesEntry(**{"name": "k", "role": "context", "service": "ctx", **fields})
    return workers_in(msgspec.convert(slices, tuple[EndpointSlice, ...]), entry)


def shown(*slices, **fields):
    return [worker.address.text + ("!" if worker.draining else "") for worker in found(*slices, **fields)]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, ["10.0.0.1:8001"]),
        ({"ready": None}, ["10.0.0.1:8001"]),
        ({"ready": True}, ["10.0.0.1:8001"]),
        ({"ready": True, "serving": True, "terminating": False}, ["10.0.0.1:8001"]),
        ({"ready": False}, []),
        ({"ready": False, "serving": False, "terminating": False}, []),
        ({"ready": False, "serving": True, "terminating": True}, ["10.0.0.1:8001!"]),
        ({"ready": False, "serving": False, "terminating": True}, []),
        ({"ready": False, "terminating": True}, []),
        # publishNotReadyAddresses
        ({"ready": True, "serving": True, "terminating": True}, ["10.0.0.1:8001!"]),
        ({"ready": True, "serving": False, "terminating": True}, []),
    ],
)
def test_conditions(conditions, expected):
    one = {**endpoint("a", "10.0.0.1"), "conditions": conditions}
    assert shown(endpoint_slice("s", one)) == expected


def test_what_a_slice_tells_of_a_worker():
    one = endpoint(
        "a", "10.0.0.1", "10.9.9.9", nodeName="n1", zone="z1", hints={"forZones": [{"name": "z2"}]}
    )
    (worker,) = found(
        endpoint_slice("s", one), labels={"tier": "x", "zone": "own"}, model="m", scheme="https"
    )
    assert worker.address.text == "https://10.0.0.1:8001"
    assert (worker.role, worker.model, worker.draining) == ("context", "m", False)
    assert worker.labels == {"pod": "pod-a", "node": "n1", "zone": "own", "tier": "x"}


@pytest.mark.parametrize(("domain", "label"), [("zone", "z1"), ("node", "n1")])
def test_the_domain_may_be_the_zone_or_the_node(domain, label):
    one = endpoint("a", "10.0.0.1", nodeName="n1", zone="z1")
    assert found(endpoint_slice("s", one), domain=domain)[0].labels["domain"] == label
    bare = endpoint("a", "10.0.0.1")
    assert "domain" not in found(endpoint_slice("s", bare), domain=domain)[0].labels


def test_several_slices_are_one_service():
    slices = [
        endpoint_slice("s1", endpoint("b", "10.0.0.2"), endpoint("a", "10.0.0.1")),
        endpoint_slice("s2", endpoint("c", "10.0.0.3")),
        endpoint_slice("s3"),
    ]
    assert shown(*slices) == ["10.0.0.1:8001", "10.0.0.2:8001", "10.0.0.3:8001"]


def test_an_endpoint_that_moves_is_in_two_slices():
    ready = endpoint_slice("s1", endpoint("a", "10.0.0.1"))
    ends = endpoint_slice("s2", endpoint("a", "10.0.0.1", ready=False, serving=True, terminating=True))
    starts = endpoint_slice("s2", endpoint("a", "10.0.0.1", ready=False))
    assert shown(ready, ready | {"metadata": {"name": "s2"}}) == ["10.0.0.1:8001"]
    assert shown(ready, ends) == shown(ends, ready) == ["10.0.0.1:8001!"]
    assert shown(ready, starts) == ["10.0.0.1:8001"]
    ended = endpoint_slice("s2", endpoint("a", "10.0.0.1", ready=False, serving=False, terminating=True))
    assert shown(ready, ended) == shown(ended, ready) == []


def test_an_address_that_a_new_pod_has_got():
    """The old one is told for a while as ending; the address is the new one's."""
    old = endpoint("old", "10.0.0.1", ready=False, serving=True, terminating=True)
    new = endpoint("new", "10.0.0.1")
    assert shown(endpoint_slice("s", old, new)) == shown(endpoint_slice("s", new, old)) == ["10.0.0.1:8001"]
    assert found(endpoint_slice("s", old, new))[0].labels["pod"] == "pod-new"
    assert shown(endpoint_slice("s", old)) == ["10.0.0.1:8001!"]


def test_a_pod_with_both_kinds_of_addresses_is_one_worker():
    four = endpoint_slice("s4", endpoint("a", "10.0.0.1"))
    six = endpoint_slice("s6", endpoint("a", "fd00::0:1"), endpoint("b", "fd00::2"), addressType="IPv6")
    assert shown(four, six) == shown(six, four) == ["10.0.0.1:8001", "[fd00::2]:8001"]
    assert shown(four, six, family="ipv6") == ["[fd00::1]:8001", "[fd00::2]:8001"]
    assert shown(four, six, family="ipv4") == ["10.0.0.1:8001"]


def test_names_instead_of_addresses():
    named = endpoint_slice("s", endpoint("a", "Worker.example.com"), addressType="FQDN")
    assert shown(named) == ["worker.example.com:8001"]


@pytest.mark.parametrize("host", ["fe80::1%eth0", "a b", "a\r\nhost: b", "a/b", "a@b", ""])
def test_what_is_no_host(host, caplog):
    slices = [
        endpoint_slice("s", endpoint("a", "10.0.0.1")),
        endpoint_slice("odd", endpoint("b", host), addressType="FQDN"),
    ]
    assert shown(*slices) == ["10.0.0.1:8001"]
    assert f"k tells a worker that is ignored: {host!r} is no host" in caplog.messages


def test_endpoints_without_pods():
    bare = {"addresses": ["10.0.0.1"], "conditions": {}}
    other = {"addresses": ["10.0.0.2"], "conditions": {}}
    assert shown(endpoint_slice("s", bare, other)) == ["10.0.0.1:8001", "10.0.0.2:8001"]


PORTS = [{"name": "http", "port": 8001}, {"name": "metrics", "port": 9090}]


def test_ports():
    one = endpoint_slice("s1", endpoint("a", "10.0.0.1"), ports=PORTS)
    # A named port may be another number in other pods, which then are in another slice.
    two = endpoint_slice("s2", endpoint("b", "10.0.0.2"), ports=[{"name": "http", "port": 8009}])
    without = endpoint_slice("s3", endpoint("c", "10.0.0.3"), ports=None)
    assert shown(one, two, port="http") == ["10.0.0.1:8001", "10.0.0.2:8009"]
    assert shown(one, two, without, port="metrics") == ["10.0.0.1:9090"]
    assert shown(two) == ["10.0.0.2:8009"]
    assert shown(one, without, port=7000) == ["10.0.0.1:7000", "10.0.0.3:7000"]


@pytest.mark.parametrize(
    ("ports", "port", "problem"),
    [
        (PORTS, None, "has not exactly one port"),
        (None, None, "has not exactly one port"),
        (PORTS, "htp", "the service ctx has no port htp"),
    ],
)
def test_ports_that_are_not_clear(ports, port, problem):
    with pytest.raises(SourceLost, match=problem):
        found(endpoint_slice("s", endpoint("a", "10.0.0.1"), ports=ports), port=port)
    # Nobody is there: nothing is wrong.
    assert shown(endpoint_slice("s", ports=ports), port=port) == []


def test_mixed_workers():
    workers = found(endpoint_slice("s", endpoint("a", "10.0.0.1")), role="mixed")
    assert [worker.role for worker in workers] == ["context", "generation"]
