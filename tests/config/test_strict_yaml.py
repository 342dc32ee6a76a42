import pytest

from proxy.config.errors import ConfigError
from proxy.config.yaml_file import parse_yaml, read_yaml_file

GOOD = [
    ("", {}),
    ("\n# only a comment\n", {}),
    ("---\n", {}),
    ("null", {}),
    ("a: 1\nb: [x, {c: d}]", {"a": 1, "b": ["x", {"c": "d"}]}),
    ("urls: [ctx0:8001, ctx1:8001]", {"urls": ["ctx0:8001", "ctx1:8001"]}),
    ("base: &b {x: 1, y: 2}\nother: {<<: *b, x: 3}", {"base": {"x": 1, "y": 2}, "other": {"x": 3, "y": 2}}),
    (
        "base: &b {x: 1}\nin: {deep: &d {<<: *b, x: 2}}\nother: {<<: *d, x: 3}",
        {"base": {"x": 1}, "in": {"deep": {"x": 2}}, "other": {"x": 3}},
    ),
    ("workers: {0: a, 1: b}", {"workers": {0: "a", 1: "b"}}),
    ("\ufeffa: 1", {"a": 1}),
]

BAD = [
    ("a: 1\nb: 2\na: 3", "line 3, column 1: a: the key appears twice"),
    ("a: {b: 1, b: 2}", "line 1, column 11: b: the key appears twice"),
    ("a: [{b: 1, 'b': 2}]", "b: the key appears twice"),
    ("a: 1\n  b: 2", "line 2, column 4: mapping values are not allowed here"),
    ("a: [1", "line 1, column 6:"),
    ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ("a: *nowhere", "undefined alias"),
    ("[1, 2]", "expected a mapping of keys"),
    ("just text", "expected a mapping of keys"),
    ("on: 1", "the key True is not text"),
    ("8000: x", "the key 8000 is not text"),
    ("a: 2024-99-99", "not valid YAML"),
    ("a: 1\n---\nb: 2", "but found another document"),
    ("a: \x01", "not valid YAML"),
    ("? [a]\n: 1", "unhashable key"),
    ("a: " + "[" * 1500, "not valid YAML"),
]


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "disagg.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


@pytest.mark.parametrize(("text", "document"), GOOD)
def test_reads(write, text, document):
    assert read_yaml_file(write(text)) == document


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_refuses(write, text, problem):
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        read_yaml_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path, write):
    missing = str(tmp_path / "missing.yaml")
    for path, problem in [
        (missing, "cannot be read: No such file or directory"),
        (str(tmp_path), "cannot be read: Is a directory"),
        (write(b"a: \xff\xfe"), "is not UTF-8 text: invalid start byte at byte 3"),
    ]:
        with pytest.raises(ConfigError) as caught:
            read_yaml_file(path)
        assert str(caught.value) == f"{path}: {problem}"


def test_names_the_origin():
    with pytest.raises(ConfigError, match=r"^environment variable X: line 1"):
        parse_yaml("[", origin="environment variable X")
