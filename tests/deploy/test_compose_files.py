"""The compose files agree with their schema, with each other and with the files that they mount."""

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml
from compose_files import FOLDER, MAIN, load, mounts, option, seconds

from proxy.config.load import load_settings
from proxy.config.settings import Settings

WORKERS = ("context", "generation")


@pytest.fixture(params=MAIN)
def application(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


def proxy_settings(application: dict[str, Any]) -> Settings:
    (mount,) = mounts(application, "proxy")
    return load_settings(str(mount.source), overrides={}, environ={}, container_marks=["/"])


@pytest.mark.parametrize("name", [*MAIN, "monitoring.yaml"])
def test_schema(name):
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        str(FOLDER / name),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_mounted_exists_and_what_is_declared_is_mounted(application):
    used = set()
    for name, service in application["services"].items():
        used |= {each["source"] for each in service.get("configs", [])}
        for mount in mounts(application, name):
            assert mount.source.is_file(), mount
    assert used == set(application["configs"])
    named = {
        volume.split(":")[0]
        for service in application["services"].values()
        for volume in service.get("volumes", [])
        if isinstance(volume, str)
    }
    assert named == set(application["volumes"])


def test_the_proxys_configuration_is_valid_and_names_the_workers(application):
    settings = proxy_settings(application)
    assert settings.warnings == ()
    services = application["services"]
    for role, section in zip(WORKERS, (settings.context_servers, settings.generation_servers), strict=True):
        listening = set()
        for name in services:
            if name.startswith(role):
                command = services[name]["command"]
                port = "--base-port" if "--base-port" in command else "--port"
                listening.add(f"{name}:{option(command, port)}")
        assert {address.text for address in section.urls} == listening
    (published,) = services["proxy"]["ports"]
    assert published.rsplit(":", 1)[1] == str(settings.port)


def test_health_checks_ask_the_port_of_their_service(application):
    for name, service in application["services"].items():
        check = " ".join(service["healthcheck"]["test"])
        command = service.get("command", [])
        if "disagg-proxy" in check and name != "proxy":
            assert f"--host {name} --port {option(command, '--base-port')}" in check
        elif "trtllm-serve" in command:
            assert f":{option(command, '--port')}/health" in check
        elif name != "proxy":
            port = service["ports"][0].rsplit(":", 1)[1]
            assert f":{port}/" in check


def test_dependencies_have_the_health_that_is_waited_for(application):
    for service in application["services"].values():
        for other, wanted in service.get("depends_on", {}).items():
            assert wanted["condition"] in {"service_healthy", "service_started"}
            assert "healthcheck" in application["services"][other]


def test_the_drain_has_its_time(application):
    proxy = proxy_settings(application).proxy
    grace = seconds(application["services"]["proxy"]["stop_grace_period"])
    assert grace >= proxy.drain_grace + proxy.drain_timeout + 10


def test_nothing_runs_with_more_rights_than_it_needs(application):
    for name, service in application["services"].items():
        assert "privileged" not in service
        if not name.startswith(WORKERS) or "trtllm-serve" not in service["command"]:
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]


def test_images_are_pinned(application):
    for service in application["services"].values():
        if "build" not in service:
            assert re.fullmatch(r"\S+:v?\d+\.\d+\.\d+", service["image"])
        else:
            assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_only_the_proxy_is_published_to_the_network(application):
    for name, service in application["services"].items():
        if name != "proxy":
            assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_prometheus_scrapes_the_proxy(application):
    seen = {mount.target: mount.source for mount in mounts(application, "prometheus")}
    document = yaml.safe_load(seen["/etc/prometheus/prometheus.yml"].read_text())
    (job,) = document["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"proxy:{proxy_settings(application).port}"]}]
    # The name of the job is in the rules and the dashboard.
    assert f'job="{job["job_name"]}"' in seen["/etc/prometheus/rules.yml"].read_text()
    assert {f"/etc/prometheus/{name}" for name in document["rule_files"]} <= seen.keys()
    assert "--config.file=/etc/prometheus/prometheus.yml" in application["services"]["prometheus"]["command"]


def test_grafana_is_provisioned(application):
    seen = {mount.target: mount.source for mount in mounts(application, "grafana")}
    (source,) = yaml.safe_load(seen["/etc/grafana/provisioning/datasources/prometheus.yaml"].read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert application["services"]["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    assert source["isDefault"] is True
    (provider,) = yaml.safe_load(seen["/etc/grafana/provisioning/dashboards/disagg-proxy.yaml"].read_text())[
        "providers"
    ]
    dashboard = f"{provider['options']['path']}/disagg-proxy.json"
    assert seen[dashboard].name == "dashboard.json"
    environment = application["services"]["grafana"]["environment"]
    assert environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard


def test_workers_of_tensorrt_llm():
    application = load("compose.trtllm.yaml")
    options, devices = {}, []
    for role in WORKERS:
        service = application["services"][f"{role}-0"]
        (mount,) = mounts(application, f"{role}-0")
        command = service["command"]
        assert command[:2] == ["trtllm-serve", service["volumes"][0]["target"]]
        assert option(command, "--extra_llm_api_options") == mount.target
        options[role] = yaml.safe_load(mount.source.read_text())
        devices += service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        assert service["environment"]["UCX_RNDV_SCHEME"] == "put_zcopy"
    assert len(set(devices)) == 2
    # Only context workers run without the overlap scheduler, and KV moves between like transceivers.
    assert options["context"].pop("disable_overlap_scheduler") is True
    assert options["context"] == options["generation"]
    assert options["context"]["cache_transceiver_config"]["backend"] == "UCX"
