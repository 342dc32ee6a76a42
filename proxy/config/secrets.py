"""The formats of the files with keys and tokens. Messages never quote what is in them."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")
# RFC 6750 §2.1: what a bearer token consists of; a header could not carry anything else.
_TOKEN = re.compile(r"[!-~]+")


class KeyRing:
    """Named keys, of which nothing but digests is kept.

    A key is looked up by a keyed digest of its digest. The time that takes depends on nothing that a client could
    choose, since the digest's key is random and never leaves the process.
    """

    def __init__(self) -> None:
        self._blind = secrets.token_bytes(32)
        self._names: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, digest: bytes) -> bool:
        """Add the SHA-256 digest of a key; False when the key is there already."""
        mark = self._mark(digest)
        if mark in self._names:
            return False
        self._names[mark] = name
        return True

    def find(self, key: bytes) -> str | None:
        """The name of a key, or None when it is unknown."""
        return self._names.get(self._mark(hashlib.sha256(key).digest()))

    def _mark(self, digest: bytes) -> bytes:
        return hmac.digest(self._blind, digest, "sha256")


def parse_api_keys(text: str) -> KeyRing:
    """Read `name:key` or `name:sha256=<hex digits>` from each line that is not empty and does not begin with `#`.

    Several keys may have one name. A file without keys lets nobody in.

    Raises:
        ValueError: a line is something else, or a key appears twice.
    """
    ring = KeyRing()
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, colon, key = line.partition(":")
        name, key = name.strip(), key.strip()
        if not colon or not _NAME.fullmatch(name):
            raise ValueError(f"line {number}: expected name:key, the name of letters, digits and ._@-")
        if not _TOKEN.fullmatch(key):
            raise ValueError(f"line {number}: a key consists of printable ASCII characters without blanks")
        hashed = _SHA256.fullmatch(key)
        digest = bytes.fromhex(hashed[1]) if hashed else hashlib.sha256(key.encode("ascii")).digest()
        if not ring.add(name, digest):
            raise ValueError(f"line {number}: the key appears twice")
    return ring


def parse_token(text: str) -> str:
    """Read the only token in a file.

    Raises:
        ValueError: it is empty or has blanks or line breaks inside.
    """
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise ValueError("expected one token of printable ASCII characters without blanks")
    return token
