"""Sample outputs: a text table of predictions with their references, for logs and trackers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....specs.findings import InputError
from ....specs.text.places import cells

MOST = 12
"""Default number of rows."""
_LONGEST = 300
"""Maximum characters of a value."""


def sample_table(
    rows: Sequence[Mapping[str, Any]],
    predictions: Sequence[Any],
    answers: str,
    *,
    most: int = MOST,
) -> str:
    """Return a few rows with their predictions, one value on each line.

    Args:
        rows: raw values by column.
        predictions: the answer for each row.
        answers: column with the references.
        most: number of rows, from the first.

    Raises:
        InputError: the lists differ in length.
    """
    if len(rows) != len(predictions):
        raise InputError(
            f"{len(predictions)} predictions for {len(rows)} rows", help="predict the same rows"
        )
    lines = []
    for number, (row, predicted) in enumerate(zip(rows[:most], predictions, strict=False), 1):
        shown = {name: value for name, value in row.items() if name != answers}
        shown |= {"predicted": predicted, "reference": row.get(answers)}
        width = max(map(cells, shown))
        lines.append(f"[{number}]")
        lines += [
            f"  {name}{' ' * (width - cells(name))}  {_short(value)}"
            for name, value in shown.items()
        ]
    return "\n".join(lines)


def _short(value: Any) -> str:
    """Return a value on one line, shortened."""
    value = getattr(value, "tree", value)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        value = " ".join(value)
    if isinstance(value, float):
        value = f"{value:.6g}"
    # Arrays such as images and sounds are described, not printed.
    if hasattr(value, "shape"):
        value = f"{type(value).__name__} of shape {tuple(value.shape)}"
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
