"""When a process that has ended is started again."""

from __future__ import annotations

_FIRST_DELAY = 0.25
_LONGEST_DELAY = 5.0
# One that served this long has ended by an accident of its own.
_HEALTHY_SECONDS = 10.0
# With one start in vain its connections wait for the next; with more they had better go to other processes.
_FAILURES_TO_GIVE_UP_PORT = 2


class Restarts:
    """The back-off of one process: at once after an accident, then doubling while it dies young.

    Attributes:
        young_deaths: deaths in a row before the process had served for ten seconds.
    """

    def __init__(self) -> None:
        self.young_deaths = 0

    def delay(self, lived: float) -> float:
        """Seconds to wait now that the process has ended after `lived` seconds."""
        if lived >= _HEALTHY_SECONDS:
            self.young_deaths = 0
            return 0.0
        self.young_deaths += 1
        if self.young_deaths == 1:
            return 0.0
        # The exponent is bounded, since a loop of deaths can last for weeks.
        return min(_LONGEST_DELAY, float(_FIRST_DELAY * 2 ** min(self.young_deaths - 2, 10)))

    @property
    def keeps_port(self) -> bool:
        """Whether new connections may wait for its return."""
        return self.young_deaths <= _FAILURES_TO_GIVE_UP_PORT
