"""Reading a checkpoint's directory, and text in both directions."""

import json
import shutil
from pathlib import Path

import pytest

from proxy.tokenisation.tokenizer import PromptTokenizer, TokenizerError

MODELS = Path(__file__).parent / "models"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    shutil.copy(MODELS / "qwen_like" / "tokenizer.json", tmp_path)
    return tmp_path


def write_config(directory: Path, **config: object) -> None:
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def render(tokenizer: PromptTokenizer, *, with_tools: bool = False) -> str:
    template = tokenizer.template(with_tools=with_tools)
    assert template is not None
    return template.render([])


def test_text_in_both_directions() -> None:
    tokenizer = PromptTokenizer(MODELS / "llama_like")
    ids = tokenizer.encode("naïve 東京 🙂", add_special_tokens=True)
    assert tokenizer.decode(ids) == "<|begin_of_text|>naïve 東京 🙂"
    assert tokenizer.decode(ids[1:]) == "naïve 東京 🙂"
    assert tokenizer.token_strings([ids[0], 10**6]) == ["<|begin_of_text|>", ""]


def test_the_limit_of_a_prompt() -> None:
    assert PromptTokenizer(MODELS / "qwen_like").max_length == 32768
    assert PromptTokenizer(MODELS / "llama_like").max_length is None


def test_truncation_and_padding_of_the_file_are_ignored(directory: Path) -> None:
    path = directory / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "!",
    }  # fmt: skip
    path.write_text(json.dumps(content))
    ids = PromptTokenizer(directory).encode("one two three four five six", add_special_tokens=False)
    assert PromptTokenizer(directory).decode(ids) == "one two three four five six"


def test_without_a_template(directory: Path) -> None:
    assert PromptTokenizer(directory).template(with_tools=False) is None


def test_a_template_for_tools(directory: Path) -> None:
    templates = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    write_config(directory, chat_template=templates)
    tokenizer = PromptTokenizer(directory)
    assert (render(tokenizer), render(tokenizer, with_tools=True)) == ("d", "t")


def test_files_of_their_own_replace_what_the_configuration_says(directory: Path) -> None:
    write_config(directory, chat_template=[{"name": "tool_use", "template": "old"}])
    (directory / "chat_template.jinja").write_text("new {{ bos_token }}")
    tokenizer = PromptTokenizer(directory)
    assert (render(tokenizer), render(tokenizer, with_tools=True)) == ("new ", "new ")
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    assert render(PromptTokenizer(directory), with_tools=True) == "tools"


def test_the_processors_template_is_the_last_resort(directory: Path) -> None:
    (directory / "chat_template.json").write_text('{"chat_template": "p"}')
    assert render(PromptTokenizer(directory)) == "p"
    write_config(directory, chat_template="c")
    assert render(PromptTokenizer(directory)) == "c"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{}", "tokenizer.json"),
        ("tokenizer_config.json", "[]", "expected a JSON object"),
        ("tokenizer_config.json", "{", "tokenizer_config.json"),
        ("tokenizer_config.json", '{"chat_template": [1]}', "unknown form"),
        ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "cannot be compiled"),
    ],
)
def test_a_directory_that_cannot_be_used(directory: Path, name: str, content: str, message: str) -> None:
    (directory / name).write_text(content)
    with pytest.raises(TokenizerError, match=message):
        PromptTokenizer(directory)


def test_a_missing_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        PromptTokenizer(tmp_path)
