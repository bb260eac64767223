"""The losses of an objective, as the training loop uses them.

Each loss is a sum over its items.  The sum of an update is divided by the number of its items over
all micro-batches and processes, which is known before the first backward pass; so the gradient is
that of the mean, however the items are distributed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...blocks.kernels.decode_state import Capacity, State
from ...blocks.kernels.noise import seed_draws
from ...graphs.ir.graph import Graph
from ...graphs.ir.losses import origin
from ...graphs.passes.objective import counted_inputs, nll_of, reported_losses, scores_of
from ...specs.findings import InputError
from ..checkpoint.curve import Values, values_at
from ..codegen.decode import KEPT
from .distributed.sampler import seed_of

if TYPE_CHECKING:
    from ..data.table import Batch
    from .distributed.sampler import MicroBatches
    from .distributed.world import World


@dataclass(slots=True)
class ObjectiveLosses:
    """The losses of an objective."""

    graph: Graph
    auxiliary: float
    """Weight of losses of models that the objective does not wire."""
    values: Values = field(default_factory=dict)
    """Inputs that no column fills."""
    updates: int = 1
    """Number of updates of the run, over which these values change."""
    update: int | None = None
    """The update whose values these inputs have; None for those at the end."""
    scores: tuple[str, ...] = field(init=False)
    """Outputs that are reported but not trained."""
    nll: str | None = field(init=False)
    """The score that is reported as nll: `nll`, or the only one."""
    _names: dict[str, str] = field(init=False)
    """Losses, each with the name under which it is reported."""
    _beside: dict[str, str] = field(init=False)
    """Score to the loss whose items it counts."""
    _unwired: list[str] = field(init=False)
    _counted: dict[str, dict[str, tuple[str, bool]]] = field(init=False)
    """Inputs of models of whose positions the data know how many are not padding."""
    _ratios: dict[str, float | Tensor] = field(default_factory=dict, init=False)
    """Loss to the number of the first loss's items for each of its own, in this update."""
    memory: Memory | None = field(init=False)
    """State that training carries between segments; None if the objective has no segments."""
    _first: dict[bytes, Tensor] = field(default_factory=dict, init=False)
    """Rows of each micro-batch to the number of items of the first loss."""

    def __post_init__(self) -> None:
        """Read from the graph what the losses and scores of every batch have in common."""
        self.scores = scores_of(self.graph)
        self.nll = nll_of(self.graph)
        self._names = reported_losses(self.graph)
        self._beside = {name: _loss_beside(self.graph, name) for name in self.scores}
        self._counted = counted_inputs(self.graph)
        self._unwired = self.graph.root.unwired_losses()
        self.memory = None if self.graph.segments is None else Memory(self.graph)

    @property
    def losses(self) -> tuple[str, ...]:
        """Outputs that are losses, in order."""
        return tuple(self.graph.losses)

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the values in `LossSums.parts`."""
        several = self._names.values() if len(self.losses) > 1 else ()
        return (*several, *(name for name in self.scores if name != self.nll))

    @property
    def has_nll(self) -> bool:
        """Whether a score is reported as nll."""
        return self.nll is not None

    @property
    def has_auxiliary(self) -> bool:
        """Whether a model has losses that the objective does not wire."""
        return bool(self._unwired)

    def total(
        self,
        model: nn.Module,
        micro_batches: MicroBatches,
        world: World,
        seeds: tuple[int, int],
        device: torch.device,
    ) -> float | Tensor:
        """Return the number of items of the first loss in an update, over all processes.

        It is 1 if there are none: the sum of the loss is 0 then, and so are its gradients.

        Args:
            model: the module of the objective.
            micro_batches: the micro-batches of this process, on the device.
            world: the processes.
            seeds: seed of the run, and number of the update: noise is drawn as in `loss`.
            device: device of the model.
        """
        summed = torch.zeros(len(self.losses), dtype=torch.float64, device=device)
        self._first.clear()
        self.update = seeds[1]
        for which, batch in micro_batches.batches:
            seed_draws(seed_of(*seeds, which), device)
            weights = self.weights(model, batch)
            self._first[batch.rows.tobytes()] = weights[self.losses[0]]
            summed += torch.stack([weights[name].double() for name in self.losses])
        world.summed(summed)
        counts: Sequence[float | Tensor] = summed.unbind()
        if device.type == "cpu":
            counts = summed.tolist()
        first = counts[0]
        first = torch.where(first > 0, first, 1.0) if isinstance(first, Tensor) else first or 1.0
        self._set_ratios(counts, first)
        return first

    def _set_ratios(self, counts: Sequence[float | Tensor], first: float | Tensor) -> None:
        """Set the factor of each loss that makes the quotient of `total` its own mean."""
        for name, count in zip(self.losses, counts, strict=True):
            if name == self.losses[0]:
                self._ratios[name] = 1.0
            elif isinstance(count, Tensor):
                ratio = torch.where(count > 0, first / count.clamp(min=1), 0.0)
                self._ratios[name] = ratio.float()
            else:
                self._ratios[name] = first / count if count else 0.0

    @torch.no_grad()
    def weights(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Return the number of items of each loss in a batch."""
        inner: Any = getattr(model, "module", model)
        inputs = self._inputs(batch)
        by_loss: dict[str, Tensor] = inner.weights(**inputs) if hasattr(inner, "weights") else {}
        unit = torch.ones((), device=next(iter(inputs.values())).device)
        first = next(iter(by_loss.values()), unit)
        return {name: by_loss.get(name, first) for name in self.losses}

    @property
    def carried(self) -> Mapping[str, Tensor]:
        """State between segments of documents, by name; empty without segments."""
        return {} if self.memory is None else self.memory.tensors

    def carry(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue with the `carried` state of a checkpoint, on a device."""
        if self.memory is not None:
            self.memory.load(tensors, device)

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the weighted sum of the losses of a batch, after `total` of its update."""
        outputs = self.outputs(model, batch, self.memory)
        first = self._first[batch.rows.tobytes()]
        loss, *others = (
            outputs[name].float().sum() * (self.graph.losses[name] * self._ratios[name])
            for name in self.losses
        )
        for other in others:
            loss = loss + other
        unwired = [outputs[name].float().sum() for name in self._unwired]
        auxiliary = None
        if unwired:
            total = torch.stack(unwired).sum() * first
            loss, auxiliary = loss + self.auxiliary * total, total.detach()
        parts = {
            name: outputs[name].float().detach().sum() * self._ratios[self._beside.get(name, name)]
            for name in (*self.losses, *self.scores)
        }
        nll = parts[self.nll or self.losses[0]]
        parts = {self._names.get(name, name): value for name, value in parts.items()}
        parts = {name: parts[name] for name in self.reported}
        return LossSums(loss=loss, nll=nll, tokens=first, auxiliary=auxiliary, parts=parts)

    def outputs(
        self, model: nn.Module, batch: Batch, memory: Memory | None = None
    ) -> dict[str, Tensor]:
        """Run the objective on a batch, which continues what is in a memory, if there is one.

        In training, unpadded models get the number of positions that are not padding, so that
        nothing has to be read from an accelerator.
        """
        inner: Any = getattr(model, "module", model)
        inputs = self._inputs(batch)
        for node, counted in self._counted.items() if inner.training else ():
            batched = getattr(inner.get_submodule(node), "batched", None)
            if batched is not None:
                batched.expect(_counts(batch, counted))
        values: dict[str, Tensor]
        values = model(**inputs) if memory is None else memory.run(inner, inputs, batch)
        return values

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return the inputs of the objective: columns of a batch, and values of the update."""
        columns = {n: batch.inputs[n] for n in self.graph.inputs if n not in self.values}
        device = next(iter(columns.values())).device
        values = values_at(self.values, self.update, self.updates)
        return columns | {n: torch.tensor(v, device=device) for n, v in values.items()}

    def measured(
        self, model: nn.Module, batches: Iterable[Batch], device: torch.device
    ) -> dict[str, float]:
        """Return the mean of every loss and score over batches; `loss` is their weighted sum."""
        return self.averaged(*self.summed(model, ((batch, 1.0) for batch in batches), device))

    @torch.no_grad()
    def summed(
        self, model: nn.Module, batches: Iterable[tuple[Batch, float]], device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of every loss and score over batches, and the items of every loss.

        Args:
            model: module of the objective.
            batches: batches with their weights in the sums.
            device: device of the model.
        """
        names = (*self.losses, *self.scores)
        sums = torch.zeros(len(names), dtype=torch.float64, device=device)
        counts = torch.zeros(len(self.losses), dtype=torch.float64, device=device)
        memory = None if self.memory is None else Memory(self.graph)
        for batch, weight in batches:
            moved = batch.to(device)
            outputs = self.outputs(model, moved, memory)
            weights = self.weights(model, moved)
            if weight:
                sums += torch.stack([outputs[name].double().sum() for name in names]) * weight
                counts += torch.stack([weights[n].double() for n in self.losses]) * weight
        return sums, counts

    def averaged(self, sums: Tensor, counts: Tensor) -> dict[str, float]:
        """Return the means of sums over batches, which may be those of several calls, added up."""
        names = (*self.losses, *self.scores)
        by_loss = dict(zip(self.losses, counts.tolist(), strict=True))
        averages = {}
        for name, value in zip(names, sums.tolist(), strict=True):
            averages[name] = value / max(by_loss[self._beside.get(name, name)], 1.0)
        total = sum(self.graph.losses[name] * averages[name] for name in self.losses)
        values = {self._names.get(name, name): value for name, value in averages.items()}
        if self.nll:
            values["nll"] = averages[self.nll]
        return {**values, "loss": total}


def _loss_beside(graph: Graph, score: str) -> str:
    """Return the loss whose items a score counts: that of the same node, or the first."""
    path = origin(graph.root, graph.root.outputs[score])

    def shared(loss: str) -> int:
        pairs = zip(path, origin(graph.root, graph.root.outputs[loss]), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    return max(graph.losses, key=shared)


def _counts(batch: Batch, counted: Mapping[str, tuple[str, bool]]) -> dict[str, int]:
    """Return the numbers of positions that are not padding, by the inputs of a model."""
    counts = {}
    for port, (name, shifted) in counted.items():
        batch_counts = batch.shifted if shifted else batch.tokens
        if name in batch_counts:
            counts[port] = batch_counts[name]
    return counts


_ROWS, _LENGTH = "rows", "length"
"""Names of the rows of the last batch, and of the number of positions kept."""
_MASK = "mask"


class Memory:
    """State of an objective in segments, between batches."""

    def __init__(self, graph: Graph) -> None:
        """Start without a memory.

        Args:
            graph: graph of an objective with `segments`.
        """
        if graph.segments is None:
            msg = f"'{graph.name}' has no segments"
            raise ValueError(msg)
        self._longest, axis = graph.segments.memory, graph.segments.axis
        self._moving = {
            name: type_.axes.index(axis)
            for name, type_ in graph.inputs.items()
            if axis in type_.axes
        }
        self.tensors: dict[str, Tensor] = {}
        """What is carried, as a checkpoint stores it; empty before the first batch."""

    def run(self, module: nn.Module, inputs: Mapping[str, Tensor], batch: Batch) -> Any:
        """Compute a batch of segments, and keep the state at its end.

        A row that is the next segment of a row of the batch before reads its memory; other rows
        start without one.

        Args:
            module: module of the objective.
            inputs: its inputs.
            batch: the batch that they are from.

        Returns:
            The outputs of the objective, by name.
        """
        moving = {name: inputs[name] for name in self._moving}
        name, value = next(iter(moving.items()))
        length, device = value.size(self._moving[name]), value.device
        before_B = self._before(batch).to(device)
        cached_length = int(self.tensors[_LENGTH]) if bool((before_B >= 0).any()) else 0
        capacity = Capacity(
            len(before_B), 1, cached_length + length, _dtype(module, device), device
        )
        fixed = {name: value for name, value in inputs.items() if name not in moving}
        state = module.begin(capacity, **fixed)  # type: ignore[operator]
        if bool((before_B >= 0).any()):
            for path, part in _states(state):
                self._fill(path, part, before_B, cached_length)
        outputs = module.step(**moving, state=state, position=cached_length)  # type: ignore[operator]
        self._keep(state, batch, cached_length + length)
        return outputs

    def load(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue with the tensors of a checkpoint."""
        self.tensors = {name: tensor.to(device) for name, tensor in tensors.items()}

    def _before(self, batch: Batch) -> Tensor:
        """Return the row of the last batch that each row continues, [B]; -1 for none.

        Raises:
            InputError: the data do not say where documents begin.
        """
        if batch.first is None:
            raise InputError(
                "the objective has 'segments', but no column cuts its texts into segments",
                location="/data/columns",
                help="set 'segment' of the text column to the number of tokens of a row",
            )
        rows, first = batch.rows.tolist(), batch.first.tolist()
        positions = {
            row: at for at, row in enumerate(self.tensors.get(_ROWS, torch.empty(0)).tolist())
        }
        return torch.tensor(
            [
                -1 if new else positions.get(row - 1, -1)
                for row, new in zip(rows, first, strict=True)
            ]
        )

    def _fill(self, path: str, state: State, before_B: Tensor, cached_length: int) -> None:
        """Write the memory of the rows into a new state."""
        goes_on_B = before_B >= 0
        at_B = before_B.clamp(min=0)
        for name, buffer in state.appended.items():
            old = self.tensors[f"{path}/{name}"].index_select(0, at_B)
            buffer.narrow(-2, 0, cached_length).copy_(old)
        if state.appended:
            buffer = next(iter(state.appended.values()))
            mask = torch.ones(
                (len(before_B), buffer.size(-2), 1), dtype=torch.bool, device=buffer.device
            )
            if (stored := self.tensors.get(f"{path}/{_MASK}")) is not None:
                mask[:, :cached_length] = stored.index_select(0, at_B)
            mask[:, :cached_length] &= goes_on_B[:, None, None]
            state.appended[_MASK] = mask
        for name, fresh in state.carried.items():
            old = self.tensors[f"{path}/{name}"].index_select(0, at_B)
            some = goes_on_B.view(-1, *[1] * (fresh.dim() - 1))
            fresh.copy_(torch.where(some, old, fresh))

    def _keep(self, state: Any, batch: Batch, length: int) -> None:
        """Keep the last positions of a state after `length` positions."""
        cached_length = min(length, self._longest)
        self.tensors = {
            _ROWS: torch.as_tensor(batch.rows, dtype=torch.int64).clone(),
            _LENGTH: torch.tensor(cached_length),
        }
        for path, part in _states(state):
            for name, buffer in part.appended.items():
                last = buffer.detach().narrow(-2, length - cached_length, cached_length)
                self.tensors[f"{path}/{name}"] = last.clone()
            for name, tensor in part.carried.items():
                self.tensors[f"{path}/{name}"] = tensor.detach().clone()


def _states(state: Any, path: str = "") -> Iterator[tuple[str, State]]:
    """Yield the states of blocks inside a decoding state, with their paths."""
    if isinstance(state, State):
        yield path, state
    elif isinstance(state, Mapping):
        for name, inner in state.items():
            if not name.startswith(KEPT):
                yield from _states(inner, f"{path}.{name}" if path else name)
    elif isinstance(state, list | tuple):
        for number, inner in enumerate(state):
            yield from _states(inner, f"{path}.{number}")


def _dtype(module: nn.Module, device: torch.device) -> torch.dtype:
    """Return the dtype of the state: that of autocast, or of the weights."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return next(module.parameters()).dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Losses of one batch, summed over its items; scalars on the device of the model."""

    loss: Tensor
    """Weighted sum of the losses, in float32; call `backward` on this one."""
    nll: Tensor
    """The score that is reported as nll, such as the negative log-likelihood in nats; detached.
    Without one, the first loss."""
    tokens: Tensor
    """Number of items of the first loss."""
    auxiliary: Tensor | None = None
    """Losses of the model that the objective does not wire, unweighted, times `tokens`, detached;
    None if there are none.  `loss` includes them, weighted."""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Further values to report by name, times `tokens`, detached."""
