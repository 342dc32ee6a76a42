"""`disagg-proxy demo`: the proxy with simulated workers, and a curl that works."""

import signal

import httpx
import pytest
from free_port import free_port
from openai import DefaultHttpxClient, OpenAI
from program import eventually

from proxy.sim import expected_text

MESSAGES = [{"role": "user", "content": "Hello!"}]


@pytest.fixture
def demo(run_program):
    port = free_port()
    program = run_program("demo", "--port", str(port))
    program.wait_for(f"curl -N http://127.0.0.1:{port}/v1/chat/completions")
    return program, f"http://127.0.0.1:{port}"


def test_the_greeting_comes_when_all_is_ready(demo):
    """What is printed works at once: no retry is needed."""
    program, url = demo
    assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
    body = {"model": "sim", "messages": MESSAGES}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False).json()
    assert answer["choices"][0]["message"]["content"] == expected_text(body)
    assert program.out.count("worker (simulated) on 127.0.0.1:") == 4


def test_the_openai_sdk(demo):
    _, url = demo
    http = DefaultHttpxClient(trust_env=False)
    with OpenAI(base_url=f"{url}/v1", api_key="x", http_client=http) as client:
        answer = client.chat.completions.create(model="sim", messages=MESSAGES)
    assert answer.choices[0].message.content == expected_text({"model": "sim", "messages": MESSAGES})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_ends(demo, number):
    program, url = demo
    program.process.send_signal(number)
    assert program.wait() == 0
    assert "Traceback" not in program.err
    eventually(lambda: not _answers(url), what="the end")


def _answers(url):
    try:
        return httpx.get(f"{url}/health", trust_env=False)
    except httpx.ConnectError:
        return None
