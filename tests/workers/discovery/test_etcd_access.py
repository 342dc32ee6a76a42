import ssl
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, needs_openssl

from proxy.config.errors import ConfigError
from proxy.config.load import load_settings
from proxy.config.settings import ProxySettings, Settings
from proxy.named_files import check_named_files
from proxy.workers.discovery.etcd_access import access_to, etcd_access
from proxy.workers.discovery.etcd_client import EtcdAccess


def settings(**keys: Any) -> Settings:
    return load_settings(None, overrides=keys, environ={})


def test_no_etcd() -> None:
    assert etcd_access(settings()) is None
    assert etcd_access(settings(disagg_cluster={"cluster_uri": "http://localhost:8000"})) is None


def test_plain() -> None:
    found = etcd_access(settings(disagg_cluster={"cluster_uri": "etcd://a:1,etcd://b"}))
    assert found == EtcdAccess(("http://a:1", "http://b:2379"))


def test_the_metadata_servers() -> None:
    found = etcd_access(settings(metadata_server={"server_type": "etcd", "hostname": "m"}))
    assert found == EtcdAccess(("http://m:2379",))


def test_the_cluster_comes_first() -> None:
    both = settings(
        disagg_cluster={"cluster_uri": "etcd://a:1"}, metadata_server={"server_type": "etcd", "hostname": "m"}
    )
    found = etcd_access(both)
    assert found is not None
    assert found.endpoints == ("http://a:1",)


@pytest.mark.parametrize(
    ("text", "password"), [("secret\n", "secret"), ("two words \r\n", "two words "), ("é", "é")]
)
def test_a_password(tmp_path: Path, text: str, password: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(text.encode())
    found = access_to(("a:1",), ProxySettings(etcd_user="root", etcd_password_file=str(path)))
    assert (found.user, found.password) == ("root", password)


@pytest.mark.parametrize("text", ["", "\n", "two\nlines"])
def test_no_passwords(tmp_path: Path, text: str) -> None:
    path = tmp_path / "password"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"proxy\.etcd_password_file.*expected one line"):
        check_named_files(ProxySettings(etcd_user="root", etcd_password_file=str(path)))


@pytest.mark.parametrize("name", ["etcd_password_file", "etcd_tls_ca", "etcd_tls_certfile"])
def test_files_that_are_not_there(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_named_files(ProxySettings(**{name: "/nowhere"}))
    assert caught.value.key == f"proxy.{name}"


@needs_openssl
def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("proxy")
    for options in (
        {"etcd_tls_ca": str(authority.certificate)},
        {"etcd_tls_certfile": certificate, "etcd_tls_keyfile": key},
    ):
        found = access_to(("a:1",), ProxySettings(**options))
        assert found.endpoints == ("https://a:1",)
        assert found.tls is not None
        assert found.tls.verify_mode is ssl.CERT_REQUIRED
