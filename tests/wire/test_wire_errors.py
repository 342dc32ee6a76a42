import pytest

from proxy.wire import errors


@pytest.mark.parametrize("kind", [errors.MalformedJSON, errors.BrokenHandOff, errors.BrokenFraming])
def test_all_are_wire_errors(kind: type[errors.WireError]) -> None:
    assert issubclass(kind, errors.WireError)
    assert issubclass(kind, ValueError)
    assert str(kind("what is wrong")) == "what is wrong"


def test_invalid_field_names_the_member() -> None:
    error = errors.InvalidField("n", "n is wrong")
    assert isinstance(error, errors.WireError)
    assert (error.param, error.message, error.code, str(error)) == (
        "n",
        "n is wrong",
        "invalid_value",
        "n is wrong",
    )
    assert errors.InvalidField("n", "x", code="y").code == "y"
