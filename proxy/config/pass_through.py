"""A route that one worker serves, in one leg, as `proxy.pass_through` names it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from proxy.config.listed_worker import RoleName
from proxy.config.paths import parse_path

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

OWN_PATHS = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/generate",
        "/inference/v1/generate",
        "/tokenize",
        "/detokenize",
        "/v1/models",
        "/version",
        "/health",
        "/health/live",
        "/health/ready",
        "/cluster_info",
        "/metrics",
        "/prometheus/metrics",
    }
)
"""What the proxy serves itself."""


class PassThroughRoute(msgspec.Struct, frozen=True):
    """See the module's docstring.

    Attributes:
        path: here and on the workers.
        role: whose workers are asked.
        methods: others are answered with 405.
    """

    path: str
    role: RoleName = "generation"
    methods: Annotated[tuple[Method, ...], Meta(min_length=1)] = ("POST",)

    def __post_init__(self) -> None:
        parse_path(self.path)
        if self.path in OWN_PATHS:
            raise ValueError(f"the proxy serves {self.path} itself")

    def plain(self) -> dict[str, Any]:
        """As it stands in the configuration."""
        return {"path": self.path, "role": self.role, "methods": list(self.methods)}
