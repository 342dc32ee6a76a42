"""The README of the fields is what the program would write."""

from pathlib import Path

from proxy.wire.fields import reference


def test_it_is_up_to_date() -> None:
    readme = Path(reference.__file__).with_name("README.md")
    assert readme.read_text() == reference.render(), (
        "run: python -m proxy.wire.fields.reference > proxy/wire/fields/README.md"
    )
