"""`python -m bench.load --case S1 --port N`: obeys JSON lines on standard input, one answer line for each."""

import argparse
import asyncio
import gc
import json
import os
import sys
from typing import Any

import uvloop

from bench.cases import CASES
from bench.load.loops import OpenStreams, Target, closed_loop, open_loop, pairs, wait_ready
from bench.payloads import client_body, direct_context_body, generation_leg_body


def http_request(port: int, body: bytes) -> bytes:
    """A chat request as an OpenAI client library sends it."""
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json\r\n"
        b"Content-Type: application/json\r\nUser-Agent: bench/1.0\r\nAuthorization: Bearer sk-bench\r\n"
        b"Content-Length: %d\r\n\r\n" % (port, len(body))
    ) + body


class Commands:
    """Names of the phases and what they need."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        case = CASES[arguments.case]
        body = client_body(case)
        if arguments.body == "generation-leg":
            body = generation_leg_body(case, "trtllm", True)
        self._target = Target(case, arguments.port, http_request(arguments.port, body))
        self._streams = OpenStreams(self._target)
        dialect, as_base64 = arguments.dialect, not arguments.arrays
        if dialect == "plain":
            self._context, generation_leg = (0, b""), body
        else:
            context_leg = direct_context_body(case, dialect, as_base64)
            self._context = (arguments.context, http_request(arguments.context, context_leg))
            generation_leg = generation_leg_body(case, dialect, as_base64)
        self._generation = (arguments.generation, http_request(arguments.generation, generation_leg))

    async def run(self, name: str, options: dict[str, Any]) -> dict[str, object]:
        match name:
            case "ready":
                return await wait_ready(self._target, **options)
            case "closed":
                return await closed_loop(self._target, **options)
            case "open":
                return await open_loop(self._target, **options)
            case "pairs":
                return await pairs(self._target, self._context, self._generation, **options)
            case "streams":
                return await self._streams.open(**options)
        raise ValueError(name)


async def obey(commands: Commands) -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    pending = b""

    def on_input() -> None:
        nonlocal pending
        data = os.read(sys.stdin.fileno(), 65536)
        if not data:
            loop.remove_reader(sys.stdin.fileno())
            lines.put_nowait(b"")
            return
        *complete, pending = (pending + data).split(b"\n")
        for line in complete:
            lines.put_nowait(line)

    loop.add_reader(sys.stdin.fileno(), on_input)
    gc.freeze()
    while line := await lines.get():
        order = json.loads(line)
        try:
            result = await commands.run(order.pop("op"), order)
        except Exception as error:  # the report of whatever went wrong is this process's answer
            result = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--port", type=int, required=True, help="of the proxy under test")
    parser.add_argument("--context", type=int, default=0, help="port of the context worker, for pairs")
    parser.add_argument("--generation", type=int, default=0, help="port of the generation worker, for pairs")
    parser.add_argument("--body", choices=("client", "generation-leg"), default="client")
    parser.add_argument(
        "--arrays", action="store_true", help="direct legs carry ids as arrays, not as base64"
    )
    parser.add_argument("--dialect", default="trtllm", help="of the direct legs; plain has no context leg")
    uvloop.run(obey(Commands(parser.parse_args())))


if __name__ == "__main__":
    main()
