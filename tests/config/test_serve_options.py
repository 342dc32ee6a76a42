import argparse

import pytest

from proxy.config.errors import ConfigError
from proxy.config.load import load_settings
from proxy.config.options import add_serve_options, overrides_from


def parse(*arguments):
    parser = argparse.ArgumentParser()
    add_serve_options(parser)
    return parser.parse_args(arguments)


PHASES = ("timeout_context", "timeout_first_byte", "timeout_idle")


@pytest.mark.parametrize(
    ("arguments", "overrides"),
    [
        ([], {}),
        (["-c", "x.yaml"], {}),
        (["--host", "0.0.0.0"], {"hostname": "0.0.0.0"}),
        (["--port", "0"], {"port": 0}),
        (["--workers", "3"], {"num_workers": 3}),
        (["-t", "60"], {"server_start_timeout": 60.0}),
        (["--server_start_timeout", "0.5"], {"server_start_timeout": 0.5}),
        (["-r", "30"], dict.fromkeys(PHASES, 30.0)),
        (["--request_timeout", "0"], dict.fromkeys(PHASES, 0.0)),
        (["-l", "verbose"], {"log_level": "verbose"}),
        (["--log_level", "info"], {"log_level": "info"}),
        (
            ["--metrics-log-interval", "10"],
            {"warnings": ("command line: --metrics-log-interval has no effect, as upstream",)},
        ),
        (
            ["--config_file", "x.yaml"],
            {"warnings": ("command line: --config_file is the old name of --config",)},
        ),
    ],
)
def test_overrides(arguments, overrides):
    assert overrides_from(parse(*arguments)) == overrides


@pytest.mark.parametrize("name", ["-c", "--config", "--config_file"])
def test_path(name):
    assert parse(name, "x.yaml").config == "x.yaml"


def test_no_path():
    assert parse().config is None


@pytest.mark.parametrize("name", ["-m", "--metadata_server_config_file"])
def test_metadata_server(name):
    assert overrides_from(parse(name, "etcd.yaml")) == {"metadata_server": "etcd.yaml"}


@pytest.mark.parametrize(
    "arguments",
    [["--port", "x"], ["--workers", "two"], ["-r", "soon"], ["-t", ""], ["--metrics-log-interval", "x"]],
)
def test_numbers(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    assert "invalid" in capsys.readouterr().err


def test_options_reach_the_settings():
    arguments = [
        "--host",
        "::",
        "--port",
        "9",
        "-t",
        "1",
        "-r",
        "2",
        "-l",
        "INTERNAL_ERROR",
        "--metrics-log-interval",
        "1",
    ]
    overrides = overrides_from(parse(*arguments))
    settings = load_settings(
        None, overrides=overrides, environ={"DISAGG_PROXY_PORT": "8"}, container_marks=()
    )
    assert (settings.hostname, settings.port, settings.server_start_timeout) == ("::", 9, 1.0)
    assert {getattr(settings.proxy, name) for name in PHASES} == {2.0}
    assert settings.proxy.timeout_connect == 5.0
    assert settings.proxy.log_level == "critical"
    assert settings.warnings[0] == "command line: --metrics-log-interval has no effect, as upstream"


def test_ranges_are_checked_when_loading():
    for arguments, key in [
        (["-r", "-1"], "proxy.timeout_context"),
        (["-r", "nan"], "proxy.timeout_context"),
        (["--port", "70000"], "port"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load_settings(None, overrides=overrides_from(parse(*arguments)), environ={}, container_marks=())
        assert (caught.value.origin, caught.value.key) == ("command line", key)


def test_help_names_every_option_once():
    parser = argparse.ArgumentParser()
    add_serve_options(parser)
    text = parser.format_help()
    for option in ["-c FILE", "--host", "--port", "-t SECONDS", "-r SECONDS", "-l LEVEL", "-m FILE"]:
        assert option in text
    assert "metrics" not in text
