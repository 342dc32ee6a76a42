import json

import pytest

from proxy.wire.late_answer import as_events


def test_an_event_stream_goes_on_as_it_is():
    assert as_events(200, b"text/event-stream; charset=utf-8", b"data: 1\n\n") == b"data: 1\n\n"


def test_a_whole_answer_becomes_one_event():
    assert as_events(200, b"application/json", b'{\n"a": 1\r\n}\n') == b'data: { "a": 1  }\n\n'


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error": {"message": "m", "code": 7}}', {"message": "m", "code": 7}),
        (b'{"object": "error", "message": "m"}', {"object": "error", "message": "m"}),
        (b"teapot", {"message": "teapot", "type": "upstream_error", "param": None, "code": "418"}),
        (b'["a"]', {"message": '["a"]', "type": "upstream_error", "param": None, "code": "418"}),
        (b"", {"message": "", "type": "upstream_error", "param": None, "code": "418"}),
        (b"\xff\n\n", {"message": "\ufffd\n\n", "type": "upstream_error", "param": None, "code": "418"}),
    ],
)
def test_errors_have_the_usual_shape(body, error):
    event = as_events(418, b"", body)
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    assert json.loads(event.removeprefix(b"data: ")) == {"error": error}
