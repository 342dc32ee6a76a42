"""Fake workers refuse legs that real ones could not serve."""

import json

import pytest

from bench.cases import CASES
from bench.fakes import checks
from bench.payloads import client_body, direct_context_body, generation_leg_body

CASE = CASES["S3"]


@pytest.mark.parametrize("dialect", ["trtllm", "vllm", "sglang"])
def test_direct_legs_are_right_ones(dialect):
    checks.context_leg(CASE, direct_context_body(CASE, dialect, True), dialect)
    for as_base64 in (True, False):
        leg = generation_leg_body(CASE, dialect, as_base64)
        checks.generation_leg(CASE, leg, dialect)
        assert len(leg) >= checks.least_generation_bytes(CASE, dialect)


def changed(**members):
    return json.dumps({**json.loads(generation_leg_body(CASE, "trtllm", False)), **members}).encode()


@pytest.mark.parametrize(
    "members",
    [
        {"prompt_token_ids": [1, 2]},
        {"prompt_token_ids": None},
        {"stream": False},
        {"messages": []},
        {"disaggregated_params": None},
        {"model": "other"},
    ],
)
def test_a_leg_without_its_hand_off_is_wrong(members):
    with pytest.raises(checks.WrongLegError):
        checks.generation_leg(CASE, changed(**members), "trtllm")


def test_history_may_be_stripped_from_the_generation_leg():
    last = json.loads(client_body(CASE))["messages"][-1:]
    checks.generation_leg(CASE, changed(messages=last), "trtllm")


def test_client_bodies_have_their_sizes():
    for case in CASES.values():
        assert 0.85 <= len(client_body(case)) / case.body_bytes <= 1.05
