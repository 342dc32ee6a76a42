"""A model's tokenizer and chat templates, read from the directory of its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer

from proxy.tokenisation.template import ChatTemplate

_DEFAULT, _TOOL_USE = "default", "tool_use"
_NO_LIMIT = 10**9  # configurations without a limit give 1e30


class TokenizerError(Exception):
    """The directory holds no usable tokenizer."""


class PromptTokenizer:
    """Turns texts into ids and back.

    Args:
        directory: with `tokenizer.json`, and the chat template in `chat_template.jinja` (others in
            `additional_chat_templates`), else in `tokenizer_config.json`, else in `chat_template.json`.

    Raises:
        TokenizerError: a file is missing or is none of its kind.

    Attributes:
        end: id of the token that ends an answer, `eos_token`; None when it is not told.
        max_length: tokens, `model_max_length`; None when it is not told.
        templates: chat templates by name; without any, only texts can be tokenised.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises no type of its own
            raise TokenizerError(f"{path}: {error}") from None
        # What the file says about training batches is not for prompts.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        config = _json_object(directory / "tokenizer_config.json")
        special = _special_tokens({**_json_object(directory / "special_tokens_map.json"), **config})
        limit = config.get("model_max_length")
        self.end: int | None = self._tokenizer.token_to_id(special.get("eos_token", ""))
        self.max_length = int(limit) if isinstance(limit, int | float) and 0 < limit < _NO_LIMIT else None
        try:
            self.templates = {
                name: ChatTemplate(source, special) for name, source in _sources(directory, config).items()
            }
        except TemplateError as error:
            raise TokenizerError(f"{directory}: the chat template cannot be compiled: {error}") from None

    def template(self, *, with_tools: bool) -> ChatTemplate | None:
        """The chat template for a request; some models have one of their own for requests with tools."""
        if with_tools and _TOOL_USE in self.templates:
            return self.templates[_TOOL_USE]
        return self.templates.get(_DEFAULT)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of a text. The interpreter's lock is free meanwhile, which is not so with `Tokenizer.encode`."""
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of ids. Ids that no token has are left out.

        Raises:
            OverflowError: an id is negative or has more than 32 bits.
        """
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Each id's own text in the vocabulary; empty for ids that no token has."""
        return [self._tokenizer.id_to_token(each) or "" for each in ids]


def _json_object(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected a JSON object")
    return value


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and the like. Absent ones stay undefined in a template: null would be written as None."""
    found = {}
    for name, value in config.items():
        if name.endswith("_token"):
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                found[name] = text
    return found


def _sources(directory: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The templates' texts by name. As in transformers, files of their own replace what a configuration says."""
    paths = {path.stem: path for path in sorted(directory.glob("additional_chat_templates/*.jinja"))}
    alone = directory / "chat_template.jinja"
    if alone.exists():
        paths[_DEFAULT] = alone
    if paths:
        return {name: _text(path) for name, path in paths.items()}
    given = config.get("chat_template", _json_object(directory / "chat_template.json").get("chat_template"))
    if isinstance(given, str):
        return {_DEFAULT: given}
    try:
        return {str(each["name"]): str(each["template"]) for each in given or ()}
    except (TypeError, KeyError):
        raise TokenizerError(f"{directory}: chat_template has an unknown form") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path}: {error}") from None
