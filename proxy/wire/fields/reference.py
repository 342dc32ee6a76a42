"""Writes the README of this folder out of the tables: `python -m proxy.wire.fields.reference > README.md`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable

from proxy.wire.fields.accepted import WITHOUT_EFFECT
from proxy.wire.fields.messages import messages_rule
from proxy.wire.fields.rule import Rule
from proxy.wire.fields.tables import GROUPS, NEUTRAL

_PREFACE = """\
# Request fields

TensorRT-LLM workers answer a request with one unknown field with 400, and the fields that they know change with every
release. The proxy asks each worker what it accepts (its `/openapi.json`, else its version, else the first answer) and
treats every other field by these rules, so that clients of other engines work unchanged:

* A field that changes no token is **dropped**, named in the header `x-disagg-proxy-dropped` and counted in
  `disagg_proxy_dropped_fields_total`.
* A field that has an equivalent is **translated**.
* A field that would change the meaning of the request and has none is **refused** with a 400 that names it in `param`;
  so are translations that contradict what the request says elsewhere.
* null means unset.
* A field that neither the workers nor the tables know: `proxy.unknown_fields` (`drop`, `reject`, `pass`).
* A field that some worker of the pool does not know: one without effect on the answer is left out for that worker; any
  other is refused as long as it would depend on the place whether it is heeded.

`proxy.field_rules` come first: `{field, action}` with the actions `drop`, `rename` (`to`), `default` (`value`), `map`
(`values`: old to new) and `refuse` (`message`), and `route: chat | completions` if a rule is for one route.

`proxy.worker_dialect`: all of this is for `trtllm`. `nemo_rl` (an adapter that takes anything and ignores what it does
not know) changes nothing and refuses the fields of the last table; `passthrough` only keeps hand-off members out.

`disagg-proxy fields [-c FILE] [--worker URL]` prints the rules in force and what the workers accept;
`disagg-proxy fields --explain request.json` what becomes of one request.
"""


def render() -> str:
    """The README."""
    parts = [_PREFACE]
    for title, rules in GROUPS:
        parts.append(_table(title, rules))
        if title == "tools":
            parts.append(_table("messages", [messages_rule()]))
    by_version = (
        f"Left out where a worker does not know them: {_names(WITHOUT_EFFECT)}. Values that ask for nothing are left "
        f"out likewise; those of {_names(NEUTRAL)}."
    )
    parts.append(f"## by version\n\n{textwrap.fill(by_version, 120)}\n")
    return "\n".join(parts)


def _table(title: str, rules: Iterable[Rule]) -> str:
    lines = [f"## {title}", "", "| Field | Route | What becomes of it | Why |", "|---|---|---|---|"]
    lines += [
        f"| `{rule.field}` | {rule.route} | {_cell(rule.effect.text)} | {_cell(rule.why)} |" for rule in rules
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


if __name__ == "__main__":
    sys.stdout.write(render())
