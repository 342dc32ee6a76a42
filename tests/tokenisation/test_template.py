"""The corners of rendering that the golden files do not show."""

from datetime import datetime

import pytest
from jinja2 import TemplateError
from jinja2.exceptions import SecurityError

from proxy.tokenisation.template import ChatTemplate

HELLO = [{"role": "user", "content": "Hello <b>&'\""}]


def render(source: str, special: dict[str, str] | None = None, **arguments: object) -> str:
    return ChatTemplate(source, special or {}).render(HELLO, **arguments)  # type: ignore[arg-type]


def test_json_is_not_escaped_and_keeps_its_order() -> None:
    assert render("{{ messages[0] | tojson }}") == '{"role": "user", "content": "Hello <b>&\'\\""}'
    assert render("{{ [1, 2] | tojson(separators=(',', ':')) }}") == "[1,2]"
    assert (
        render("{{ {'b': 1, 'a': 'é'} | tojson(ensure_ascii=true, sort_keys=true) }}")
        == '{"a": "\\u00e9", "b": 1}'
    )


def test_blocks_are_trimmed() -> None:
    assert render("a\n  {% if true %}\nb\n  {% endif %}\nc\n") == "a\nb\nc"


def test_special_tokens_are_variables_and_absent_ones_are_empty() -> None:
    assert render("{{ bos_token }}|{{ eos_token }}", {"bos_token": "<s>"}) == "<s>|"


def test_loops_can_be_left_and_the_generation_tag_is_transparent() -> None:
    assert render("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}") == "1"
    assert render("{% generation %}{{ messages[0].role }}{% endgeneration %}!") == "user!"


def test_a_template_can_refuse() -> None:
    with pytest.raises(TemplateError, match="no tools here"):
        render("{% if tools %}{{ raise_exception('no tools here') }}{% endif %}", tools=[{}])


def test_a_template_cannot_leave_the_sandbox() -> None:
    with pytest.raises(SecurityError):
        render("{{ messages.__class__.__base__.__subclasses__() }}")
    with pytest.raises(SecurityError):
        render("{{ messages.append(1) }}")


def test_the_day_can_be_written() -> None:
    assert render("{{ strftime_now('%Y') }}") in {str(datetime.now().year), str(datetime.now().year - 1)}


def test_the_names_are_what_the_template_reads() -> None:
    template = ChatTemplate("{% set a = thinking %}{{ a }}{{ messages }}{% if x is defined %}{% endif %}", {})
    assert template.names == {"thinking", "messages", "x"}


def test_options_do_not_replace_the_conversation() -> None:
    assert render("{{ messages | length }}", options={"messages": []}) == "1"
