"""EndpointSlices (Kubernetes API discovery.k8s.io/v1) and the workers in them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

import msgspec

from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.config.listed_worker import ListedWorker
from proxy.workers.discovery.listing import list_workers
from proxy.workers.discovery.source import SourceLost


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Of any object; `resource_version` is opaque."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""


class Standing(IntEnum):
    """Where a pod is in its life, which goes one way: of two slices that differ the further one is newer."""

    STARTING = 0
    LISTED = 1
    DRAINING = 2
    ENDED = 3


class Conditions(msgspec.Struct, frozen=True):
    """None is "unknown", which the API wants to be read as ready, as serving if it is ready, and as not terminating."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None

    @property
    def standing(self) -> Standing:
        """What they mean for a worker. `ready` alone says nothing of a pod that ends: with publishNotReadyAddresses it
        is always true."""
        ready = self.ready is not False
        if self.terminating:
            serving = ready if self.serving is None else self.serving
            return Standing.DRAINING if serving else Standing.ENDED
        return Standing.LISTED if ready else Standing.STARTING


class TargetReference(msgspec.Struct, frozen=True):
    """The pod behind an endpoint."""

    name: str = ""
    uid: str = ""


class Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    """Of several addresses the first one counts, as for kube-proxy."""

    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    node_name: str | None = None
    zone: str | None = None
    target_ref: TargetReference | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Where it runs, as far as the slice tells."""
        pod = self.target_ref.name if self.target_ref is not None else None
        told = (("pod", pod), ("node", self.node_name), ("zone", self.zone))
        return {name: value for name, value in told if value}


class Port(msgspec.Struct, frozen=True):
    """A port of all endpoints of a slice."""

    name: str | None = None
    port: int | None = None


class EndpointSlice(msgspec.Struct, frozen=True, rename="camel"):
    """Some endpoints of a Service, all of one kind of address."""

    metadata: Metadata
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[Port, ...] | None = None


class EndpointSliceList(msgspec.Struct, frozen=True):
    """All slices of a Service at one moment, `metadata.resource_version`."""

    metadata: Metadata
    items: tuple[EndpointSlice, ...] | None = None


NO_DOMAINS: Mapping[str, str] = {}
_ADDRESS_TYPES = {"auto": ("IPv4", "IPv6", "FQDN"), "ipv4": ("IPv4",), "ipv6": ("IPv6",)}


class _Pod:
    """One pod, or one port of it, wherever the slices mention it."""

    def __init__(self) -> None:
        self.by_type: dict[str, Endpoint] = {}
        self.standing = Standing.STARTING

    def add(self, address_type: str, endpoint: Endpoint) -> None:
        self.standing = max(self.standing, endpoint.conditions.standing)
        self.by_type[address_type] = endpoint


def workers_in(
    slices: Iterable[EndpointSlice], entry: KubernetesEntry, domains: Mapping[str, str] = NO_DOMAINS
) -> tuple[ListedWorker, ...]:
    """The workers, one per pod, in the order of their addresses.

    Pods are told apart by their uid: while endpoints move, two slices have the same one; with both kinds of addresses a
    pod is in two slices; and an address may be that of a pod that has gone and of a new one.

    Args:
        slices: all of the Service.
        entry: role, port and the like.
        domains: by the names of nodes, for `node_label`.

    Raises:
        SourceLost: it is not clear which port is meant.
    """
    places: dict[tuple[str, int], tuple[Endpoint, bool]] = {}
    for (_, port), pod in _pods(slices, entry).items():
        kind = next((kind for kind in _ADDRESS_TYPES[entry.family] if kind in pod.by_type), None)
        if kind is None or pod.standing not in (Standing.LISTED, Standing.DRAINING):
            continue
        endpoint = pod.by_type[kind]
        place = endpoint.addresses[0], port
        known = places.get(place)
        if known is None or known[1]:
            places[place] = endpoint, pod.standing is Standing.DRAINING
    return tuple(
        worker
        for (host, port), (endpoint, draining) in sorted(places.items(), key=lambda item: item[0])
        for worker in list_workers(
            entry, host, port, labels=_labels(endpoint, entry.domain, domains), draining=draining
        )
    )


def _pods(slices: Iterable[EndpointSlice], entry: KubernetesEntry) -> dict[tuple[str, int], _Pod]:
    """By uid, or address where there is no pod, and port."""
    pods: dict[tuple[str, int], _Pod] = {}
    for each, port in _with_ports(slices, entry):
        for endpoint in each.endpoints or ():
            if endpoint.addresses:
                uid = endpoint.target_ref.uid if endpoint.target_ref is not None else ""
                key = uid or endpoint.addresses[0], port
                pods.setdefault(key, _Pod()).add(each.address_type, endpoint)
    return pods


def _labels(endpoint: Endpoint, domain: str | None, domains: Mapping[str, str]) -> dict[str, str]:
    labels = endpoint.labels
    found = domains.get(endpoint.node_name or "") if domain is None else labels.get(domain)
    return labels if found is None else {**labels, "domain": found}


def _with_ports(
    slices: Iterable[EndpointSlice], entry: KubernetesEntry
) -> Iterator[tuple[EndpointSlice, int]]:
    """The slices that have the port, and its number there: a named port may differ between pods."""
    wanted = entry.port
    missing = met = False
    for each in sorted(slices, key=lambda each: each.metadata.name):
        if isinstance(wanted, int):
            yield each, wanted
            continue
        ports = [found.port for found in each.ports or () if found.port and wanted in (None, found.name)]
        if len(ports) == 1:
            met = True
            yield each, ports[0]
        elif each.endpoints:
            if wanted is None:
                raise SourceLost(f"the service {entry.service} has not exactly one port: name one by `port`")
            missing = True
    if missing and not met:
        raise SourceLost(f"the service {entry.service} has no port {wanted}")
