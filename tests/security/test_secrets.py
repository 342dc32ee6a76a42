import hashlib
import os

import pytest

from proxy.config.errors import ConfigError
from proxy.config.secrets import parse_api_keys, parse_token
from proxy.config.watched_file import WatchedFile


def test_keys_and_digests():
    digest = hashlib.sha256(b"two").hexdigest()
    ring = parse_api_keys(f"\n# comment\n a : one \nb:sha256={digest}\na:three:with:colons\n")
    assert len(ring) == 3
    found = {
        key: ring.find(key) for key in (b"one", b"two", b"three:with:colons", b"four", digest.encode(), b"")
    }
    assert list(found.values()) == ["a", "b", "a", None, None, None]


def test_the_ring_keeps_no_keys():
    ring = parse_api_keys("a:very-secret")
    held = repr(vars(ring)).encode()
    assert b"very-secret" not in held
    assert hashlib.sha256(b"very-secret").digest() not in held


def test_a_file_without_keys_lets_nobody_in():
    assert parse_api_keys("# none\n").find(b"") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("just-a-key", "line 1: expected name:key"),
        ("# x\n:key", "line 2: expected name:key"),
        ("a b:key", "line 1: expected name:key"),
        ("a:", "line 1: a key consists"),
        ("a:ke y", "line 1: a key consists"),
        ("a:schlüssel", "line 1: a key consists"),
        ("a:one\nb:one", "line 2: the key appears twice"),
        (f"a:one\nb:sha256={hashlib.sha256(b'one').hexdigest()}", "line 2: the key appears twice"),
    ],
)
def test_mistakes_are_named_and_not_quoted(text, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        parse_api_keys(text)
    assert "just-a-key" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", "two tokens", "two\ntokens", "tökèn"])
def test_bad_tokens(text):
    with pytest.raises(ValueError, match="expected one token"):
        parse_token(text)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def write(path, text, at):
    path.write_text(text)
    os.utime(path, ns=(at, at))


def test_a_file_is_looked_at_once_a_second(tmp_path):
    path, clock = tmp_path / "token", Clock()
    write(path, "one", 1)
    file = WatchedFile(str(path), parse_token, key="proxy.admin_token_file", clock=clock)
    write(path, "two", 2)
    clock.now = 0.9
    assert file.value == "one"
    clock.now = 1.0
    assert file.value == "two"


def test_a_change_without_sense_is_ignored_and_told_once(tmp_path, caplog):
    path, clock = tmp_path / "token", Clock()
    write(path, "one", 1)
    file = WatchedFile(str(path), parse_token, key="proxy.admin_token_file", clock=clock)
    write(path, "not one token", 2)
    for clock.now in (1.0, 2.0, 3.0):
        assert file.value == "one"
    assert caplog.text.count("what it said before stays in force") == 1
    assert "not one token" not in caplog.text
    path.unlink()
    clock.now = 4.0
    assert file.value == "one"
    write(path, "two", 3)
    clock.now = 5.0
    assert file.value == "two"


def test_a_link_that_is_exchanged(tmp_path):
    """As Kubernetes updates the files of a secret: same time, same size, another file."""
    link, clock = tmp_path / "token", Clock()
    for name in ("one", "two"):
        write(tmp_path / name, name, 1)
    link.symlink_to(tmp_path / "one")
    file = WatchedFile(str(link), parse_token, key="proxy.admin_token_file", clock=clock)
    link.unlink()
    link.symlink_to(tmp_path / "two")
    clock.now = 1.0
    assert file.value == "two"


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read"), (b"\xff", "is not UTF-8"), (b"", "expected one token")]
)
def test_a_file_that_is_useless_at_the_start(tmp_path, content, problem):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as caught:
        WatchedFile(str(path), parse_token, key="proxy.admin_token_file")
    assert caught.value.key == "proxy.admin_token_file"
