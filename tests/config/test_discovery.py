"""The list `proxy.discovery` and `proxy.minimal_instances`."""

import pytest

from proxy.config.discovery.dns import parse_nameserver
from proxy.config.discovery.file import FileEntry
from proxy.config.errors import ConfigError
from proxy.config.minimal_instances import MinimalInstances


def discovery(load, text, **options):
    return load(f"proxy: {{discovery: {text}}}", **options).proxy.discovery


def mistake(load, text):
    with pytest.raises(ConfigError) as caught:
        load(f"proxy: {{{text}}}")
    return str(caught.value)


def test_names_come_of_the_type_unless_they_are_given(load):
    text = "[{type: file, path: /a}, {type: file, path: /b, name: second, interval: 5}]"
    assert discovery(load, text) == (
        FileEntry(name="file", path="/a"),
        FileEntry(name="second", path="/b", interval=5.0),
    )
    assert discovery(load, "null") == discovery(load, "[]") == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("discovery: {type: file}", "proxy.discovery ="),
        ("discovery: [file]", "proxy.discovery[0]"),
        ("discovery: [{path: /a}]", "proxy.discovery[0].type = null: expected one of file, dns, kubernetes"),
        ("discovery: [{type: [1]}]", "proxy.discovery[0].type"),
        ("discovery: [{type: etc}]", 'proxy.discovery[0].type = "etc": expected one of file'),
        ("discovery: [{type: file}]", "proxy.discovery[0].path: is missing"),
        (
            "discovery: [{type: file, path: 7}]",
            "proxy.discovery[0].path = 7: expected a text that is not empty",
        ),
        ("discovery: [{type: file, pth: /a}]", 'unknown key; did you mean "path"?'),
        (
            "discovery: [{type: file, path: /a, interval: 0}]",
            "interval = 0: expected a number greater than 0",
        ),
        (
            "discovery: [{type: file, path: /a}, {type: file, path: /b}]",
            'proxy.discovery[1].name = "file": there is a source "file" already',
        ),
        ("discovery: [{type: file, path: /a, name: configuration}]", "another name"),
        ("discovery: [{type: dns, role: context}]", "expected either host or srv"),
        ("discovery: [{type: dns, host: a, port: 1}]", "discovery[0].role: is missing"),
        ("discovery: [{type: dns, role: context, host: a, srv: b, port: 1}]", "expected either host or srv"),
        ("discovery: [{type: dns, role: context, host: a}]", "host needs port"),
        ("discovery: [{type: dns, role: context, srv: a, port: 1}]", "srv has its own ports"),
        ("discovery: [{type: dns, role: context, host: a, port: 0}]", "between 1 and 65535"),
        ("discovery: [{type: dns, role: ctx, host: a, port: 1}]", "one of context, generation, mixed"),
        ("discovery: [{type: dns, role: mixed, host: a, port: 1, shortest: 40}]", "shortest is longer"),
        (
            "discovery: [{type: dns, role: mixed, host: a, port: 1, nameservers: [ns]}]",
            "'ns' is not the address",
        ),
        ("discovery: [{type: kubernetes, role: context}]", "discovery[0].service: is missing"),
        (
            "discovery: [{type: kubernetes, role: context, service: a, port: 70000}]",
            "between 1 and 65535 or a text",
        ),
        (
            "discovery: [{type: kubernetes, role: context, service: a, domain: rack}]",
            "one of node, zone or null",
        ),
        ("discovery: [{type: kubernetes, role: context, service: a, api: 'k:443'}]", "api is not a url"),
        (
            "discovery: [{type: kubernetes, role: context, service: a, api: 'https://u@k'}]",
            "api is not a url",
        ),
        (
            "discovery: [{type: kubernetes, role: context, service: a, domain: zone, node_label: x}]",
            "domain and node_label both",
        ),
        ("minimal_instances: 3", "proxy.minimal_instances = 3: expected a mapping"),
        ("minimal_instances: {context: 1}", "unknown key"),
        ("minimal_instances: {context_servers: -1}", "of at least 0"),
    ],
)
def test_mistakes(load, text, says):
    assert says in mistake(load, text)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("10.0.0.10", ("10.0.0.10", 53)),
        ("10.0.0.10:5353", ("10.0.0.10", 5353)),
        ("fd00::10", ("fd00::10", 53)),
        ("[fd00::10]:5353", ("fd00::10", 5353)),
    ],
)
def test_name_servers(text, meaning):
    assert parse_nameserver(text) == meaning


def test_minimal_instances(load):
    assert load("").proxy.minimal_instances is None
    assert load("proxy: {minimal_instances: null}").proxy.minimal_instances is None
    settings = load("proxy: {minimal_instances: {generation_servers: 4}}")
    assert settings.proxy.minimal_instances == MinimalInstances(1, 4)


def test_workers_that_are_discovered_are_not_missed(load):
    assert any("has no urls" in warning for warning in load("").warnings)
    settings = load("proxy: {discovery: [{type: file, path: /a}], topology_strict: true}")
    assert not settings.warnings
