"""Turns one configured value into the type of its key, or says in one sentence what was expected."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect

from proxy.config.errors import ConfigError
from proxy.config.forwarded import parse_forwarded_header
from proxy.config.listen import check_listen_address
from proxy.config.paths import parse_path
from proxy.config.settings import MASK, SECRET_KEYS
from proxy.config.yaml_file import parse_yaml, require_text_keys

_LONGEST_SHOWN_VALUE = 80
_BYTE_UNITS: dict[str, int] = {
    unit.lower(): factor
    for factor, units in (
        (1, ("", "B")),
        (1000, ("KB", "k")),
        (1000**2, ("MB",)),
        (1000**3, ("GB",)),
        (1024, ("KiB", "Ki")),
        (1024**2, ("MiB", "Mi")),
        (1024**3, ("GiB", "Gi")),
    )
    for unit in units
}
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[A-Za-z0-9._\[\]:-]+")
_BYTE_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")

# Names of TensorRT-LLM's logger and common spellings -> names of Python's logging.
LOG_LEVELS = {
    "critical": "critical",
    "internal_error": "critical",
    "error": "error",
    "warning": "warning",
    "warn": "warning",
    "info": "info",
    "verbose": "debug",
    "debug": "debug",
    "trace": "debug",
}


class Entry(msgspec.Struct, frozen=True):
    """One value as it was configured.

    `origin` says where for error messages. `text` is true for environment variables, whose values have no
    type of their own.
    """

    value: Any
    origin: str
    text: bool = False


def masked(key: str, value: Any) -> Any:
    """Return a value with secrets replaced at any depth. `key` is its name or dotted path."""
    if isinstance(value, dict):
        return {name: masked(str(name), inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(key, inner) for inner in value]
    return MASK if key.rpartition(".")[2] in SECRET_KEYS and value is not None else value


def show(key: str, value: Any) -> str:
    """Return a value as it appears in messages: JSON, shortened, secrets masked."""
    shown = json.dumps(masked(key, value), ensure_ascii=False, default=str)
    return shown if len(shown) <= _LONGEST_SHOWN_VALUE else f"{shown[: _LONGEST_SHOWN_VALUE - 1]}…"


def without_password(url: Any) -> Any:
    """Return a url for a message: what could be a password is masked."""
    if isinstance(url, str) and "@" in url:
        return f"***@{url.rpartition('@')[2]}"
    return url


def parse_byte_size(text: str) -> int:
    """Read a size such as `64 MiB`, `64Mi`, `1.5 GB` or `4096`.

    Raises `ValueError` for anything else, fractions of a byte included.
    """
    match = _BYTE_SIZE.fullmatch(text)
    factor = _BYTE_UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError('expected a number of bytes or a size such as "64 MiB"')
    whole, _, fraction = match[1].partition(".")
    size, rest = divmod(int(whole + fraction) * factor, int(10 ** len(fraction)))
    if rest:
        raise ValueError("expected a whole number of bytes")
    return size


def parse_log_level(text: str) -> str:
    """Map a level name of upstream or of Python, in any case, to one of Python's; raises `ValueError`."""
    level = LOG_LEVELS.get(text.lower())
    if level is None:
        raise ValueError(f"expected one of {', '.join(LOG_LEVELS)}")
    return level


def parse_root_path(text: str) -> str:
    """Normalise the path prefix of the public side: empty or `/like/this`; raises `ValueError`."""
    path = text.rstrip("/")
    if path and (not path.startswith("/") or "//" in path or not re.fullmatch(r"[!-~]+", path)):
        raise ValueError("expected an empty text or an absolute path such as /inference")
    if "?" in path or "#" in path:
        raise ValueError("a path prefix has no query and no fragment")
    return path


def parse_origin(text: str) -> str:
    """Check an origin as browsers send it (RFC 6454): `https://host`, `https://host:port`, or `*` for all of them.

    Raises `ValueError`.
    """
    if text != "*" and not _ORIGIN.fullmatch(text):
        raise ValueError(f"{text!r} is not an origin such as https://example.com")
    return text.lower()


def parse_per_worker(text: str) -> int | str:
    """Read `auto` or a number of requests; raises `ValueError`."""
    if text.lower() == "auto":
        return "auto"
    if not text.strip().isdecimal():
        raise ValueError("expected a whole number of at least 0 or auto")
    return int(text)


