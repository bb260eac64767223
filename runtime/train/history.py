"""History of a run's metrics, as JSON lines and in trackers."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from ..system.strangers import has_file, read_in
from .trackers import Trackers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from torch import Tensor

    from .distributed.sampler import MicroBatches

    Curve = tuple[list[int], list[float]]

FILE = "metrics.jsonl"


class History:
    """Writes each event once to `metrics.jsonl` and to the trackers."""

    def __init__(
        self, folder: Path | None, *, update: int, trackers: Trackers | None = None
    ) -> None:
        """Open the history; drop events after `update`.

        Args:
            folder: folder of the run; None writes nothing.
            update: update of the checkpoint that training resumes from; 0 for a new run.
            trackers: receive each event too.
        """
        self.path: Path | None = None
        self.trackers = trackers
        if folder is None:
            return
        self.path = folder / FILE
        events = [event for event in read(folder) if event["update"] <= update]
        text = "".join(json.dumps(event) + "\n" for event in events)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(self.path)
        self._file = self.path.open("a")

    def write(self, **event: Any) -> None:
        """Append one event, which must have the keys `type` and `update`."""
        if self.path is None:
            return
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()
        if self.trackers is not None:
            self.trackers.event(event)

    def content(self) -> bytes:
        """Return the content of the file; empty without one."""
        return b"" if self.path is None else self.path.read_bytes()

    def close(self) -> None:
        """Close both files."""
        if self.path is None:
            return
        self._file.close()
        if self.trackers is not None:
            self.trackers.close()


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the events of the history in a folder of a run or a checkpoint.

    Invalid lines are skipped, such as a cut-off last one.

    Raises:
        InputError: the file leads out of the folder, or is no regular file.
    """
    if not has_file(folder, FILE):
        return []
    events = []
    for line in read_in(folder, FILE).decode("utf-8", errors="replace").split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("update"), int):
            events.append(event)
    return events


@dataclass(slots=True)
class LogWindow:
    """Metrics accumulated since the last report."""

    sums: Any = 0.0
    """Loss, nll, auxiliary loss and further values per item, summed over updates; then a tensor."""
    updates: int = 0
    tokens: int = 0
    """Positions on all time axes."""
    target_tokens: int = 0
    waited: float = 0.0
    """Seconds spent waiting for the next batches."""
    since: float = field(default_factory=time.monotonic)
    """Start of the window, by `time.monotonic`; moved forward by the time of validations."""

    def add(self, sums: Tensor, micro_batches: MicroBatches) -> None:
        """Add one update.

        Args:
            sums: loss, nll, auxiliary loss and further values per item.
            micro_batches: batches of the update, for their token counts.
        """
        self.sums = self.sums + sums
        self.updates += 1
        self.tokens += sum(micro_batches.tokens.values())
        self.target_tokens += micro_batches.target_tokens


_TRAIN, _VALID, _RATE, _SCORE = "#4477aa", "#ee6677", "#555555", "#228833"
"""Colors of Paul Tol's bright scheme, distinguishable for color-blind readers."""
_SMOOTH = 0.03
"""Fraction of the training points in the window of the running mean."""


def plot_curves(metrics: Path, out: Path) -> None:
    """Draw loss, learning rate and, if measured, BLEU or F1 over the updates of a run.

    Args:
        metrics: file with one JSON object per line, with `type` ("train" or "valid") and
            `update`.  A cut-off last line, as after a crash, is skipped.  If an update
            occurs twice, as after a run resumed from an older checkpoint, the later line
            counts.
        out: PNG file to write; its folder must exist.

    Raises:
        InputError: the file is missing, has a line that is not such an object, or
            contains nothing to draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    events = _read(metrics)
    loss = _curve(events["train"], "loss")
    train_nll = _curve(events["train"], "nll")
    valid_nll = _curve(events["valid"], "nll")
    rate = _curve(events["train"], "rate")
    names = {"bleu": "BLEU", "f1": "F1"}
    scores = {name: _curve(events["valid"], key) for key, name in names.items()}
    shown = {name: curve for name, curve in scores.items() if curve[0]}
    if not (loss[0] or valid_nll[0]):
        problem = "nothing to draw: no loss has been written yet"
        raise InputError(
            problem, location=str(metrics), help="wait until the run has made its first report"
        )

    heights = [3.0, 1.2, *[1.5] * len(shown)]
    figure = Figure(figsize=(8.0, 0.8 + 1.2 * sum(heights)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    _draw_loss(panels[0], loss, train_nll, valid_nll)
    _draw_line(panels[1], rate, _RATE, "learning rate")
    panels[1].ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    for panel, (name, curve) in zip(panels[2:], shown.items(), strict=True):
        _draw_line(panel, curve, _SCORE, f"validation {name}\n(0 to 100)", marker="o")
    for panel in panels:
        panel.grid(visible=True, color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("update (optimizer steps)")
    panels[-1].xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    panels[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.align_ylabels()
    figure.savefig(out, format="png")


def _read(metrics: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the events by type, sorted by update."""
    if not metrics.is_file():
        problem = "no metrics file"
        raise InputError(problem, location=str(metrics), help="train the run first")
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    lines = read_in(metrics.parent, metrics.name).decode("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            newest[str(event["type"]), int(event["update"])] = event
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            problem = "the line is not a JSON object with 'type' and 'update'"
            raise InputError(problem, location=f"{metrics}:{number}") from error
    events: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (kind, _), event in sorted(newest.items(), key=lambda item: item[0][1]):
        events[kind].append(event)
    return events


def _curve(events: Sequence[Mapping[str, Any]], key: str) -> Curve:
    """Return the updates and the values of one metric, where it was measured."""
    points = [(event["update"], event[key]) for event in events if event.get(key) is not None]
    return [int(update) for update, _ in points], [float(value) for _, value in points]


def _draw_loss(panel: Axes, loss: Curve, train_nll: Curve, valid_nll: Curve) -> None:
    """Draw the training loss, raw and smoothed, and the likelihoods of both splits."""
    if loss[0]:
        panel.plot(*loss, color=_TRAIN, alpha=0.25, linewidth=0.8)
        panel.plot(loss[0], _smoothed(loss[1]), color=_TRAIN, label="train, smoothed labels")
    if train_nll[0]:
        nll = _smoothed(train_nll[1])
        panel.plot(train_nll[0], nll, color=_TRAIN, linestyle="--", label="train, likelihood")
    if valid_nll[0]:
        panel.plot(
            *valid_nll, color=_VALID, marker="o", markersize=3, label="validation, likelihood"
        )
    panel.set_ylabel("loss\n(nats per target token)")
    panel.legend(frameon=False)


def _draw_line(panel: Axes, curve: Curve, color: str, label: str, marker: str = "") -> None:
    """Draw one curve with its label."""
    panel.plot(*curve, color=color, marker=marker, markersize=3)
    panel.set_ylabel(label)


def _smoothed(values: Sequence[float]) -> list[float]:
    """Return a centered running mean, which has no lag."""
    half_width = round(_SMOOTH * len(values) / 2)
    means = []
    for middle in range(len(values)):
        near = min(half_width, middle, len(values) - 1 - middle)
        window = values[middle - near : middle + near + 1]
        means.append(sum(window) / len(window))
    return means
