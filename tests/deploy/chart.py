"""Renders the chart and finds things in what comes out."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "helm" / "disagg-proxy"
EXAMPLES = sorted((FOLDER / "examples").glob("*.yaml"))
NAME = "r-disagg-proxy"
NAMESPACE = "llm"
SECRETS = "/etc/disagg-proxy-secrets"

Manifest = dict[str, Any]


class Rendered:
    """The manifests of one release `r` in the namespace `llm`."""

    def __init__(self, text: str) -> None:
        self.manifests: list[Manifest] = [each for each in yaml.safe_load_all(text) if each]

    def all(self, kind: str) -> list[Manifest]:
        return [each for each in self.manifests if each["kind"] == kind]

    def get(self, kind: str, name: str = NAME) -> Manifest:
        found = [each for each in self.all(kind) if each["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} of {kind} {name}"
        return found[0]

    @property
    def workload(self) -> Manifest:
        """The proxies'."""
        found = [each for each in self.manifests if each["kind"] in {"StatefulSet", "Deployment"}]
        (own,) = (each for each in found if each["metadata"]["name"] == NAME)
        return own

    @property
    def pod(self) -> Manifest:
        """The specification of a proxy's pod."""
        spec: Manifest = self.workload["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Manifest:
        (own,) = (each for each in self.pod["containers"] if each["name"] == "proxy")
        return own

    @property
    def config_text(self) -> str:
        text: str = self.get("ConfigMap")["data"]["config.yaml"]
        return text

    @property
    def config(self) -> Manifest:
        config: Manifest = yaml.safe_load(self.config_text)
        return config

    def pod_templates(self) -> Iterator[tuple[Manifest, Manifest]]:
        """Each workload with its pod template."""
        for each in self.manifests:
            if each["kind"] in {"StatefulSet", "Deployment"}:
                yield each, each["spec"]["template"]


class Chart:
    """Args: the path of `helm`."""

    def __init__(self, helm: str) -> None:
        self._helm = helm
        self._rendered: dict[tuple[str, ...], Rendered] = {}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self._helm, *arguments], capture_output=True, text=True, timeout=60)

    def render(self, example: Path | None = None, **values: Any) -> Rendered:
        """With the values of an example file and others over it. What came out before is taken again."""
        options = _options(example, values)
        if options not in self._rendered:
            result = self.run("template", "r", str(FOLDER), "--namespace", NAMESPACE, *options)
            assert result.returncode == 0, result.stderr
            self._rendered[options] = Rendered(result.stdout)
        return self._rendered[options]

    def refuse(self, **values: Any) -> str:
        """The message with which these values are refused."""
        result = self.run("template", "r", str(FOLDER), *_options(None, values))
        assert result.returncode != 0, "it was accepted"
        return result.stderr

    def notes(self, example: Path | None = None, **values: Any) -> str:
        """What a person sees after installing."""
        options = _options(example, values)
        result = self.run("install", "r", str(FOLDER), "--namespace", NAMESPACE, "--dry-run=client", *options)
        assert result.returncode == 0, result.stderr
        return result.stdout.partition("\nNOTES:\n")[2]


def _options(example: Path | None, values: dict[str, Any]) -> tuple[str, ...]:
    files = () if example is None else ("--values", str(example))
    pairs = (f"{key}={json.dumps(value)}" for key, value in values.items())
    return (*files, *(part for pair in pairs for part in ("--set-json", pair)))
