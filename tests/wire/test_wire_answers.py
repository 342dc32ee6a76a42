import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import Writer, base64_ids, chat_answer, dump, names, properties, seeds, values

from proxy.wire.answers import clean_answer

IDS = list(range(40_000))


def plain(answer: Any) -> Any:
    """What is left of an answer, on parsed JSON."""
    if not isinstance(answer, dict):
        return answer
    hidden = {"prompt_token_ids", "prompt_token_ids_b64", "disaggregated_params"}
    rest = {name: value for name, value in answer.items() if name not in hidden}
    if isinstance(rest.get("choices"), list):
        rest["choices"] = [
            {name: value for name, value in choice.items() if name != "disaggregated_params"}
            if isinstance(choice, dict)
            else choice
            for choice in rest["choices"]
        ]
    return rest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # compact, as workers write it: each place of the member
        (b'{"a":1,"prompt_token_ids":[1,2],"b":2}', b'{"a":1,"b":2}'),
        (b'{"prompt_token_ids":null,"a":1}', b'{"a":1}'),
        (b'{"a":1,"prompt_token_ids_b64":"AAAA"}', b'{"a":1}'),
        (b'{"prompt_token_ids":[1]}', b"{}"),
        (b'{"prompt_token_ids":1,"prompt_token_ids_b64":2,"disaggregated_params":3}', b"{}"),
        (b'{"choices":[{"disaggregated_params":{"a":1}}]}', b'{"choices":[{}]}'),
        (b'{"choices":[{"x":1,"disaggregated_params":{}},{"disaggregated_params":{},"y":2}],"prompt_token_ids":[]}',
         b'{"choices":[{"x":1},{"y":2}]}'),
        (b'{"choices":[{"disaggregated_params":{"z":1},"x":1},{"x":2},{"x":3,"disaggregated_params":null}]}',
         b'{"choices":[{"x":1},{"x":2},{"x":3}]}'),
        # values that are part of one another
        (b'{"choices":[{"disaggregated_params":1},{"disaggregated_params":12},{"disaggregated_params":1}]}',
         b'{"choices":[{},{},{}]}'),
        (b'{"choices":[{"disaggregated_params":{"disaggregated_params":{}}},{"disaggregated_params":{}}]}',
         b'{"choices":[{},{}]}'),
        # the client's to see: other places
        (b'{"a":{"prompt_token_ids":[1]},"choices":[{"message":{"disaggregated_params":1}}]}',
         b'{"a":{"prompt_token_ids":[1]},"choices":[{"message":{"disaggregated_params":1}}]}'),
        (b'{"a":{"prompt_token_ids":[1]},"prompt_token_ids":[1]}', b'{"a":{"prompt_token_ids":[1]}}'),
        (b'{"a":[{"prompt_token_ids":[2]}],"prompt_token_ids":[1]}', b'{"a":[{"prompt_token_ids":[2]}]}'),
        (b'{"choices":[{"message":{"disaggregated_params":1},"disaggregated_params":1}]}',
         b'{"choices":[{"message":{"disaggregated_params":1}}]}'),
        (b'{"choices":[{"prompt_token_ids":[1]}],"prompt_token_ids":[1]}', b'{"choices":[{"prompt_token_ids":[1]}]}'),
        # text that imitates a member
        (b'{"a":",\\"prompt_token_ids\\":[1],","prompt_token_ids":[1]}', b'{"a":",\\"prompt_token_ids\\":[1],"}'),
        (b'{"x\\"prompt_token_ids":[1],"y":1,"prompt_token_ids":[1]}', b'{"x\\"prompt_token_ids":[1],"y":1}'),
        (b'{"x\\"prompt_token_ids":[1],"prompt_token_ids":[1]}', b'{"x\\"prompt_token_ids":[1]}'),
        (b'{"x\\"prompt_token_ids":[1],"prompt_token_ids" : [1]}', b'{"x\\"prompt_token_ids":[1]}'),
        (b'{"a":"disaggregated_params"}', b'{"a":"disaggregated_params"}'),
        (b'{"disaggregated_params_":1,"_prompt_token_ids":2}', b'{"disaggregated_params_":1,"_prompt_token_ids":2}'),
        # blanks stay
        (b' { "a" : 1 , "prompt_token_ids" : [ 1 ] , "b" : 2 } \n', b' { "a" : 1 , "b" : 2 } \n'),
        (b'{ "prompt_token_ids": [1], "b": 2 }', b'{ "b": 2 }'),
        (b'{ "prompt_token_ids": [1] }', b"{  }"),
        (b'{"choices" : [ { "x": 1, "disaggregated_params": {"a": [ ]} } , { "disaggregated_params": 1 } ]\n}',
         b'{"choices" : [ { "x": 1 } , {  } ]\n}'),
        # duplicates: all of them go, other duplicates stay
        (b'{"a":1,"prompt_token_ids":[1],"a":2,"prompt_token_ids":[2]}', b'{"a":1,"a":2}'),
        (b'{"choices":[{"x":1,"disaggregated_params":1,"x":2,"disaggregated_params":2}]}',
         b'{"choices":[{"x":1,"x":2}]}'),
        (b'{"choices":[{"disaggregated_params":1}],"prompt_token_ids" :1,"choices":[{"disaggregated_params":2}]}',
         b'{"choices":[{}],"choices":[{}]}'),
        # escaped names
        (b'{"\\u0070rompt_token_ids":[1],"a":1}', b'{"a":1}'),
        (b'{"choices":[{"disaggregated\\u005Fparams":1}]}', b'{"choices":[{}]}'),
        (b'{"\\u0063hoices":[{"disaggregated_params":1}]}', b'{"\\u0063hoices":[{}]}'),
        (b'{"a":"\\u00e9"}', b'{"a":"\\u00e9"}'),
        # bytes that are not UTF-8
        (b'{"a":"\xff", "choices":[{"\xff":"\xff", "disaggregated_params":1}], "prompt_token_ids":[1]}',
         b'{"a":"\xff", "choices":[{"\xff":"\xff"}]}'),
        # choices of another shape are left alone, the rest is not
        (b'{"choices":null,"prompt_token_ids":[1]}', b'{"choices":null}'),
        (b'{"choices":7,"prompt_token_ids":[1]}', b'{"choices":7}'),
        (b'{"choices":{"disaggregated_params":1},"prompt_token_ids":[1]}', b'{"choices":{"disaggregated_params":1}}'),
        (b'{"choices":[null,[{"disaggregated_params":1}],{"disaggregated_params":1}]}',
         b'{"choices":[null,[{"disaggregated_params":1}],{}]}'),
    ],
)  # fmt: skip
def test_clean(source: bytes, expected: bytes) -> None:
    assert clean_answer(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        b"", b"null", b"[]", b'[{"prompt_token_ids":[1]}]', b'"prompt_token_ids"', b'{"prompt_token_ids":[1]',
        b'{"prompt_token_ids":[1]} x', b'data: {"prompt_token_ids":[1]}\n\n', b'{"prompt_token_ids":}',
        b'{"prompt_token_ids":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_object_stays(source: bytes) -> None:
    assert clean_answer(source) is source


def test_untouched_answers_are_not_copied() -> None:
    for source in (dump({"a": 1}), dump({"a": "prompt_token_ids"}), b'{"a":"\\u0041"}'):
        assert clean_answer(source) is source


@pytest.mark.parametrize(
    "members",
    [
        {"prompt_token_ids": IDS, "prompt_token_ids_b64": None},
        {"prompt_token_ids": None, "prompt_token_ids_b64": base64_ids(IDS)},
    ],
)
def test_large_answers(members: dict[str, Any]) -> None:
    answer = chat_answer(**members)
    answer["choices"] *= 3
    assert json.loads(clean_answer(dump(answer))) == plain(answer)
    assert clean_answer(dump(answer)) == dump(plain(answer))
    assert json.loads(clean_answer(json.dumps(answer).encode())) == plain(answer)


HIDDEN = st.tuples(
    st.sampled_from(["prompt_token_ids", "prompt_token_ids_b64", "disaggregated_params"]),
    st.sampled_from([None, [1, 2], "AQAAAA==", 1, 12]) | values,
)
choices = st.lists(st.lists(st.tuples(names, values) | HIDDEN, max_size=4).map(dict), max_size=3)


@properties
@given(
    st.lists(st.tuples(names, values) | HIDDEN | st.tuples(st.just("choices"), choices | values), max_size=7),
    seeds,
)
def test_json_equal_without_the_members(pairs: list[tuple[str, Any]], seed: int) -> None:
    writer = Writer(seed, blanks=bool(seed % 2))
    source = writer.padded(writer.pairs(pairs)).encode()
    assert json.loads(clean_answer(source)) == plain(dict(pairs))
    assert clean_answer(dump(dict(pairs))) == dump(plain(dict(pairs)))


@properties
@given(
    st.lists(st.tuples(names.filter(lambda name: name != "choices"), values) | HIDDEN, max_size=7),
    st.lists(st.tuples(names, values) | HIDDEN, max_size=5),
    seeds,
)
def test_the_removed_text_is_the_only_difference(
    pairs: list[tuple[str, Any]], choice: list[tuple[str, Any]], seed: int
) -> None:
    """Each member that stays keeps its bytes, blanks inside and duplicates included, and so does all between."""
    rng = random.Random(seed)
    writer = Writer(seed)

    def render(items: list[tuple[str, Any]], hidden: set[str], *more: str) -> tuple[str, list[str], int]:
        """The object, the texts that stay, and how many bytes go with the others (without commas)."""
        kept, gone, parts = list(more), 0, list(more)
        for name, value in items:
            text = writer.text(name) + writer.blank() + ":" + writer.blank() + writer.value(value)
            parts.append(text)
            if name in hidden:
                gone += len(text.encode())
            else:
                kept.append(text)
        order = rng.choice([", ", ",", " ,\n"])
        return "{" + order.join(parts) + "}", kept, gone

    inner, kept_inside, gone_inside = render(choice, {"disaggregated_params"})
    pairs = [pair for pair in pairs if pair[0] != "choices"]
    hidden = {"prompt_token_ids", "prompt_token_ids_b64", "disaggregated_params"}
    outer, kept_outside, gone_outside = render(pairs, hidden, f'"choices":[{inner}]')
    source = outer.encode()
    cleaned = clean_answer(source)
    at = 0
    for text in (*kept_inside, *kept_outside[1:]):
        at = cleaned.index(text.encode(), at) + len(text.encode())
    removed = len(choice) - len(kept_inside) + len(pairs) - len(kept_outside) + 1
    separators = len(source) - len(cleaned) - gone_inside - gone_outside
    assert 0 <= separators <= 3 * removed
    assert json.loads(cleaned) == plain(json.loads(source))
