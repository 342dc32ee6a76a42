"""The tokenizer as it is configured."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from proxy.config.errors import ConfigError
from proxy.config.load import load_settings
from proxy.config.settings import ProxySettings
from proxy.tokenisation import setup
from proxy.tokenisation.setup import check_tokenizer, open_frontend, open_tokenizer

MODEL = str(Path(__file__).parent / "models" / "qwen_like")


def test_without_one_nothing_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "find_spec", lambda _: None)
    check_tokenizer(ProxySettings())
    assert open_tokenizer(ProxySettings()) is None
    assert open_frontend(None, ProxySettings(), None) is None  # type: ignore[arg-type]


def test_nothing_is_imported_when_it_is_off() -> None:
    code = (
        "import sys, proxy.app, proxy.serve; "
        "sys.exit(any(name.partition('.')[0] in ('tokenizers', 'jinja2') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"disagg-proxy\[tokenize\]"):
        check_tokenizer(ProxySettings(tokenizer=MODEL))


def test_a_directory_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected a directory with tokenizer\.json"):
        open_tokenizer(ProxySettings(tokenizer=str(tmp_path)))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"proxy\.tokenizer: .*tokenizer\.json"):
        open_tokenizer(ProxySettings(tokenizer=str(tmp_path)))


def test_a_tokenizer_alone_tokenises_no_prompts() -> None:
    settings = ProxySettings(tokenizer=MODEL)
    assert open_frontend(open_tokenizer(settings), settings, None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"tokenizer": None}, "needs tokenizer"),
        ({"worker_dialect": "nemo_rl"}, "a way of their own"),
        (
            {
                "workers": [
                    {"url": "a:1", "role": "context", "model": "a"},
                    {"url": "b:1", "role": "context", "model": "b"},
                ]
            },
            "serve several models",
        ),
    ],
)
def test_where_prompts_cannot_become_ids(more: dict[str, object], problem: str) -> None:
    given = {"tokenizer": MODEL, "frontend_tokenisation": True, **more}
    with pytest.raises(ConfigError, match=problem) as caught:
        load_settings(None, overrides=given, environ={})
    assert caught.value.key == "proxy.frontend_tokenisation"


def test_the_keys_have_bounds() -> None:
    for name, value in (
        ("tokenisation_shadow", 1.5),
        ("tokenisation_max_mismatch", -1),
        ("tokenisation_threads", 0),
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({name: value}, ProxySettings)
