"""The tokenizer when it is configured; nothing of the extra `tokenize` is imported otherwise."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.config.errors import ConfigError
from proxy.telemetry.names import TOKENISATION_SECONDS
from proxy.telemetry.series import Histogram

if TYPE_CHECKING:
    from proxy.config.settings import ProxySettings
    from proxy.telemetry.shared import MetricsRow
    from proxy.tokenisation.frontend import FrontendTokenisation
    from proxy.tokenisation.threads import TokenThreads
    from proxy.tokenisation.tokenizer import PromptTokenizer

_PACKAGES = ("tokenizers", "jinja2")


def check_tokenizer(proxy: ProxySettings) -> None:
    """Raise `ConfigError` when a tokenizer is configured and the extra `tokenize` or its file is missing."""
    if proxy.tokenizer is None:
        return
    if not all(find_spec(package) is not None for package in _PACKAGES):
        raise ConfigError(
            "needs the extra tokenize: pip install 'disagg-proxy[tokenize]'", key="proxy.tokenizer"
        )
    if not (Path(proxy.tokenizer) / "tokenizer.json").is_file():
        raise ConfigError(
            "expected a directory with tokenizer.json", key="proxy.tokenizer", value=proxy.tokenizer
        )


def open_tokenizer(proxy: ProxySettings) -> PromptTokenizer | None:
    """The tokenizer as configured, or None.

    Raises:
        ConfigError: it cannot be loaded.
    """
    check_tokenizer(proxy)
    if proxy.tokenizer is None:
        return None
    from proxy.tokenisation.tokenizer import PromptTokenizer, TokenizerError

    try:
        return PromptTokenizer(Path(proxy.tokenizer))
    except TokenizerError as error:
        raise ConfigError(str(error), key="proxy.tokenizer") from None


def open_threads(tokenizer: PromptTokenizer | None, proxy: ProxySettings) -> TokenThreads | None:
    """The threads for the routes of a tokenizer, None without one. To be called inside the event loop."""
    if tokenizer is None:
        return None
    from proxy.tokenisation.threads import TokenThreads

    return TokenThreads(proxy.tokenisation_threads)


def open_frontend(
    tokenizer: PromptTokenizer | None, proxy: ProxySettings, row: MetricsRow
) -> FrontendTokenisation | None:
    """The tokenisation of prompts as configured, or None. To be called inside the event loop."""
    if tokenizer is None or not proxy.frontend_tokenisation:
        return None
    from proxy.tokenisation.frontend import FrontendTokenisation
    from proxy.tokenisation.threads import TokenThreads

    return FrontendTokenisation(
        tokenizer,
        shadow=proxy.tokenisation_shadow,
        max_mismatch=proxy.tokenisation_max_mismatch,
        threads=TokenThreads(proxy.tokenisation_threads),
        observe=Histogram(row, TOKENISATION_SECONDS).observe,
    )
