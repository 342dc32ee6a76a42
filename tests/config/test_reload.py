import pytest

from proxy.config.reload import changes_for_restart

FILE = """
port: 8000
context_servers: {urls: [a:1], router: {type: round_robin}}
generation_servers: {urls: [b:1]}
proxy: {timeout_idle: 10, workers: [{url: "c:1", role: context}]}
"""


@pytest.mark.parametrize(
    ("before", "after", "keys"),
    [
        ("a:1", "a:1", []),
        ("[a:1]", "[x:1, y:1]", []),
        ('url: "c:1"', 'url: "d:1"', []),
        ("port: 8000", "port: 8001", ["port"]),
        (
            "timeout_idle: 10",
            "timeout_idle: 11, access_log: false",
            ["proxy.access_log", "proxy.timeout_idle"],
        ),
        ("round_robin", "load_balancing", ["context_servers.router"]),
        ("port: 8000", "port: 8000\nbackend: pytorch", []),
    ],
)
def test_changes(load, before, after, keys):
    assert changes_for_restart(load(FILE), load(FILE.replace(before, after))) == keys


def test_a_random_node_id_is_no_change(load):
    assert changes_for_restart(load("node_id: 3"), load("")) == []
    assert changes_for_restart(load(""), load("node_id: 3")) == ["node_id"]
