"""What workers send reaches the client byte for byte: a wire tap on both legs is compared with the answer."""

import json
import re

import pytest
from e2e_bodies import chat, completion
from e2e_raw import RawClient, request
from e2e_server import ServerThread
from e2e_stack import settings_for
from e2e_tap import Tap, body_of
from program import eventually

from proxy.sim import Speed, ThreadedSimCluster

# `disaggregated_params` as the generation worker echoes it, with the comma in front of it.
_HAND_OFF = re.compile(rb',"disaggregated_params":\{.*?\},"avg_decoded_tokens_per_iter"')


class Tapped:
    def __init__(self, kind, speed):
        self.cluster = ThreadedSimCluster(1, 1, speed=speed).start()
        self.context, self.generation = (
            Tap(self.cluster, urls[0]).start()
            for urls in (self.cluster.context_urls, self.cluster.generation_urls)
        )
        settings = settings_for([self.context.address], [self.generation.address])
        self.server = ServerThread(settings, kind).start()
        eventually(lambda: self.server.service.ready, what="readiness")
        self.begin()

    def begin(self):
        self.context.clear()
        self.generation.clear()

    def ask(self, body):
        with RawClient(self.server.port) as client:
            client.send(request(body))
            return client.read_answer()

    def close(self):
        self.server.stop()
        self.context.stop()
        self.generation.stop()
        self.cluster.stop()


@pytest.fixture(scope="module", params=["own", "uvicorn"])
def tapped(request):
    tapped = Tapped(request.param, Speed(decode_ms=2.0))
    yield tapped
    tapped.close()


@pytest.fixture(autouse=True)
def _fresh(tapped):
    tapped.begin()


def worker_body(tap):
    return body_of(bytes(tap.received))


@pytest.mark.parametrize("body", [chat(stream=True), completion(stream=True)], ids=["chat", "completions"])
def test_a_stream_is_relayed_byte_for_byte(tapped, body):
    body = {**body, "stream_options": {"include_usage": True}}
    status, head, answer = tapped.ask(body)
    assert status == 200
    assert answer == worker_body(tapped.generation)
    assert answer.endswith(b"data: [DONE]\n\n")
    assert b"content-type: text/event-stream; charset=utf-8\r\n" in head
    assert answer.count(b"} \n\n") == ("messages" in body)


@pytest.mark.parametrize("body", [chat(), completion()], ids=["chat", "completions"])
def test_only_hand_off_members_are_taken_out_of_an_answer(tapped, body):
    status, _, answer = tapped.ask(body)
    sent = worker_body(tapped.generation)
    assert status == 200
    assert b"disaggregated_params" not in answer
    assert b"prompt_token_ids" not in answer
    expected, count = _HAND_OFF.subn(b',"avg_decoded_tokens_per_iter"', sent)
    assert count == 1
    for member in (b',"prompt_token_ids":null', b',"prompt_token_ids_b64":null'):
        expected = expected.replace(member, b"")
    assert answer == expected
    json.loads(answer)


def test_each_event_is_sent_on_at_once(tapped):
    """The client sees an event while the worker is still computing the next ones."""
    worker = tapped.cluster.generation_workers[0]
    worker.add_fault(kind="stall", after_events=3, count=1)
    with RawClient(tapped.server.port) as client:
        client.send(request(chat(stream=True)))
        seen = b"".join(client.read_until(b"\n\n") for _ in range(3))
        assert seen.count(b"data: ") == 3
        assert worker.engine.running == 1
    # ... and the worker hears at once that the client has left.
    eventually(lambda: worker.engine.running == 0, 2.0, "the abort")
    assert worker.engine.aborts >= 1


def test_the_legs_on_the_wire(tapped):
    """Plain HTTP/1.1: one head, a length, nothing of the client's connection."""
    tapped.ask(chat())
    for tap in (tapped.context, tapped.generation):
        sent = bytes(tap.sent)
        head, _, body = sent.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        assert lines[0] == b"post /v1/chat/completions http/1.1"
        names = [line.partition(b":")[0] for line in lines[1:]]
        assert sorted(names) == sorted({*names})
        assert b"content-length: %d" % len(body) in lines
        assert b"content-type: application/json" in lines
        assert b"host: " + tap.address.encode() in lines
        assert not {b"connection", b"transfer-encoding", b"expect", b"authorization"} & {*names}
