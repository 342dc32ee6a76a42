import pytest

from proxy.config.errors import ConfigError
from proxy.config.load import load_settings
from proxy.config.pass_through import PassThroughRoute


def read(tmp_path, text):
    path = tmp_path / "disagg.yaml"
    path.write_text(f"proxy: {{pass_through: {text}}}")
    return load_settings(str(path), overrides={}, environ={}).proxy.pass_through


def test_routes(tmp_path):
    text = "[{path: /v1/embeddings}, {path: /rerank, role: context, methods: [GET, POST]}]"
    assert read(tmp_path, text) == (
        PassThroughRoute("/v1/embeddings", "generation", ("POST",)),
        PassThroughRoute("/rerank", "context", ("GET", "POST")),
    )
    assert read(tmp_path, "[]") == read(tmp_path, "null") == ()


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("{path: /a}", "", "expected a list"),
        ("[{role: context}]", "[0].path", "is missing"),
        ("[{path: a}]", "[0]", "is not a path"),
        ("['/a']", "[0]", "expected a mapping"),
        ("[{path: '/a?b'}]", "[0]", "is not a path"),
        ("[{path: /v1/models}]", "[0]", "the proxy serves /v1/models itself"),
        ("[{path: /a}, {path: /a}]", "[1].path", "appears twice"),
        ("[{path: /a, rol: context}]", "[0].rol", 'did you mean "role"'),
        ("[{path: /a, role: mixed}]", "[0].role", "expected one of context, generation"),
        ("[{path: /a, methods: [TRACE]}]", "[0].methods", "expected"),
        ("[{path: /a, methods: []}]", "[0].methods", "expected"),
    ],
)
def test_mistakes(tmp_path, text, key, problem):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert caught.value.key == f"proxy.pass_through{key}"
    assert problem in caught.value.problem
