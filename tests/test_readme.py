"""The README's quick start does what it says, and links of all READMEs lead somewhere."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from free_port import free_port

from proxy.config.load import load_settings

ROOT = Path(__file__).parents[1]
FOLDERS = ("bench", "deploy", "proxy")
_FENCE = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def fences_of(heading):
    """The shell blocks under a heading of the README."""
    text = (ROOT / "README.md").read_text()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None, f"no heading {heading!r}"
    return _FENCE.findall(section[1])


def targets():
    """The targets of the Makefile and their commands."""
    made = {}
    for block in re.split(r"\n(?=\S)", (ROOT / "Makefile").read_text()):
        head, _, body = block.partition("\n")
        if re.match(r"[\w-]+:", head):
            made[head.partition(":")[0]] = [line.strip() for line in body.splitlines() if line.strip()]
    return made


def test_the_quick_start_is_make_run():
    assert fences_of("Run")[0] == "make run\n"
    assert targets()["run"] == ["$(BIN)/disagg-proxy demo"]


def test_every_target_that_is_named_exists():
    named = re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text())
    missing = {name for name in named if name not in targets()}
    assert not missing


@pytest.fixture
def printed(run_program):
    """Starts what `make run` starts, on a free port, and returns the command that it prints."""
    port = free_port()
    program = run_program("demo", "--port", str(port))
    found = program.wait_for(r"curl -N (?s:.*?)\n\n")
    return found[0].strip(), port


def command_of(text):
    return shlex.split(text.replace("\\\n", " "))


def test_the_readme_shows_what_is_printed(printed):
    text, port = printed
    shown = [block for block in fences_of("Run") if block.startswith("curl ")]
    assert [command_of(block) for block in shown] == [command_of(text.replace(f":{port}/", ":8000/"))]


def test_the_printed_curl_works(printed):
    if shutil.which("curl") is None:
        pytest.skip("the curl command is not installed")
    text, _ = printed
    command = command_of(text)
    assert command[0] == "curl"
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run([*command, "-sS"], capture_output=True, timeout=20, env=environment, check=True)
    events = done.stdout.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    parsed = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in parsed)
    assert len(text) > 20
    assert len(parsed) > 5


def test_the_yaml_of_the_readme_loads(tmp_path):
    loaded = []
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL):
        path = tmp_path / "disagg.yaml"
        path.write_text(block)
        loaded.append(load_settings(str(path), overrides={}, environ={}))
        assert not loaded[-1].inherited
    listed, discovered, registered = loaded
    assert listed.context_servers.num_instances == 2
    assert [source.name for source in discovered.proxy.discovery] == [
        "kubernetes:ctx",
        "dns:_http._tcp.gen.default.svc.cluster.local",
        "file",
    ]
    assert registered.disagg_cluster is not None


READMES = [ROOT / "README.md", *(path for top in FOLDERS for path in sorted((ROOT / top).rglob("README.md")))]


def anchors(document):
    heads = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {head.lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("document", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([\w-]*)\)", document.read_text()):
        if "://" in link:
            continue
        target = document.parent / link if link else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


def test_every_readme_can_be_found():
    linked = {
        (document.parent / link).resolve()
        for document in READMES
        for link in re.findall(r"\]\(([^)#\s]+README\.md)", document.read_text())
    }
    assert {path for path in READMES if path not in linked} == {ROOT / "README.md"}
