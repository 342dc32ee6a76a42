import json
import subprocess
import sys

import msgspec
import pytest

from proxy.placement.affinity import id_key, prefix_key, read_placement
from proxy.placement.policy import Needs
from proxy.wire.members import split_object

SYSTEM = {"role": "system", "content": "be terse"}
USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}
MORE = {"role": "user", "content": "and now?"}


def members(**body):
    return split_object(json.dumps(body).encode())


def identified(headers=(), **body):
    return id_key(members(**body), [(name.encode(), value.encode()) for name, value in headers])


def begun(*messages):
    return prefix_key(members(messages=list(messages)))


# Each names another conversation; the first that is there wins.
ORDER = [
    ({}, {"conversation_params": {"conversation_id": "a", "other": 1}}),
    ({"x-session-id": "b"}, {}),
    ({"x-correlation-id": "c"}, {}),
    ({"x-session-affinity": "d"}, {}),
    ({"x-multi-turn-session-id": "e"}, {}),
    ({"x-smg-routing-key": "f"}, {}),
    ({"x-openwebui-chat-id": "g"}, {}),
    ({}, {"session_id": "h"}),
    ({}, {"prompt_cache_key": "i"}),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_source_wins(first):
    headers: dict[str, str] = {}
    body: dict[str, object] = {}
    for more_headers, more_body in reversed(ORDER[first:]):
        headers |= more_headers
        body |= more_body
    alone_headers, alone_body = ORDER[first]
    expected = identified(alone_headers.items(), **alone_body)
    assert expected is not None
    assert identified(headers.items(), **body) == expected
    assert identified(reversed(headers.items()), **body) == expected


def test_one_conversation_by_different_names_is_the_same():
    found = {
        identified(conversation_params={"conversation_id": "chat-7"}),
        identified([("x-session-id", "chat-7")]),
        identified([("x-openwebui-chat-id", "chat-7")]),
        identified(prompt_cache_key="chat-7"),
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ((), {}),
        ([("x-session-id", "")], {}),
        ([("x-request-id", "a")], {}),
        ((), {"conversation_params": None, "session_id": None}),
        ((), {"conversation_params": {}, "session_id": ""}),
        ((), {"conversation_params": {"conversation_id": None}}),
        ((), {"conversation_params": {"conversation_id": ["a"]}, "prompt_cache_key": {"a": 1}}),
        ((), {"conversation_params": "a", "session_id": [1]}),
    ],
)
def test_nothing_that_names_a_conversation(headers, body):
    assert identified(headers, **body) is None


def test_what_is_unusable_is_passed_over():
    assert identified(conversation_params=[1], session_id=5) == identified(session_id="5")


# The beginning of the prompt


def test_every_turn_of_a_conversation_begins_alike():
    first = begun(SYSTEM, USER)
    assert first == begun(SYSTEM, USER, ANSWER, MORE)
    assert begun(USER) == begun(USER, ANSWER, MORE)


def test_conversations_differ():
    keys = [
        begun(SYSTEM, USER),
        begun(SYSTEM, MORE),
        begun(USER),
        begun(MORE),
        begun(SYSTEM),
        begun({**SYSTEM, "content": "be long"}, USER),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "body",
    [{}, {"messages": []}, {"messages": None}, {"messages": "hi"}, {"messages": {"a": 1}}],
)
def test_no_beginning(body):
    assert prefix_key(members(**body)) is None


def test_deeply_nested_messages():
    assert prefix_key({"messages": msgspec.Raw(b"[" * 5000 + b"]" * 5000)}) is None


@pytest.mark.parametrize("long", [" ".join(map(str, range(500))), list(range(1000))])
def test_a_long_prompt_is_known_by_its_beginning(long):
    assert prefix_key(members(prompt=long)) == prefix_key(members(prompt=long + long))
    other = long[100:] + long
    assert prefix_key(members(prompt=long)) != prefix_key(members(prompt=other))


# What is asked for


@pytest.mark.parametrize(
    ("needs", "named", "id_known", "prefix_known"),
    [
        (Needs.NOTHING, True, False, False),
        (Needs.ID, True, True, False),
        (Needs.ID, False, False, False),
        (Needs.PREFIX, True, False, True),
        (Needs.ID | Needs.PREFIX_WITHOUT_ID, True, True, False),
        (Needs.ID | Needs.PREFIX_WITHOUT_ID, False, False, True),
        (Needs.ID | Needs.PREFIX_WITHOUT_ID | Needs.PREFIX, True, True, True),
    ],
)
def test_only_what_is_needed_is_computed(needs, named, id_known, prefix_known):
    body = members(messages=[USER], **({"session_id": "a"} if named else {}))
    placement = read_placement(body, [], needs, 4000)
    assert (placement.id_key is not None) is id_known
    assert (placement.prefix_key is not None) is prefix_known
    assert placement.tokens == 0


def test_the_size_stands_for_the_tokens():
    assert read_placement({}, [], Needs.TOKENS, 4003).tokens == 1000


def test_other_processes_compute_the_same():
    code = (
        "from proxy.placement.affinity import id_key, prefix_key; "
        "print(id_key({}, [(b'x-session-id', b'a')]), prefix_key({'prompt': b'\"b\"'}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert told == [str(identified([("x-session-id", "a")])), str(prefix_key(members(prompt="b")))]
