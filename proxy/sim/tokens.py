"""A made-up tokenizer and chat template: pure, deterministic and cheap for long prompts.

Token ids are kept as the bytes of a little-endian int32 array, which is also what the base64 relay of
TensorRT-LLM carries (pull request 15698).
"""

import base64
import binascii
import hashlib
import zlib
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

BEGIN = 1  # the id that starts each prompt, as Llama-family tokenizers do
BYTES_PER_TOKEN = 4
FIRST_PROMPT_ID = 2_000
PROMPT_IDS = 30_000  # ids of prompt tokens lie in [FIRST_PROMPT_ID, FIRST_PROMPT_ID + PROMPT_IDS)

PART_URLS = ("image_url", "video_url", "audio_url")
PART_TYPES = frozenset({"text", *PART_URLS, "input_audio", "image_embeds"})


class PromptError(ValueError):
    """The prompt cannot be rendered; the worker answers 400 with its error envelope."""


def tokenize(text: str) -> bytes:
    """The ids of a text as int32 bytes: a begin token, then one token per four bytes of UTF-8."""
    data = text.encode("utf-8", "surrogatepass")
    data += bytes(-len(data) % BYTES_PER_TOKEN)
    words = np.frombuffer(data, dtype="<u4")
    ids = np.empty(len(words) + 1, dtype="<i4")
    ids[0] = BEGIN
    ids[1:] = words % PROMPT_IDS + FIRST_PROMPT_ID
    return ids.tobytes()


def pack_ids(ids: Iterable[int]) -> bytes:
    """Integers to int32 bytes. Raises `PromptError` for anything that does not fit."""
    try:
        return array("i", ids).tobytes()
    except (TypeError, OverflowError) as error:
        raise PromptError(f"invalid token id: {error}") from error


def unpack_ids(packed: bytes) -> list[int]:
    """int32 bytes to integers."""
    ids: list[int] = np.frombuffer(packed, dtype="<i4").tolist()
    return ids


def encode_ids(packed: bytes) -> str:
    """int32 bytes to standard base64 with padding."""
    return base64.b64encode(packed).decode("ascii")


def decode_ids(text: str) -> bytes:
    """Base64 to int32 bytes. Raises `PromptError` for bad base64 or a length that is no multiple of 4."""
    try:
        packed = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PromptError(f"prompt_token_ids_b64 is not valid base64: {error}") from error
    if len(packed) % 4:
        raise PromptError("prompt_token_ids_b64: buffer size must be a multiple of element size")
    return packed


def count_ids(packed: bytes) -> int:
    """How many ids the bytes hold."""
    return len(packed) // 4


def seed_of(packed: bytes) -> int:
    """A 32-bit number from which the answer to this prompt follows."""
    return zlib.crc32(packed)


def digest_of(packed: bytes) -> str:
    """A hash by which the generation worker recognises the prompt that the context worker has computed."""
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def content_text(content: Any) -> str:
    """A message's content as text; parts are joined by line ends. Raises `PromptError` for unknown parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in PART_TYPES:
        raise PromptError(f"Unknown part type: {kind}")
    if kind == "text":
        return str(part.get("text", ""))
    source = part.get(kind)
    url = source.get("url", "") if isinstance(source, dict) else source
    return f"<{kind}:{zlib.crc32(str(url).encode()):08x}>"


def continued_ids(body: Mapping[str, Any]) -> Iterable[int]:
    """The ids of a prompt whose assistant messages may bring those of their turn, as NeMo Gym keeps them.

    The last such turn's ids stay as the model has read and written them, and only what follows it is tokenized.
    """
    messages = body.get("messages") or []
    for at in range(len(messages) - 1, -1, -1):
        given = messages[at]
        if given.get("generation_token_ids") and given.get("prompt_token_ids"):
            # The line end and what comes after it; the begin token is there already.
            rest = tokenize("\n" + render_chat({"messages": messages[at + 1 :]}))
            return [*given["prompt_token_ids"], *given["generation_token_ids"], *unpack_ids(rest)[1:]]
    return unpack_ids(prompts_of(body)[0])


def render_chat(body: Mapping[str, Any]) -> str:
    """The prompt text of a chat body.

    As the real prompt builder does, it reads role, content, reasoning, tool calls and tool call id of each
    message, and ignores other keys. Of the tools only the names enter, so that dropping
    ``strict`` or ``description`` does not change the prompt.
    """
    lines = []
    names = [tool["function"]["name"] for tool in body.get("tools") or []]
    if names:
        lines.append(f"<|tools|>{' '.join(names)}")
    options = body.get("chat_template_kwargs")
    if options:
        lines.append("<|options|>" + msgspec.json.encode(options, order="sorted").decode())
    lines += [_message_line(message) for message in body["messages"]]
    if body.get("add_generation_prompt", True):
        lines.append("<|assistant|>")
    return "\n".join(lines)


def _message_line(message: Mapping[str, Any]) -> str:
    line = f"<|{message['role']}|>"
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning:
        line += f"<think>{reasoning}</think>"
    line += content_text(message.get("content"))
    for call in message.get("tool_calls") or []:
        function = call.get("function") or {}
        line += f"<call>{function.get('name')}{_arguments(function.get('arguments'))}</call>"
    if message.get("tool_call_id"):
        line += f"<answer to {message['tool_call_id']}>"
    return line


def _arguments(arguments: Any) -> str:
    if not isinstance(arguments, str):
        raise PromptError("tool call arguments must be a string")
    try:
        msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError as error:
        raise PromptError(f"tool call arguments must be valid JSON: {error}") from error
    return arguments


def brings_ids(body: Mapping[str, Any]) -> bool:
    """Whether the prompt is given as ids."""
    if "messages" in body:
        return body.get("prompt_token_ids") is not None or bool(body.get("prompt_token_ids_b64"))
    return isinstance(body["prompt"], list)


def prompts_of(body: Mapping[str, Any]) -> list[bytes]:
    """Every prompt of a body as int32 bytes: one for chat, one or more for completions.

    Chat: ``prompt_token_ids``, else ``prompt_token_ids_b64``, else the rendered messages.
    """
    if "messages" in body:
        given = body.get("prompt_token_ids")
        if given is not None:
            return [pack_ids(given)]
        encoded = body.get("prompt_token_ids_b64")
        return [decode_ids(encoded) if encoded else tokenize(render_chat(body))]
    prompt = body["prompt"]
    if isinstance(prompt, str):
        return [tokenize(prompt)]
    if not prompt:
        raise PromptError("prompt must not be empty")
    if isinstance(prompt[0], int):
        return [pack_ids(prompt)]
    return [tokenize(item) if isinstance(item, str) else pack_ids(item) for item in prompt]


def prompt_token_ids(body: Mapping[str, Any]) -> list[int]:
    """The ids that a worker computes for the (first) prompt of a completions or chat body."""
    return unpack_ids(prompts_of(body)[0])
