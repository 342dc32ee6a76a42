"""Panels and how Grafana 10 and newer wants them: their numbers are their places in the rows, so that a change of one
panel changes few lines of the result."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from queries import PREFIX

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _ACROSS = 8, 7, 24


class Panel(NamedTuple):
    """One panel.

    Attributes:
        title: what it shows.
        unit: of Grafana.
        queries: expression and legend of each.
        kind: of Grafana.
        text: what it means, shown on request.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    text: str = ""


Rows = tuple[tuple[str, tuple[Panel, ...]], ...]


def document(rows: Rows) -> dict[str, Any]:
    """The dashboard as Grafana imports it.

    Args:
        rows: title and panels of each.
    """
    return {
        "uid": "disagg-proxy",
        "title": "disagg-proxy",
        "tags": ["llm", "disagg-proxy"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "templating": {"list": list(_variables())},
        "panels": list(_panels(rows)),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    known = f"{PREFIX}processes"
    for name, query in (
        ("job", f"label_values({known}, job)"),
        ("instance", f'label_values({known}{{job=~"$job"}}, instance)'),
    ):
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".+",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        }


def _panels(rows: Rows) -> Iterator[dict[str, Any]]:
    top = 0
    for row, (title, panels) in enumerate(rows, start=1):
        yield {
            "id": row * 100,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": _ACROSS, "h": 1},
            "panels": [],
        }
        top += 1
        for place, panel in enumerate(panels):
            x = place * _WIDTH % _ACROSS
            yield _panel(panel, row * 100 + place + 1, x, top + place * _WIDTH // _ACROSS * _HEIGHT)
        top += (len(panels) * _WIDTH + _ACROSS - 1) // _ACROSS * _HEIGHT


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    custom = {} if panel.kind == "stat" else {"custom": {"fillOpacity": 10, "showPoints": "never"}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **custom}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "range": panel.kind != "stat",
                "instant": panel.kind == "stat",
            }
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }
