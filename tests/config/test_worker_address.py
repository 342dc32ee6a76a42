import pickle

import pytest

from proxy.config.address import WorkerAddress, parse_worker_address

GOOD = [
    # text, scheme, host, port, unix path, shown as, Host header
    ("ctx0:8001", "http", "ctx0", 8001, None, "ctx0:8001", b"ctx0:8001"),
    ("10.0.0.5:1", "http", "10.0.0.5", 1, None, "10.0.0.5:1", b"10.0.0.5:1"),
    (
        "CTX0.Example.:65535",
        "http",
        "ctx0.example.",
        65535,
        None,
        "ctx0.example.:65535",
        b"ctx0.example.:65535",
    ),
    ("ctx_0-a:8001", "http", "ctx_0-a", 8001, None, "ctx_0-a:8001", b"ctx_0-a:8001"),
    ("http://ctx0:8001", "http", "ctx0", 8001, None, "ctx0:8001", b"ctx0:8001"),
    ("HTTP://ctx0:8001/", "http", "ctx0", 8001, None, "ctx0:8001", b"ctx0:8001"),
    ("http://ctx0:80", "http", "ctx0", 80, None, "ctx0:80", b"ctx0:80"),
    ("https://h:443", "https", "h", 443, None, "https://h:443", b"h:443"),
    ("[::1]:8001", "http", "::1", 8001, None, "[::1]:8001", b"[::1]:8001"),
    ("http://[0:0::0:1]:8001", "http", "::1", 8001, None, "[::1]:8001", b"[::1]:8001"),
    ("https://[FD00::A]:8443", "https", "fd00::a", 8443, None, "https://[fd00::a]:8443", b"[fd00::a]:8443"),
    ("unix:/run/ctx.sock", "http", "localhost", 0, "/run/ctx.sock", "unix:/run/ctx.sock", b"localhost"),
    ("unix:///run/ctx.sock", "http", "localhost", 0, "/run/ctx.sock", "unix:/run/ctx.sock", b"localhost"),
]

BAD = [
    ("", "the host is missing"),
    ("ctx0", "the port is missing"),
    ("ctx0:", "the port is missing"),
    ("http://ctx0", "the port is missing"),
    ("http://[::1]", "the port is missing"),
    (":8001", "the host is missing"),
    ("ctx0:0", "between 1 and 65535"),
    ("ctx0:65536", "out of range"),
    ("ctx0:-1", "Port could not be cast"),
    ("ctx0:+1", "Port could not be cast"),
    ("ctx0:http", "Port could not be cast"),
    ("ctx0:8001/v1", "no path"),
    ("http://ctx0:8001?x=1", "no path"),
    ("http://ctx0:8001#x", "no path"),
    ("http://user:secret@ctx0:8001", "user names"),
    ("user@ctx0:8001", "user names"),
    ("ftp://ctx0:8001", "unknown scheme 'ftp'"),
    ("etcd://ctx0:2379", "unknown scheme 'etcd'"),
    ("::1:8001", "in brackets"),
    ("::1", "in brackets"),
    ("[::1:8001", "Invalid IPv6 URL"),
    ("[nonsense]:8001", "IPv6"),
    ("[v1.x]:8001", "'v1.x' is not an IPv6 address"),
    ("[fe80::1%eth0]:8001", "scope ids"),
    ("größe:8001", "is not a host name"),
    ("-ctx:8001", "is not a host name"),
    ("ctx*:8001", "is not a host name"),
    (" ctx0:8001", "no blanks"),
    ("ctx0:80\n01", "no blanks"),
    ("ctx0\0:8001", "control characters"),
    ("unix:run/ctx.sock", "absolute path"),
    ("unix:", "absolute path"),
    ("unix:/" + "x" * 107, "at most 107 bytes"),
    ("unix:/" + "ü" * 54, "at most 107 bytes"),
]


@pytest.mark.parametrize(("text", "scheme", "host", "port", "unix_path", "shown", "authority"), GOOD)
def test_reads_every_form(text, scheme, host, port, unix_path, shown, authority):
    address = parse_worker_address(text)
    assert address == WorkerAddress(scheme, host, port, unix_path)
    assert address.text == str(address) == shown
    assert address.authority == authority
    assert address.base_url == f"{scheme}://{authority.decode()}"
    assert parse_worker_address(address.text) == address


@pytest.mark.parametrize(("text", "problem"), BAD)
def test_says_what_is_wrong(text, problem):
    with pytest.raises(ValueError, match=r".") as caught:
        parse_worker_address(text)
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_longest_unix_path_fits():
    path = "/" + "x" * 106
    assert parse_worker_address(f"unix:{path}").unix_path == path


def test_is_a_dictionary_key():
    spellings = ["ctx0:8001", "http://CTX0:8001/", "http://ctx0:8001"]
    assert len({parse_worker_address(text) for text in spellings}) == 1
    assert len({parse_worker_address(text) for text in ["h:443", "https://h:443", "h:80", "unix:/h"]}) == 4


def test_reading_a_property_changes_nothing():
    address, other = parse_worker_address("a:1"), parse_worker_address("a:1")
    assert address.text
    assert address.authority is address.authority
    assert address == other
    assert hash(address) == hash(other)
    assert pickle.loads(pickle.dumps(address)) == other


def test_is_immutable():
    with pytest.raises(AttributeError):
        parse_worker_address("a:1").port = 2  # type: ignore[misc]
