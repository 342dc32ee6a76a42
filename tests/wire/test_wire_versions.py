import pytest

from proxy.wire.versions import WorkerVersion


@pytest.mark.parametrize(
    ("version", "schedule_style", "base64_ids"),
    [("old", False, False), ("jul", True, True), ("new", True, True)],
)
def test_switches(version: str, schedule_style: bool, base64_ids: bool) -> None:
    assert WorkerVersion(version).sends_schedule_style is schedule_style
    assert WorkerVersion(version).takes_base64_ids is base64_ids


def test_names_are_those_of_the_configuration() -> None:
    assert [str(version) for version in WorkerVersion] == ["old", "jul", "new"]
