"""POST /tokenize and /detokenize, in vLLM's shapes, by the model's tokenizer (`proxy.tokenizer`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from proxy.endpoints.answer import send_json
from proxy.errors import InvalidRequest, Overloaded
from proxy.lifecycle.record import RECORD
from proxy.lifecycle.service import Service
from proxy.middleware.body import read_body
from proxy.tokenisation.prefix import continue_from
from proxy.tokenisation.prompts import Chat, NotReproducible, read_chat
from proxy.tokenisation.threads import TokenThreads
from proxy.tokenisation.tokenizer import PromptTokenizer
from proxy.wire.errors import MalformedJSON
from proxy.wire.members import Members, is_null, split_object

_T = TypeVar("_T")

# Members of the chat form that are no members of a chat request.
_OF_TOKENIZE = frozenset({"add_special_tokens", "return_token_strs", "required_prefix_token_ids"})
_REASONS = {
    "form": "messages or tools have a form that cannot be rendered here",
    "options": "the chat template does not read some of the chat_template_kwargs",
    "template": "the chat template does not take these messages",
}


class _Text(msgspec.Struct):
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class _Chat(msgspec.Struct):
    add_special_tokens: bool = False
    return_token_strs: bool | None = False
    required_prefix_token_ids: list[int] | None = None
    chat_template: None = None  # there is one template


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Answer(msgspec.Struct):
    count: int
    max_model_len: int | None
    tokens: list[int]
    token_strs: list[str] | None


class _Endpoint:
    """What both have in common.

    Args:
        service: what all requests share.
        tokenizer: the model's.
        threads: where the work is done.
    """

    def __init__(self, service: Service, tokenizer: PromptTokenizer, threads: TokenThreads) -> None:
        self._service = service
        self._tokenizer = tokenizer
        self._threads = threads

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        body = await read_body(receive, self._service.settings.proxy.max_body_bytes)
        scope[RECORD].body_size = len(body)
        return body

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        if self._threads.busy:
            raise Overloaded("too many prompts wait to be tokenised", code="tokenizer_busy")
        return await self._threads.run(work)


class TokenizeEndpoint(_Endpoint):
    """`{prompt}` or `{messages, ...}` -> `{count, max_model_len, tokens, token_strs}`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest, InvalidField, Overloaded, BodyTooLarge, ClientGone: the errors middleware answers.
        """
        body = await self._body(scope, receive)
        try:
            members = split_object(body)
        except MalformedJSON as error:
            raise InvalidRequest(f"the body is not a JSON object: {error}", code="invalid_json") from None
        if not is_null(members.get("messages")):
            answer = await self._in_thread(self._chat(members, _read(body, _Chat)))
        else:
            text = _read(body, _Text)
            answer = await self._in_thread(
                lambda: self._answer(
                    self._tokenizer.encode(text.prompt, add_special_tokens=text.add_special_tokens),
                    strings=bool(text.return_token_strs),
                )
            )
        await send_json(send, 200, answer)

    def _chat(self, members: Members, asked: _Chat) -> Callable[[], _Answer]:
        capabilities = self._service.registry.capabilities
        rest = {name: value for name, value in members.items() if name not in _OF_TOKENIZE}
        # What inference requests go through too, so that the ids are those of the prompt.
        kept = capabilities.policy(chat=True).apply(rest).members
        strict_tools = "strict" in capabilities.common.function
        return lambda: self._tokenised(kept, asked, strict_tools=strict_tools)

    def _tokenised(self, members: Members, asked: _Chat, *, strict_tools: bool) -> _Answer:
        """In a thread."""
        try:
            chat = read_chat(members, strict_tools=strict_tools)
            ids = self._encode(chat, asked)
            if asked.required_prefix_token_ids:
                ids = self._continued(ids, chat, asked, asked.required_prefix_token_ids)
        except NotReproducible as why:
            reason = _REASONS.get(str(why), f"{why} cannot be rendered here")
            detail = f": {why.__cause__}" if why.__cause__ is not None else ""
            raise InvalidRequest(reason + detail, param="messages") from None
        return self._answer(ids, strings=bool(asked.return_token_strs))

    def _encode(self, chat: Chat, asked: _Chat) -> list[int]:
        return self._tokenizer.encode(
            chat.render(self._tokenizer), add_special_tokens=asked.add_special_tokens
        )

    def _continued(self, ids: list[int], chat: Chat, asked: _Chat, given: list[int]) -> list[int]:
        roles = [message["role"] for message in chat.messages]
        last = len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0
        answered = msgspec.structs.replace(chat, messages=chat.messages[:last], add_generation_prompt=False)
        try:
            if not last or self._tokenizer.end is None:
                raise ValueError("no answer to go on from")
            return continue_from(given, self._encode(answered, asked), ids, self._tokenizer.end)
        except ValueError:
            raise InvalidRequest(
                "required_prefix_token_ids needs an assistant message with an end token to go on from",
                param="required_prefix_token_ids",
            ) from None

    def _answer(self, ids: list[int], *, strings: bool) -> _Answer:
        return _Answer(
            count=len(ids),
            max_model_len=self._tokenizer.max_length,
            tokens=ids,
            token_strs=self._tokenizer.token_strings(ids) if strings else None,
        )


class DetokenizeEndpoint(_Endpoint):
    """`{tokens}` -> `{prompt}`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request.

        Raises:
            InvalidRequest, Overloaded, BodyTooLarge, ClientGone: the errors middleware answers.
        """
        tokens = _read(await self._body(scope, receive), _Tokens).tokens
        try:
            text = await self._in_thread(lambda: self._tokenizer.decode(tokens))
        except OverflowError:
            raise InvalidRequest("tokens must be ids of tokens", param="tokens") from None
        await send_json(send, 200, {"prompt": text})


def _read(body: bytes, form: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"the body is not of the expected form: {error}") from None
