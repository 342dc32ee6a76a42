"""The command line: versions, help, exit codes, and errors in one clear line."""

import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest

from proxy import __version__

LINE = r"disagg-proxy: [^\n]+\n"


@pytest.fixture
def run(run_program):
    """Runs a command to its end and returns exit code, standard output and standard error."""

    def finish(*arguments, **options):
        program = run_program(*arguments, **options)
        code = program.wait()
        return code, program.out, program.err

    return finish


def test_version(run):
    assert run("--version") == (0, f"disagg-proxy {__version__}\n", "")


def test_help_names_the_commands(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out for command in ("serve", "check", "demo", "sim"))


@pytest.mark.parametrize("command", ["serve", "check", "demo", "sim"])
def test_help_of_a_command(run, command):
    code, out, err = run(command, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: disagg-proxy {command}")


@pytest.mark.parametrize(
    "arguments", [(), ("start",), ("serve", "--nonsense"), ("demo", "--port", "many")], ids=str
)
def test_wrong_arguments(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("usage: disagg-proxy")


@pytest.mark.parametrize("arguments", [("fields",), ("check", "-c", "disagg.yaml")], ids=["fields", "check"])
def test_a_reader_that_has_seen_enough(tmp_path, arguments):
    (tmp_path / "disagg.yaml").write_text("{}")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "proxy", *arguments]
        done = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


CONFIGS = {
    "missing": (None, "no-such-file.yaml"),
    "not-yaml": ("a: [", "disagg.yaml"),
    "not-a-mapping": ("- 1", "mapping"),
    "misspelt": ("hostnam: x", 'did you mean "hostname"'),
    "wrong-type": ("port: many", "port"),
    "bad-style": ("schedule_style: sideways", "schedule_style"),
    "contradiction": ("context_servers: {num_instances: 2, urls: ['a:1']}", "context_servers.num_instances"),
    "bad-url": ("context_servers: {urls: ['a']}", "context_servers.urls[0]"),
    "unknown-proxy-key": ("proxy: {max_bodies: 1}", "proxy.max_bodies"),
}


@pytest.mark.parametrize(("command", "name"), [*(("serve", name) for name in CONFIGS), ("check", "misspelt")])
def test_configuration_errors(run, write_config, command, name):
    """Exit code 2, one line on standard error, no traceback, nothing started."""
    text, mentioned = CONFIGS[name]
    path = write_config(text) if text is not None else "no-such-file.yaml"
    code, out, err = run(command, "-c", path)
    assert (code, out) == (2, "")
    assert re.fullmatch(LINE, err), err
    assert mentioned in err
    assert text is None or path in err


def test_an_error_in_the_environment(run):
    code, _, err = run("serve", environment={"DISAGG_PROXY_PORT": "many"})
    assert code == 2
    assert re.fullmatch(LINE, err)
    assert "DISAGG_PROXY_PORT" in err


def test_an_address_in_use(run, write_config):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = run("serve", "-c", write_config({"hostname": "127.0.0.1", "port": port}))
        assert code == 1
        assert "address already in use" in err
        assert "Traceback" not in err
        code, _, err = run("demo", "--port", str(port))
        assert code == 1
        assert "Traceback" not in err


def test_options_of_the_command_it_replaces(run_program, write_config):
    """`trtllm-serve disaggregated -c FILE -t 5 -r 30 -l debug --metrics-log-interval 5`, one word changed."""
    path = write_config({"hostname": "127.0.0.1", "port": 1, "proxy": {"drain_grace": 0}})
    program = run_program(
        *("serve", "-c", path, "-t", "5", "-r", "30", "-l", "debug", "--metrics-log-interval", "5"),
        *("--port", "0"),
    )
    program.wait_for(r"running on http://127\.0\.0\.1:\d+")
    assert "--metrics-log-interval has no effect" in program.err
    assert "context_servers has no urls" in program.err
    program.terminate()
    assert program.wait() == 0


class TestCheck:
    @pytest.fixture
    def sim(self, run_program):
        program = run_program("sim", "--context", "1", "--generation", "1", "--base-port", "0")
        program.wait_for("generation-0 ready at .*\n")
        return re.findall(r"ready at (\S+)", program.out)

    def config(self, context, generation):
        return {
            "context_servers": {"urls": [context]},
            "generation_servers": {"urls": [generation]},
            "model": "inherited",
            "proxy": {"probe_timeout": 2},
        }

    def test_healthy(self, run, write_config, sim):
        code, out, err = run("check", "-c", write_config(self.config(*sim)))
        assert (code, err) == (0, "")
        for address in sim:
            assert re.search(rf"{address} +healthy +1\.3\.0rc24 +sim +[0-9.]+ ms", out)
        assert "model: inherited" in out

    def test_a_worker_that_is_away(self, run, write_config, sim):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            away = f"127.0.0.1:{taken.getsockname()[1]}"
            code, out, _ = run("check", "-c", write_config(self.config(sim[0], away)))
        assert code == 1
        assert re.search(rf"{away} +unreachable", out)

    def test_precedence(self, run, write_config, sim):
        path = write_config({**self.config(*sim), "port": 8001, "hostname": "yaml"})
        environment = {"DISAGG_PROXY_PORT": "8002", "DISAGG_PROXY_MAX_BODY_BYTES": "5000"}
        code, out, _ = run("check", "-c", path, "--port", "8003", environment=environment)
        assert code == 0
        assert "port: 8003\n" in out
        assert "hostname: yaml\n" in out
        assert "max_body_bytes: 5000\n" in out


class TestSim:
    def test_ends_with_sigterm(self, run_program):
        program = run_program("sim", "--context", "2", "--generation", "1", "--base-port", "0")
        program.wait_for("generation-0 ready at .*\n")
        assert len(program.out.splitlines()) == 3
        program.terminate()
        assert program.wait() == 0

    def test_routes_that_are_asked_for(self, run_program):
        asked = "--context", "0", "--generation", "1", "--base-port", "0"
        program = run_program("sim", *asked, "--rl-control", "--next-routes")
        (address,) = program.wait_for(r"ready at (\S+)\n").groups()
        with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=30) as client:
            assert client.post("/update_weights", json={}).status_code != 404
            assert "/v1/messages" in client.get("/openapi.json").json()["paths"]

    def test_a_port_in_use(self, run):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            code, _, err = run("sim", "--context", "1", "--generation", "0", "--base-port", str(port))
        assert code == 1
        assert "cannot start" in err
        assert "Traceback" not in err

    def test_a_wrong_fault(self, run):
        code, _, err = run("sim", "--fault", '{"kind": "nonsense"}')
        assert code == 2
        assert "nonsense" in err


def test_a_process_has_no_threads_for_linear_algebra():
    """With one per core, a fleet on a large machine would start thousands."""
    count = "import os, proxy.placement.load_table; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
