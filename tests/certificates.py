"""Throw-away certificates, made with the openssl program."""

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the openssl program is not installed"
)


class Authority:
    """A certificate authority in a directory, and what it signs."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._name = name
        self.key, self.certificate = directory / f"{name}.key", directory / f"{name}.crt"
        self._run("req", "-x509", "-subj", f"/CN={name}", *_new_key(self.key), "-out", str(self.certificate))

    def sign(self, name: str) -> tuple[str, str]:
        """Certificate and key for 127.0.0.1 and localhost; paths."""
        key, request, certificate, extensions = (
            self._directory / f"{self._name}-{name}.{ending}" for ending in ("key", "csr", "crt", "ext")
        )
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._run("req", "-subj", f"/CN={name}", *_new_key(key), "-out", str(request))
        self._run(
            *("x509", "-req", "-in", str(request), "-days", "2", "-out", str(certificate)),
            *(
                "-CA",
                str(self.certificate),
                "-CAkey",
                str(self.key),
                "-CAcreateserial",
                "-extfile",
                str(extensions),
            ),
        )
        return str(certificate), str(key)

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def _new_key(path: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path))
