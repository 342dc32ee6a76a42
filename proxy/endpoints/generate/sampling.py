"""Sampling parameters of other engines as members of a completions body. Pure; tables.

What the field policy translates by itself (`top_k: -1`, `regex`, `ebnf`, `json_schema`, `no_stop_trim`) goes on under
its name. A parameter that is in no table is refused: ignoring it would change what is sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proxy.endpoints.generate.prompt import is_one_of
from proxy.errors import InvalidRequest
from proxy.wire.errors import MalformedJSON
from proxy.wire.members import JSONBytes, is_null, split_object

_BOTH = (
    *(
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
    ),
    *("stop", "stop_token_ids", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens"),
    "logit_bias",
)


class Dialect(msgspec.Struct, frozen=True):
    """One engine's parameters.

    Attributes:
        names: parameter -> member of the completions body.
        neutral: parameters that are accepted with these values only, which change nothing; null always is.
    """

    names: Mapping[str, str]
    neutral: Mapping[str, Sequence[Any]]


SGLANG = Dialect(
    names={
        **{name: name for name in _BOTH},
        "max_new_tokens": "max_tokens",
        "min_new_tokens": "min_tokens",
        "sampling_seed": "seed",
        **{name: name for name in ("no_stop_trim", "json_schema", "regex", "ebnf")},
    },
    neutral={
        "n": (1,),
        "stop_regex": ([], ""),
        "structural_tag": ("",),
        "custom_params": ({},),
        "stream_interval": (1,),
    },
)

VLLM = Dialect(
    names={
        **{name: name for name in _BOTH},
        **{name: name for name in ("max_tokens", "min_tokens", "seed", "logprobs")},
        **{name: name for name in ("include_stop_str_in_output", "truncate_prompt_tokens")},
    },
    neutral={
        "n": (1,),
        "detokenize": (True, False),  # there is no text in either case
        "output_kind": (0, 1, 2),  # of the engine's own streams
        "skip_clone": (True, False),
        "flat_logprobs": (False,),
        "skip_reading_prefix_cache": (False,),
        "bad_words": ([],),
        "prompt_logprobs": (),
        "logprob_token_ids": ([],),
        "allowed_token_ids": (),
        "structured_outputs": (),
        "repetition_detection": (),
        "thinking_token_budget": (),
        "extra_args": ({},),
    },
)


def read_sampling(value: msgspec.Raw | None, dialect: Dialect) -> dict[str, JSONBytes]:
    """The members that `sampling_params` stand for.

    Args:
        value: of the member `sampling_params`, None without one.
        dialect: whose.

    Raises:
        InvalidRequest: no object, or a parameter that no worker can honour, which is named.
    """
    if value is None or is_null(value):
        return {}
    try:
        given = split_object(value)
    except MalformedJSON:
        message = "sampling_params must be an object"
        raise InvalidRequest(message, code="invalid_type", param="sampling_params") from None
    members: dict[str, JSONBytes] = {}
    for name, parameter in given.items():
        if is_null(parameter):
            continue
        if name in dialect.names:
            # A copy: the slice would keep the whole request alive.
            members[dialect.names[name]] = bytes(parameter)
        elif not is_one_of(parameter, dialect.neutral.get(name, ())):
            known = "is not supported" if name in dialect.neutral else "is not known"
            raise InvalidRequest(
                f"the sampling parameter {name} {known}",
                code="unsupported_field",
                param=f"sampling_params.{name}",
            )
    return members
