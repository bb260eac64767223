"""Open folders with transformers in a process that cannot import weft, and store what they give.

Called with a file of `torch.save`: for each name, the folder, the arguments of `forward`, labels
for the loss, and the arguments of calls of `generate`.  The second argument is the file of results.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor


def auto_classes(folder: str) -> list[Any]:
    """Return the Auto classes that a folder names, without that of the configuration."""
    names = json.loads((Path(folder) / "config.json").read_text())["auto_map"]
    return [getattr(transformers, name) for name in names if name != "AutoConfig"]


def tuned(model: Any, arguments: dict[str, Tensor], labels: Tensor) -> list[float]:
    """Return the losses of a fine-tuning with the Trainer on a batch, row by row."""
    columns = {**arguments, "labels": labels}
    rows = [{name: value[row] for name, value in columns.items()} for row in range(labels.size(0))]
    with tempfile.TemporaryDirectory() as out:
        settings = transformers.TrainingArguments(
            out,
            max_steps=30,
            per_device_train_batch_size=len(rows),
            learning_rate=3e-3,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = transformers.Trainer(model, settings, train_dataset=rows)
        trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def results_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return everything that a folder gives."""
    opened = []
    for kind in auto_classes(case["folder"]):
        model, report = kind.from_pretrained(
            case["folder"], trust_remote_code=True, output_loading_info=True
        )
        opened.append(
            (kind.__name__, {name: sorted(map(str, v)) for name, v in report.items() if v})
        )
    model.eval()
    with torch.no_grad():
        outputs = {k: v for k, v in model(**case["arguments"]).items() if torch.is_tensor(v)}
        half = type(model).from_pretrained(case["folder"], dtype=torch.bfloat16).eval()
        finite = all(
            bool(torch.isfinite(value).all())
            for value in half(**case["half"]).values()
            if torch.is_tensor(value)
        )
    generated = [model.generate(**call) for call in case["calls"]]
    uncached = [model.generate(**call, use_cache=False) for call in case["calls"]]
    with tempfile.TemporaryDirectory() as again:
        model.save_pretrained(again)
        other = type(model).from_pretrained(again).eval()
        with torch.no_grad():
            outputs_again = {
                k: v for k, v in other(**case["arguments"]).items() if torch.is_tensor(v)
            }
    results = {
        "opened": opened,
        "outputs": outputs,
        "outputs_again": outputs_again,
        "finite": finite,
        "generated": generated,
        "uncached": uncached,
    }
    if case["labels"] is not None:
        with torch.no_grad():
            results["loss"] = model(**case["arguments"], labels=case["labels"]).loss
        results["losses"] = tuned(model, case["arguments"], case["labels"])
    return results


if __name__ == "__main__":
    sys.modules["weft"] = None  # type: ignore[assignment]  # importing it is an error
    cases, results = sys.argv[1:]
    torch.save({name: results_of(case) for name, case in torch.load(cases).items()}, results)
