"""The Dockerfile, read as a builder would, and its instructions carried out below a folder in place of an image."""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"


class Instruction(NamedTuple):
    word: str
    value: str


def stages() -> list[list[Instruction]]:
    """The instructions of each stage; what stands before the first FROM is in the first list."""
    with DOCKERFILE.open("rb") as file:
        structure: list[dict[str, Any]] = DockerfileParser(fileobj=file, cache_content=True).structure
    found: list[list[Instruction]] = [[]]
    for each in structure:
        if each["instruction"] == "COMMENT":
            continue
        if each["instruction"] == "FROM":
            found.append([])
        found[-1].append(Instruction(each["instruction"], each["value"]))
    return found


def values(stage: list[Instruction], word: str) -> list[str]:
    return [each.value for each in stage if each.word == word]


def value(stage: list[Instruction], word: str) -> str:
    (found,) = values(stage, word)
    return found


def pairs(stage: list[Instruction], word: str) -> dict[str, str]:
    """The names and values of ENV or LABEL."""
    return {
        name: text
        for line in values(stage, word)
        for name, text in (part.split("=", 1) for part in shlex.split(line))
    }


def health_check(stage: list[Instruction]) -> tuple[dict[str, str], list[str]]:
    """Options and command of HEALTHCHECK."""
    options, _, command = value(stage, "HEALTHCHECK").partition("CMD")
    return dict(part.removeprefix("--").split("=") for part in options.split()), json.loads(command)


def context_files() -> list[str]:
    """The files that the ignore file lets through: the last pattern that matches a path or a folder above decides."""
    lines = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for path in tracked.stdout.splitlines() if _let_through(path, patterns)]


def _let_through(path: str, patterns: list[str]) -> bool:
    folders = [Path(*Path(path).parts[:count]) for count in range(1, len(Path(path).parts) + 1)]
    kept = True
    for pattern in patterns:
        text = pattern.removeprefix("!")
        anywhere = text.startswith("**/")
        names = [each.name if anywhere else str(each) for each in folders]
        if any(fnmatch.fnmatchcase(name, text.removeprefix("**/")) for name in names):
            kept = pattern.startswith("!")
    return kept


class Build:
    """Carries a build stage out below `root`: paths of the image are put below it in every line.

    Only /build and /opt stand for folders of the image; `python` is the interpreter that runs the tests.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.context = root / "context"
        for path in context_files():
            (self.context / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, self.context / path)
        self._commands = root / "commands"
        self._commands.mkdir()
        python = self._commands / "python"
        python.write_text(f'#!/bin/sh\nexec {base_python()} "$@"\n')
        python.chmod(0o755)
        self._directory = root

    def below(self, text: str) -> str:
        return re.sub(r"(?<![\w.])/(build|opt|etc/disagg-proxy)\b", rf"{self.root}/\1", text)

    def run(self, stage: list[Instruction]) -> None:
        environment = {
            **{name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
            **pairs(stage, "ENV"),
            "PATH": f"{self._commands}:/usr/bin:/bin",
        }
        for word, line in stage:
            if word == "WORKDIR":
                self._directory = Path(self.below(line))
                self._directory.mkdir(parents=True, exist_ok=True)
            elif word == "COPY":
                self.copy(line)
            elif word == "RUN":
                self._shell(line, environment)
            else:
                assert word in {"FROM", "ENV"}, word

    def copy(self, line: str) -> None:
        *sources, target = line.split()
        assert not any(source.startswith("--") for source in sources)
        for source in sources:
            there = Path(self.below(target)) if target.startswith("/") else self._directory / target
            here = self.context / source
            if here.is_dir():
                shutil.copytree(here, there)
            else:
                there = there / here.name if target.endswith("/") else there
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(here, there)

    def _shell(self, line: str, environment: Mapping[str, str]) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", self.below(line)],
            cwd=self._directory,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def base_python() -> str:
    """The interpreter below this virtual environment, as the base image's would be."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))
