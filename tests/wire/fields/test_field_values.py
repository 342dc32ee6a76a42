"""Whatever a client gives a field, it is kept, translated or refused: no rule fails."""

from typing import get_args

import pytest

from proxy.wire.errors import InvalidField, MalformedJSON
from proxy.wire.fields.accepted import ACCEPTED, EVER_ACCEPTED
from proxy.wire.fields.policy import FieldPolicy, Options
from proxy.wire.fields.tables import Dialect, rules_of
from proxy.wire.members import split_object

VALUES = (
    b"true", b"-1", b"1e999", b"1" + b"0" * 5000,
    b'""', b'"x"', b'"\xff"', b"[]", b"{}", b"[1]", b"[null]", b"[[]]", b"[{}]",
    b'["a"]', b'{"a":null}', b'{"a":{}}', b'{"type":[]}', b'{"effort":[],"enabled":[]}', b'{"effort":"x"}',
    b'{"type":"json_schema","json_schema":[]}', b'{"type":"json_schema","json_schema":{"schema":1}}',
    b'[{"type":"function","function":[]}]', b'[{"type":"function","function":{"name":[],"parameters":[]}}]',
    b'[{"role":[],"content":[1]}]', b'[{"role":"user","content":[{"type":[]}]}]',
    b'[{"role":"assistant","tool_calls":[[]],"function_call":[]}]', b'[{"role":"function","name":[],"content":1}]',
    b'[{"role":"assistant","tool_calls":[{"function":{"arguments":[]}}],"content":null,"name":null}]',
    b"[" * 900 + b"]" * 900,
)  # fmt: skip


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_no_value_breaks_a_rule(dialect: Dialect, chat: bool) -> None:
    names = set(rules_of(dialect, chat=chat)) | EVER_ACCEPTED | {"foo"}
    for accepted in ACCEPTED.values():
        policy = FieldPolicy(accepted, chat=chat, options=Options(dialect=dialect))
        for name in sorted(names):
            for value in VALUES:
                try:
                    members = split_object(b'{"model":"m","%b":%b}' % (name.encode(), value))
                    policy.apply(members)
                except (InvalidField, MalformedJSON):
                    continue
                except Exception as error:
                    pytest.fail(f"{name}: {value[:60]!r}: {error!r}")
