"""`disagg_cluster`, the metadata server and what goes with them."""

import pytest

from proxy.config.disagg_cluster import DisaggCluster
from proxy.config.errors import ConfigError
from proxy.config.metadata_server import MetadataServer
from proxy.config.minimal_instances import MinimalInstances

HTTP = "disagg_cluster: {cluster_uri: 'http://proxy:8000'}"
ETCD = "disagg_cluster: {cluster_uri: 'etcd://etcd:2379'}"
SECTIONS = """
context_servers: {num_instances: 1, urls: ["c:1"]}
generation_servers: {urls: ["g:1"]}
"""


def about(settings, word):
    """The warnings that contain a word."""
    return [warning for warning in settings.warnings if word in warning]


def test_everything_upstream_has(load):
    settings = load(
        """
        disagg_cluster:
          cluster_uri: http://proxy:8000
          cluster_name: c1
          minimal_instances: {context_servers: 2, generation_servers: 3}
          heartbeat_interval_sec: 4
          inactive_timeout_sec: 12
        """
    )
    cluster = settings.disagg_cluster
    assert cluster == DisaggCluster("http://proxy:8000", "c1", MinimalInstances(2, 3), 4, 12)
    assert cluster.embedded
    assert settings.etcd_hosts == ()
    assert settings.proxy.minimal_instances == MinimalInstances(2, 3)
    assert settings.resolved()["disagg_cluster"]["minimal_instances"] == {
        "context_servers": 2,
        "generation_servers": 3,
    }


def test_defaults_are_upstreams(load):
    settings = load(ETCD)
    assert settings.disagg_cluster == DisaggCluster("etcd://etcd:2379", "", MinimalInstances(1, 1), 5, 10)
    assert settings.proxy.minimal_instances == MinimalInstances(1, 1)
    assert load("").disagg_cluster is None
    assert load("disagg_cluster: null").disagg_cluster is None


def test_own_minimal_instances_win(load):
    text = f"{HTTP}\nproxy: {{minimal_instances: {{context_servers: 0}}}}"
    assert load(text).proxy.minimal_instances == MinimalInstances(0, 1)


def test_the_environment(load):
    settings = load("", environ={"DISAGG_PROXY_DISAGG_CLUSTER": "{cluster_uri: 'etcd://a:1,etcd://b:2'}"})
    assert settings.etcd_hosts == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("uri", "hosts"),
    [
        ("etcd://etcd", ("etcd:2379",)),
        ("etcd://10.0.0.1:2379/", ("10.0.0.1:2379",)),
        ("etcd://[fd00::1]:23", ("[fd00::1]:23",)),
        ("etcd://[fd00::1]", ("[fd00::1]:2379",)),
        ("etcd://a:1,etcd://b:2,etcd://c", ("a:1", "b:2", "c:2379")),
    ],
)
def test_etcd_uris(load, uri, hosts):
    settings = load(f"disagg_cluster: {{cluster_uri: '{uri}'}}")
    assert settings.etcd_hosts == hosts
    assert not settings.disagg_cluster.embedded


@pytest.mark.parametrize(
    "uri",
    [
        "proxy:8000",
        "grpc://etcd:2379",
        "http://",
        "http://proxy:8000/path",
        "http://proxy:x",
        "etcd://",
        "etcd://a:1,b:2",
        "etcd://a:1,",
        "etcd://a:70000",
        "etcd://a:1/path",
    ],
)
def test_no_uris(load, uri):
    with pytest.raises(ConfigError) as caught:
        load(f"disagg_cluster: {{cluster_uri: '{uri}'}}")
    assert caught.value.key == "disagg_cluster.cluster_uri"


@pytest.mark.parametrize("uri", ["etcd://root:secret@a:1", "http://root:secret@proxy:8000"])
def test_passwords_have_another_place(load, uri):
    with pytest.raises(ConfigError) as caught:
        load(f"disagg_cluster: {{cluster_uri: '{uri}'}}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("disagg_cluster: etcd", "disagg_cluster", "expected a mapping"),
        ("disagg_cluster: [a]", "disagg_cluster", "expected a mapping"),
        ("disagg_cluster: {}", "disagg_cluster.cluster_uri", "is missing"),
        ("disagg_cluster: {cluster_url: x}", "disagg_cluster.cluster_url", 'did you mean "cluster_uri"?'),
        ("disagg_cluster: {frobnicate: x}", "disagg_cluster.frobnicate", "known keys: cluster_name"),
        (
            "disagg_cluster: {cluster_uri: 'etcd://a', minimal_instances: {context_server: 1}}",
            "disagg_cluster.minimal_instances.context_server",
            'did you mean "context_servers"?',
        ),
        (
            "disagg_cluster: {cluster_uri: 'etcd://a', inactive_timeout_sec: 1.5}",
            "disagg_cluster.inactive_timeout_sec",
            "a whole number",
        ),
        ("proxy: {etcd_user: root}", "proxy.etcd_user", "needs etcd_password_file"),
        ("proxy: {etcd_password_file: x}", "proxy.etcd_password_file", "needs etcd_user"),
        ("proxy: {etcd_tls_keyfile: x}", "proxy.etcd_tls_keyfile", "needs etcd_tls_certfile"),
        (f"node_id: auto\n{HTTP}", "node_id", "needs the etcd of"),
        ("node_id: auto", "node_id", "needs the etcd of"),
    ],
)
def test_mistakes(load, text, key, problem):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.key == key
    assert problem in caught.value.problem


