"""Everything that the chart renders is what Kubernetes takes."""

import functools
import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
from chart import EXAMPLES, Chart, Manifest, Rendered
from chart_options import OPTIONS

# What the chart says it needs, and the newest: fields of alpha APIs come and go in between.
VERSIONS = ("1.28.0", "1.37.0")
# Kinds of other projects: no schema of Kubernetes knows them.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "ScaledObject", "HTTPRoute", "ComputeDomain"}
# Resource claims, where they are asked for, need a newer one than the rest.
CLAIMS_SINCE = "1.32.0"

SOURCES: dict[str, tuple[Path | None, dict[str, Any]]] = {
    **{path.name: (path, {}) for path in EXAMPLES},
    **{name: (None, values) for name, values in OPTIONS.items()},
}


def folder(version: str) -> Any:
    return resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}-local-strict"


@functools.cache
def registry(version: str) -> Any:
    definitions = json.loads((folder(version) / "_definitions.json").read_text())
    resource = referencing.Resource.from_contents(definitions)
    return referencing.Registry().with_resource("_definitions.json", resource).crawl()


@functools.cache
def validator(version: str, kind: str, api_version: str) -> Any:
    group, _, name = api_version.rpartition("/")
    end = "-".join(part for part in (group.partition(".")[0], name) if part)
    schema = json.loads((folder(version) / f"{kind.lower()}-{end}.json").read_text())
    return jsonschema.Draft202012Validator(schema, registry=registry(version))


def problems(version: str, manifest: Manifest) -> list[str]:
    check = validator(version, manifest["kind"], manifest["apiVersion"])
    return [f"{error.json_path}: {error.message}" for error in check.iter_errors(manifest)]


@pytest.fixture(params=SOURCES, scope="module")
def rendered(request: pytest.FixtureRequest, chart: Chart) -> Rendered:
    example, values = SOURCES[request.param]
    return chart.render(example, **values)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_manifest(rendered: Rendered, version: str) -> None:
    own = [each for each in rendered.manifests if each["kind"] not in FOREIGN]
    assert own
    for manifest in own:
        needed = CLAIMS_SINCE if "resourceClaims" in json.dumps(manifest) else VERSIONS[0]
        assert problems(max(version, needed), manifest) == [], manifest["metadata"]["name"]


def test_names_are_unique_and_short_enough(rendered: Rendered) -> None:
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in rendered.manifests
    ]
    assert len(set(names)) == len(names)
    for kind, _, name in names:
        # A StatefulSet's name becomes a label value with a hash of eleven characters behind it.
        assert len(name) <= (52 if kind == "StatefulSet" else 63)


def test_every_manifest_says_whose_it_is(rendered: Rendered) -> None:
    for each in rendered.manifests:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "r"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"


def test_no_text_is_left_over_from_a_template(rendered: Rendered) -> None:
    for each in rendered.manifests:
        text = json.dumps(each)
        assert "<no value>" not in text
        assert "%!" not in text


def test_volumes_and_mounts_belong_together(rendered: Rendered) -> None:
    for _, template in rendered.pod_templates():
        pod = template["spec"]
        volumes = [volume["name"] for volume in pod["volumes"]]
        assert len(set(volumes)) == len(volumes)
        mounts = [mount for each in pod["containers"] for mount in each.get("volumeMounts", ())]
        assert {mount["name"] for mount in mounts} == set(volumes)
        paths = [mount["mountPath"] for mount in mounts]
        assert len(set(paths)) == len(paths)


def test_selectors_find_their_own_pods_and_no_others(rendered: Rendered) -> None:
    templates = [(each["metadata"]["name"], template) for each, template in rendered.pod_templates()]

    def found_by(selector: dict[str, str]) -> set[str]:
        return {
            name for name, template in templates if selector.items() <= template["metadata"]["labels"].items()
        }

    for each, _ in rendered.pod_templates():
        assert found_by(each["spec"]["selector"]["matchLabels"]) == {each["metadata"]["name"]}
    for service in rendered.all("Service"):
        assert found_by(service["spec"]["selector"]) == {
            service["metadata"]["name"].removesuffix("-headless")
        }


def test_ports_have_the_names_that_are_asked_for(rendered: Rendered) -> None:
    for _, template in rendered.pod_templates():
        for container in template["spec"]["containers"]:
            ports = {port["name"] for port in container.get("ports", ())}
            for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
                if kind in container:
                    (action,) = container[kind].keys() & {"httpGet", "tcpSocket"}
                    assert container[kind][action]["port"] in ports
    for service in rendered.all("Service"):
        assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
