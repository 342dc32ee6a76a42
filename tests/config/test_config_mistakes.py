import pytest

from proxy.config.errors import ConfigError


def test_wrong_values_name_their_source(load):
    for expected, arguments in [
        ('disagg.yaml: port = "x": expected a whole number between 0 and 65535', {"text": "port: x"}),
        (
            'environment variable DISAGG_PROXY_PORT: port = "x": expected a whole number between 0 and 65535',
            {"environ": {"DISAGG_PROXY_PORT": "x"}},
        ),
        ("command line: port = -1: expected a whole number between 0 and 65535", {"port": -1}),
        ("command line: proxy.timeout_idle = -1: expected a number of at least 0", {"timeout_idle": -1}),
        (
            "disagg.yaml: proxy.probe_interval = 0: expected a number greater than 0",
            {"text": "proxy: {probe_interval: 0}"},
        ),
    ]:
        with pytest.raises(ConfigError) as caught:
            load(**arguments)
        assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("prt: 1", "prt", 'did you mean "port"?'),
        ("max_retires: 1", "max_retires", 'did you mean "max_retries"?'),
        ("gen_tokid_ctxbytes: true", "gen_tokid_ctxbytes", 'did you mean "gen_tokids_ctxbytes"?'),
        ("num_worker: 1", "num_worker", 'did you mean "num_workers"?'),
        ("context_server: {}", "context_server", 'did you mean "context_servers"?'),
        ("proxi: {}", "proxi", 'did you mean "proxy"?'),
        ("routr: {}", "routr", 'did you mean "router"?'),
        ("timeout_idle: 5", "timeout_idle", 'belongs under "proxy": proxy.timeout_idle'),
        ("workers: []", "workers", 'belongs under "proxy": proxy.workers'),
        ("proxy: {port: 5}", "proxy.port", 'belongs at the top level, outside "proxy": port'),
        ("proxy: {num_workers: 1}", "proxy.num_workers", 'belongs at the top level, outside "proxy"'),
        ("proxy: {timeout_idel: 5}", "proxy.timeout_idel", 'did you mean "timeout_idle"?'),
        ("proxy: {max_inflght: 0}", "proxy.max_inflght", 'did you mean "max_inflight"?'),
        ("proxy: {frobnicate: 5}", "proxy.frobnicate", "unknown key"),
        ("proxy: {model: 5}", "proxy.model", "unknown key"),
        ("proxy: [a]", "proxy", "expected a mapping"),
        ("proxy: {1: a}", "proxy", "the key 1 is not text"),
        ("context_servers: [a:1]", "context_servers", "expected a mapping"),
        ("context_servers: {true: 1}", "context_servers", "the key True is not text"),
        ("context_servers: {url: [a:1]}", "context_servers.url", 'did you mean "urls"?'),
        (
            "context_servers: {num_instance: 1}",
            "context_servers.num_instance",
            'did you mean "num_instances"?',
        ),
        ("context_servers: {urls: a:1}", "context_servers.urls", "expected a list of worker urls"),
        ("context_servers: {urls: [8001]}", "context_servers.urls[0]", "expected a worker url such as"),
        ("context_servers: {urls: [null]}", "context_servers.urls[0]", "expected a worker url such as"),
        ("context_servers: {urls: [a:1, b]}", "context_servers.urls[1]", "the port is missing"),
        (
            "context_servers: {urls: [a:1, b:1, 'http://A:1']}",
            "context_servers.urls[2]",
            "the same worker as",
        ),
        (
            "generation_servers: {urls: [a:1], num_instances: 2}",
            "generation_servers.num_instances",
            "there is 1 url",
        ),
        (
            "generation_servers: {urls: [a:1, b:1], num_instances: 1}",
            "generation_servers.num_instances",
            "there are 2 urls",
        ),
        ("generation_servers: {num_instances: 1}", "generation_servers.num_instances", "there are no urls"),
        (
            "generation_servers: {num_instances: two}",
            "generation_servers.num_instances",
            "expected a whole number",
        ),
        (
            "generation_servers: {num_instances: -1}",
            "generation_servers.num_instances",
            "expected a whole number",
        ),
        ("generation_servers: {router: round_robin}", "generation_servers.router", "expected a mapping"),
        (
            "generation_servers: {router: {type: default}}",
            "generation_servers.router.type",
            "expected one of round_robin, load_balancing",
        ),
        ("generation_servers: {router: {type: 1}}", "generation_servers.router.type", "unknown router type"),
        ("generation_servers: {router: {typ: x}}", "generation_servers.router.typ", 'did you mean "type"?'),
        (
            "generation_servers: {router: {frobnicate: x}}",
            "generation_servers.router.frobnicate",
            "unknown key",
        ),
        (
            "model: a\ncontext_servers: {model: b}",
            "context_servers.model",
            'contradicts the top-level key "model"',
        ),
        ("schedule_style: sideways", "schedule_style", "expected context_first"),
        ("hostname: null", "hostname", "expected a text"),
    ],
)
def test_mistakes(load, text, key, problem):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert caught.value.key == key
    assert problem in caught.value.problem
    assert str(caught.value).startswith(f"disagg.yaml: {key}")


def test_unknown_overrides_are_mistakes(load):
    with pytest.raises(ConfigError, match=r'command line: prt = 1: unknown key; did you mean "port"\?'):
        load("", prt=1)
    with pytest.raises(ConfigError, match=r"command line: proxy = \{\}: unknown key"):
        load("", proxy={})
