"""`router.type` -> policy. A new policy is a new file and a row here."""

from collections.abc import Callable, Mapping

from proxy.placement.load_balancing import LoadBalancing
from proxy.placement.policy import Policy
from proxy.placement.round_robin import RoundRobin

POLICIES: Mapping[str, Callable[[], Policy]] = {
    "round_robin": RoundRobin,
    "load_balancing": LoadBalancing,
}
