"""The limits of the process: raised at start, and compared with the configuration."""

import re
import resource
import sys

import pytest
from program import Program

from proxy.config.load import load_settings
from proxy.fleet.listeners import BACKLOG
from proxy.kernel_limits import _SOMAXCONN, files_needed, limit_warnings, longest_backlog


def settings(**overrides: object):
    return load_settings(None, overrides=overrides, environ={})


@pytest.mark.parametrize(
    ("limits", "needed"),
    [
        ({}, 0),
        ({"max_inflight": 1000, "max_queued": 0}, 2256),
        ({"max_inflight": 1000, "max_queued": 500}, 2756),
        # Two processes: one of them may get all of it. Eight: hardly more than twice its share.
        ({"max_inflight": 1000, "max_queued": 0, "num_workers": 2}, 2256),
        ({"max_inflight": 1000, "max_queued": 0, "num_workers": 8}, 756),
    ],
    ids=str,
)
def test_files_needed(limits, needed):
    assert files_needed(settings(**limits)) == needed


def test_nothing_to_say():
    plenty = settings(max_inflight=1000, max_queued=0)
    assert list(limit_warnings(plenty, 2256, BACKLOG)) == []
    assert list(limit_warnings(settings(), 8192, None)) == []


def test_too_few_files_for_the_limits():
    (warning,) = limit_warnings(settings(max_inflight=1000, max_queued=0, num_workers=2), 2255, None)
    assert re.findall(r"\d+", warning) == ["2255", "1000", "0", "2", "2256"]


def test_few_files_without_limits():
    (warning,) = limit_warnings(settings(), 8191, None)
    assert warning.startswith("only 8191 files")


def test_a_short_backlog():
    (warning,) = limit_warnings(settings(), 8192, 128)
    assert "net.core.somaxconn is 128" in warning


@pytest.mark.skipif(not _SOMAXCONN.exists(), reason="the kernel does not tell net.core.somaxconn here")
def test_the_kernels_backlog():
    assert longest_backlog() == int(_SOMAXCONN.read_text())


def test_serve_raises_the_limit_and_warns(run_program, write_config):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(hard, 1000)
    config = write_config(
        {"hostname": "127.0.0.1", "port": 0, "proxy": {"max_inflight": 600, "drain_grace": 0}}
    )
    shell = f'ulimit -Sn 100 && ulimit -Hn {limit} && exec "$0" "$@"'
    program: Program = run_program(
        sys.executable, "-m", "proxy", "serve", "-c", config, command=("bash", "-c", shell)
    )
    program.wait_for("running on http")
    assert resource.prlimit(program.pid, resource.RLIMIT_NOFILE) == (limit, limit)
    assert f"only {limit} files can be open at once in each process" in program.err
    assert "may need 5552" in program.err
