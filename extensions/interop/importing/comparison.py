"""Comparison of an imported model with the model that it was imported from."""

from __future__ import annotations

import importlib.util
import inspect
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....graphs.ir.value_type import evaluate
from ....plugin import (
    Capacity,
    Checkpoint,
    Graph,
    InputError,
    open_checkpoint,
    position_limits,
    replace_folder,
    time_axes,
)
from ....runtime.system.strangers import has_file
from ....specs.regular_files import path_in
from .config import CONFIG, read_object
from .hf import Imported, refuse_another_folder, table_for
from .layer_outputs import DOUBLE, Compared, LayerComparison, distance, watched, without_padding
from .table import load_table
from .tensors import INDEX, files_of

SINGLE = 8
"""Maximum number of positions that are computed one by one."""


@torch.no_grad()
def outputs_by_steps(
    graph: Graph, model: nn.Module, inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the outputs along the step axis, computed as in decoding; none without such an axis.

    The first half of the positions is read at once, as a prompt is, and the next ones one by one.

    Args:
        graph: graph of the model.
        model: the model, in evaluation mode.
        inputs: inputs of its parallel pass; padding is behind the other positions.
    """
    axis = graph.step_axis
    if axis is None:
        return {}
    moving = {
        name: type_.axes.index(axis) for name, type_ in graph.inputs.items() if axis in type_.axes
    }
    first = inputs[next(iter(moving))]
    rows, length = first.size(0), first.size(moving[next(iter(moving))])
    fixed = {name: value for name, value in inputs.items() if name not in moving}
    stepping: Any = model
    parameter = next(model.parameters())
    state = stepping.begin(Capacity(rows, 1, length, parameter.dtype, parameter.device), **fixed)
    parts: list[Mapping[str, Tensor]] = []
    position, prompt = 0, length // 2
    while position < length:
        count = prompt if position < prompt else 1
        count = count if len(parts) <= SINGLE else length - position
        values = {name: inputs[name].narrow(dim, position, count) for name, dim in moving.items()}
        parts.append(stepping.step(**values, state=state, position=position))
        position += count
    along = {n: type_.axes.index(axis) for n, type_ in graph.outputs.items() if axis in type_.axes}
    return {name: torch.cat([part[name] for part in parts], dim) for name, dim in along.items()}


ROWS = 3
"""Number of sequences in a batch."""
LENGTHS = (1, 7, 33, 150)
"""Lengths of the sequences, as far as the models have as many positions."""
LIMITS = ("max_position_embeddings", "max_target_positions", "n_positions", "max_seq_len")
"""Keys of configurations that limit the length of a sequence."""
LEGACY_END = 2
"""End token in the configurations of older CLIP models, which their class does not use."""
EXTRA = "pip install 'weft[parity]'"
PORTS: Mapping[str, str] = {
    "tokens": "input_ids",
    "source": "input_ids",
    "target": "decoder_input_ids",
    "token_types": "token_type_ids",
    "mask": "attention_mask",
    "source_mask": "attention_mask",
    "target_mask": "decoder_attention_mask",
    "image": "pixel_values",
    "features": "input_features",
    "audio": "input_values",
    "audio_mask": "attention_mask",
}
"""Input of a spec to the argument of a class of transformers that has the same values."""
DTYPES = (torch.float32, torch.float64)
"""Dtypes in which models are compared: in the second, rounding hides no difference."""
OUTPUTS: Mapping[str, tuple[str, ...]] = {"logits": ("logits", "prediction_logits")}
"""Output of a spec to the fields that may have the same values; other outputs have one name."""


def refuse_without_library() -> None:
    """Raise an error if `transformers` is not installed; call it before importing anything.

    Raises:
        InputError: it is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        raise InputError(
            "comparing needs the package 'transformers'",
            location="--compare",
            help=f"install it: {EXTRA}; or import without --compare",
        )


def save_if_equal(
    imported: Imported, folder: Path | str, table: Path | str | None, out: Path | str
) -> LayerComparison:
    """Write an imported model as a checkpoint, if the checkpoint computes what its source does.

    What is compared is the written checkpoint, opened again; an older one at the path is replaced
    only by an equal one.

    Args:
        imported: the imported model.
        folder: the folder that it was imported from.
        table: the table that it was imported by, as for `import_hf`.
        out: the folder of the checkpoint.

    Raises:
        InputError: as for `compare` and `Imported.save`; then nothing is written.
    """
    out = Path(out)
    refuse_another_folder(out)
    new = out.with_name(f".{out.name}.compared")
    shutil.rmtree(new, ignore_errors=True)
    try:
        comparison = compare(open_checkpoint(imported.save(new)), folder, table)
        if comparison.equal:
            replace_folder(new, out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return comparison


def compare(
    checkpoint: Imported | Checkpoint, folder: Path | str, table: Path | str | None = None
) -> LayerComparison:
    """Compare the outputs of an imported model with those of its source.

    Args:
        checkpoint: the imported model, or a checkpoint of it.
        folder: the folder that it was imported from.
        table: the table that it was imported by, as for `import_hf`.

    Raises:
        InputError: transformers is not installed or has no class for the model, or the spec has
            an input that no argument of the class corresponds to.
    """
    refuse_without_library()
    folder = Path(folder)
    chosen, _ = load_table(table if table is not None else table_for(folder))
    theirs, notes = _load(folder, chosen.architectures)
    ours = checkpoint.build()
    differ, compared = "", list[Compared]()
    for batch in _batches(checkpoint.graph, theirs):
        for dtype in DTYPES:
            try:
                with watched(checkpoint.graph, ours.to(dtype), theirs.to(dtype)) as layers:
                    parallel, expected = _outputs(ours, theirs, batch, dtype)
            except RuntimeError as error:
                if dtype is torch.float32:
                    raise
                notes.append(f"not compared in float64: {str(error).partition(chr(10))[0]:.100}")
                break
            batch.real.update(_shorter_masks(checkpoint.graph, parallel))
            titled = {name: (name, value) for name, value in parallel.items()}
            if dtype is torch.float64:
                titled = {f"{name}{DOUBLE}": pair for name, pair in titled.items()}
            else:
                stepped = outputs_by_steps(checkpoint.graph, ours, batch.ours)
                titled |= {f"{name} by steps": (name, value) for name, value in stepped.items()}
            for title, (name, value) in titled.items():
                other = _field(expected, name)
                if dtype is torch.float64 and other is not None and not other.isfinite().all():
                    notes.append(f"not compared, because theirs has no finite values: {title}")
                elif other is not None:
                    result = _compared(title, value, other, batch)
                    compared.append(result)
                    if not result.equal and not differ and not title.endswith("by steps"):
                        differ = layers.first(batch.real)
    if not compared:
        raise InputError(
            f"{type(theirs).__name__} has none of the outputs"
            f" {', '.join(checkpoint.graph.outputs)}",
            location="--compare",
            help="name the outputs of the spec as that class does, such as 'logits'",
        )
    outputs = {result.output for result in compared}
    skipped = [name for name in checkpoint.graph.outputs if name not in outputs]
    if skipped:
        notes.append(
            f"not compared, because {type(theirs).__name__} lacks it: {', '.join(skipped)}"
        )
    return LayerComparison(
        name=type(theirs).__name__, compared=tuple(compared), first=differ, notes=tuple(notes)
    )


def _outputs(
    ours: nn.Module, theirs: nn.Module, batch: ComparedBatch, dtype: torch.dtype
) -> tuple[Any, Any]:
    """Return the outputs of both models for the inputs of a batch with floats of a dtype."""
    sides = (
        {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}
        for inputs in (batch.ours, batch.theirs)
    )
    with torch.no_grad():
        return tuple(model(**inputs) for model, inputs in zip((ours, theirs), sides, strict=True))


def _shorter_masks(graph: Graph, outputs: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """Return the masks among the outputs, such as those of strided convolutions, by length."""
    masks = [outputs[name] for name, type_ in graph.outputs.items() if type_.kind == "mask"]
    return {mask.size(1): mask for mask in masks}


def _field(outputs: Any, name: str) -> Tensor | None:
    """Return an output of the other model, or None."""
    for attribute in OUTPUTS.get(name, (name,)):
        value = getattr(outputs, attribute, None)
        if isinstance(value, Tensor):
            return value
    return None


def _load(folder: Path, architectures: tuple[str, ...]) -> tuple[nn.Module, list[str]]:
    """Return the other model in evaluation mode, and notes on what its folder lacks."""
    import transformers  # noqa: PLC0415 - an extra

    config = read_object(folder, CONFIG)
    for key in ("auto_map", "quantization_config"):
        config.pop(key, None)  # neither names code to run nor another format of the weights
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = _class(architectures, config, transformers)
    with tempfile.TemporaryDirectory() as name:
        bare = Path(name)
        (bare / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        for file in files_of(folder):
            (bare / file).symlink_to(path_in(folder, file))
        if has_file(folder, INDEX):
            (bare / INDEX).symlink_to(path_in(folder, INDEX))
        torch.manual_seed(1)
        try:
            theirs, info = kind.from_pretrained(
                bare,
                dtype=torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
            raise InputError(
                f"transformers cannot open the model: {str(error).partition(chr(10))[0]:.200}",
                location=str(folder),
                help="use the version of transformers that the table was written for",
            ) from error
    if hasattr(theirs, "set_experts_implementation"):  # the usual kernels have no float64
        theirs.set_experts_implementation("eager")
    absent = sorted(info["missing_keys"])
    notes = [f"the folder lacks weights of {kind.__name__}: {', '.join(absent[:4])}"]
    return theirs.eval(), notes if absent else []


def _class(architectures: tuple[str, ...], config: Mapping[str, Any], library: Any) -> Any:
    """Return the class of the library that holds the model.

    Args:
        architectures: classes that the table supports; the first one has all outputs.
        config: configuration of the model, which may list its class.
        library: the module `transformers`.

    Raises:
        InputError: the library has no such class.
    """
    listed = [name for name in config.get("architectures") or [] if name in architectures]
    # A class such as BartModel has no head; the first class of the table adds it.
    headless = [name for name in listed if f"{config['model_type']}model" == name.lower()]
    names = [name for name in listed if name not in headless] + list(architectures)
    for name in names or config.get("architectures") or []:
        kind = getattr(library, str(name), None)
        if isinstance(kind, type) and issubclass(kind, nn.Module):
            return kind
    raise InputError(
        f"transformers {library.__version__} has no class {' or '.join(dict.fromkeys(names))}",
        location="--compare",
        help="import without --compare; code in the folder of a model is never run",
    )


@dataclass(frozen=True, slots=True)
class ComparedBatch:
    """The same random inputs for both models."""

    sizes: Mapping[str, int]
    ours: Mapping[str, Tensor]
    theirs: Mapping[str, Tensor]
    real: dict[int, Tensor]
    """Length of a time axis to the mask [B, length] of positions without padding; those of outputs
    are added."""


def _batches(graph: Graph, theirs: nn.Module) -> Iterator[ComparedBatch]:
    """Yield batches of several lengths; in all but the first row, the last positions are padding.

    Raises:
        InputError: an input of the spec has no counterpart.
    """
    names = inspect.signature(theirs.forward).parameters
    for name in graph.inputs:
        if PORTS.get(name) is None:
            raise InputError(
                f"no argument of {type(theirs).__name__} is known for the input '{name}'",
                location="--compare",
                help=f"name the inputs of the spec as the shipped ones do: {', '.join(PORTS)}",
            )
    config: Any = theirs.config
    axes = time_axes(graph.spec.axes)
    limits = [getattr(config, key, None) for key in LIMITS]
    most = min([*position_limits(graph), *filter(None, limits), LENGTHS[-1]])
    lengths = list(dict.fromkeys(min(length, most) for length in LENGTHS)) if axes else [1]
    for index, _ in enumerate(lengths):
        # Axes get different lengths, such as 7 and 33 for source and target.
        sizes = {axis: lengths[(index + number) % len(lengths)] for number, axis in enumerate(axes)}
        if "features" in graph.inputs and "S" in sizes:  # a fixed number of frames
            sizes["S"] = int(config.max_source_positions)
        batch = {axis: ROWS for axis, kind in graph.spec.axes.items() if kind == "batch"}
        yield _batch(graph, batch | sizes, config, frozenset(names), seed=index)


def _batch(
    graph: Graph, sizes: Mapping[str, int], config: Any, names: frozenset[str], *, seed: int
) -> ComparedBatch:
    """Return random inputs of given sizes."""
    generator = torch.Generator().manual_seed(seed)
    ours, theirs, real = dict[str, Tensor](), dict[str, Tensor](), dict[int, Tensor]()
    pad = getattr(config, "pad_token_id", None)
    end = getattr(config, "eos_token_id", None) if "text_embeds" in graph.outputs else None
    masked = {type_.axes for type_ in graph.inputs.values() if type_.kind == "mask"}
    causal = "attention_mask" in names and not masked and "tokens" in graph.inputs
    for name, type_ in graph.inputs.items():
        shape = [evaluate(axis, sizes) for axis in type_.axes]
        port = PORTS[name]
        if type_.kind == "ids":
            count = evaluate(type_.size or 1, sizes)
            value = torch.randint(count, shape, generator=generator)
            if port.endswith("input_ids"):
                if count > 1 and pad is not None:  # the padding id has a meaning of its own
                    value = torch.where(value == pad, (value + 1) % count, value)
                if type_.axes in masked or causal:
                    valid = _kept(shape)
                    real[shape[-1]] = valid
                    value = value if end is None else _ended(value, valid, end, count)
                    value = torch.where(valid, value, pad if pad is not None else 0)
            ours[name] = value if port in names else torch.zeros_like(value)
        elif type_.kind == "mask":
            ours[name] = _kept(shape)
        else:
            ours[name] = torch.randn(shape, generator=generator)
            if type_.axes in masked:  # as both have padded columns
                ours[name] = ours[name] * _kept(shape)
        if port in names:
            tensor = ours[name].long() if type_.kind == "mask" else ours[name]
            theirs[port] = tensor.transpose(1, 2) if port == "input_features" else tensor
    if causal:
        theirs["attention_mask"] = real[ours["tokens"].size(1)].long()
    return ComparedBatch(sizes, ours, theirs, real)


def _ended(ids: Tensor, valid: Tensor, end: int, count: int) -> Tensor:
    """Return texts that have an end token at their last position, and nowhere else.

    CLIP reads the vector of the end token.  Older configurations have the end token 2 by mistake;
    then it is the largest id of the text.

    Args:
        ids: random ids [B, T].
        valid: positions without padding.
        end: id of the end token.
        count: number of ids.
    """
    last = valid.sum(1, keepdim=True) - 1
    end = count - 1 if end == LEGACY_END else end
    ids = torch.where(ids == end, (ids + 1) % max(1, count - 1), ids)
    return ids.scatter(1, last, end)


def _kept(shape: list[int]) -> Tensor:
    """Return a mask [B, T]: row r has r more positions of padding than row 0, which has none."""
    rows, length = shape
    lengths = (length - torch.arange(rows) * max(1, length // 5)).clamp(min=1)
    return torch.arange(length) < lengths[:, None]


def _compared(output: str, actual: Tensor, expected: Tensor, batch: ComparedBatch) -> Compared:
    """Compare an output, without positions of padding."""
    sizes = batch.sizes
    if actual.shape == (*expected.shape, 1):  # one class: ELECTRA has no axis for it
        expected = expected.unsqueeze(-1)
    if actual.shape != expected.shape:
        raise InputError(
            f"the output '{output}' has the shape {list(actual.shape)}, and theirs has "
            f"{list(expected.shape)}",
            location="--compare",
            help="correct the params of the table",
        )
    decodes = any(PORTS[name] == "decoder_input_ids" for name in batch.ours)
    if not decodes:
        actual, expected = (without_padding(values, batch.real) for values in (actual, expected))
    difference, relative = distance(actual, expected)
    return Compared(
        output=output,
        sizes=sizes,
        values=expected.numel(),
        difference=difference,
        relative=relative,
    )
