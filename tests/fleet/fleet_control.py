"""The control routes of a fleet."""

from typing import Any

import httpx
from fleet_stack import FleetStack

CONTROL: dict[str, Any] = {"rl_control": True, "admin_listen": "127.0.0.1:0"}


class Control:
    """A client of a fleet's admin listener; the fleet was started with `CONTROL`."""

    def __init__(self, fleet: FleetStack) -> None:
        port = fleet.program.wait_for(r"admin routes on 127\.0\.0\.1 port (\d+)")[1]
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False)

    def __enter__(self) -> "Control":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def call(self, method: str, path: str, **options: Any) -> Any:
        """The body of an answer, which must be a 2xx."""
        answer = self.http.request(method, path, **options)
        assert answer.is_success, answer.text
        return answer.json()

    def workers(self, role: str = "context") -> dict[str, dict[str, Any]]:
        """What GET /workers tells of a role, by url."""
        workers = self.call("GET", "/workers")["workers"]
        return {each["url"]: each for each in workers if each["role"] == role}
