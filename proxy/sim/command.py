"""``disagg-proxy sim``: simulated workers in a process of their own."""

import argparse
import asyncio
import signal
import sys

import msgspec
import uvloop

from proxy.sim.cluster import SimCluster
from proxy.sim.engine import Speed
from proxy.sim.faults import KINDS, Fault, read_faults
from proxy.sim.kv import DEFAULT_SECONDS
from proxy.sim.profiles import PROFILES
from proxy.sim.registration import RegistrationSettings, storage_class
from proxy.sim.settings import WorkerSettings


def _faults(text: str) -> list[Fault]:
    try:
        return read_faults(text.encode())
    except (ValueError, msgspec.DecodeError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _cluster_uri(text: str) -> str:
    try:
        storage_class(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--context", type=int, default=2, metavar="N", help="context workers (default 2)")
    parser.add_argument(
        "--generation", type=int, default=2, metavar="N", help="generation workers (default 2)"
    )
    parser.add_argument(
        "--base-port", type=int, default=9000, metavar="PORT", help="first port, context first; 0: free ports"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument(
        "--unix-directory", metavar="DIR", help="listen on Unix sockets in this directory instead"
    )
    parser.add_argument(
        "--profile", choices=tuple(PROFILES), default="jul", help="worker version (default jul)"
    )
    parser.add_argument("--model", default="sim", help="name of the served model (default sim)")
    parser.add_argument(
        "--name-prefix", default="", help="put before worker names (several processes need it)"
    )
    parser.add_argument(
        "--prefill-tokens-per-second", type=float, default=0.0, metavar="RATE", help="0: at once (default)"
    )
    parser.add_argument(
        "--decode-ms", type=float, default=0.0, metavar="MS", help="per decode step (default 0)"
    )
    parser.add_argument(
        "--decode-ms-per-request", type=float, default=0.0, metavar="MS", help="added per running request"
    )
    parser.add_argument(
        "--max-batch", type=int, default=0, metavar="N", help="running requests (0: no limit)"
    )
    parser.add_argument(
        "--kv-seconds", type=float, default=DEFAULT_SECONDS, help="until held KV expires (60)"
    )
    parser.add_argument("--keep-alive-seconds", type=float, default=5.0, help="idle connections (5)")
    parser.add_argument("--auth-key", help="internal_request_auth_key: generation legs must be signed")
    parser.add_argument("--transceiver", choices=("full", "cpp", "python", "none"), default="full")
    parser.add_argument("--kv-events", action="store_true", help="hash prompts, emit KV events")
    parser.add_argument(
        "--rl-control", action="store_true", help="/release_memory, /resume_memory, /update_weights, ..."
    )
    parser.add_argument(
        "--next-routes", action="store_true", help="hand-offs on /v1/responses, and /v1/messages"
    )
    parser.add_argument(
        "--record", type=int, default=256, metavar="N", help="requests kept for /sim/requests"
    )
    parser.add_argument(
        "--disagg_cluster_uri",
        type=_cluster_uri,
        metavar="URI",
        help="register in this cluster storage: http://PROXY:PORT or etcd://HOST:PORT[,etcd://...]",
    )
    parser.add_argument(
        "--disagg_cluster_name", default="", metavar="NAME", help="cluster_name (default none)"
    )
    parser.add_argument(
        "--heartbeat_interval_sec", type=float, default=5.0, metavar="SECONDS", help="(default 5)"
    )
    parser.add_argument(
        "--inactive_timeout_sec", type=int, default=10, metavar="SECONDS", help="(default 10)"
    )
    parser.add_argument(
        "--fault",
        type=_faults,
        action="append",
        default=[],
        metavar="JSON",
        help="a fault switch that each worker starts with, e.g. "
        '\'{"kind": "status", "status": 503, "count": 3, "leg": "context"}\'; kinds: ' + ", ".join(KINDS),
    )


def settings_of(args: argparse.Namespace) -> WorkerSettings:
    """The workers' settings that the options ask for."""
    return WorkerSettings(
        profile=args.profile,
        model=args.model,
        speed=Speed(
            prefill_tokens_per_second=args.prefill_tokens_per_second,
            decode_ms=args.decode_ms,
            decode_ms_per_request=args.decode_ms_per_request,
            max_batch=args.max_batch,
        ),
        transceiver=args.transceiver,
        auth_key=args.auth_key,
        keep_alive_seconds=args.keep_alive_seconds,
        kv_events=args.kv_events,
        rl_control=args.rl_control,
        next_routes=args.next_routes,
        record=args.record,
        faults=tuple(fault for faults in args.fault for fault in faults),
        registration=_registration_of(args),
    )


def _registration_of(args: argparse.Namespace) -> RegistrationSettings | None:
    if args.disagg_cluster_uri is None:
        return None
    return RegistrationSettings(
        cluster_uri=args.disagg_cluster_uri,
        cluster_name=args.disagg_cluster_name,
        heartbeat_seconds=args.heartbeat_interval_sec,
        inactive_seconds=args.inactive_timeout_sec,
    )


async def _serve(args: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    cluster = SimCluster(
        args.context,
        args.generation,
        args.base_port,
        host=args.host,
        unix_directory=args.unix_directory,
        kv_seconds=args.kv_seconds,
        name_prefix=args.name_prefix,
        settings=settings_of(args),
    )
    async with cluster:
        for worker in cluster.workers:
            sys.stdout.write(f"{worker.name} ready at {worker.address}\n")
        sys.stdout.flush()
        await stop.wait()


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; 0 then, 1 when a port cannot be had."""
    try:
        uvloop.run(_serve(args))
    except OSError as error:
        sys.stderr.write(f"cannot start: {error}\n")
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Parse ``arguments`` (default: the command line) and serve."""
    parser = argparse.ArgumentParser(prog="disagg-proxy sim", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
