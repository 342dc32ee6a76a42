import pytest

from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.versions import WorkerVersion


@pytest.mark.parametrize(
    ("version", "schedule_style", "base64_ids"),
    [("old", False, False), ("jul", True, True), ("new", True, True)],
)
def test_switches(version: str, schedule_style: bool, base64_ids: bool) -> None:
    accepted = ACCEPTED[WorkerVersion(version)]
    assert ("schedule_style" in accepted.parameters) is schedule_style
    assert ("return_prompt_token_ids_b64" in accepted.parameters) is base64_ids
    assert accepted.base64_ids is base64_ids


def test_names_are_those_of_the_configuration() -> None:
    assert [str(version) for version in WorkerVersion] == ["old", "jul", "new"]
