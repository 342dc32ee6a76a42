"""The workers that the chart may bring along."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import EXAMPLES, NAME, NAMESPACE, Chart, Manifest, Rendered
from chart_options import OPTIONS

from proxy.config.discovery.dns import DnsEntry
from proxy.config.discovery.file import FileEntry
from proxy.config.discovery.kubernetes import KubernetesEntry
from proxy.config.listed_worker import ListedWorker
from proxy.config.load import load_settings
from proxy.config.values import Entry
from proxy.config.worker_list import read_worker_list
from proxy.workers.worker import DOMAIN_LABEL

BY_NAME = {path.name: path for path in EXAMPLES}


def groups(rendered: Rendered) -> dict[str, Manifest]:
    """The StatefulSets of workers by the names of their groups."""
    found = (each for each in rendered.all("StatefulSet") if each["metadata"]["name"] != NAME)
    return {each["spec"]["template"]["metadata"]["labels"]["disagg-proxy/group"]: each for each in found}


def container(group: Manifest) -> dict[str, Any]:
    (only,) = group["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def listed(rendered: Rendered, folder: Path) -> tuple[ListedWorker, ...]:
    """The workers as the proxy understands its configuration."""
    (folder / "config.yaml").write_text(rendered.config_text)
    settings = load_settings(str(folder / "config.yaml"), overrides={}, environ={})
    found = list(settings.workers)
    mounts = {mount["name"]: mount["mountPath"] for mount in rendered.container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in rendered.pod["volumes"]}
    for source in settings.proxy.discovery:
        assert isinstance(source, FileEntry)
        assert Path(source.path).parent == Path(mounts["workers"])
        files = rendered.get("ConfigMap", volumes["workers"]["configMap"]["name"])["data"]
        found += read_worker_list("", Entry(yaml.safe_load(files[Path(source.path).name]), ""))
    return tuple(found)


@pytest.mark.parametrize(
    ("example", "context", "generation"),
    [("1c1g.yaml", 1, 1), ("6c1g.yaml", 6, 1), ("gb200-arm64.yaml", 8, 4)],
)
def test_the_proxy_is_told_every_pod(
    chart: Chart, tmp_path: Path, example: str, context: int, generation: int
) -> None:
    rendered = chart.render(BY_NAME[example])
    workers = listed(rendered, tmp_path)
    assert [worker.role for worker in workers].count("context") == context
    assert [worker.role for worker in workers].count("generation") == generation
    addresses = {}
    for group in groups(rendered).values():
        spec = group["spec"]
        service = rendered.get("Service", spec["serviceName"])
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["publishNotReadyAddresses"] is True
        role = spec["template"]["metadata"]["labels"]["disagg-proxy/role"]
        port = container(group)["ports"][0]["containerPort"]
        for index in range(spec["replicas"]):
            # What the cluster's DNS calls the pods of a StatefulSet.
            host = f"{group['metadata']['name']}-{index}.{spec['serviceName']}.{NAMESPACE}.svc.cluster.local"
            addresses[host, port] = role
    assert {(each.address.host, each.address.port): each.role for each in workers} == addresses


def test_workers_are_listed_beside_others(chart: Chart, tmp_path: Path) -> None:
    values = {
        **OPTIONS["workers"],
        "config.proxy.workers": [{"url": "far:1", "role": "generation"}],
        "config.context_servers.urls": ["near:1"],
    }
    workers = listed(chart.render(**values), tmp_path)
    assert [worker.address.port for worker in workers] == [1, 1, 8000, 9000, 9000]
    workers = listed(chart.render(**values, **{"workers.foundBy": "config"}), tmp_path)
    assert [worker.address.text for worker in workers] == ["near:1", "far:1"]


def test_domains_of_the_nodes_reach_the_sources(chart: Chart) -> None:
    rendered = chart.render(**OPTIONS["workers_by_kubernetes_and_nodes"])
    (source,) = rendered.config["proxy"]["discovery"]
    assert source["node_label"] == "nvidia.com/gpu.clique"
    assert not {"labels", "domain"} & source.keys()


def test_nvlink_domains_reach_placement_and_nodes(chart: Chart, tmp_path: Path) -> None:
    rendered = chart.render(BY_NAME["gb200-arm64.yaml"])
    workers = listed(rendered, tmp_path)
    for group in groups(rendered).values():
        pod = group["spec"]["template"]["spec"]
        required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        (condition,) = term["matchExpressions"]
        assert (condition["key"], condition["operator"]) == ("nvidia.com/gpu.clique", "In")
        prefix = group["metadata"]["name"] + "-"
        own = [worker for worker in workers if worker.address.host.startswith(prefix)]
        assert len(own) == group["spec"]["replicas"]
        assert [worker.labels[DOMAIN_LABEL] for worker in own] == condition["values"] * len(own)
        assert pod["nodeSelector"]["kubernetes.io/arch"] == "arm64"
    roles_of = {worker.labels[DOMAIN_LABEL]: set() for worker in workers}
    for worker in workers:
        roles_of[worker.labels[DOMAIN_LABEL]].add(worker.role)
    assert list(roles_of.values()) == [{"context", "generation"}] * 2


def test_a_domain_is_a_condition_of_each_given_term(chart: Chart) -> None:
    first = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    second = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]}
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": first}],
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [first, second]},
        },
        "podAntiAffinity": {},
    }
    group = {"name": "a", "model": "m", "domain": "d", "affinity": affinity}
    made = groups(chart.render(**{"workers.context": [group]}))["a"]["spec"]["template"]["spec"]["affinity"]
    here = {"key": "nvidia.com/gpu.clique", "operator": "In", "values": ["d"]}
    assert made["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [*first["matchExpressions"], here]},
        {**second, "matchExpressions": [here]},
    ]
    kept = "preferredDuringSchedulingIgnoredDuringExecution"
    assert made["nodeAffinity"][kept] == affinity["nodeAffinity"][kept]
    assert "podAntiAffinity" in made


def test_compute_domains(chart: Chart) -> None:
    rendered = chart.render(BY_NAME["gb200-arm64.yaml"])
    templates = {
        each["spec"]["channel"]["resourceClaimTemplate"]["name"] for each in rendered.all("ComputeDomain")
    }
    assert templates == {f"{NAME}-rack1-channel", f"{NAME}-rack2-channel"}
    claimed = set()
    for group in groups(rendered).values():
        (claim,) = group["spec"]["template"]["spec"]["resourceClaims"]
        assert container(group)["resources"]["claims"] == [{"name": claim["name"]}]
        claimed.add(claim["resourceClaimTemplateName"])
    assert claimed == templates


def test_claims_of_a_group_s_own(chart: Chart) -> None:
    group = groups(chart.render(**OPTIONS["workers"]))["b"]
    assert [each["name"] for each in group["spec"]["template"]["spec"]["resourceClaims"]] == [
        "gpu",
        "imex-channel",
    ]
    resources = container(group)["resources"]
    assert resources["claims"] == [{"name": "gpu"}, {"name": "imex-channel"}]
    assert resources["limits"] == {"memory": "1Gi"}, "the claim brings the GPUs"


def test_command_line_and_options(chart: Chart) -> None:
    rendered = chart.render(BY_NAME["6c1g.yaml"])
    context, generation = groups(rendered)["context"], groups(rendered)["generation"]
    assert container(context)["command"] == ["trtllm-serve", "serve"]
    model, *options = container(context)["args"]
    assert model == "/models/Qwen3-235B-A22B"
    pairs = dict(zip(options[::2], options[1::2], strict=True))
    assert pairs == {
        "--host": "0.0.0.0",
        "--port": "8000",
        "--extra_llm_api_options": "/etc/trtllm/options.yaml",
    }
    for group, tensor_parallel in ((context, 4), (generation, 8)):
        made = yaml.safe_load(
            rendered.get("ConfigMap", f"{group['metadata']['name']}-options")["data"]["options.yaml"]
        )
        assert made["tensor_parallel_size"] == tensor_parallel
        assert made["cache_transceiver_config"] == {"backend": "UCX", "max_tokens_in_buffer": 16384}
        assert made.get("disable_overlap_scheduler", False) is (group is context)
        assert container(group)["resources"]["limits"]["nvidia.com/gpu"] == tensor_parallel


def test_probes_wait_for_the_model(chart: Chart) -> None:
    for group in groups(chart.render(BY_NAME["1c1g.yaml"])).values():
        worker = container(group)
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert worker[kind]["httpGet"] == {"path": "/health", "port": "http"}
        assert worker["startupProbe"]["periodSeconds"] * worker["startupProbe"]["failureThreshold"] == 3600
    group = {"name": "a", "model": "m", "startupSeconds": 61}
    startup = container(groups(chart.render(**{"workers.context": [group]}))["a"])["startupProbe"]
    assert startup["failureThreshold"] == 7


def test_environment_volumes_and_memory(chart: Chart) -> None:
    group = groups(chart.render(**OPTIONS["workers"]))["b"]
    pod, worker = group["spec"]["template"]["spec"], container(group)
    plain = {each["name"]: each["value"] for each in worker["env"] if "value" in each}
    assert plain == {"UCX_TLS": "rc", "N": "1", "A": "b"}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
    assert volumes["model"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    mounts = {mount["name"]: mount["mountPath"] for mount in worker["volumeMounts"]}
    assert mounts == {"options": "/etc/trtllm", "shm": "/dev/shm", "model": "/models", "v": "/v"}
    assert pod["hostNetwork"] is True
    assert pod["automountServiceAccountToken"] is False
    assert worker["args"][-2:] == ["--log_level", "info"]


def test_a_group_overrides_defaults_also_by_nothing(chart: Chart) -> None:
    values = {
        "workers.defaults.hostNetwork": True,
        "workers.defaults.env": {"A": "1", "B": "1"},
        "workers.context": [
            {"name": "a", "model": "m", "gpus": 0, "hostNetwork": False, "tolerations": [], "env": {"A": "2"}}
        ],
    }
    group = groups(chart.render(**values))["a"]
    pod = group["spec"]["template"]["spec"]
    assert not {"hostNetwork", "tolerations"} & pod.keys()
    assert container(group)["resources"] == {}
    plain = {each["name"]: each["value"] for each in container(group)["env"] if "value" in each}
    assert plain == {"A": "2", "B": "1"}


def test_an_upgrade_of_the_chart_restarts_no_worker(chart: Chart) -> None:
    for group in groups(chart.render(BY_NAME["1c1g.yaml"])).values():
        labels = group["spec"]["template"]["metadata"]["labels"]
        assert not {"helm.sh/chart", "app.kubernetes.io/version"} & labels.keys()


def test_more_workers_restart_no_proxy(chart: Chart) -> None:
    def proxies(replicas: int) -> Manifest:
        group = {"name": "a", "model": "m", "replicas": replicas}
        return chart.render(**{"workers.context": [group]}).workload

    assert proxies(1) == proxies(2)


@pytest.mark.parametrize("kind", ["dns", "kubernetes"])
def test_workers_that_the_cluster_tells(chart: Chart, tmp_path: Path, kind: str) -> None:
    rendered = chart.render(**OPTIONS[f"workers_by_{kind}"])
    (tmp_path / "config.yaml").write_text(rendered.config_text)
    settings = load_settings(str(tmp_path / "config.yaml"), overrides={}, environ={})
    assert settings.warnings == ()
    assert len(settings.proxy.discovery) == 2
    for source in settings.proxy.discovery:
        group = groups(rendered)[source.name]
        service = rendered.get("Service", group["spec"]["serviceName"])
        if isinstance(source, DnsEntry):
            assert source.host == f"{service['metadata']['name']}.{NAMESPACE}.svc.cluster.local"
            assert source.port == container(group)["ports"][0]["containerPort"]
        else:
            assert isinstance(source, KubernetesEntry)
            assert (source.service, source.namespace) == (service["metadata"]["name"], None)
            assert source.port in [port["name"] for port in service["spec"]["ports"]]
        assert source.role == service["metadata"]["labels"]["disagg-proxy/role"]
        assert source.labels == ({"domain": "rack.1"} if source.name == "b" else {})
    assert "replicas" not in groups(rendered)["a"]["spec"]
    assert groups(rendered)["b"]["spec"]["replicas"] == 1
    assert not [each for each in rendered.all("ConfigMap") if each["metadata"]["name"] == f"{NAME}-workers"]


def test_workers_that_register(chart: Chart) -> None:
    rendered = chart.render(**OPTIONS["workers_by_cluster"])
    for name, role in (("a", "CONTEXT"), ("b", "GENERATION")):
        _, *arguments = container(groups(rendered)[name])["args"]
        pairs = dict(zip(arguments[::2], arguments[1::2], strict=True))
        # 0.0.0.0 would be registered as it is.
        assert (pairs["--host"], pairs["--server_role"]) == ("$(POD_IP)", role)
        options = yaml.safe_load(rendered.get("ConfigMap", f"{NAME}-{name}-options")["data"]["options.yaml"])
        assert options["disagg_cluster"] == rendered.config["disagg_cluster"]
    assert not rendered.config["proxy"].get("discovery")


def test_what_a_group_says_of_the_storage_is_its_own(chart: Chart) -> None:
    group = {"name": "a", "model": "m", "options": {"disagg_cluster": {"heartbeat_interval_sec": 1}}}
    rendered = chart.render(**{**OPTIONS["workers_by_cluster"], "workers.context": [group]})
    options = yaml.safe_load(rendered.get("ConfigMap", f"{NAME}-a-options")["data"]["options.yaml"])
    assert options["disagg_cluster"] == {**rendered.config["disagg_cluster"], "heartbeat_interval_sec": 1}
    assert "heartbeat_interval_sec" not in rendered.config["disagg_cluster"]
