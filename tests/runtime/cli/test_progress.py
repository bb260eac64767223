"""Progress reports: bars on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import io

from rich.console import Console
from weft.runtime.cli.progress import LINES, Reporter
from weft.runtime.train.context import Progress


def seen(update: int, updates: int) -> Progress:
    """Return a report of one update."""
    return Progress(
        update=update,
        updates=updates,
        epoch=1,
        loss=2.5,
        nll=2.0,
        rate=7e-4,
        tokens_per_second=1234.0,
        target_tokens_per_second=600.0,
    )


def test_a_terminal_sees_a_bar_with_speed_loss_and_rate() -> None:
    """Preparation and training each have a bar; log lines appear above the bars."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=160, highlight=False)

    with Reporter(console).shown() as reporter:
        reporter.prepared("train", 500, None)
        reporter.prepared("train", 1000, 1000)
        reporter.progress(seen(10, 20))
        reporter.validated(10, {"perplexity": 7.389, "bleu": 31.5})
        reporter.progress(seen(20, 20))

    text = out.getvalue()
    assert "1000/1000" in text
    assert "20/20" in text
    assert "loss 2.500  ppl 7.39  lr 7.00e-04  1,234 tok/s" in text
    assert "update 10: valid perplexity 7.389  BLEU 31.50" in text


def test_a_file_gets_a_few_plain_lines() -> None:
    """A run of any length logs about forty lines, including the last update."""
    out = io.StringIO()

    with Reporter(Console(file=out, width=200)).shown() as reporter:
        for update in range(10, 10_001, 10):
            reporter.progress(seen(update, 10_000))

    lines = out.getvalue().splitlines()
    assert LINES <= len(lines) <= LINES + 2
    assert lines[-1].startswith("update 10000/10000")
    assert "\x1b" not in out.getvalue()
