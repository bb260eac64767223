"""Score translations with unbabel-comet, as a program of its own (`comet.py` starts it).

It runs with the Python of an environment that has unbabel-comet and not Weft, so it imports
neither Weft nor anything newer than Python 3.8.  Standard input has a line of JSON for each batch,
a list of rows with `src`, `mt` and `ref`; standard output a line for each, with `scores` or
`error`.  The first line says that the model is ready, with the version of unbabel-comet.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def opened(checkpoint: str) -> Any:
    """Return the model of a checkpoint; its files run no code, and nothing is downloaded."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import torch  # noqa: PLC0415 - after the environment is set

    load = torch.load
    torch.load = lambda *args, **options: load(*args, **{**options, "weights_only": True})
    from comet import (  # type: ignore[import-not-found]  # noqa: PLC0415 - reads torch.load
        load_from_checkpoint,
    )

    model = load_from_checkpoint(checkpoint, strict=True, local_files_only=True)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def version() -> str:
    """Return the version of unbabel-comet."""
    from importlib.metadata import version as version_of  # noqa: PLC0415

    try:
        return version_of("unbabel-comet")
    except ImportError:  # the package has no metadata
        return "unknown"


def moved(value: Any, device: Any) -> Any:
    """Return tensors, in dictionaries and sequences, on a device."""
    if isinstance(value, dict):
        return {name: moved(inner, device) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(inner, device) for inner in value)
    return value.to(device) if hasattr(value, "to") else value


def scored(model: Any, rows: list[dict[str, str]]) -> list[float]:
    """Return the score of each row."""
    import torch  # noqa: PLC0415

    with torch.no_grad():
        inputs = model.prepare_sample(rows, stage="predict")
        scores = model.predict_step(moved(inputs, model.device)).scores
    return [float(score) for score in scores]


def main() -> int:
    """Answer batches until standard input ends."""
    # Libraries print to standard output, which has the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    try:
        model = opened(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - told to the other process
        answer(error=f"{type(error).__name__}: {error}")
        return 1
    answer(version=version())
    for line in sys.stdin:
        try:
            answer(scores=scored(model, json.loads(line)))
        except Exception as error:  # noqa: BLE001 - told to the other process
            answer(error=f"{type(error).__name__}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