@pytest.mark.parametrize("text", [HTTP, ETCD, "proxy: {metadata_server: {server_type: etcd}}"])
def test_listed_urls_are_not_used(load, text):
    settings = load(f"{text}\n{SECTIONS}")
    assert settings.workers == ()
    assert settings.context_servers.num_instances == 0
    assert about(settings, "urls") == [
        "context_servers.urls is not used: the workers register by themselves",
        "generation_servers.urls is not used: the workers register by themselves",
    ]
    assert about(load(text), "urls") == []


def test_own_workers_are_used_beside_those_that_register(load):
    settings = load(f"{HTTP}\nproxy: {{workers: [{{url: 'c:1', role: context}}]}}")
    assert [worker.address.text for worker in settings.workers] == ["c:1"]


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (f"port: 8000\n{HTTP}", False),
        (f"port: 0\n{HTTP}", False),
        (f"port: 9000\n{HTTP}", True),
        ("port: 80\ndisagg_cluster: {cluster_uri: 'http://proxy'}", False),
        ("disagg_cluster: {cluster_uri: 'https://proxy'}", True),
    ],
)
def test_a_uri_that_does_not_lead_here(load, text, warned):
    assert bool(about(load(text), "served at the proxy's own port")) == warned


@pytest.mark.parametrize(("interval", "timeout"), [(10, 10), (0, 10), (-1, 10), (20, 10)])
def test_workers_without_heartbeats(load, interval, timeout):
    text = f"{{cluster_uri: 'etcd://a', heartbeat_interval_sec: {interval}, inactive_timeout_sec: {timeout}}}"
    assert about(load(f"disagg_cluster: {text}"), "send no heartbeats")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"hostname: 0.0.0.0\n{HTTP}", "whoever reaches the port can register"),
        (
            f"hostname: 0.0.0.0\n{HTTP}\nproxy: {{api_keys_file: x}}",
            "keys in proxy.api_keys_file to register",
        ),
        (
            f"{HTTP}\nproxy: {{cluster_storage_key_file: x}}",
            "key in proxy.cluster_storage_key_file to register",
        ),
        (f"hostname: 0.0.0.0\n{ETCD}", None),
        (HTTP, None),
    ],
)
def test_who_may_register_is_told(load, text, words):
    told = about(load(text), "register")
    assert [words in warning for warning in told] == ([True] if words else [])


def test_keys_without_effect(load):
    settings = load(f"{HTTP}\nproxy: {{etcd_tls_ca: x}}")
    assert about(settings, "proxy.etcd_tls_ca has no effect")
    assert about(load("proxy: {cluster_storage_key_file: x}"), "has no effect")
    assert not about(load(f"{ETCD}\nproxy: {{etcd_tls_ca: x}}"), "has no effect")


@pytest.mark.parametrize("value", ["auto", "AUTO"])
def test_a_node_id_from_etcd(load, value):
    assert load(f"node_id: {value}\n{ETCD}").node_id is None
    assert load(ETCD, environ={"DISAGG_PROXY_NODE_ID": value}).node_id is None


def test_the_metadata_server_in_a_file(load, tmp_path):
    (tmp_path / "etcd.yaml").write_text("{server_type: etcd, hostname: 'fd00::1', port: 23}")
    settings = load("", metadata_server="etcd.yaml")
    assert settings.proxy.metadata_server == MetadataServer("etcd", "fd00::1", 23, 5.0, 10.0)
    assert settings.etcd_hosts == ("[fd00::1]:23",)
    assert load("", environ={"DISAGG_PROXY_METADATA_SERVER": "etcd.yaml"}).proxy == settings.proxy
    assert load("proxy: {metadata_server: etcd.yaml}").proxy == settings.proxy


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("{hostname: etcd}", "metadata_server.server_type"),
        ("{server_type: consul}", "metadata_server.server_type"),
        ("{server_type: etcd, port: 0}", "metadata_server.port"),
        ("{server_type: etcd, refersh_interval: 1}", "metadata_server.refersh_interval"),
        ("[etcd]", ""),
    ],
)
def test_mistakes_in_the_file_of_the_metadata_server(load, tmp_path, text, key):
    (tmp_path / "etcd.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load("", metadata_server="etcd.yaml")
    assert (caught.value.origin, caught.value.key) == ("etcd.yaml", key)


def test_a_file_that_is_not_there(load):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load("", metadata_server="nowhere.yaml")
