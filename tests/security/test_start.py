"""Mistakes that end the start, with a sentence and an exit code."""

import socket

import pytest

from proxy.cli import main


@pytest.mark.parametrize("command", ["serve", "check"])
@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"api_keys_file": "nothing"}, "proxy.api_keys_file = nothing: cannot be read: No such file"),
        ({"admin_listen": "127.0.0.1:0", "admin_token_file": "nothing"}, "proxy.admin_token_file = nothing"),
        ({"worker_api_key_file": "nothing"}, "proxy.worker_api_key_file = nothing"),
        ({"tls_certfile": "nothing"}, "proxy.tls_certfile = nothing: cannot be used for TLS"),
        ({"admin_listen": "0.0.0.0:0"}, 'proxy.admin_listen = "0.0.0.0:0": without admin_token_file'),
    ],
)
def test_wrong_files(write_config, capsys, command, keys, text):
    assert main([command, "-c", write_config({"proxy": keys})]) == 2
    assert text in capsys.readouterr().err


def test_the_admin_address_is_taken(run_program, write_config):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        program = run_program("serve", "-c", write_config({"port": 0, "proxy": {"admin_listen": address}}))
        assert program.wait() == 1
    assert f"cannot listen on {address}" in program.err
    assert "Traceback" not in program.err
