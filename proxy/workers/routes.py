"""Whether the workers have a route that only some versions have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proxy.errors import NotFound, NotReady, NotSupported

if TYPE_CHECKING:
    from proxy.workers.instance import Instance
    from proxy.workers.worker import Worker


def require_route(workers: Sequence[Worker], path: str, *, hand_offs: bool = False) -> None:
    """Check the workers that a request may be placed on: all of them must have the route, as they tell it in their
    OpenAPI documents.

    Args:
        workers: listed ones.
        path: of the route.
        hand_offs: its requests must be able to carry a hand-off.

    Raises:
        NotReady: no worker has answered yet.
        NotFound: one has no such route.
        NotSupported: one has it, but only for both legs at once.
    """
    ready = {worker.instance for worker in workers if worker.ready}
    if not ready:
        raise NotReady("no worker is ready")
    if not all(_has(instance, path) for instance in ready):
        raise NotFound(f"the workers have no route {path}")
    if hand_offs and not all(_hands_over(instance, path) for instance in ready):
        raise NotSupported(
            f"the workers' {path} knows no hand-off, so that it cannot be served in two legs; proxy.pass_through has "
            "it served in one"
        )


def _has(instance: Instance, path: str) -> bool:
    routes = instance.capabilities.routes
    return routes is not None and path in routes.paths


def _hands_over(instance: Instance, path: str) -> bool:
    routes = instance.capabilities.routes
    return routes is not None and path in routes.hand_offs
