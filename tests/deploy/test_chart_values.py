"""What the chart is given: examples, schema, contradictions; and the files that it has copies of."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import EXAMPLES, FOLDER, Chart, Rendered

from proxy.telemetry import names

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("example", [None, *EXAMPLES], ids=lambda path: path.name if path else "default")
def test_lint(chart: Chart, example: Path | None) -> None:
    files = () if example is None else ("--values", str(example))
    result = chart.run("lint", "--strict", str(FOLDER), *files)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_copies_are_the_originals() -> None:
    for name in ("rules.yml", "dashboard.json"):
        original = ROOT / "deploy" / "observability" / name
        assert (FOLDER / "files" / name).read_bytes() == original.read_bytes(), f"copy {original} again"


def test_the_version_is_the_program_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    about = yaml.safe_load((FOLDER / "Chart.yaml").read_text())
    assert about["appVersion"] == project["version"]


SCHEMA = json.loads((FOLDER / "values.schema.json").read_text())


def test_the_user_is_the_image_s() -> None:
    image = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
    given = yaml.safe_load((FOLDER / "values.yaml").read_text())["podSecurityContext"]
    assert f"\nUSER {given['runAsUser']}:{given['runAsGroup']}\n" in image


def mappings(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, bool]]:
    """Dotted path of each mapping that the schema describes, and whether it refuses unknown keys."""
    if "$ref" in node:
        node = SCHEMA["definitions"][node["$ref"].rpartition("/")[2]]
    if node.get("type") == "object":
        yield path, node.get("additionalProperties") is False
    for name, each in node.get("properties", {}).items():
        if isinstance(each, dict):
            yield from mappings(each, f"{path}.{name}" if path else name)


# What Kubernetes, Prometheus or TensorRT-LLM give the meaning, or the proxy itself.
FREE = re.compile(
    r"global|config(\..*)?|(.*\.)?(resources|strategy|behavior|affinity|dnsConfig|tlsConfig|nodeSelector|env|options)"
    r"|(.*\.)?(\w*[aA]nnotations|\w*[lL]abels|\w*[sS]ecurityContext)|workers\.roleOptions\.\w+"
)
STRICT = [path for path, strict in mappings(SCHEMA) if strict]


def test_only_what_others_define_is_free() -> None:
    assert {path for path, strict in mappings(SCHEMA) if not strict and not FREE.fullmatch(path)} == set()
    assert len(STRICT) > 30


@pytest.mark.parametrize("path", STRICT)
def test_a_misspelt_value_is_refused(chart: Chart, path: str) -> None:
    message = chart.refuse(**{f"{path}.misspelt" if path else "misspelt": True})
    assert "additional properties 'misspelt' not allowed" in message


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"replicas": "two"}, "/replicas"),
        ({"workload.kind": "DaemonSet"}, "/workload/kind"),
        ({"workload.firstNodeId": 256}, "/workload/firstNodeId"),
        ({"config.port": 0}, "/config/port"),
        ({"config.num_workers": 65}, "/config/num_workers"),
        ({"config.proxy.drain_timeout": "10m"}, "/config/proxy/drain_timeout"),
        ({"config.internal_request_auth_key": "secret"}, "/config/internal_request_auth_key"),
        ({"image.digest": "sha256:short"}, "/image/digest"),
        ({"httpRoute.enabled": True}, "/httpRoute/parentRefs"),
        ({"httpRoute.timeouts": {"request": "forever"}}, "/httpRoute/timeouts/request"),
        ({"workers.context": [{"model": "m"}]}, "/workers/context/0"),
        ({"workers.context": [{"name": "Upper", "model": "m"}]}, "/workers/context/0/name"),
        ({"workers.context": [{"name": "a" * 17, "model": "m"}]}, "/workers/context/0/name"),
        ({"workers.context": [{"name": "a", "gpu": 1}]}, "/workers/context/0"),
        ({"workers.context": [{"name": "headless", "model": "m"}]}, "/workers/context/0/name"),
        ({"keda.timeToFirstToken.quantile": 95}, "/keda/timeToFirstToken/quantile"),
        ({"probes.liveness.path": "/"}, "/probes/liveness"),
    ],
)
def test_a_wrong_value_is_refused(chart: Chart, values: dict[str, Any], place: str) -> None:
    assert f"at '{place}'" in chart.refuse(**values)


GROUP = {"name": "a", "model": "m"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"autoscaling.enabled": True, "keda.enabled": True}, "two autoscalers would fight"),
        ({"autoscaling.enabled": True, "autoscaling.minReplicas": 11}, "minReplicas is above maxReplicas"),
        ({"workload.firstNodeId": 250, "replicas": 7}, "node ids end at 255"),
        ({"keda.enabled": True, "keda.maxReplicas": 257}, "node ids end at 255"),
        ({"config.node_id": 3}, "config.node_id: every proxy would have the same"),
        ({"config.node_id": 3, "workload.kind": "Deployment"}, "every proxy would have the same"),
        ({"admin.listen": "0.0.0.0:8001"}, "needs admin.tokenSecret.name"),
        ({"tls.clientCertificates": True}, "needs tls.secretName"),
        ({"config.proxy.admin_listen": "127.0.0.1:1"}, "config.proxy.admin_listen: another value"),
        (
            {"config.proxy.api_keys_file": "/keys", "apiKeysSecret.name": "keys"},
            "config.proxy.api_keys_file: another value",
        ),
        ({"config.disagg_cluster": {"cluster_uri": "http://llm:8000"}}, "the storage is that of one pod"),
        ({"workers.foundBy": "disagg_cluster", "workers.context": [GROUP]}, "needs config.disagg_cluster"),
        (
            {"workers.context": [{**GROUP, "scaled": True}]},
            "a list knows no workers that something else scales",
        ),
        ({"workers.context": [{"name": "a"}]}, 'group "a" has no model'),
        ({"workers.context": [GROUP], "workers.generation": [GROUP]}, 'two groups are called "a"'),
        (
            {"workers.context": [{**GROUP, "computeDomain": "x"}]},
            'workers.computeDomains has none called "x"',
        ),
        (
            {"workers.context": [{**GROUP, "nodeLabel": "rack"}]},
            "nodeLabel needs workers.foundBy: kubernetes",
        ),
        (
            {
                "workers.foundBy": "kubernetes",
                "workers.context": [{**GROUP, "nodeLabel": "rack", "domain": "a"}],
            },
            "and no domain",
        ),
    ],
)
def test_a_contradiction_is_refused(chart: Chart, values: dict[str, Any], sentence: str) -> None:
    assert sentence in chart.refuse(**values)


def test_the_sole_proxy_may_have_a_node_id(chart: Chart) -> None:
    rendered = chart.render(**{"config.node_id": 3, "workload.kind": "Deployment", "replicas": 1})
    assert rendered.config["node_id"] == 3


def test_the_readme_names_only_values_that_exist() -> None:
    values = yaml.safe_load((FOLDER / "values.yaml").read_text())
    readme = (FOLDER / "README.md").read_text()
    for path in re.findall(r"`([a-z]\w+(?:\.\w+)+)`", readme):
        if path.split(".")[0] not in values or path.startswith("config."):
            continue
        here = values
        for part in path.split("."):
            assert part in here, path
            here = here[part]


def test_the_readme_s_adapter_rule_has_the_metric_s_name() -> None:
    values = yaml.safe_load((FOLDER / "values.yaml").read_text())
    (series,) = re.findall(r"seriesQuery: '(\w+)\{", (FOLDER / "README.md").read_text())
    assert series == values["autoscaling"]["metric"]["name"]
    assert series == names.PREFIX + names.REQUESTS_IN_FLIGHT.name


def test_the_readme_s_command(chart: Chart) -> None:
    (block,) = re.findall(r"```sh\n(helm .*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    program, *arguments = shlex.split(block.replace("\\\n", " "))
    assert program == "helm"
    assert (ROOT / arguments[2]).samefile(FOLDER)
    arguments[2] = str(FOLDER)
    result = chart.run(*arguments, "--dry-run=client", "--output", "json")
    assert result.returncode == 0, result.stderr
    rendered = Rendered(json.loads(result.stdout)["manifest"])
    (config,) = (yaml.safe_load(each["data"]["config.yaml"]) for each in rendered.all("ConfigMap"))
    assert config["context_servers"]["urls"] == ["ctx0:8001", "ctx1:8001"]
    assert config["context_servers"]["router"] == {"type": "load_balancing"}
    assert config["generation_servers"]["urls"] == ["gen0:8002"]


@pytest.mark.parametrize(
    "values",
    [
        {"config.context_servers.urls": ["a:1"]},
        {"config.proxy.workers": [{"url": "a:1", "role": "mixed"}]},
        {"config.proxy.discovery": [{"type": "file", "path": "/workers.yaml"}]},
        {"config.disagg_cluster": {"cluster_uri": "etcd://etcd"}},
        {"workers.generation": [GROUP]},
    ],
)
def test_missing_workers_are_noted(chart: Chart, values: dict[str, Any]) -> None:
    sentence = "NO WORKERS ARE CONFIGURED"
    assert sentence in chart.notes()
    assert sentence not in chart.notes(**values)
