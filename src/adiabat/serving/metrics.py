"""Counters for Prometheus, of one server."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from adiabat.serving.batching import Batcher


class Metrics:
    """The counters, in a registry of their own, so that two servers in a process do not meet.

    Attributes:
        texts: Texts that were asked for, by tower.
    """

    media_type = CONTENT_TYPE_LATEST

    def __init__(self, batcher: Batcher) -> None:
        """Make the counters; texts that wait are read from the batcher."""
        registry = self._registry = CollectorRegistry()
        self.texts = Counter("adiabat_texts", "Texts that were asked for.", ["tower"], registry=registry)
        self._requests = Counter(
            "adiabat_requests", "Answered requests.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "adiabat_request_seconds", "Time of a request.", ["path"], registry=registry
        )
        waiting = Gauge("adiabat_waiting_texts", "Texts that wait to be embedded.", registry=registry)
        waiting.set_function(lambda: batcher.waiting)

    def observe(self, scope: Mapping[str, Any], status: int, seconds: float) -> None:
        """Count an answered request by its route, since paths may be of any number."""
        route = scope.get("route")
        path = "none" if route is None else route.path
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All counters in Prometheus' format."""
        return generate_latest(self._registry)
