"""The interface that transformers expects of a model: its Auto class and names of inputs."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .....graphs.ir.traverse import root_moving, written_ids
from .....plugin import Checkpoint, Graph, classes_by_column

Head = Literal[
    "",
    "CausalLM",
    "Seq2SeqLM",
    "MaskedLM",
    "SequenceClassification",
    "TokenClassification",
]
"""What `AutoModelFor` is called for; empty for a model that only `AutoModel` opens."""

LOGITS = "logits"
"""Output of a model with a head."""
_SEQUENCE = 2
"""Axes of ids of one sequence per row."""
MASK = "mask"
"""Kind of an input that is true at positions that may be attended to."""
TOKEN_TYPES = "token_types"
"""Input of the type of each token, 0 if it is left out."""
_ARGUMENTS = frozenset(
    """
    self config labels kwargs use_cache past_key_values encoder_outputs num_items_in_batch outputs
    loss logits input_ids attention_mask token_type_ids decoder_input_ids decoder_attention_mask
    """.split()  # noqa: SIM905 - one name per line would fill the page
)
"""Names that an input without a role cannot have."""
_FIELDS = frozenset({"loss", *dir(dict)})
"""Names that an output cannot have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """How transformers calls a model."""

    head: Head
    arguments: Mapping[str, str]
    """Input of the graph to the argument of `forward`; the main one first."""
    outputs: Mapping[str, str]
    """Output of the graph to its field in what `forward` returns."""
    moving: frozenset[str] = frozenset()
    """Inputs with the step axis, of models that generate."""
    auxiliary: tuple[str, ...] = ()
    """Outputs that training adds to its loss."""
    classes: tuple[str, ...] = ()
    """Names of the classes, if the head classifies and they are known."""
    numbers: bool = False
    """Whether the head predicts numbers, not classes."""
    masks: frozenset[str] = frozenset()
    """Inputs that are true everywhere if they are left out."""

    @property
    def main(self) -> str:
        """The input that `generate` and tokenizers fill."""
        return next(iter(self.arguments))

    @property
    def generates(self) -> bool:
        """Whether `generate` runs the model."""
        return self.head in ("CausalLM", "Seq2SeqLM")


def interface_of(checkpoint: Checkpoint) -> Interface:
    """Return the interface of a model, whose inputs and nodes may have any names.

    Inputs without a role keep their names.
    """
    graph = checkpoint.graph
    auxiliary = tuple(name for name, t in graph.root.gives().items() if t.kind == "loss")
    written = written_ids(graph)
    if written is not None and LOGITS in graph.outputs and _only_masks_beside(graph, written):
        return _generating(graph, written, auxiliary)
    main = _main(graph, graph.inputs)
    names = {main: "input_ids", _mask_of(graph, main): "attention_mask"} if main else {}
    names |= {TOKEN_TYPES: "token_type_ids"} if main and TOKEN_TYPES in graph.inputs else {}
    head, classes, numbers = _head(checkpoint, main)
    outputs = {name: _free(name, _FIELDS) for name, t in graph.outputs.items() if t.kind != "loss"}
    return Interface(
        head=head,
        arguments=_arguments(graph, names),
        outputs=outputs,
        auxiliary=auxiliary,
        classes=classes,
        numbers=numbers,
        masks=frozenset(name for name in names if name and graph.inputs[name].kind == MASK),
    )


def _generating(graph: Graph, written: str, auxiliary: tuple[str, ...]) -> Interface:
    moving = root_moving(graph)
    fixed = [name for name in graph.inputs if name not in moving]
    moving_masks = [name for name in moving if graph.inputs[name].kind == MASK]
    names: dict[str | None, str]
    if not fixed:
        names = {written: "input_ids", **dict.fromkeys(moving_masks, "attention_mask")}
        head: Head = "CausalLM"
    else:
        main = _main(graph, fixed) or _main_vectors(graph, fixed)
        role = "input_ids" if graph.inputs[main].kind == "ids" else _free(main)
        names = {main: role, _mask_of(graph, main): "attention_mask", written: "decoder_input_ids"}
        names |= dict.fromkeys(moving_masks, "decoder_attention_mask")
        head = "Seq2SeqLM"
    masks = (name for name in names if name and graph.inputs[name].kind == MASK)
    return Interface(
        head=head,
        arguments=_arguments(graph, names),
        outputs={LOGITS: LOGITS},
        moving=moving,
        auxiliary=auxiliary,
        masks=frozenset(masks),
    )


def _only_masks_beside(graph: Graph, written: str) -> bool:
    """Return whether all other inputs with the step axis are at most one mask of the ids."""
    others = root_moving(graph) - {written}
    axes = graph.inputs[written].axes
    return len(others) <= 1 and all(
        graph.inputs[name].kind == MASK and graph.inputs[name].axes == axes for name in others
    )


def _main(graph: Graph, names: Any) -> str | None:
    """Return the ids of one sequence per row with the most different values, or None.

    Of several, it is `source`, or the first.
    """
    ids = [name for name in names if graph.inputs[name].kind == "ids"]
    ids = [name for name in ids if len(graph.inputs[name].axes) == _SEQUENCE]
    sizes = {name: int(graph.inputs[name].size or 0) for name in ids}
    largest = [name for name in ids if sizes[name] == max(sizes.values())]
    return "source" if "source" in largest else next(iter(largest), None)


def _main_vectors(graph: Graph, names: list[str]) -> str:
    vectors = [name for name in names if graph.inputs[name].kind != MASK]
    return (vectors or names)[0]


def _mask_of(graph: Graph, main: str) -> str | None:
    """Return the mask of an input: along its first two axes, with a name that ends with `mask`."""
    axes = graph.inputs[main].axes[:2]
    masks = [n for n, t in graph.inputs.items() if t.kind == MASK and t.axes == axes]
    called = [name for name in masks if name.endswith(MASK)]
    return called[0] if len(called) == 1 else None


def _arguments(graph: Graph, names: Mapping[str | None, str]) -> dict[str, str]:
    first = {name: role for name, role in names.items() if name}
    return first | {name: _free(name) for name in graph.inputs if name not in first}


def _free(name: str, taken: frozenset[str] = _ARGUMENTS) -> str:
    """Return a name that has no other meaning."""
    return f"{name}_" if name in taken or keyword.iskeyword(name) else name


def _head(checkpoint: Checkpoint, main: str | None) -> tuple[Head, tuple[str, ...], bool]:
    """Return the head of a model that does not generate, its classes, and whether it has none.

    Without a run, an output `logits` is that of a head.
    """
    graph = checkpoint.graph
    outputs = {name: t for name, t in graph.outputs.items() if t.kind == "f"}
    if main is None or len(outputs) != 1:
        return "", (), False
    [(name, type_)] = outputs.items()
    answers = checkpoint.run.get("answers")
    column = checkpoint.run.get("data", {}).get("columns", {}).get(answers, {})
    classes = classes_by_column(checkpoint).get(str(answers), ())
    classes = classes if len(classes) == type_.axes[-1] else ()
    if name != LOGITS and not classes:
        return "", (), False
    main_type = graph.inputs[main]
    match type_.axes:
        case (batch, _) if batch == main_type.axes[0]:
            return "SequenceClassification", classes, column.get("type") == "number"
        case (batch, time, size) if (batch, time) == main_type.axes:
            head: Head = "MaskedLM" if size == main_type.size else "TokenClassification"
            return head, classes, False
    return "", (), False
