"""Ladders of sizes: the loss of each size, and a line through the logarithms with its interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....plugin import LossMetric, Metric
from ..document import StudySettings

Record = dict[str, Any]
_LEAST = 3
"""Sizes through which a line has an interval."""
_STEPS = 33
"""Points at which the line and its interval are computed."""


def ladders_of(rows: Sequence[Record], study: StudySettings) -> dict[str, Record]:
    """Return the sizes of each ladder with their losses, and the fitted line, by name.

    Args:
        rows: rows with the outcome of their jobs.
        study: the study.
    """
    ladders = {}
    for name, ladder in study.ladders.items():
        points = []
        for row in rows:
            values = [
                value
                for seed in row["trained"]
                if (value := _value(row["seeds"][seed], ladder.metric)) is not None
            ]
            if row["ladder"] == name and values:
                spread = statistics.stdev(values) if len(values) > 1 else None
                points.append(
                    {
                        "row": row["name"],
                        "size": row["costs"][ladder.against],
                        "values": values,
                        "mean": statistics.fmean(values),
                        "spread": spread,
                    }
                )
        means = [(point["size"], point["mean"]) for point in points]
        ladders[name] = {
            "against": ladder.against,
            "rates": ladder.rates,
            "metric": ladder.metric.name,
            "label": ladder.metric.label,
            "points": points,
            "fit": fitted(means, study.compare.level),
        }
    return ladders


def _value(seed_run: Record, metric: Metric) -> float | None:
    """Return the value of a metric on the validation data; None if it is unknown."""
    measured = seed_run["splits"].get("valid")
    if measured is None:
        return None
    if isinstance(metric, LossMetric):
        return metric.measure_losses(measured["losses"]).value
    value: float | None = measured["scores"].get(metric.name)
    return value


def fitted(points: Sequence[tuple[float, float]], level: float) -> Record | None:
    """Return the power law `value = factor * size ** exponent` that fits some sizes.

    It is the line of least squares through the logarithms, of one mean for each size: seeds of one
    size share what makes it deviate from the line.  The interval is that of t with two degrees of
    freedom less than there are sizes.  Power laws of the loss: Kaplan et al. 2020, section 3.

    Args:
        points: size and mean value of each size.
        level: probability of the intervals.

    Returns:
        The exponent with its interval, the factor, and `band`: size, line, and the ends of the
        interval of the line.  None if there are too few sizes, or a value is not positive.
    """
    if len(points) < _LEAST or not all(0 < n < math.inf for point in points for n in point):
        return None
    from scipy import stats  # noqa: PLC0415 - slow to load

    x, y = np.log(np.array(points, np.float64)).T
    if np.ptp(x) == 0:
        return None
    exponent, intercept, _, _, deviation = stats.linregress(x, y)
    degrees = len(points) - 2
    width = float(stats.t.ppf((1 + level) / 2, degrees))
    residuals = y - (intercept + exponent * x)
    error = math.sqrt(float(residuals @ residuals) / degrees)
    at = np.linspace(x.min(), x.max(), _STEPS)
    middle = intercept + exponent * at
    squares = float(((x - x.mean()) ** 2).sum())
    reach = width * error * np.sqrt(1 / len(points) + (at - x.mean()) ** 2 / squares)
    curves = (at, middle, middle - reach, middle + reach)
    return {
        "exponent": float(exponent),
        "low": float(exponent - width * deviation),
        "high": float(exponent + width * deviation),
        "factor": float(np.exp(intercept)),
        "level": level,
        "band": [[float(value) for value in point] for point in np.exp(np.stack(curves, 1))],
    }


def fit_text(ladder: Record) -> str:
    """Return the fitted line of a ladder in words."""
    fit, x = ladder["fit"], {"training_flops": "C", "parameters": "N"}[ladder["against"]]
    if fit is None:
        return "No line: it needs three sizes with positive values."
    counted = {"training_flops": "FLOPs of the training", "parameters": "parameters"}
    return (
        f"{ladder['label']} = {fit['factor']:.4g} {x}^{fit['exponent']:.4g}, {x}:"
        f" {counted[ladder['against']]}; {fit['level']:.0%} interval of the exponent"
        f" [{fit['low']:.4g}, {fit['high']:.4g}]."
    )
