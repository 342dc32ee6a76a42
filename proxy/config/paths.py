"""Paths of HTTP routes in the configuration."""

from __future__ import annotations

import re

_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def parse_path(text: str) -> str:
    """Check a route's path such as `/v1/embeddings`; raises `ValueError`."""
    if not _PATH.fullmatch(text):
        raise ValueError(f"{text!r} is not a path such as /v1/embeddings")
    return text
