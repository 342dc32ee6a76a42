"""The pods of the proxies."""

import math
from pathlib import Path
from typing import Any

import pytest
from chart import EXAMPLES, NAME, SECRETS, Chart
from chart_options import OPTIONS

from proxy.config.load import load_settings

PROBES = {"livenessProbe": "/health/live", "readinessProbe": "/health/ready", "startupProbe": "/health/live"}


def environment(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in container["env"]}


def test_the_program_gets_the_file(chart: Chart) -> None:
    rendered = chart.render(**{"extraArgs": ["--log-level", "debug"]})
    assert rendered.container["args"] == [
        "serve",
        "-c",
        "/etc/disagg-proxy/config.yaml",
        "--log-level",
        "debug",
    ]
    assert "command" not in rendered.container
    mounts = {mount["name"]: mount["mountPath"] for mount in rendered.container["volumeMounts"]}
    assert mounts["config"] == "/etc/disagg-proxy"
    volumes = {volume["name"]: volume for volume in rendered.pod["volumes"]}
    assert volumes["config"]["configMap"]["name"] == rendered.get("ConfigMap")["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, "disagg-proxy:0.1.0"),
        ({"image.tag": "edge"}, "disagg-proxy:edge"),
        ({"image.tag": "edge", "image.digest": "sha256:" + "0" * 64}, "disagg-proxy@sha256:" + "0" * 64),
    ],
)
def test_image(chart: Chart, values: dict[str, Any], image: str) -> None:
    assert chart.render(**values).container["image"] == image


@pytest.mark.parametrize("probe", PROBES)
def test_probes_ask_the_routes_of_the_proxy(chart: Chart, probe: str) -> None:
    container = chart.render().container
    assert container[probe]["httpGet"] == {"path": PROBES[probe], "port": "http", "scheme": "HTTP"}
    assert container[probe]["failureThreshold"] >= 2
    container = chart.render(**OPTIONS["tls"]).container
    assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    container = chart.render(**OPTIONS["mutual_tls"]).container
    assert container[probe]["tcpSocket"] == {"port": "http"}
    assert "httpGet" not in container[probe]


def test_the_port_is_that_of_the_configuration(chart: Chart) -> None:
    rendered = chart.render(**{"config.port": 9000})
    assert rendered.container["ports"] == [{"name": "http", "containerPort": 9000}]
    assert rendered.config["port"] == 9000
    assert rendered.config["hostname"] == "0.0.0.0"


@pytest.mark.parametrize("values", [OPTIONS["default"], OPTIONS["deployment"], OPTIONS["secrets"]])
def test_pods_are_locked_down(chart: Chart, values: dict[str, Any]) -> None:
    rendered = chart.render(**values)
    pod, container = rendered.pod, rendered.container
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/run/disagg-proxy", "/tmp"}


