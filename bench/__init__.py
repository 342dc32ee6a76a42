"""Overhead bench: what one request costs a proxy, measured side by side with other proxies."""
