"""The compose files, as Compose reads them: variables filled in, included files added, merge keys resolved."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "compose"
MAIN = ("compose.yaml", "compose.trtllm.yaml")
# What the user must name.
GIVEN = {"MODEL": "/models/some-model", "TRTLLM_VERSION": "1.2.0"}

_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


class Mount(NamedTuple):
    """A file of the repository and where a service sees it."""

    source: Path
    target: str


def load(name: str) -> dict[str, Any]:
    """The whole application; Compose refuses two definitions of one thing, and so does this."""
    document: dict[str, Any] = yaml.safe_load(_filled_in((FOLDER / name).read_text()))
    for other in document.pop("include", []):
        for kind, members in load(other).items():
            mine = document.setdefault(kind, {})
            assert not mine.keys() & (members or {}).keys(), f"{kind} of {name} and {other}"
            mine.update(members)
    return document


def _filled_in(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name, kind, default = match.groups()
        assert kind is not None, f"{match[0]} has neither a default nor an explanation"
        return GIVEN[name] if kind == "?" else default

    return _VARIABLE.sub(value, text)


def mounts(application: dict[str, Any], service: str) -> list[Mount]:
    files = {name: (FOLDER / config["file"]).resolve() for name, config in application["configs"].items()}
    return [
        Mount(files[each["source"]], each["target"])
        for each in application["services"][service].get("configs", [])
    ]


def seconds(text: str) -> float:
    """A duration of Compose."""
    units = {"s": 1, "m": 60, "h": 3600}
    assert re.fullmatch(r"(\d+[hms])+", text), text
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]
