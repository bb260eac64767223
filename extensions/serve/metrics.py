"""Metrics of a server, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""Content type of `Metrics.text`."""

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Metrics of one server; several servers in one process have separate metrics."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        """Start all counters at zero.

        Args:
            waiting: returns the number of sentences in the queue.
        """
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "weft_requests",
            "Responses, by path and status",
            ["path", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "weft_request_seconds",
            "Seconds from a translation request to its response",
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_sentences = Histogram(
            "weft_batch_sentences",
            "Sentences decoded together",
            buckets=_SENTENCES,
            registry=registry,
        )
        self.batch_seconds = Histogram(
            "weft_batch_seconds", "Seconds per batch", buckets=_SECONDS, registry=registry
        )
        self.tokens = Counter("weft_tokens", "Tokens read and written", ["side"], registry=registry)
        self.dropped = Counter(
            "weft_dropped_sentences",
            "Sentences dropped because their client is gone",
            registry=registry,
        )
        queue = Gauge("weft_queue_sentences", "Waiting sentences", registry=registry)
        queue.set_function(waiting)
        self._pace = 0.0

    def batch(self, sentences: int, seconds: float) -> None:
        """Record a batch."""
        self.batch_sentences.observe(sentences)
        self.batch_seconds.observe(seconds)
        now = sentences / max(seconds, 1e-6)
        self._pace = now if not self._pace else 0.8 * self._pace + 0.2 * now

    def pace(self) -> float:
        """Return the recent rate of sentences per second; 0 before the first batch."""
        return self._pace

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self._registry)
