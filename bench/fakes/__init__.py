"""Fake context and generation workers that cost as little as possible beside the proxy under test."""