def test_ordinals_are_node_ids(chart: Chart) -> None:
    rendered = chart.render()
    assert rendered.workload["kind"] == "StatefulSet"
    spec = rendered.workload["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert "ordinals" not in spec
    assert spec["serviceName"] == rendered.get("Service", f"{NAME}-headless")["metadata"]["name"]
    source = environment(rendered.container)["DISAGG_PROXY_NODE_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == "metadata.labels['apps.kubernetes.io/pod-index']"
    assert chart.render(**OPTIONS["first_node_id"]).workload["spec"]["ordinals"] == {"start": 16}


@pytest.mark.parametrize(("ordinal", "node_id"), [("0", 0), ("17", 17), ("", None)])
def test_the_proxy_understands_the_ordinal(
    chart: Chart, tmp_path: Path, ordinal: str, node_id: int | None
) -> None:
    (tmp_path / "config.yaml").write_text(chart.render().config_text)
    environ = {"DISAGG_PROXY_NODE_ID": ordinal, "POD_NAME": "r-0"}
    settings = load_settings(str(tmp_path / "config.yaml"), overrides={}, environ=environ)
    assert settings.node_id == node_id


def test_a_deployment_has_no_ordinals(chart: Chart) -> None:
    rendered = chart.render(**OPTIONS["deployment"])
    assert rendered.workload["kind"] == "Deployment"
    assert "DISAGG_PROXY_NODE_ID" not in environment(rendered.container)
    assert rendered.workload["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert [each["metadata"]["name"] for each in rendered.all("Service")] == [NAME]
    assert not {"serviceName", "podManagementPolicy", "updateStrategy"} & rendered.workload["spec"].keys()


def test_node_ids_of_an_etcd(chart: Chart) -> None:
    for kind in ("StatefulSet", "Deployment"):
        values = {**OPTIONS["workers_by_cluster"], "config.node_id": "auto", "workload.kind": kind}
        rendered = chart.render(**values)
        assert rendered.config["node_id"] == "auto"
        assert "DISAGG_PROXY_NODE_ID" not in environment(rendered.container)


def test_replicas_are_left_to_an_autoscaler(chart: Chart) -> None:
    assert chart.render().workload["spec"]["replicas"] == 2
    assert chart.render(**{"replicas": 0}).workload["spec"]["replicas"] == 0
    for name in ("autoscaling", "keda"):
        for kind in ("StatefulSet", "Deployment"):
            rendered = chart.render(**OPTIONS[name], **{"workload.kind": kind})
            assert "replicas" not in rendered.workload["spec"]


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, 5 + 10 + 600 + 20),
        ({"config.proxy.drain_timeout": 30.5, "config.proxy.drain_grace": 0}, 5 + 0 + 31 + 20),
        ({"shutdown.preStopSeconds": 0, "shutdown.marginSeconds": 1}, 0 + 10 + 600 + 1),
        ({"config.proxy": None}, 5 + 5 + 600 + 20),
    ],
)
def test_a_pod_has_time_to_drain(chart: Chart, tmp_path: Path, values: dict[str, Any], seconds: int) -> None:
    rendered = chart.render(**values)
    assert rendered.pod["terminationGracePeriodSeconds"] == seconds
    (tmp_path / "config.yaml").write_text(rendered.config_text)
    proxy = load_settings(str(tmp_path / "config.yaml"), overrides={}, environ={}).proxy
    waiting = 0
    if "lifecycle" in rendered.container:
        (command, waits) = rendered.container["lifecycle"]["preStop"]["exec"]["command"]
        assert command == "sleep"
        waiting = int(waits)
    assert seconds > waiting + math.ceil(proxy.drain_grace) + math.ceil(proxy.drain_timeout)


def test_no_hook_without_its_time(chart: Chart) -> None:
    assert "lifecycle" in chart.render().container
    assert "lifecycle" not in chart.render(**{"shutdown.preStopSeconds": 0}).container


def test_a_changed_configuration_replaces_pods_unless_told_otherwise(chart: Chart) -> None:
    def annotations(**values: Any) -> dict[str, str]:
        found: dict[str, str] = (
            chart.render(**values).workload["spec"]["template"]["metadata"].get("annotations", {})
        )
        return found

    assert annotations() != annotations(**{"config.proxy.log_level": "debug"})
    assert annotations() == annotations(**{"service.port": 80})
    assert annotations(restartOnConfigChange=False) == {}
    assert annotations(restartOnConfigChange=False, podAnnotations={"a": "b"}) == {"a": "b"}


