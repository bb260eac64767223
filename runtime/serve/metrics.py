"""Metrics: what a server counts, in the form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""Of what `Metrics.text` returns."""

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server; two in one process do not meet."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        """Begin at zero.

        Args:
            waiting: tells how many sentences are in the queue.
        """
        own = self._registry = CollectorRegistry()
        self.requests = Counter(
            "weft_requests",
            "Requests answered, by path and status",
            ["path", "status"],
            registry=own,
        )
        self.seconds = Histogram(
            "weft_request_seconds",
            "Seconds from a request for translations to its answer",
            buckets=_SECONDS,
            registry=own,
        )
        self.batch_sentences = Histogram(
            "weft_batch_sentences", "Sentences decoded together", buckets=_SENTENCES, registry=own
        )
        self.batch_seconds = Histogram(
            "weft_batch_seconds", "Seconds that a batch took", buckets=_SECONDS, registry=own
        )
        self.tokens = Counter("weft_tokens", "Tokens read and written", ["side"], registry=own)
        self.dropped = Counter(
            "weft_dropped_sentences",
            "Sentences dropped because nobody waits any more",
            registry=own,
        )
        queue = Gauge("weft_queue_sentences", "Sentences that wait", registry=own)
        queue.set_function(waiting)
        self._pace = 0.0

    def batch(self, sentences: int, seconds: float) -> None:
        """Count a batch."""
        self.batch_sentences.observe(sentences)
        self.batch_seconds.observe(seconds)
        now = sentences / max(seconds, 1e-6)
        self._pace = now if not self._pace else 0.8 * self._pace + 0.2 * now

    def pace(self) -> float:
        """Return the sentences a second of late batches; 0 before the first."""
        return self._pace

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self._registry)
