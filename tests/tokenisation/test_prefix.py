"""Prompts that go on from given ids."""

import pytest

from proxy.tokenisation.prefix import continue_from

END = 0


@pytest.mark.parametrize("given", [[7, 7, 7], [7, 7, 7, END]])
def test_the_beginning_is_replaced(given: list[int]) -> None:
    whole = [1, 2, END, 3, 4, END, 5, 6, END, 8]
    answered = whole[:6]
    assert continue_from(given, answered, whole, END) == [7, 7, 7, END, 5, 6, END, 8]


def test_what_the_template_leaves_out_of_earlier_turns_does_not_matter() -> None:
    """Templates drop old reasoning: the two renderings differ in length, not in the number of end tokens."""
    assert continue_from([9, 9, 9, 9], [1, 2, 2, 2, END], [1, 2, END, 5], END) == [9, 9, 9, 9, END, 5]


@pytest.mark.parametrize(("answered", "whole"), [([1], [1, END]), ([1, END], [1, 2])])
def test_without_an_end_token(answered: list[int], whole: list[int]) -> None:
    with pytest.raises(ValueError, match=r"end token|not in list"):
        continue_from([9], answered, whole, END)
