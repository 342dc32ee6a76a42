from measure_cost import main


async def test_requests_cost_next_to_nothing():
    """About 0.4 us without limits and 1 us with them; the bounds leave room for a machine that is busy."""
    costs = await main()
    assert costs["unlimited"] < 2_000
    assert costs["max_inflight, key, workers"] < 6_000
    assert costs["max_inflight, 8 processes"] < 50_000
