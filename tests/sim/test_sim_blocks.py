from proxy.sim.blocks import ROOT_V2, BlockCache, block_hashes, salt_id

TOKENS = list(range(1000, 1009))


def test_v1() -> None:
    assert block_hashes(TOKENS, 4) == [639116666879492, 18265106572450057160]


def test_v2() -> None:
    assert ROOT_V2.hex().startswith("6e340b9c")
    assert block_hashes(TOKENS, 4, "v2_sha256") == [
        "329f42cc62686f37d468f960d4ab3f374aab54ef6654f174e706023667f49011",
        "069525821dcb403af6b26de91c1e3066e68c0a1b7f42804b2c2d891c7b464e09",
    ]
    assert block_hashes(TOKENS, 4, "v2_sha256_64") == [3647707668785164087, 474326576533291066]


def test_salt() -> None:
    assert salt_id("abc") == 16919744041952114874
    for algorithm in ("v1_block_key", "v2_sha256"):
        assert block_hashes(TOKENS, 4, algorithm, "abc") != block_hashes(TOKENS, 4, algorithm)


def test_the_last_token_is_not_hashed() -> None:
    assert block_hashes([1], 4) == []
    assert len(block_hashes([1, 2], 4)) == 1
    assert block_hashes([*TOKENS[:8], 7], 4) == block_hashes(TOKENS, 4)


def test_cache_counts_shared_prefixes_and_tells_events_once() -> None:
    cache = BlockCache(4, "v1_block_key")
    assert cache.add(TOKENS) == 0
    assert cache.add(TOKENS) == 8
    assert cache.add([*TOKENS[:4], 5, 6, 7, 8, 9]) == 4
    created, first, second = cache.drain()
    assert created["data"]["type"] == "created"
    assert [block["block_hash"] for block in first["data"]["blocks"]] == block_hashes(TOKENS, 4)
    assert second["data"]["parent_hash"] == block_hashes(TOKENS, 4)[0]
    assert [event["event_id"] for event in (created, first, second)] == [0, 1, 2]
    assert cache.drain() == []
    cache.clear()
    (removed,) = cache.drain()
    assert len(removed["data"]["block_hashes"]) == 3
    assert cache.add(TOKENS) == 0