def test_secrets_are_mounted_where_the_configuration_says(chart: Chart) -> None:
    rendered = chart.render(**OPTIONS["secrets"], **OPTIONS["mutual_tls"])
    volumes = {volume["name"]: volume for volume in rendered.pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in rendered.container["volumeMounts"]}
    expected = {
        "admin_token_file": ("admin", "admin", "token"),
        "api_keys_file": ("api-keys", "keys", "keys"),
        "worker_api_key_file": ("worker-api-key", "worker", "token"),
        "tls_certfile": ("tls", "cert", "tls.crt"),
        "tls_keyfile": ("tls", "cert", "tls.key"),
        "tls_client_ca": ("tls", "cert", "ca.crt"),
        "worker_tls_ca": ("worker-ca", "ca", "ca.crt"),
        "worker_tls_certfile": ("worker-tls", "client", "tls.crt"),
        "worker_tls_keyfile": ("worker-tls", "client", "tls.key"),
    }
    config = rendered.config["proxy"]
    for key, (folder, secret, name) in expected.items():
        assert config[key] == f"{SECRETS}/{folder}/{name}"
        mount = mounts[f"{SECRETS}/{folder}"]
        assert mount["readOnly"] is True
        assert "subPath" not in mount, "a file mounted by subPath does not change with its Secret"
        assert volumes[mount["name"]]["secret"] == {"secretName": secret, "defaultMode": 0o440}
    key = environment(rendered.container)["DISAGG_PROXY_INTERNAL_REQUEST_AUTH_KEY"]
    assert key["valueFrom"]["secretKeyRef"] == {"name": "signing", "key": "key"}
    assert not [key for key in chart.render().config["proxy"] if key.endswith(("_file", "file", "_ca"))]


def test_admin_routes_are_not_for_other_pods(chart: Chart) -> None:
    assert chart.render().config["proxy"]["admin_listen"].startswith("127.0.0.1:")
    socket = chart.render(**OPTIONS["admin_on_a_socket"])
    path = socket.config["proxy"]["admin_listen"].removeprefix("unix:")
    assert str(Path(path).parent) in {mount["mountPath"] for mount in socket.container["volumeMounts"]}
    assert "admin_listen" not in chart.render(**OPTIONS["no_admin"]).config["proxy"]
    for rendered in (chart.render(), socket):
        assert [port["name"] for port in rendered.container["ports"]] == ["http"]


def test_spread(chart: Chart) -> None:
    (own,) = chart.render().pod["topologySpreadConstraints"]
    assert own["labelSelector"]["matchLabels"] == chart.render().workload["spec"]["selector"]["matchLabels"]
    given = {**own, "labelSelector": {"matchLabels": {"a": "b"}}}
    assert chart.render(topologySpreadConstraints=[given]).pod["topologySpreadConstraints"] == [given]


def test_everything_extra_gets_into_the_pod(chart: Chart) -> None:
    values = OPTIONS["pod"]
    rendered = chart.render(**values)
    pod, container = rendered.pod, rendered.container
    for key in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert pod[key] == values[key]
    assert pod["runtimeClassName"] == "gvisor"
    assert pod["dnsConfig"] == values["dnsConfig"]
    assert pod["initContainers"] == values["initContainers"]
    assert pod["containers"][1:] == values["sidecars"]
    assert values["extraEnv"][0] in container["env"]
    assert container["envFrom"] == values["extraEnvFrom"]
    assert values["extraVolumes"][0] in pod["volumes"]
    assert values["extraVolumeMounts"][0] in container["volumeMounts"]
    metadata = rendered.workload["spec"]["template"]["metadata"]
    assert metadata["labels"]["tier"] == "edge"
    assert metadata["annotations"] == {"note": "x"}
    assert all(each["metadata"]["labels"]["team"] == "llm" for each in rendered.manifests)
    assert rendered.workload["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert "topologySpreadConstraints" not in pod


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_program_takes_the_configuration_of_every_example(
    chart: Chart, tmp_path: Path, example: Path
) -> None:
    rendered = chart.render(example)
    (tmp_path / "config.yaml").write_text(rendered.config_text)
    settings = load_settings(str(tmp_path / "config.yaml"), overrides={}, environ={})
    assert settings.warnings == ()
    assert settings.inherited == {}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_program_takes_the_configuration_of_every_option(chart: Chart, tmp_path: Path, name: str) -> None:
    (tmp_path / "config.yaml").write_text(chart.render(**OPTIONS[name]).config_text)
    settings = load_settings(str(tmp_path / "config.yaml"), overrides={}, environ={})
    # Only the sets with `workers` name any.
    assert [each for each in settings.warnings if "has no urls" not in each] == []
    assert settings.inherited == {}
