"""All metric names, in one table. Whoever adds a feature adds its rows."""

from typing import NamedTuple

PREFIX = "disagg_proxy_"


class Metric(NamedTuple):
    """Name without prefix, help text, label names."""

    name: str
    documentation: str
    labels: tuple[str, ...] = ()


REQUESTS = Metric("requests", "Finished requests.", ("route", "stream", "outcome"))
REQUEST_BYTES = Metric("request_bytes", "Bytes of request bodies.", ("route",))
RESPONSE_BYTES = Metric("response_bytes", "Bytes of answers' bodies.", ("route",))
DROPPED_FIELDS = Metric("dropped_fields", "Request members left out because workers refuse them.", ("field",))
RETRIES = Metric("retries", "Legs that were sent again.")
WORKER_IN_FLIGHT = Metric("worker_in_flight", "Legs running on a worker.", ("role", "worker"))
WORKER_READY = Metric("worker_ready", "1 when a worker can get requests.", ("role", "worker"))
WORKER_CONNECTIONS = Metric(
    "worker_connections", "Open connections to a worker.", ("role", "worker", "state")
)
READY = Metric("ready", "1 when a request could be served.")
BUILD = Metric("build", "Versions.", ("version", "python"))
