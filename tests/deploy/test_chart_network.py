"""Services, routes from outside, network policy, access to the Kubernetes API."""

from typing import Any

import pytest
from chart import NAME, NAMESPACE, Chart
from chart_options import OPTIONS

from proxy.config.settings import ProxySettings


def test_service(chart: Chart) -> None:
    rendered = chart.render()
    spec = rendered.get("Service")["spec"]
    assert spec["type"] == "ClusterIP"
    assert spec["ports"] == [{"name": "http", "port": 8000, "targetPort": "http", "appProtocol": "http"}]
    headless = rendered.get("Service", f"{NAME}-headless")["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    spec = chart.render(**OPTIONS["service"]).get("Service")["spec"]
    assert spec["type"] == "LoadBalancer"
    assert spec["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert spec["externalTrafficPolicy"] == "Local"
    assert spec["ports"][0]["nodePort"] == 30080


def test_ingress_lets_streams_and_long_prompts_pass(chart: Chart) -> None:
    ingress = chart.render(**OPTIONS["ingress"]).get("Ingress")
    annotations = {
        key.removeprefix("nginx.ingress.kubernetes.io/"): value
        for key, value in ingress["metadata"]["annotations"].items()
    }
    assert annotations["proxy-buffering"] == "off"
    assert annotations["proxy-request-buffering"] == "off"
    assert annotations["proxy-body-size"] == f"{ProxySettings().max_body_bytes // 1024**2}m"
    proxy = ProxySettings()
    silence = proxy.timeout_queue + proxy.timeout_context + proxy.timeout_first_byte
    assert int(annotations["proxy-read-timeout"]) > silence
    assert "backend-protocol" not in annotations
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "llm.example.com"
    (path,) = rule["http"]["paths"]
    assert (path["path"], path["pathType"]) == ("/", "Prefix")
    assert path["backend"]["service"] == {"name": NAME, "port": {"name": "http"}}
    assert ingress["spec"]["tls"] == [{"secretName": "cert", "hosts": ["llm.example.com"]}]


def test_ingress_without_a_host_or_before_tls(chart: Chart) -> None:
    (rule,) = chart.render(**OPTIONS["ingress_any_host"]).get("Ingress")["spec"]["rules"]
    assert rule.keys() == {"http"}
    annotations = chart.render(**OPTIONS["tls"]).get("Ingress")["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/backend-protocol"] == "HTTPS"


def test_http_route(chart: Chart) -> None:
    route = chart.render(**OPTIONS["http_route"]).get("HTTPRoute")
    assert route["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert route["spec"]["parentRefs"] == [{"name": "gateway", "namespace": "infra"}]
    assert route["spec"]["hostnames"] == ["llm.example.com"]
    (rule,) = route["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    # 0s switches a time-out off: a gateway's default would cut long streams.
    assert rule["timeouts"] == {"request": "0s", "backendRequest": "0s"}
    assert rule["backendRefs"] == [{"name": NAME, "port": 8000}]


def test_nothing_is_reachable_from_outside_by_default(chart: Chart) -> None:
    rendered = chart.render()
    assert not [*rendered.all("Ingress"), *rendered.all("HTTPRoute"), *rendered.all("NetworkPolicy")]
    assert {each["spec"].get("type", "ClusterIP") for each in rendered.all("Service")} == {"ClusterIP"}


def test_network_policy_for_everybody(chart: Chart) -> None:
    spec = chart.render(**OPTIONS["network_policy"]).get("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"ports": [{"protocol": "TCP", "port": "http"}]}]
    assert spec["egress"] == [{"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}]
    spec = chart.render(**{"networkPolicy.enabled": True}).get("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "egress" not in spec


def test_network_policy_for_some(chart: Chart) -> None:
    values = OPTIONS["network_policy_of_some"]
    rendered = chart.render(**values)
    own = rendered.get("NetworkPolicy")["spec"]
    clients, scrapers = values["networkPolicy.clients"], values["networkPolicy.scrapers"]
    assert own["ingress"] == [{"ports": [{"protocol": "TCP", "port": "http"}], "from": [*clients, *scrapers]}]
    workers = rendered.get("NetworkPolicy", f"{NAME}-workers")["spec"]
    (to_workers,) = (rule for rule in own["egress"] if "to" in rule)
    assert to_workers == {"to": [{"podSelector": workers["podSelector"]}]}
    assert values["networkPolicy.extraEgress"][0] in own["egress"]
    requests, caches = workers["ingress"]
    assert requests["from"] == [{"podSelector": own["podSelector"]}, *values["networkPolicy.workerClients"]]
    assert requests["ports"] == [{"protocol": "TCP", "port": "http"}]
    assert caches == {"from": [{"podSelector": workers["podSelector"]}]}
    (group,) = (each for each in rendered.all("StatefulSet") if each["metadata"]["name"] != NAME)
    labels = group["spec"]["template"]["metadata"]["labels"]
    assert workers["podSelector"]["matchLabels"].items() <= labels.items()
    assert not own["podSelector"]["matchLabels"].items() <= labels.items()


def test_workers_may_register(chart: Chart) -> None:
    values = {**OPTIONS["workers_by_cluster"], "networkPolicy.enabled": True}
    rendered = chart.render(**values, **{"networkPolicy.clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]})
    (rule,) = rendered.get("NetworkPolicy")["spec"]["ingress"]
    workers = rendered.get("NetworkPolicy", f"{NAME}-workers")["spec"]["podSelector"]
    assert {"podSelector": workers} in rule["from"]


@pytest.mark.parametrize("name", OPTIONS)
def test_no_access_to_the_api_unless_it_is_asked_for_workers(chart: Chart, name: str) -> None:
    rendered = chart.render(**OPTIONS[name])
    asked = any(source["type"] == "kubernetes" for source in rendered.config["proxy"].get("discovery", ()))
    assert asked is ("kubernetes" in name)
    of_nodes = ["ClusterRole", "ClusterRoleBinding"] if name == "workers_by_kubernetes_and_nodes" else []
    assert sorted(each["kind"] for each in rendered.manifests if "Role" in each["kind"]) == (
        [*of_nodes, "Role", "RoleBinding"] if asked else []
    )
    assert rendered.pod["automountServiceAccountToken"] is asked


def test_access_to_endpoint_slices_alone(chart: Chart) -> None:
    rendered = chart.render(**OPTIONS["workers_by_kubernetes"])
    (role,) = rendered.all("Role")
    assert role["rules"] == [
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    (binding,) = rendered.all("RoleBinding")
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    assert role["metadata"]["name"] == NAME
    account = rendered.pod["serviceAccountName"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {NAMESPACE}
    (to_api,) = (
        rule
        for rule in rendered.get("NetworkPolicy")["spec"]["egress"]
        if {"port": 6443, "protocol": "TCP"} in rule.get("ports", ())
    )
    assert "to" not in to_api, "the API server is no pod"


def test_nodes_are_read_for_their_labels_alone(chart: Chart) -> None:
    """Nodes are in no namespace, and two releases of one name may be in two namespaces."""
    rendered = chart.render(**OPTIONS["workers_by_kubernetes_and_nodes"])
    (role,), (binding,) = rendered.all("ClusterRole"), rendered.all("ClusterRoleBinding")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    name = f"{NAMESPACE}-{NAME}"
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": name,
    }
    assert [each["metadata"]["name"] for each in (role, binding)] == [name, name]
    account = rendered.pod["serviceAccountName"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    own = [{"type": "kubernetes", "role": "context", "service": "c", "node_label": "rack"}]
    assert chart.render(**{"config.proxy.discovery": own}).all("ClusterRole")
    assert not chart.render(**{"config.proxy.discovery": own, "rbac.create": False}).all("ClusterRole")


def test_a_role_in_each_namespace_that_is_asked(chart: Chart) -> None:
    sources = [
        {"type": "kubernetes", "name": "a", "role": "context", "service": "a", "namespace": "blue"},
        {"type": "kubernetes", "name": "b", "role": "generation", "service": "b", "namespace": "blue"},
        {"type": "kubernetes", "name": "c", "role": "generation", "service": "c"},
    ]
    rendered = chart.render(**{"config.proxy.discovery": sources})
    assert [each["metadata"]["namespace"] for each in rendered.all("Role")] == ["blue", NAMESPACE]
    assert [each["metadata"]["namespace"] for each in rendered.all("RoleBinding")] == ["blue", NAMESPACE]
    assert {each["subjects"][0]["namespace"] for each in rendered.all("RoleBinding")} == {NAMESPACE}
    assert not chart.render(**{"config.proxy.discovery": sources, "rbac.create": False}).all("Role")


@pytest.mark.parametrize(
    ("values", "name", "made"),
    [
        ({}, NAME, True),
        (OPTIONS["own_account"], "own", True),
        (OPTIONS["given_account"], "given", False),
        ({"serviceAccount.create": False}, "default", False),
    ],
)
def test_service_account(chart: Chart, values: dict[str, Any], name: str, made: bool) -> None:
    rendered = chart.render(**values)
    assert rendered.pod["serviceAccountName"] == name
    accounts = rendered.all("ServiceAccount")
    assert [each["metadata"]["name"] for each in accounts] == ([name] if made else [])
    assert all(each["automountServiceAccountToken"] is False for each in accounts)


def test_namespace_of_the_release(chart: Chart) -> None:
    assert f".{NAMESPACE}.svc.cluster.local" in chart.notes()
