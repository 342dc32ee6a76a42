import pytest

from proxy.config.errors import ConfigError
from proxy.wire.fields.own import FieldRule


def rules(load, text):
    return load(f"proxy: {{field_rules: {text}}}").proxy.field_rules


def test_every_action(load):
    text = """[
      {field: a, action: drop},
      {field: b, action: rename, to: c, route: chat},
      {field: d, action: default, value: {x: [1]}},
      {field: reasoning_effort, action: map, values: {minimal: low, xhigh: high, none: null}},
      {field: e, action: refuse, message: ask for something else}
    ]"""
    assert rules(load, text) == (
        FieldRule("a", "drop"),
        FieldRule("b", "rename", to="c", route="chat"),
        FieldRule("d", "default", value={"x": [1]}),
        FieldRule("reasoning_effort", "map", values={"minimal": "low", "xhigh": "high", "none": None}),
        FieldRule("e", "refuse", message="ask for something else"),
    )


@pytest.mark.parametrize("text", ["null", "[]"])
def test_none(load, text):
    assert rules(load, text) == ()


def test_shown_as_they_were_written(load):
    text = "[{field: a, action: drop}, {field: b, action: default, value: 0, route: chat}]"
    settings = load(f"proxy: {{field_rules: {text}}}")
    assert settings.resolved()["proxy"]["field_rules"] == [
        {"field": "a", "action": "drop"},
        {"field": "b", "action": "default", "value": 0, "route": "chat"},
    ]


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("drop", "proxy.field_rules", "expected a list of {field, action, ...}"),
        ("[drop]", "proxy.field_rules[0]", "expected a mapping"),
        ("[{action: drop}]", "proxy.field_rules[0]", "missing required field `field`"),
        ("[{field: a}]", "proxy.field_rules[0]", "missing required field `action`"),
        ("[{field: a, action: keep}]", "proxy.field_rules[0]", "Invalid enum value 'keep'"),
        (
            "[{field: a, action: drop}, {field: a, acton: drop}]",
            "proxy.field_rules[1].acton",
            'did you mean "action"',
        ),
        ("[{field: a, action: rename}]", "proxy.field_rules[0]", "action rename needs the key to"),
        ("[{field: a, action: default}]", "proxy.field_rules[0]", "action default needs the key value"),
        ("[{field: a, action: map}]", "proxy.field_rules[0]", "action map needs the key values"),
        (
            "[{field: a, action: drop, to: b}]",
            "proxy.field_rules[0]",
            "the key to has no meaning for action drop",
        ),
        (
            "[{field: a, action: drop, message: b}]",
            "proxy.field_rules[0]",
            "the key message has a meaning for action",
        ),
        (
            "[{field: disaggregated_params, action: rename, to: x}]",
            "proxy.field_rules[0]",
            "cannot have rules",
        ),
        (
            "[{field: x, action: rename, to: disaggregated_params}]",
            "proxy.field_rules[0]",
            "cannot have rules",
        ),
        ("[{field: x, action: rename, to: messages}]", "proxy.field_rules[0]", "cannot have rules"),
        ('[{field: "", action: drop}]', "proxy.field_rules[0]", "cannot have rules"),
    ],
)
def test_mistakes(load, text, key, problem):
    with pytest.raises(ConfigError) as caught:
        rules(load, text)
    assert caught.value.key == key
    assert problem in str(caught.value)


def test_from_the_environment(load):
    settings = load("", environ={"DISAGG_PROXY_FIELD_RULES": "[{field: a, action: drop}]"})
    assert settings.proxy.field_rules == (FieldRule("a", "drop"),)
