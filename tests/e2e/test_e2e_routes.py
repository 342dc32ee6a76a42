"""The other routes: models, versions, health, cluster, metrics, and what is not there."""

import json

import pytest
from e2e_bodies import answer_text, chat
from prometheus_client.parser import text_string_to_metric_families

from proxy import __version__
from proxy.sim import expected_text
from proxy.sim.profiles import PROFILES


def is_openai_error(response):
    error = response.json()["error"]
    return error.keys() == {"message", "type", "param", "code"} and isinstance(error["message"], str)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nothing", "/v1/chat", "/docs", "/v1/models/sim"])
def test_no_such_route(stack, method, path):
    response = stack.http.request(method, path)
    assert response.status_code == 404
    assert is_openai_error(response)
    assert response.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("HEAD", "/v1/completions", "POST"),
        ("DELETE", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
        ("PUT", "/metrics", "GET, HEAD"),
    ],
)
def test_wrong_method(stack, method, path, allow):
    response = stack.http.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allow
    assert method == "HEAD" or is_openai_error(response)


@pytest.mark.parametrize("path", ["/v1/models", "/version", "/health", "/cluster_info", "/metrics"])
def test_head_is_served_wherever_get_is(stack, path):
    got, head = stack.http.get(path), stack.http.head(path)
    assert (got.status_code, head.status_code) == (200, 200)
    assert head.content == b""
    assert head.headers.get("content-type") == got.headers.get("content-type")


def test_trailing_slash(stack):
    assert answer_text(stack.post(chat(), "/v1/chat/completions/").json()) == expected_text(chat())
    assert stack.only_request("context").path == "/v1/chat/completions"


class TestModels:
    def test_merged(self, stack):
        """Both workers serve one model: it is shown once, as the worker describes it."""
        answer = stack.http.get("/v1/models").json()
        assert answer["object"] == "list"
        (model,) = answer["data"]
        assert (model["id"], model["object"], model["owned_by"]) == ("sim", "model", "tensorrt_llm")

    def test_aliases(self, make_stack):
        stack = make_stack(model_aliases={"gpt-4o": "sim", "nothing": "absent"})
        answer = stack.http.get("/v1/models").json()
        assert [model["id"] for model in answer["data"]] == ["sim", "gpt-4o"]
        body = chat(model="gpt-4o")
        response = stack.post(body)
        assert response.json()["model"] == "sim"
        assert answer_text(response.json()) == expected_text(body)
        for leg in ("context", "generation"):
            assert stack.only_request(leg).json()["model"] == "sim"

    def test_with_one_model_every_name_passes(self, stack):
        body = chat(model="whatever")
        assert stack.post(body).status_code == 200
        assert stack.only_request("context").json()["model"] == "whatever"


@pytest.mark.parametrize("profile", ["old", "jul", "new"])
def test_version(make_stack, profile):
    stack = make_stack({"profile": profile})
    expected = {"version": PROFILES[profile].reported_version, "proxy": __version__}
    assert stack.http.get("/version").json() == expected


@pytest.mark.parametrize("path", ["/health", "/health/ready", "/health/live"])
def test_healthy(stack, path):
    response = stack.http.get(path)
    assert (response.status_code, response.content) == (200, b"")


def test_cluster_info(stack):
    """In the shape of `trtllm-serve disaggregated`."""
    info = stack.http.get("/cluster_info").json()
    assert info["is_ready"] is True
    lists = info["server_lists"] if "server_lists" in info else info["current_workers"]
    text = json.dumps(lists)
    for url in (*stack.cluster.context_urls, *stack.cluster.generation_urls):
        assert url in text


class TestMetrics:
    @pytest.mark.parametrize("path", ["/metrics", "/prometheus/metrics"])
    def test_formats(self, stack, path):
        plain = stack.http.get(path)
        assert plain.headers["content-type"].startswith("text/plain; version=")
        names = {family.name for family in text_string_to_metric_families(plain.text)}
        assert {"disagg_proxy_requests", "disagg_proxy_worker_in_flight", "disagg_proxy_ready"} <= names
        accept = "application/openmetrics-text; version=1.0.0"
        rich = stack.http.get(path, headers={"accept": accept})
        assert rich.headers["content-type"].startswith("application/openmetrics-text")
        assert rich.text.endswith("# EOF\n")

    def test_counts(self, stack):
        def count(outcome, stream="false"):
            return stack.metric(
                "requests_total", route="/v1/chat/completions", outcome=outcome, stream=stream
            )

        before = {
            key: count(*key) for key in (("ok", "false"), ("ok", "true"), ("rejected", "false"), ("error",))
        }
        assert stack.post(chat()).status_code == 200
        assert stack.post(chat(stream=True)).status_code == 200
        assert stack.post(chat(temperature="hot")).status_code == 400
        stack.cluster.context_workers[0].add_fault(kind="null_body", count=2)
        assert stack.post(chat()).status_code == 502
        assert {key: count(*key) - number for key, number in before.items()} == dict.fromkeys(before, 1)

    def test_labels_are_bounded(self, stack):
        """Whatever clients send, the number of series stays the same."""
        for number in range(5):
            stack.http.get(f"/nowhere/{number}")
        stack.post(chat(model="x" * 50))
        text = stack.http.get("/metrics").text
        assert "nowhere" not in text
        assert "xxxxx" not in text
        assert stack.metric("requests_total", route="other") >= 5


class TestRootPath:
    @pytest.fixture
    def stack(self, make_stack):
        return make_stack(root_path="/llm")

    @pytest.mark.parametrize("prefix", ["", "/llm"])
    def test_with_and_without_the_prefix(self, stack, prefix):
        body = chat()
        response = stack.post(body, f"{prefix}/v1/chat/completions?a=b")
        assert answer_text(response.json()) == expected_text(body)
        request = stack.only_request("context")
        assert (request.path, request.query) == ("/v1/chat/completions", "a=b")
        assert stack.http.get(f"{prefix}/health").status_code == 200
        assert stack.http.get(f"{prefix}/v1/models").status_code == 200

    @pytest.mark.parametrize("path", ["/llmv1/models", "/llm", "/llm/llm/v1/models", "/other/v1/models"])
    def test_other_prefixes(self, stack, path):
        assert stack.http.get(path).status_code == 404
