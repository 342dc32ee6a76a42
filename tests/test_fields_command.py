"""`disagg-proxy fields`, run as a command and as a function."""

import io
import json
from typing import Any

import pytest
import yaml
from running_proxy import running_proxy

from proxy.cli import main
from proxy.fields_command import explain, rule_table
from proxy.sim import ThreadedSimCluster
from proxy.wire.fields.accepted import ACCEPTED
from proxy.wire.fields.own import FieldRule
from proxy.wire.fields.policy import Options
from proxy.wire.fields.tables import GROUPS, GROUPS_OF_DIALECT
from proxy.wire.members import split_object
from proxy.wire.versions import WorkerVersion

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["fields", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.fixture
def request_file(tmp_path: Any) -> Any:
    def write(**fields: Any) -> str:
        path = tmp_path / "request.json"
        path.write_text(json.dumps({**REQUEST, **fields}))
        return str(path)

    return write


def test_every_rule_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, output, _ = run(capsys)
    assert code == 0
    for title, rules in ((title, rules) for title, rules in GROUPS if title in GROUPS_OF_DIALECT["trtllm"]):
        assert f"# {title}\n" in output
        for rule in rules:
            assert f"\n{rule.field} " in output
    assert "no worker was asked: version new is assumed" in output
    assert "# accepted on chat completions" in output
    assert max(map(len, output.splitlines())) < 180


@pytest.mark.parametrize(
    ("dialect", "printed", "absent"),
    [
        ("nemo_rl", "allowed_token_ids", "\nstore"),
        ("passthrough", "disaggregated_params", "\nallowed_token_ids"),
    ],
)
def test_dialects(capsys: pytest.CaptureFixture[str], dialect: str, printed: str, absent: str) -> None:
    _, output, _ = run(capsys, "--dialect", dialect)
    assert printed in output
    assert absent not in output


def test_own_rules_come_first() -> None:
    options = Options(rules=(FieldRule("seed", "drop", route="chat"),))
    lines = list(rule_table(options))
    assert lines[0] == "# field_rules"
    assert lines[2].split() == ["seed", "chat", "dropped"]


@pytest.mark.parametrize("profile", ["old", "jul", "new"])
def test_asking_workers(capsys: pytest.CaptureFixture[str], profile: str, request_file: Any) -> None:
    with ThreadedSimCluster(1, 1, profile=profile) as cluster:
        url = cluster.context_urls[0]
        code, output, _ = run(capsys, "--worker", url, "--explain", request_file(parallel_tool_calls=True))
    assert code == 0
    assert f"# worker {url}: version " in output
    assert "fields known from its schema" in output
    assert ("dropped: nothing" in output) is (profile == "new")


def test_the_workers_of_a_file(
    capsys: pytest.CaptureFixture[str], write_config: Any, request_file: Any
) -> None:
    with ThreadedSimCluster(1, 1, profile="jul", openapi=False) as cluster:
        path = write_config(
            {
                "context_servers": {"urls": cluster.context_urls},
                "generation_servers": {"urls": [*cluster.generation_urls, "127.0.0.1:9"]},
                "proxy": {
                    "unknown_fields": "reject",
                    "field_rules": [{"field": "a", "action": "rename", "to": "seed"}],
                },
            }
        )
        code, output, _ = run(capsys, "-c", path, "--explain", request_file(a=1))
        assert code == 0
        assert output.count("fields known from its version") == 2
        assert "127.0.0.1:9: says nothing of what it accepts" in output
        assert json.loads(output[output.index("{") :]) == {**REQUEST, "seed": 1}
        code, output, _ = run(capsys, "-c", path, "--explain", request_file(b=1))
        assert code == 1
        assert (
            "refused with 400: b is not a field that the workers know\nparam: b\ncode: unknown_field"
            in output
        )


def test_a_configured_version_is_taken_as_it_is(
    capsys: pytest.CaptureFixture[str], write_config: Any
) -> None:
    path = write_config(yaml.safe_dump({"proxy": {"worker_version": "old"}}))
    _, output, _ = run(capsys, "-c", path)
    assert output.startswith("# workers of version old (built-in table)\n")


def test_explain() -> None:
    request = split_object(
        json.dumps(
            {**REQUEST, "store": True, "n": None, "max_completion_tokens": 3, "guided_regex": "a"}
        ).encode()
    )
    output = io.StringIO()
    assert explain(request, ACCEPTED[WorkerVersion.JUL], Options(), output) == 0
    text = output.getvalue()
    assert text.startswith("# POST /v1/chat/completions\ndropped: store\n")
    assert "translated or null: n, max_completion_tokens, guided_regex\n" in text
    assert json.loads(text[text.index("{") :]) == {
        **REQUEST,
        "max_tokens": 3,
        "response_format": {"type": "regex", "regex": "a"},
    }
    output = io.StringIO()
    assert explain(split_object(b'{"prompt":"x"}'), ACCEPTED[WorkerVersion.JUL], Options(), output) == 0
    assert output.getvalue().startswith("# POST /v1/completions\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--explain", "no-such-file.json"), "No such file"),
        (("--explain", __file__), "not a JSON object"),
        (("--worker", "ftp://x"), "--worker"),
        (("-c", "no-such-file.yaml"), "no-such-file.yaml"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str) -> None:
    code, _, error = run(capsys, *arguments)
    assert code == 2
    assert problem in error


