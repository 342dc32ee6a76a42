"""Loopback addresses that stand for machines; others may run the same tests here at the same time."""

import os


def network(number: int) -> str:
    """The first three parts of the addresses of one test."""
    return f"127.{os.getpid() % 200 + 20}.{(os.getpid() // 200 + number) % 250}"
