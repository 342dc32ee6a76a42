import os
from pathlib import Path

from proxy.config.load import load_settings
from proxy.fleet.columns import Grant
from proxy.fleet.handover import Handover, KeptCommand, for_a_process

DOCUMENT = """
hostname: 127.0.0.1
num_workers: 2
internal_request_auth_key: a secret
backend: pytorch
free: {1: [2.5, null, true, 2026-01-01], text: ä}
context_servers:
  urls: ["ctx:8001", "https://ctx:443", "[::1]:8001", "unix:/run/ctx.sock"]
  router: {type: load_balancing}
  tensor_parallel_size: 4
generation_servers: {urls: ["gen:8001"]}
proxy: {harmony_models: [gpt-oss], model_aliases: {a: b}, max_body_bytes: 1 MiB}
"""


def test_everything_arrives_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "disagg.yaml"
    path.write_text(DOCUMENT)
    settings = for_a_process(load_settings(str(path), overrides={}, environ={}))
    handover = Handover(
        index=1,
        processes=2,
        settings=settings,
        control=5,
        listeners=(6, 7),
        load_table=8,
        metrics=9,
        columns=128,
        grants={"ctx:8001": Grant(0, 1, 2)},
        kept=(KeptCommand("pause", {"mode": "queue"}),),
        successor=True,
    )
    descriptor = handover.write()
    assert not os.get_inheritable(descriptor)
    read = Handover.read(descriptor)
    assert read == handover
    assert read.settings.context_servers.urls[2].text == "[::1]:8001"
    assert read.settings.internal_request_auth_key == "a secret"
