"""The ids of whole prompts, compared with what transformers makes of them (see make_golden.py)."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenisation_cases import CASES

from proxy.tokenisation.prompts import check_members, read_chat, read_text
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.members import split_object

MODELS = Path(__file__).parent / "models"
TOKENIZERS = {name: PromptTokenizer(MODELS / name) for name in ("qwen_like", "llama_like")}
GOLDEN = [
    pytest.param(name, case, ids, id=f"{name}-{case}")
    for name in TOKENIZERS
    for case, ids in json.loads((MODELS / name / "golden.json").read_text()).items()
]


def ids_of_body(tokenizer: PromptTokenizer, body: dict[str, Any]) -> list[int]:
    members = split_object(json.dumps({"model": "m", **body}).encode())
    chat = "messages" in body
    check_members(members, chat=chat)
    if not chat:
        return tokenizer.encode(read_text(members), add_special_tokens=True)
    prompt = read_chat(members, strict_tools=True).render(tokenizer)
    return tokenizer.encode(prompt, add_special_tokens=False)


def test_there_is_a_golden_file_for_nearly_every_case() -> None:
    assert len(GOLDEN) >= 2 * len(CASES) - 3


@pytest.mark.parametrize(("name", "case", "ids"), GOLDEN)
def test_the_ids_are_those_of_transformers(name: str, case: str, ids: list[int]) -> None:
    assert ids_of_body(TOKENIZERS[name], CASES[case]) == ids
