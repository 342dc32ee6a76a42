"""The command line: `serve`, `check`, `health`, `fields`, `demo`, `sim`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from proxy import __version__
from proxy.config.errors import ConfigError
from proxy.config.load import load_settings
from proxy.config.options import add_serve_options, overrides_from
from proxy.config.settings import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `disagg-proxy`; returns the exit code (2 for a wrong option or configuration)."""
    args = _parser().parse_args(arguments)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads, `head` for one, has seen enough. What is still buffered must not fail again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except ConfigError as error:
        print(f"disagg-proxy: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    from proxy.health_command import add_health_options
    from proxy.sim import command as sim

    parser = argparse.ArgumentParser(
        prog="disagg-proxy",
        description="One OpenAI-compatible endpoint in front of TensorRT-LLM context and generation workers.",
    )
    parser.add_argument("--version", action="version", version=f"disagg-proxy {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="run the proxy")
    add_serve_options(serve)
    serve.set_defaults(run=_serve)

    check = commands.add_parser("check", help="print the configuration in force and probe every worker")
    add_serve_options(check)
    check.set_defaults(run=_check)

    health = commands.add_parser("health", help="ask the proxy that runs here how it is; exit code 0 or 1")
    add_serve_options(health)
    add_health_options(health)
    health.set_defaults(run=_health)

    fields = commands.add_parser("fields", help="print what becomes of each request field, or of one request")
    _add_fields_options(fields)
    fields.set_defaults(run=_fields)

    demo = commands.add_parser("demo", help="run the proxy with simulated workers")
    demo.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    demo.add_argument("--port", type=int, default=8000, help="port to listen on (default %(default)s)")
    demo.set_defaults(run=_demo)

    simulate = commands.add_parser("sim", help="run simulated workers")
    sim.add_arguments(simulate)
    simulate.set_defaults(run=sim.run)
    return parser


def _add_fields_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-c", "--config", metavar="FILE", help="YAML file of the proxy: its dialect, rules and workers")
    add(
        "--worker",
        metavar="URL",
        action="append",
        help="ask this worker for what it accepts (may be repeated; default: those of FILE)",
    )
    add(
        "--worker-version",
        choices=["old", "jul", "new"],
        help="take the built-in table of this version instead of asking workers",
    )
    add(
        "--dialect",
        choices=["trtllm", "nemo_rl", "passthrough"],
        help="instead of the configured worker_dialect",
    )
    add(
        "--explain",
        metavar="REQUEST.json",
        help="show what would be sent for this request; - is standard input",
    )


def _settings(args: argparse.Namespace) -> Settings:
    return load_settings(args.config, overrides=overrides_from(args), environ=os.environ)


def _serve(args: argparse.Namespace) -> int:
    from proxy.serve import run_serve

    return run_serve(_settings(args), lambda: _settings(args))


def _check(args: argparse.Namespace) -> int:
    from proxy.check import run_check

    return run_check(_settings(args))


def _health(args: argparse.Namespace) -> int:
    from proxy.health_command import run_health

    return run_health(_settings(args), ready=args.ready, wait=args.wait)


def _fields(args: argparse.Namespace) -> int:
    from proxy.fields_command import run

    return run(args)


def _demo(args: argparse.Namespace) -> int:
    from proxy.demo import run_demo

    return run_demo(args.host, args.port)
