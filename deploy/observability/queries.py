"""Expressions of PromQL about the proxy's series, of the jobs and instances that are chosen in the dashboard."""

PREFIX = "disagg_proxy_"
CHOSEN = 'job=~"$job", instance=~"$instance"'


def selected(metric: str, *conditions: str) -> str:
    """A series of ours, of the chosen jobs and instances."""
    return f"{PREFIX}{metric}{{{', '.join([CHOSEN, *conditions])}}}"


def rate(metric: str, *conditions: str, by: str = "") -> str:
    """Events per second."""
    return f"sum{_by(by)} (rate({selected(metric + '_total', *conditions)}[$__rate_interval]))"


def rare(metric: str, by: str = "") -> str:
    """Events per second of a kind that has no series until the first one; 0 until then."""
    return f"{rate(metric, by=by)} or vector(0)"


def total(metric: str, *conditions: str, by: str = "", how: str = "sum") -> str:
    """A gauge over all instances."""
    return f"{how}{_by(by)} ({selected(metric, *conditions)})"


def quantiles(metric: str, *conditions: str, by: str = "") -> tuple[tuple[str, str], ...]:
    """Half, 95 and 99 of 100 of what a histogram has observed are below these."""
    labels = f"le, {by}" if by else "le"
    seen = f"sum{_by(labels)} (rate({selected(metric + '_bucket', *conditions)}[$__rate_interval]))"
    legend = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (f"histogram_quantile({part}, {seen})", f"p{part * 100:g}{legend}") for part in (0.5, 0.95, 0.99)
    )


def mean(metric: str, *conditions: str, by: str = "") -> str:
    """The mean of what a histogram has observed."""
    parts = [
        f"sum{_by(by)} (rate({selected(f'{metric}_{end}', *conditions)}[$__rate_interval]))"
        for end in ("sum", "count")
    ]
    return " / ".join(parts)


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""
