"""`python -m bench.fakes --case S1`: both workers in one process on ports of their own choice.

Prints one JSON line with the ports; answers each line on standard input with the counts; ends with it.
"""

import argparse
import asyncio
import dataclasses
import gc
import json
import os
import sys

import uvloop

from bench.cases import CASES
from bench.fakes.connection import Worker, WorkerConnection
from bench.fakes.pacer import Pacer


async def serve(case_name: str, dialect: str) -> None:
    loop = asyncio.get_running_loop()
    case = CASES[case_name]
    worker = Worker(case, dialect, Pacer(loop, case.interval_ms / 1000) if case.paced else None)
    servers = [
        await loop.create_server(
            lambda role=role: WorkerConnection(worker, role), "127.0.0.1", 0, backlog=4096
        )
        for role in (True, False)
    ]
    context, generation = (server.sockets[0].getsockname()[1] for server in servers)
    print(json.dumps({"context": context, "generation": generation}), flush=True)
    ended = asyncio.Event()

    def on_input() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            ended.set()
            return
        print(json.dumps(dataclasses.asdict(worker.counts)), flush=True)

    loop.add_reader(sys.stdin.fileno(), on_input)
    gc.freeze()
    await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--dialect", choices=("trtllm", "vllm", "sglang", "plain"), default="trtllm")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.case, arguments.dialect))


if __name__ == "__main__":
    main()