class TestServing:
    """The keys do what they say in a running proxy."""

    async def test_reject(self) -> None:
        async with running_proxy(unknown_fields="reject") as proxy:
            answer = await proxy.client.post("/v1/chat/completions", json={**REQUEST, "unheard_of": 1})
            assert answer.status_code == 400
            error = answer.json()["error"]
            assert (error["param"], error["code"]) == ("unheard_of", "unknown_field")

    async def test_pass(self) -> None:
        async with running_proxy(unknown_fields="pass") as proxy:
            answer = await proxy.client.post("/v1/chat/completions", json={**REQUEST, "unheard_of": 1})
            assert answer.status_code == 400
            assert "extra_forbidden" in answer.text, "the worker's own refusal"

    async def test_rules_and_names_of_what_is_dropped(self) -> None:
        rules = [
            {"field": "seed", "action": "drop"},
            {"field": "top_p", "action": "default", "value": 0.5},
            {"field": "reasoning_effort", "action": "map", "values": {"minimal": "low"}},
            {"field": "top_k", "action": "refuse", "message": "is fixed"},
        ]
        tool = {"type": "function", "function": {"name": "f", "x": 1}, "y": 1}
        async with running_proxy(field_rules=rules) as proxy:
            body = {**REQUEST, "seed": 1, "reasoning_effort": "minimal", "tools": [tool], "max_tokens": 4}
            answer = await proxy.client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-disagg-proxy-dropped"] == "seed,tools.function.x,tools.y"
            sent = proxy.cluster.context_workers[0].requests[0].json()
            assert (sent["top_p"], sent["reasoning_effort"]) == (0.5, "low")
            assert "seed" not in sent
            metrics = (await proxy.client.get("/metrics")).text
            assert 'disagg_proxy_dropped_fields_total{field="tools.function.x"} 1.0' in metrics
            answer = await proxy.client.post("/v1/chat/completions", json={**REQUEST, "top_k": 1})
            assert answer.json()["error"]["message"] == "top_k is fixed"

    @pytest.mark.parametrize("dialect", ["nemo_rl", "passthrough"])
    async def test_dialects(self, dialect: str) -> None:
        async with running_proxy(worker_dialect=dialect) as proxy:
            body = {**REQUEST, "metadata": {"a": "b"}, "disaggregated_params": {"ctx_dp_rank": 1}}
            answer = await proxy.client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 400, "the simulated worker is a strict one"
            assert "metadata" in answer.text
            sent = proxy.cluster.context_workers[0].requests[0].json()
            assert sent["metadata"] == {"a": "b"}
            assert "ctx_dp_rank" not in sent["disaggregated_params"]
