"""The README of the configuration is what the program would write."""

from pathlib import Path

from proxy.config.reference import render

README = Path(__file__).parents[2] / "proxy" / "config" / "README.md"


def test_the_readme_lists_every_key_with_its_default():
    assert README.read_text() == render(), "run: python -m proxy.config.reference > proxy/config/README.md"
