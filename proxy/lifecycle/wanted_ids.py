"""Token ids that a client wants in its answer (`return_token_ids`, `return_tokens_as_token_ids`): can they be had?

Workers of completions tell the ids of what they generate in place of its text (`detokenize: false`). With the model's
tokenizer the proxy asks for them and makes the text itself. Workers of chat tell none, unless they are NeMo-RL's. The
prompt's ids are in the hand-off. A client gets the ids of prompt and answer, or neither.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from proxy.wire.fields.harmless import ASKS_IDS, ASKS_NAMES
from proxy.wire.members import equals, first_byte
from proxy.wire.reply_ids import ReplyIds, Text

if TYPE_CHECKING:
    from proxy.lifecycle.record import RequestRecord
    from proxy.lifecycle.service import Service
    from proxy.wire.handoff import ContextAnswer
    from proxy.wire.members import JSONBytes, Members
    from proxy.wire.request import InferenceRequest

_NAMES = frozenset({ASKS_IDS, ASKS_NAMES})
_BRACKET = b"["[0]


class WantedIds(msgspec.Struct, frozen=True):
    """What a client gets.

    Attributes:
        show: `prompt_token_ids` and `token_ids`.
        as_tokens: log probabilities of completions name tokens by their ids.
        text: makes the text that the worker was told to leave out, or None.
        chat: the route.
    """

    show: bool
    as_tokens: bool
    text: Text | None
    chat: bool

    def rewriter(self, members: Members, answer: ContextAnswer | None) -> ReplyIds:
        """For one answer.

        Args:
            members: of the request.
            answer: of the context worker, None if there was no context leg.
        """
        prompt = answer.token_ids if answer is not None else _own_ids(members)
        # A copy: a slice would keep the whole context answer alive.
        ids = bytes(prompt) if self.show and prompt is not None else None
        return ReplyIds(ids, chat=self.chat, show=self.show, as_tokens=self.as_tokens, text=self.text)


def wanted_ids(
    asked: Collection[str], request: InferenceRequest, service: Service, record: RequestRecord
) -> WantedIds | None:
    """What can be had of what a client asks for; None when it is nothing.

    The request's `detokenize` is changed where that is needed, and the record's `dropped` names only what is not had.
    """
    if not _NAMES.intersection(asked):
        return None
    members = request.members
    if service.settings.proxy.worker_dialect != "trtllm":
        if request.stream and ASKS_IDS not in asked:
            return None
        return WantedIds(show=True, as_tokens=False, text=None, chat=request.chat)
    if request.chat:
        return None
    text = None
    if not equals(members.get("detokenize", b"true"), b"false"):
        tokenizer = service.tokenizer
        if (
            tokenizer is None
            or "echo" in members
            or "detokenize" not in service.registry.capabilities.common.completions
        ):
            return None
        skip = not equals(members.get("skip_special_tokens", b"true"), b"false")
        text = partial(tokenizer.decode, skip_special_tokens=skip)
        members["detokenize"] = msgspec.Raw(b"false")
    record.dropped = tuple(name for name in record.dropped if name not in _NAMES)
    return WantedIds(
        show=ASKS_IDS in asked,
        as_tokens=ASKS_NAMES in asked,
        text=text,
        chat=False,
    )


def _own_ids(members: Members) -> JSONBytes | None:
    """The prompt's ids if the client has sent it as ids."""
    prompt = members.get("prompt")
    return prompt if prompt is not None and first_byte(prompt) == _BRACKET else None
