"""What a run with secrets and prompts in it leaves in the logs, at the level that says most."""

import json

import httpx
import pytest
from program import eventually

from proxy.sim import Fault, ThreadedSimCluster

PROMPT, KEY, WRONG_KEY, TOKEN, WORKER_KEY, AUTH_KEY, COOKIE = (
    f"{word}-b7d41c" for word in ("prompt", "key", "wrong", "token", "worker", "hmac", "cookie")
)
SECRETS = (PROMPT, KEY, WRONG_KEY, TOKEN, WORKER_KEY, AUTH_KEY, COOKIE)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secrets_and_no_prompts(run_program, write_config, tmp_path, log_format):
    files = {"api_keys_file": f"alice:{KEY}", "admin_token_file": TOKEN, "worker_api_key_file": WORKER_KEY}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with ThreadedSimCluster(context=1, generation=1) as cluster:
        path = write_config(
            {
                "hostname": "127.0.0.1",
                "port": 0,
                "internal_request_auth_key": AUTH_KEY,
                "context_servers": {"urls": cluster.context_urls},
                "generation_servers": {"urls": cluster.generation_urls},
                "proxy": {
                    **{name: str(tmp_path / name) for name in files},
                    "admin_listen": "127.0.0.1:0",
                    "forward_headers": ["cookie"],
                    "log_level": "debug",
                    "log_format": log_format,
                    "drain_grace": 0,
                    "timeout_context": 0.5,
                },
            }
        )
        program = run_program("serve", "-c", path)
        port = program.wait_for(r"running on http://127\.0\.0\.1:(\d+)")[1]
        admin = program.wait_for(r"admin routes on 127\.0\.0\.1 port (\d+)")[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as client:
            eventually(lambda: client.get("/health").status_code == 200)
            use(client, cluster)
        for token in (TOKEN, WRONG_KEY):
            httpx.get(
                f"http://127.0.0.1:{admin}/admin/status",
                headers={"authorization": f"Bearer {token}"},
                trust_env=False,
            )
        program.terminate()
        assert program.wait() == 0
        log = program.err + program.out
    assert "key=alice" in log or '"key":"alice"' in log  # the name, not the key
    assert log.count("/v1/chat/completions") >= 5
    for secret in SECRETS:
        assert secret not in log
    if log_format == "json":
        assert all(json.loads(line) for line in program.err.splitlines())


def use(client: httpx.Client, cluster: ThreadedSimCluster) -> None:
    """Requests of all sorts: served, refused, and failed at each leg."""
    body = {"model": "sim", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4}
    right = {"authorization": f"Bearer {KEY}", "cookie": f"a={COOKIE}"}
    wrong = {"authorization": f"Bearer {WRONG_KEY}"}

    def post(headers: dict[str, str], **fields: object) -> None:
        client.post("/v1/chat/completions", json={**body, **fields}, headers=headers)

    post(right)
    post(right, stream=True)
    post(wrong)
    post(right, temperature={"nested": PROMPT})
    post(right, stream=PROMPT)
    client.post("/v1/chat/completions", content=f'{{"model": "{PROMPT}', headers=right)
    client.post(f"/v1/{PROMPT}", headers=right)
    for kind in ("garbage", "null_body", "disconnect", "hang", "truncated_json", "missing_handoff"):
        for worker in cluster.workers:
            worker.board.clear()
            worker.board.add(Fault(kind=kind, count=3))
        post(right)
    for worker in cluster.workers:
        worker.board.clear()
    # A head that cannot be read.
    client.get("/health", headers={"x-padding": PROMPT * 8000})
