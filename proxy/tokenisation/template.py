"""Renders chat templates as Hugging Face's transformers do, without transformers.

What templates may rely on there: blocks are trimmed; `tojson` writes text as it is, without HTML escapes;
`raise_exception` and `strftime_now`; the special tokens by their names; loop controls and the tag `generation`, which
marks an assistant's words for training and shows them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

RESERVED = frozenset(
    {
        "messages", "tools", "documents", "add_generation_prompt", "chat_template", "conversation",
        "continue_final_message", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict",
        "return_assistant_tokens_mask", "tokenizer_kwargs",
    }
)  # fmt: skip
"""Names that are arguments of the rendering itself, not variables of the template."""


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}`: what is inside."""

    tags = {"generation"}  # noqa: RUF012 - jinja's interface

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class ChatTemplate:
    """One compiled template.

    Args:
        source: its text. It comes from the operator, and runs in a sandbox all the same.
        special_tokens: such as `bos_token`.

    Raises:
        jinja2.TemplateError: it is not a template.

    Attributes:
        names: the variables that it reads.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._special_tokens = dict(special_tokens)
        self._template = environment.from_string(source)
        self.names = frozenset(meta.find_undeclared_variables(environment.parse(source)))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text.

        Args:
            messages: as the workers hand them to their template.
            tools, documents: likewise, None without any.
            add_generation_prompt: end with what opens an answer.
            options: further variables, `chat_template_kwargs`.

        Raises:
            jinja2.TemplateError: the template refuses them. Templates may raise any other exception too.
        """
        return self._template.render(
            {
                **self._special_tokens,
                **(options or {}),
                "messages": messages,
                "tools": tools,
                "documents": documents,
                "add_generation_prompt": add_generation_prompt,
            }
        )


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # The prompt is made of this text, so it must be the standard library's to the blank.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
