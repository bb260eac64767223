"""Write a model with its code, so that transformers opens it without weft."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ..... import example_inputs
from .....plugin import (
    Capacity,
    Checkpoint,
    InputError,
    new_folder,
    position_limits,
    write_marker,
    write_tensors,
)
from ...importing.tensors import WEIGHTS
from ..eject import CLOSE, compare, run_text
from ..huggingface.card import generation_config, write_card, write_json
from ..vocabulary import tokens_of
from .interface import LOGITS, Interface, interface_of
from .modeling import Modeling, modeling
from .tokenizers import files_of

AUXILIARY = 0.01
"""Weight of auxiliary losses of a model without a run."""
_IDS = {"end": "eos_token_id", "pad": "pad_token_id"}


@dataclass(frozen=True, slots=True)
class CheckedAutoModel:
    """What was written, and how its code was compared with the model."""

    architecture: str
    """The class that opens the folder."""
    auto: tuple[str, ...]
    """The Auto classes that find it."""
    lines: int
    """Number of lines of its code."""
    compared: str
    """What was compared: `outputs`, or only `names and shapes` of weights."""
    notes: tuple[str, ...]
    """What the export lacks."""

    @property
    def report(self) -> str:
        """The result as text."""
        return "\n".join(
            [
                f"{self.architecture}, {self.lines:,} lines of PyTorch in the folder",
                f"opened by {' and '.join(self.auto)} with trust_remote_code=True",
                f"its code computes what the model computes (compared: {self.compared})",
                *(f"note: {note}" for note in self.notes),
            ]
        )


def export_automodel(
    checkpoint: Checkpoint,
    out: Path | str,
    *,
    notes: Sequence[str] = (),
    scores: Mapping[str, Any] = MappingProxyType({}),
) -> CheckedAutoModel:
    """Write a checkpoint with its code as a folder for Hugging Face's library.

    Args:
        checkpoint: an opened checkpoint, without LoRA.
        out: the folder; an older export there is replaced.
        notes: further notes of the report and the card.
        scores: report of `weft evaluate --json` for the model card.

    Raises:
        InputError: the source of a block is not available, the path exists and is not an export, or
            the code computes something else; then nothing is written.
    """
    graph, tokens = checkpoint.graph, tokens_of(checkpoint)
    interface = interface_of(checkpoint)
    limit = min(position_limits(graph), default=None)
    auxiliary = float(checkpoint.run.get("auxiliary", AUXILIARY))
    files = modeling(graph, interface, limit=limit, auxiliary=auxiliary)
    compared = _compared(checkpoint, interface, files)
    tokenizers, more = files_of(checkpoint, interface)
    settings, lost = generation_config(checkpoint, tokens) if interface.generates else ({}, [])
    notes = [*notes, *more, *lost]
    config = _config(checkpoint, interface, files, limit)
    with new_folder(Path(out)) as folder:
        write_json(folder / "config.json", config)
        if settings:
            write_json(folder / "generation_config.json", settings)
        weights = {f"model.{path}": weight.float() for path, weight in checkpoint.weights.items()}
        write_tensors(weights, folder / WEIGHTS, metadata={"format": "pt"})
        for name, data in tokenizers.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        for name, text in files.texts().items():
            (folder / name).write_text(text, encoding="utf-8")
        auto = sorted(set(config["auto_map"]) - {"AutoConfig"}, key=len, reverse=True)
        write_card(
            checkpoint,
            folder,
            kind=files.model_type,
            cls=auto[0],
            notes=notes,
            scores=scores,
            custom=True,
        )
        write_marker(folder, graph, "huggingface", {"table": None})
    return CheckedAutoModel(
        architecture=files.model,
        auto=tuple(auto),
        lines=sum(text.count("\n") for text in files.texts().values()),
        compared=compared,
        notes=tuple(notes),
    )


def _config(
    checkpoint: Checkpoint, interface: Interface, files: Modeling, limit: int | None
) -> dict[str, Any]:
    """Return the content of `config.json`."""
    graph, tokens = checkpoint.graph, tokens_of(checkpoint)
    modules = {"AutoConfig": f"configuration_{files.stem}.{files.config}"}
    modules["AutoModel"] = f"modeling_{files.stem}.{files.model}"
    if interface.head:
        modules[f"AutoModelFor{interface.head}"] = modules["AutoModel"]
    begin = "decoder_start_token_id" if interface.head == "Seq2SeqLM" else "bos_token_id"
    config: dict[str, Any] = {
        "architectures": [files.model],
        "auto_map": modules,
        "model_type": files.model_type,
        "dtype": "float32",
        "is_encoder_decoder": interface.head == "Seq2SeqLM",
        "tie_word_embeddings": bool(graph.ties),
        **{key: tokens.get(name) for name, key in _IDS.items()},
        begin: tokens.get("begin"),
    }
    size = graph.inputs[interface.main].size
    if interface.head in ("CausalLM", "Seq2SeqLM"):  # beams of transformers 4 read it
        size = graph.outputs["logits"].axes[-1]
    if size is not None:
        config["vocab_size"] = int(str(size))
    if limit is not None:
        config["max_position_embeddings"] = limit
    if interface.head in ("SequenceClassification", "TokenClassification"):
        count = int(str(next(iter(graph.outputs.values())).axes[-1]))
        names = interface.classes or [f"LABEL_{number}" for number in range(count)]
        config["id2label"] = {str(number): name for number, name in enumerate(names)}
        config["label2id"] = {name: number for number, name in enumerate(names)}
    if interface.head == "SequenceClassification":
        config["problem_type"] = (
            "regression" if interface.numbers else "single_label_classification"
        )
    return config


def _compared(checkpoint: Checkpoint, interface: Interface, files: Modeling) -> str:
    """Compare the code with the model, also step by step; return what was compared.

    Raises:
        InputError: they differ.
    """
    kind = getattr(run_text(files.core), files.root)
    compared = compare(checkpoint.graph, checkpoint, kind)
    if compared != "outputs" or not interface.generates:
        return compared
    model: Any = kind().eval()
    model.load_state_dict(checkpoint.build().state_dict())
    inputs = example_inputs(checkpoint.graph)
    fixed = {name: value for name, value in inputs.items() if name not in interface.moving}
    moving = {name: value for name, value in inputs.items() if name in interface.moving}
    rows, length = next(iter(moving.values())).shape[:2]
    with torch.no_grad():
        expected = model(**inputs)[LOGITS]
        values = model.encode(**fixed) if fixed else {}
        capacity = Capacity(rows, 1, length, torch.float32, torch.device("cpu"))
        state = model.begin(capacity, **values)
        logits = model.step(**moving, state=state, position=0)[LOGITS]
    scale = float(expected.abs().max().clamp(min=1.0))
    if not torch.allclose(logits, expected, atol=10 * CLOSE * scale, rtol=10 * CLOSE):
        raise InputError(
            "the code decodes something else",
            help="nothing was written; please report this spec: this is a bug in the export",
        )
    return "outputs, and steps of decoding"
