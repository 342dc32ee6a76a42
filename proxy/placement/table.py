"""`router.type` -> policy. A new policy is a new file and a row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from proxy.placement.consistent_hash import ConsistentHash
from proxy.placement.conversation import Conversation
from proxy.placement.load_balancing import LoadBalancing
from proxy.placement.policy import Policy
from proxy.placement.prefix import Prefix
from proxy.placement.random_choice import RandomChoice
from proxy.placement.round_robin import RoundRobin
from proxy.placement.two_choices import TwoChoices

if TYPE_CHECKING:
    from proxy.config.settings import RouterSettings

POLICIES: Mapping[str, Callable[[RouterSettings], Policy]] = {
    "round_robin": lambda _: RoundRobin(),
    "random": lambda _: RandomChoice(),
    "load_balancing": lambda router: LoadBalancing(use_tokens=router.use_tokens),
    "two_choices": lambda _: TwoChoices(),
    "conversation": lambda _: Conversation(),
    "prefix": lambda _: Prefix(),
    "consistent_hash": lambda _: ConsistentHash(),
}


def make_policy(router: RouterSettings) -> Policy:
    """A policy with its own state, for one pool (a model in a role)."""
    return POLICIES[router.type](router)
