"""The README of the endpoints lists the routes that there are."""

import re
from pathlib import Path
from unittest.mock import MagicMock

from proxy.config.load import load_settings
from proxy.config.pass_through import OWN_PATHS
from proxy.endpoints import anthropic
from proxy.endpoints.admin.page import page_routes
from proxy.endpoints.admin.routes import admin_routes
from proxy.endpoints.anthropic import COUNT_TOKENS, MESSAGES
from proxy.endpoints.cluster_storage import STORAGE_PATHS
from proxy.endpoints.responses import RESPONSES

TEXT = Path(anthropic.__file__).with_name("README.md").read_text()


def told(heading: str) -> set[str]:
    """The paths in the first column of the table under a heading."""
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    firsts = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {path for cell in firsts for path in re.findall(r"`(?:GET|POST|DELETE) (/[^`?]*)[^`]*`", cell)}


def test_public_routes() -> None:
    assert told("Public") == OWN_PATHS | STORAGE_PATHS | {RESPONSES, MESSAGES, COUNT_TOKENS}


def test_admin_routes() -> None:
    service = MagicMock()
    assert told("Admin") == {*admin_routes(service), "/admin/"}
    assert "/admin" in page_routes()


def test_its_yaml_loads(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "disagg.yaml"
    path.write_text(block)
    settings = load_settings(str(path), overrides={}, environ={})
    assert not settings.inherited
    assert settings.proxy.worker_dialect == "nemo_rl"
