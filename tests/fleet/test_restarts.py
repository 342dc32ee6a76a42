from proxy.fleet.restarts import Restarts


def test_the_first_accident_costs_nothing() -> None:
    restarts = Restarts()
    assert restarts.delay(3600.0) == 0.0
    assert restarts.delay(0.5) == 0.0
    assert restarts.keeps_port


def test_young_deaths_back_off_up_to_some_seconds() -> None:
    restarts = Restarts()
    delays = [restarts.delay(0.1) for _ in range(9)]
    assert delays == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert not restarts.keeps_port
    for _ in range(5000):
        restarts.delay(0.1)
    assert restarts.delay(0.1) == 5.0


def test_ten_good_seconds_are_a_new_beginning() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.delay(0.1)
    assert restarts.delay(10.0) == 0.0
    assert restarts.young_deaths == 0
    assert restarts.keeps_port
    assert restarts.delay(9.9) == 0.0
    assert restarts.delay(9.9) == 0.25


def test_the_port_is_given_up_after_two_starts_in_vain() -> None:
    restarts = Restarts()
    kept = []
    for _ in range(4):
        restarts.delay(0.1)
        kept.append(restarts.keeps_port)
    assert kept == [True, True, False, False]
