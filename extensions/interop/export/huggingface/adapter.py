"""Export of LoRA alone, as an adapter of PEFT's library, checked by reading it again.

An import table says where the weights of each linear map are in the other library's tensors.  The
rows and columns of the low-rank matrices are put there, too, so no number is computed: several
maps in one tensor (GPT-2's queries, keys and values) become one map of a larger rank.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .....graphs.ir.lora import A, B
from .....plugin import (
    Checkpoint,
    InputError,
    graph_without_lora,
    lora_factors,
    new_folder,
    write_marker,
    write_tensors,
)
from .....runtime.checkpoint.mapping.line import Line
from .....runtime.checkpoint.mapping.origin import assigned
from .....runtime.checkpoint.merge import merged
from .....specs.escaping import markdown
from .....specs.expressions import ExpressionError
from ...importing.adapter import CONFIG, FILE, PREFIX, LoraAdapter
from ...importing.hf import import_hf
from ..vocabulary import original_config, original_names, tokens_of
from .export import target_weights
from .fit import Fit, chosen
from .tensors import assembled, full_name

CLOSE = 1e-6
"""Largest allowed difference of a merged weight, relative to the largest of its tensor."""
_README = """# {name}, a LoRA adapter

Written by `weft export`. {doc}

```python
from peft import PeftModel
from transformers import {architecture}

base = {architecture}.from_pretrained({base})
model = PeftModel.from_pretrained(base, ".")
```