# Keys whose text form says more than their type. A reader sees text only; other values pass as they are.
READERS: dict[str, Callable[[str], Any]] = {
    "max_body_bytes": parse_byte_size,
    "max_header_bytes": parse_byte_size,
    "max_queued_bytes": parse_byte_size,
    "request_log_max_bytes": parse_byte_size,
    "max_inflight_per_context_worker": parse_per_worker,
    "max_inflight_per_generation_worker": parse_per_worker,
    "admin_listen": check_listen_address,
    "rl_flush_path": parse_path,
    "log_level": parse_log_level,
    "root_path": parse_root_path,
    "log_format": str.lower,
    "worker_version": str.lower,
}
# Lists whose elements are read one by one.
ELEMENT_READERS: dict[str, Callable[[str], str]] = {
    "forward_headers": parse_forwarded_header,
    "rl_fanout_paths": parse_path,
    "cors_allow_origins": parse_origin,
}


def convert(key: str, entry: Entry, annotation: Any) -> Any:
    """Convert the value of one key to its type.

    `key` is the dotted path, `annotation` the field's type. Values from YAML and the command line are taken
    strictly (`"8000"` is no port, `1` is no boolean), those from the environment leniently.
    Raises `ConfigError` that names origin, key, value and what was expected.
    """
    name = key.rpartition(".")[2]
    expected = inspect.type_info(annotation)
    value = entry.value
    try:
        if name in READERS:
            value = READERS[name](value) if isinstance(value, str) else value
        elif entry.text:
            value = _from_text(key, entry, expected)
        result = msgspec.convert(value, annotation, strict=not entry.text)
        if name in ELEMENT_READERS:
            result = tuple(map(ELEMENT_READERS[name], result))
    except msgspec.ValidationError:
        raise _error(key, entry, f"expected {describe(expected)}") from None
    except ValueError as error:
        raise _error(key, entry, str(error)) from None
    if isinstance(result, float) and not math.isfinite(result):
        raise _error(key, entry, f"expected {describe(expected)}")
    return result


def convert_mapping(key: str, entry: Entry) -> dict[str, Any]:
    """Return the value as a mapping, null as an empty one; raises `ConfigError` for anything else."""
    value = parse_yaml(entry.value, origin=entry.origin) if entry.text else entry.value
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _error(key, Entry(value, entry.origin), "expected a mapping")
    return require_text_keys(value, origin=entry.origin, key=key)


def describe(expected: inspect.Type) -> str:
    """Say in words which values a type takes, for example `a whole number between 0 and 65535`."""
    match expected:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return f"a whole number{_bounds(expected)}"
        case inspect.FloatType():
            return f"a number{_bounds(expected)}"
        case inspect.StrType(min_length=1):
            return "a text that is not empty"
        case inspect.LiteralType(values=(only,)):
            return str(only)
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case inspect.CollectionType() | inspect.VarTupleType():
            return "a list of texts"
        case inspect.DictType():
            return "a mapping of texts to texts"
        case inspect.UnionType(types=types):
            return " or ".join(describe(each) for each in types)
        case inspect.NoneType():
            return "null"
    return "a text"


def _bounds(expected: inspect.IntType | inspect.FloatType) -> str:
    if expected.ge is not None and expected.le is not None:
        return f" between {expected.ge} and {expected.le}"
    if expected.ge is not None:
        return f" of at least {expected.ge:g}"
    return f" greater than {expected.gt:g}" if expected.gt is not None else ""


def _from_text(key: str, entry: Entry, expected: inspect.Type) -> Any:
    """Give the text of an environment variable a type: YAML, unless the key takes text."""
    text: str = entry.value
    alternatives = expected.types if isinstance(expected, inspect.UnionType) else (expected,)
    if any(isinstance(each, inspect.StrType | inspect.LiteralType) for each in alternatives):
        return text
    value = parse_yaml(text, origin=entry.origin)
    if isinstance(value, str) and isinstance(expected, inspect.VarTupleType):
        return [part.strip() for part in value.split(",")]
    return value


def _error(key: str, entry: Entry, problem: str) -> ConfigError:
    return ConfigError(problem, origin=entry.origin, key=key, value=show(key, entry.value))
