from collections.abc import Callable

import pytest

from proxy.config.load import load_settings
from proxy.config.settings import Settings

Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path, monkeypatch) -> Load:
    """Load the text of a YAML file called disagg.yaml, outside a container unless `marks` says otherwise."""
    monkeypatch.chdir(tmp_path)

    def load(text: str | None = None, *, environ=None, marks=(), **overrides) -> Settings:
        if text is not None:
            (tmp_path / "disagg.yaml").write_text(text)
        return load_settings(
            None if text is None else "disagg.yaml",
            overrides=overrides,
            environ=environ or {},
            container_marks=marks,
        )

    return load
