"""Keys of the `proxy` mapping that do not go together."""

from __future__ import annotations

from collections.abc import Callable

from proxy.config.listen import parse_listen_address
from proxy.config.settings import ProxySettings

Found = tuple[str, str]
"""Key and one sentence."""


def find_contradictions(proxy: ProxySettings) -> list[Found]:
    """What makes the configuration unusable, or less safe than it looks."""
    return [found for rule in _RULES if (found := rule(proxy)) is not None]


def find_useless(proxy: ProxySettings) -> list[Found]:
    """Keys that are set and have no effect without others."""
    found = []
    if proxy.admin_token_file is not None and proxy.admin_listen is None and not proxy.rl_control_public:
        found.append(("admin_token_file", "has no effect without admin_listen"))
    if proxy.max_inflight_per_key and proxy.api_keys_file is None:
        found.append(("max_inflight_per_key", "has no effect without api_keys_file"))
    return found


def _open_admin(proxy: ProxySettings) -> Found | None:
    if proxy.admin_listen is None or proxy.admin_token_file is not None:
        return None
    if parse_listen_address(proxy.admin_listen).private:
        return None
    return (
        "admin_listen",
        "without admin_token_file it must be a loopback address or a Unix socket: anyone could stop the proxy",
    )


def _server_key_alone(proxy: ProxySettings) -> Found | None:
    for key in ("tls_keyfile", "tls_client_ca"):
        if getattr(proxy, key) is not None and proxy.tls_certfile is None:
            return key, "needs tls_certfile"
    return None


def _worker_key_alone(proxy: ProxySettings) -> Found | None:
    if proxy.worker_tls_keyfile is not None and proxy.worker_tls_certfile is None:
        return "worker_tls_keyfile", "needs worker_tls_certfile"
    return None


def _etcd_key_alone(proxy: ProxySettings) -> Found | None:
    if proxy.etcd_tls_keyfile is not None and proxy.etcd_tls_certfile is None:
        return "etcd_tls_keyfile", "needs etcd_tls_certfile"
    return None


def _half_an_etcd_user(proxy: ProxySettings) -> Found | None:
    if proxy.etcd_user is not None and proxy.etcd_password_file is None:
        return "etcd_user", "needs etcd_password_file"
    if proxy.etcd_password_file is not None and proxy.etcd_user is None:
        return "etcd_password_file", "needs etcd_user"
    return None


def _unverified_ca(proxy: ProxySettings) -> Found | None:
    if proxy.worker_tls_ca is not None and not proxy.worker_tls_verify:
        return "worker_tls_ca", "contradicts worker_tls_verify: false"
    return None


def _two_authorizations(proxy: ProxySettings) -> Found | None:
    if "authorization" in proxy.forward_headers and proxy.worker_api_key_file is not None:
        return "forward_headers", "authorization cannot be both the client's and that of worker_api_key_file"
    return None


def _two_stamps(proxy: ProxySettings) -> Found | None:
    if proxy.nemo_timing:
        for name in ("x-nemo-fe-recv-us", "x-nemo-fe-fwd-us"):
            if name in proxy.forward_headers:
                return "forward_headers", f"{name} cannot be both the client's and that of nemo_timing"
    return None


def _public_control(proxy: ProxySettings) -> Found | None:
    if proxy.rl_control_public and proxy.admin_token_file is None:
        return "rl_control_public", "needs admin_token_file: anyone could stop the workers"
    if proxy.rl_control_public and not proxy.rl_control:
        return "rl_control_public", "needs rl_control"
    return None


def _unreachable_control(proxy: ProxySettings) -> Found | None:
    if proxy.rl_control and proxy.admin_listen is None and not proxy.rl_control_public:
        return "rl_control", "needs admin_listen or rl_control_public"
    return None


def _tokenising_elsewhere(proxy: ProxySettings) -> Found | None:
    if not proxy.frontend_tokenisation:
        return None
    if proxy.tokenizer is None:
        return "frontend_tokenisation", "needs tokenizer"
    if proxy.worker_dialect != "trtllm":
        return (
            "frontend_tokenisation",
            f"workers of the dialect {proxy.worker_dialect} make prompts in a way of their own",
        )
    if len({worker.model for worker in proxy.workers if worker.model is not None}) > 1:
        return "frontend_tokenisation", "there is one tokenizer, and proxy.workers serve several models"
    return None


_RULES: tuple[Callable[[ProxySettings], Found | None], ...] = (
    _open_admin,
    _server_key_alone,
    _worker_key_alone,
    _etcd_key_alone,
    _half_an_etcd_user,
    _unverified_ca,
    _two_authorizations,
    _two_stamps,
    _public_control,
    _unreachable_control,
    _tokenising_elsewhere,
)
