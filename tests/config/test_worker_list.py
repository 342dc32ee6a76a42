import pytest

from proxy.config.address import parse_worker_address
from proxy.config.errors import ConfigError
from proxy.config.listed_worker import ListedWorker

SECTIONS = "context_servers: {urls: [a:1, b:1]}\ngeneration_servers: {urls: [b:1]}\n"


def listed(text, role, model=None, **labels):
    return ListedWorker(parse_worker_address(text), role, model, labels)


def test_full_entries(load):
    settings = load(
        """
proxy:
  workers:
    - {url: "http://A:1/", role: Context, model: llama, labels: {domain: rack1, zone: z}}
    - {url: g:1, role: generation}
    - {url: "unix:/run/m.sock", role: mixed, labels: null}
"""
    )
    assert settings.proxy.workers == (
        listed("a:1", "context", "llama", domain="rack1", zone="z"),
        listed("g:1", "generation"),
        listed("unix:/run/m.sock", "context"),
        listed("unix:/run/m.sock", "generation"),
    )
    assert [worker.address.text for worker in settings.workers if worker.role == "context"] == [
        "a:1",
        "unix:/run/m.sock",
    ]
    assert settings.warnings == ()


@pytest.mark.parametrize("value", ["null", "[]", "none"])
def test_no_list(load, value):
    assert load(f"proxy: {{workers: {value}}}").proxy.workers == ()


def test_urls_of_the_sections_count_too_and_entries_say_more(load):
    assert load(SECTIONS).workers == (
        listed("a:1", "context"),
        listed("b:1", "context"),
        listed("b:1", "generation"),
    )
    entry = "{url: b:1, role: context, labels: {domain: x}}"
    settings = load(f"{SECTIONS}proxy: {{workers: [{entry}, {{url: c:1, role: generation}}]}}")
    assert settings.workers == (
        listed("a:1", "context"),
        listed("b:1", "context", domain="x"),
        listed("b:1", "generation"),
        listed("c:1", "generation"),
    )


def test_the_environment(load):
    environ = {"DISAGG_PROXY_WORKERS": '[{"url": "a:1", "role": "context"}]'}
    assert load("", environ=environ).proxy.workers == (listed("a:1", "context"),)


@pytest.mark.parametrize(
    ("workers", "key", "problem"),
    [
        ("a:1", "workers", "expected a list of {url, role, model, labels}"),
        ("{}", "workers", "expected a list of {url, role, model, labels}"),
        ("[a:1]", "workers[0]", "expected a mapping"),
        ("[{role: context}]", "workers[0].url", 'expected a worker url such as "host:8001"'),
        ("[{url: a, role: context}]", "workers[0].url", "the port is missing"),
        ("[{url: a:1}]", "workers[0].role", "expected one of context, generation, mixed"),
        ("[{url: a:1, role: prefill}]", "workers[0].role", "expected one of context, generation, mixed"),
        (
            "[{url: a:1, role: mixed, model: 5}]",
            "workers[0].model",
            "expected a text that is not empty or null",
        ),
        ("[{url: a:1, role: mixed, labels: [a]}]", "workers[0].labels", "expected a mapping"),
        ("[{url: a:1, role: mixed, labels: {domain: 1}}]", "workers[0].labels.domain", "expected a text"),
        ("[{url: a:1, role: mixed, lables: {}}]", "workers[0].lables", 'did you mean "labels"?'),
        (
            "[{url: a:1, role: context}, {url: 'http://a:1', role: mixed}]",
            "workers[1]",
            "the same worker as proxy.workers[0]",
        ),
    ],
)
def test_mistakes(load, workers, key, problem):
    with pytest.raises(ConfigError) as caught:
        load(f"proxy: {{workers: {workers}}}")
    assert caught.value.key == f"proxy.{key}"
    assert problem in caught.value.problem


def test_passwords_are_not_shown(load):
    with pytest.raises(ConfigError) as caught:
        load("proxy: {workers: [{url: 'http://me:hunter2@a:1', role: context}]}")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("labels", "warns"), [("", True), (", labels: {domain: x}", False)])
def test_strict_topology_needs_domains(load, labels, warns):
    entries = f"[{{url: a:1, role: mixed{labels}}}]"
    warnings = load(f"proxy: {{topology_strict: true, workers: {entries}}}").warnings
    assert any("topology_strict has no effect" in warning for warning in warnings) is warns