The adapter has {count:,} numbers. Its base model is an export of the model without LoRA:
`weft export START --to huggingface`, where START is the checkpoint from which the training began.
"""


@dataclass(frozen=True, slots=True)
class CheckedAdapter:
    """Result of reading an adapter again and merging it into the base model."""

    table: str
    """The table that was read backwards."""
    architecture: str
    """The class of the base model."""
    modules: int
    """Number of linear maps with low-rank matrices."""
    parameters: int
    """Number of their elements."""
    difference: float
    """Largest difference of a merged weight, relative to the largest of its tensor."""
    notes: tuple[str, ...]
    """What the user must know."""

    @property
    def report(self) -> str:
        """The result as text."""
        what = f"LoRA of {self.modules} linear maps of {self.architecture}"
        return "\n".join(
            [
                f"{what}, {self.parameters:,} numbers, by the table {self.table}",
                f"read again and merged: weights differ by {self.difference:.2g}",
                *(f"note: {note}" for note in self.notes),
            ]
        )


@dataclass(frozen=True, slots=True)
class _Pair:
    """The matrices of a module: x W^T + factor * x A^T B^T."""

    a: Tensor
    """[r, inputs]."""
    b: Tensor
    """[outputs, r]."""
    factor: float
    transposed: bool
    """Whether the tensor is stored as [inputs, outputs]."""


def export_peft(
    checkpoint: Checkpoint,
    out: Path | str,
    *,
    table: str | Path | None = None,
    base: str | None = None,
) -> CheckedAdapter:
    """Write the LoRA of a checkpoint as an adapter for PEFT's library.

    Args:
        checkpoint: an opened checkpoint with LoRA.
        out: the folder; an older export there is replaced.
        table: name or path of the import table to read backwards; default: the one that fits.
        base: name or folder of the base model, which `adapter_config.json` then names; the weights
            of a folder must be those to which LoRA was added.

    Raises:
        InputError: the checkpoint has no LoRA, no table describes the model, a linear map has no
            counterpart, the base is another model, or the path exists and is not an export; then
            nothing is written.
    """
    factors = lora_factors(checkpoint.graph)
    if not factors:
        raise InputError(
            "the model has no LoRA",
            location=str(checkpoint.folder),
            help="train a spec of weft lora, or export the whole model with --to huggingface",
        )
    merged_weights = merged(checkpoint.weights, checkpoint.graph)  # refuses LoRA of tied weights
    low = tuple(f"{prefix}{name}" for prefix in factors for name in (A, B))
    base_weights = {path: weight for path, weight in checkpoint.weights.items() if path not in low}
    graph = graph_without_lora(checkpoint.graph)
    base_checkpoint = replace(checkpoint, graph=graph, weights=base_weights)
    fit = chosen(graph, tokens_of(checkpoint), table, original_config(checkpoint))
    config = fit.configuration()
    weights = target_weights(base_checkpoint, fit)
    notes = _checked_base(base, fit, weights)
    names = original_names(checkpoint, fit.table.name)
    tensors = assembled(fit.table, fit.source, weights, config, names=names)
    pairs = _pairs(checkpoint, base_checkpoint, fit, tensors)
    after = assembled(
        fit.table,
        fit.source,
        target_weights(replace(base_checkpoint, weights=merged_weights), fit),
        config,
        names=names,
    )
    architecture = str((fit.config.get("architectures") or [fit.name])[0])
    count = sum(pair.a.numel() + pair.b.numel() for pair in pairs.values())
    with new_folder(Path(out)) as folder:
        settings = _settings(pairs, architecture, base)
        text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
        (folder / CONFIG).write_text(text, encoding="utf-8")
        matrices = {f"{PREFIX}{name}.lora_A.weight": pair.a for name, pair in pairs.items()}
        matrices |= {f"{PREFIX}{name}.lora_B.weight": pair.b for name, pair in pairs.items()}
        write_tensors(matrices, folder / FILE, metadata={"format": "pt"})
        difference = _difference(LoraAdapter(folder), tensors, after)
        readme = _README.format(
            name=markdown(graph.name),
            doc=markdown(graph.doc),
            architecture=architecture,
            base=json.dumps(base or "BASE"),
            count=count,
        )
        (folder / "README.md").write_text(readme, encoding="utf-8")
        write_marker(folder, checkpoint.graph, "peft", {"table": fit.table.name})
    return CheckedAdapter(fit.name, architecture, len(pairs), count, difference, tuple(notes))


def _checked_base(base: str | None, fit: Fit, weights: Mapping[str, Tensor]) -> list[str]:
    """Compare the weights with those of the base model, if it is a folder.

    Raises:
        InputError: they differ.
    """
    if base is None or not Path(base).is_dir():
        why = "the adapter needs a base model with the weights to which LoRA was added"
        return [f"{why}; --base FOLDER compares them"]
    theirs = import_hf(base, fit.source).weights
    for path, weight in weights.items():
        other = theirs.get(path)
        if other is None or not torch.allclose(other, weight, rtol=1e-6, atol=1e-6):
            raise InputError(
                f"'{path}' of the base model is not what LoRA was added to",
                location=base,
                help="export the checkpoint from which the training began; or, if other weights "
                "than those of LoRA were trained, the whole model with --to huggingface",
            )
    return []


def _pairs(
    checkpoint: Checkpoint, base_checkpoint: Checkpoint, fit: Fit, tensors: Mapping[str, Tensor]
) -> dict[str, _Pair]:
    """Return the matrices of each module of the other library, by its name.

    Raises:
        InputError: a linear map has no counterpart.
    """
    config = fit.configuration()
    factors = {
        f"{prefix}weight": factor for prefix, factor in lora_factors(checkpoint.graph).items()
    }
    rows, columns = (
        target_weights(_numbered(base_checkpoint, factors, axis), fit) for axis in (0, 1)
    )
    plan, _ = assigned(fit.table.weights, fit.source, rows)
    pairs: dict[str, _Pair] = {}
    for target, path in fit.alignment.weights.items():
        factor = factors.pop(path, None)
        if factor is None:
            continue
        part, *others = plan[target].parts
        line = part.line
        if others or line.stack or line.into or not line.names or isinstance(line.times, Line):
            raise _without_counterpart(path, "it is not one tensor of theirs")
        try:
            layout, name = part.layout(config), line.names[0]
            times = part.number(1.0 if line.times is None else line.times, config)
        except ExpressionError as error:
            raise _without_counterpart(path, str(error)) from error
        module = full_name(name, fit.table)
        if not module.endswith(".weight"):
            raise _without_counterpart(path, f"'{module}' is not the weight of a module")
        places = []
        for numbers in (rows[target], columns[target]):
            at = torch.full(tensors[module].shape, -1.0)
            view = layout.view(at)
            view.copy_(numbers.reshape(view.shape))
            places.append(at.long())
        prefix = path.removesuffix("weight")
        a, b = (checkpoint.weights[f"{prefix}{name}"].float() for name in (A, B))
        pair = _placed(path, a, b, (places[0], places[1]), factor / times)
        name = module.removesuffix(".weight")
        pairs[name] = _joined(path, pairs[name], pair) if name in pairs else pair
    if factors:
        raise _without_counterpart(min(factors), "it is not a weight of theirs")
    return pairs


def _without_counterpart(path: str, why: str) -> InputError:
    return InputError(
        f"the LoRA of '{path}' has no counterpart in peft: {why}",
        help="merge it: weft export --to huggingface",
    )


def _numbered(base_checkpoint: Checkpoint, paths: Mapping[str, float], axis: int) -> Checkpoint:
    """Return a checkpoint whose elements are the numbers of their rows, or columns."""
    numbered: dict[str, Tensor] = {}
    for path, weight in base_checkpoint.weights.items():
        numbered[path] = torch.zeros(weight.shape)
        if path in paths:
            number = torch.arange(weight.size(axis), dtype=torch.float32)
            numbered[path] += number[:, None] if axis == 0 else number
    return replace(base_checkpoint, weights=numbered)


def _placed(path: str, a: Tensor, b: Tensor, places: tuple[Tensor, Tensor], factor: float) -> _Pair:
    """Return the matrices of a tensor from those of a weight.

    Args:
        path: the weight.
        a: [r, I].
        b: [O, r].
        places: for each element of the tensor, its row and its column in the weight, or -1.
        factor: scale of their product.

    Raises:
        InputError: the tensor is not made of whole rows and columns.
    """
    is_matrix = places[0].dim() == a.dim()
    for transposed in (False, True) if is_matrix else ():
        rows, columns = (positions.t() if transposed else positions for positions in places)
        row, column = rows.amax(1), columns.amax(0)
        inside = (row >= 0)[:, None] & (column >= 0)
        rows_match = torch.equal(rows, row[:, None].where(inside, -1))
        if rows_match and torch.equal(columns, column.expand_as(columns).where(inside, -1)):
            put_b = b[row.clamp(min=0)] * (row >= 0)[:, None]
            put_a = a[:, column.clamp(min=0)] * (column >= 0)
            return _Pair(put_a.contiguous(), put_b.contiguous(), factor, transposed)
    raise _without_counterpart(path, "its tensor is not made of whole rows and columns")


def _joined(path: str, pair: _Pair, other: _Pair) -> _Pair:
    """Return the sum of two pairs as one of a larger rank.

    Raises:
        InputError: their scales differ.
    """
    if not isclose(pair.factor, other.factor) or pair.transposed != other.transposed:
        raise _without_counterpart(path, "weights in the same tensor have another scale")
    a, b = torch.cat((pair.a, other.a)), torch.cat((pair.b, other.b), 1)
    return _Pair(a, b, pair.factor, pair.transposed)


def _settings(pairs: Mapping[str, _Pair], architecture: str, base: str | None) -> dict[str, Any]:
    """Return the content of `adapter_config.json`.

    Raises:
        InputError: some tensors are stored as [inputs, outputs], and others as [outputs, inputs].
    """
    if len({pair.transposed for pair in pairs.values()}) > 1:
        raise _without_counterpart(min(pairs), "linear maps are stored in two ways")
    first = next(iter(pairs.values()))
    rank, alpha = first.a.size(0), first.a.size(0) * first.factor
    others = {name: pair for name, pair in pairs.items() if pair.a.size(0) != rank}
    scales = {name: pair.a.size(0) * pair.factor for name, pair in pairs.items()}
    kinds = {"ForCausalLM": "CAUSAL_LM", "LMHeadModel": "CAUSAL_LM"}
    kinds |= {"ForConditionalGeneration": "SEQ_2_SEQ_LM", "MTModel": "SEQ_2_SEQ_LM"}
    return {
        "peft_type": "LORA",
        "task_type": next((v for k, v in kinds.items() if architecture.endswith(k)), None),
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": _number(alpha),
        "target_modules": sorted(pairs),
        "rank_pattern": {name: pair.a.size(0) for name, pair in others.items()},
        "alpha_pattern": {n: _number(v) for n, v in scales.items() if not isclose(v, alpha)},
        "fan_in_fan_out": first.transposed,
        "bias": "none",
        "lora_dropout": 0.0,
        "inference_mode": True,
    }


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _difference(
    adapter: LoraAdapter, tensors: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> float:
    """Return the largest relative difference of the merged tensors.

    Raises:
        InputError: it is too large.
    """
    worst = 0.0
    for name, tensor in tensors.items():
        merged_weight, expected = adapter.added_to(name, tensor), after[name]
        gap = (merged_weight - expected).abs().max() / expected.abs().max().clamp(min=1e-30)
        worst = max(worst, float(gap))
    adapter.refuse_unread()
    if not worst <= CLOSE:
        raise InputError(
            f"the adapter changes weights by {worst:.2g} more than LoRA, relative to the largest",
            help="choose another table with --as; weft fits lists them",
        )
    return worst
