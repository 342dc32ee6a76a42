import msgspec
import pytest

from proxy.config.errors import ConfigError
from proxy.config.routers import ARGUMENTS
from proxy.config.settings import RouterSettings
from proxy.placement.table import POLICIES, make_policy

TYPES = msgspec.structs.fields(RouterSettings)[0].type.__args__
OTHER_VALUES = {
    "use_tokens": "true",
    "match_threshold": "0.5",
    "tokens_per_block": "32",
    "use_token_ids": "true",
    "hash_skip_count": "10",
    "max_sessions": "500",
    "use_harmony": "true",
}
UPSTREAM_DEFAULTS = "match_threshold: 0.75, use_token_ids: false, hash_skip_count: 0, max_sessions: 100000"


def router_of(load, text):
    settings = load(
        f"context_servers: {{urls: [a:1], router: {{{text}}}}}\ngeneration_servers: {{urls: [b:1]}}"
    )
    return settings.context_servers.router, settings.warnings


def test_every_type_has_a_policy():
    assert set(TYPES) == set(POLICIES)


@pytest.mark.parametrize("kind", TYPES)
def test_types_in_any_case(load, kind):
    router, warnings = router_of(load, f"type: {kind.upper()}")
    assert (router.type, warnings) == (kind, ())
    assert make_policy(router) is not make_policy(router)


def test_every_argument_is_told_about():
    assert set(ARGUMENTS) == set(RouterSettings.__struct_fields__) - {"type"}
    assert set(OTHER_VALUES) == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("kind", TYPES)
def test_arguments_without_effect_are_noted(load, name, kind):
    _, warnings = router_of(load, f"type: {kind}, {name}: {OTHER_VALUES[name]}")
    effect = (kind, name) == ("load_balancing", "use_tokens")
    assert len(warnings) == (not effect)
    for warning in warnings:
        assert warning.startswith(f"disagg.yaml: context_servers.router.{name} = ")
        assert "has no effect: " in warning


def test_upstreams_defaults_are_silent(load):
    assert (
        router_of(
            load, f"type: conversation, {UPSTREAM_DEFAULTS}, use_harmony: null, tokens_per_block: null"
        )[1]
        == ()
    )


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        (
            "type: nearest",
            "type",
            "unknown router type; expected one of round_robin, load_balancing, conversation",
        ),
        ("type: 5", "type", "unknown router type"),
        ("use_tokens: 1", "use_tokens", "expected true or false"),
        ("match_threshold: 2", "match_threshold", "expected a number between 0 and 1"),
        ("max_sessions: -1", "max_sessions", "expected a whole number of at least 0"),
        ("tokens_per_block: 0", "tokens_per_block", "expected a whole number of at least 1 or null"),
        ("matchthreshold: 0.5", "matchthreshold", 'did you mean "match_threshold"?'),
    ],
)
def test_mistakes(load, text, key, problem):
    with pytest.raises(ConfigError) as caught:
        router_of(load, text)
    assert caught.value.key == f"context_servers.router.{key}"
    assert problem in caught.value.problem
