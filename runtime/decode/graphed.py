"""Decoding steps recorded as CUDA graphs, which launch all kernels of a step at once.

A step of a small batch launches some 200 kernels, and launching takes longer than computing.  A
CUDA graph is bound to addresses and to shapes, so sentences and lengths are rounded up to a few
sizes (a bucket), the decoding state of a bucket stays where it is, and each position of it has a
graph of its own: a block's step then runs as it is, over the positions that are filled, and no
block needs another form with a mask over all positions.  Graphs share the memory of their
intermediate values.  A position is computed without a graph at its first visit, recorded at its
second, and replayed from then on.  If recording fails, all later steps of the model are plain.

Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-graphs
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...blocks.kernels.decode_state import State
from ..codegen.generated import program_of
from .active_rows import rows_of
from .inputs import positions_of
from .stepper import ModelStepper, narrow, reorder

LENGTHS = 16
"""Lengths of inputs and outputs are rounded up to multiples of this."""
BUCKETS = 32
"""Most buckets of a model; the oldest are dropped."""
STATES = 4 * 2**30
"""Most bytes of the decoding states of a model's buckets; a larger state is not recorded."""
RECORDED = 2048
"""Most graphs of a model; further positions are computed without."""


class Recording(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Run the step once more, on the same memory."""


Record = Callable[[Callable[[], None]], Recording]
"""Records what a function launches, without computing it."""


def cuda_graph(run: Callable[[], None]) -> Recording:
    """Record what a function launches on the current CUDA device."""
    graph = torch.cuda.CUDAGraph()
    # Other threads, such as those of a server, may use the device meanwhile.
    pool: Any = _pool().id
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        run()
    return graph


@functools.cache
def _pool() -> torch.cuda.MemPool:
    """Return the memory that all graphs share: a graph reads nothing that another one left there.

    The object, unlike a handle, keeps the pool usable when the graphs of a model are gone.
    """
    return torch.cuda.MemPool()


class _Bucket:
    """The decoding state of one size, at fixed addresses, with the graphs of its positions."""

    def __init__(self, state: Any, moving: dict[str, Tensor], tokens: str) -> None:
        """Take the inputs of a step, one of which are the tokens."""
        self.state, self.moving = state, moving
        self.tokens_R1 = moving[tokens]
        self.bytes = sum(tensor.nbytes for _, tensor in _tensors(state))
        self.logits: list[Tensor] = []
        """The logits [R, 1, V] of the last step; empty before the first one."""
        self.graphs: dict[int, Recording] = {}
        self.visited: set[int] = set()
        self.moves = False
        """Whether a step replaced a tensor of the state, so that no graph can be recorded."""
        self.owner: weakref.ref[object] = weakref.ref(self)

    def is_free(self) -> bool:
        """Return whether no stepper is using the bucket."""
        owner = self.owner()
        return owner is None or owner is self


_BUCKETS: weakref.WeakKeyDictionary[nn.Module, dict[object, _Bucket]] = weakref.WeakKeyDictionary()
_ENTERING = threading.Lock()
"""Two threads may decode with one model."""


class GraphedStepper(ModelStepper):
    """A `ModelStepper` whose steps are replayed from graphs; results are the same."""

    first_buffer = None  # a graph is bound to the addresses of buffers, which must not grow

    def __init__(
        self,
        model: nn.Module,
        fixed: Mapping[str, Tensor],
        *,
        length: int,
        sentences: int | None = None,
        record: Record = cuda_graph,
        **settings: Any,
    ) -> None:
        """Begin like `ModelStepper`, with sizes rounded up to those of a bucket.

        Args:
            model: as of `ModelStepper`.
            fixed: as of `ModelStepper`.
            length: as of `ModelStepper`.
            sentences: as of `ModelStepper`.
            record: records a step.
            **settings: the others of `ModelStepper`.
        """
        real = next((value.size(0) for value in fixed.values()), sentences or 1)
        rounded = _rounded(real)
        super().__init__(
            model,
            _padded(model, fixed, rounded),
            length=-(-length // LENGTHS) * LENGTHS,
            sentences=rounded,
            **settings,
        )
        self.rows = real
        self._record, self._own = record, model
        kind = next(model.parameters()).device.type
        enabled = torch.is_autocast_enabled(kind)
        # Cached casts of weights would lie in memory that a later graph uses for something else.
        self._autocast: dict[str, Any] = {
            "device_type": kind,
            "dtype": torch.get_autocast_dtype(kind) if enabled else None,
            "enabled": enabled,
            "cache_enabled": False,
        }
        self._enter(rounded)

    def steps(self, tokens_RT: Tensor, position: int) -> Tensor:
        """Append T tokens to every row and return the logits [R, T, V] after each."""
        rows, bucket = len(tokens_RT), self._bucket
        if tokens_RT.size(1) > 1:
            return super().steps(_more(tokens_RT, len(bucket.tokens_R1)), position)[:rows]
        self._used = position + 1
        bucket.tokens_R1[:rows] = tokens_RT
        if position in bucket.graphs or self._recorded(position):
            bucket.graphs[position].replay()
        else:
            before = dict(_tensors(bucket.state))
            self._step(position)()
            after = dict(_tensors(bucket.state))
            bucket.moves |= any(after.get(name) is not tensor for name, tensor in before.items())
            bucket.visited.add(position)
        return bucket.logits[0][:rows].clone()

    def _step(self, position: int) -> Callable[[], None]:
        """Return a function that computes a step from the inputs of the bucket into its logits.

        It reads nothing else of the stepper, because its graph outlives the stepper.
        """
        bucket, model, name, autocast = self._bucket, self._model, self._output, self._autocast

        def run() -> None:
            with torch.autocast(**autocast):
                outputs = model.step(**bucket.moving, state=bucket.state, position=position)
            if bucket.logits:
                bucket.logits[0].copy_(outputs[name])
            else:
                bucket.logits.append(outputs[name].clone())

        return run

    def _recorded(self, position: int) -> bool:
        """Record a position that was visited before; return whether it can be replayed."""
        bucket, all_ = self._bucket, _BUCKETS.get(self._own, {}).values()
        if position not in bucket.visited or bucket.moves:
            return False
        if sum(len(bucket.graphs) for bucket in all_) >= RECORDED:
            return False
        try:
            bucket.graphs[position] = self._record(self._step(position))
        except (
            RuntimeError
        ) as error:  # an operation that waits for the device, or too little memory
            bucket.moves = True
            _BUCKETS.pop(self._own, None)
            self._steps.recorded(failure=f"{error}".partition("\n")[0])
            return False
        self._steps.recorded()
        return True

    def read(self, tokens_RP: Tensor, position: int = 0) -> None:
        """Append tokens to every row at once, without computing logits."""
        super().read(_more(tokens_RP, len(self._bucket.tokens_R1)), position)

    def reorder(self, rows_R: Tensor) -> None:
        """Make each row continue from another row of its sentence."""
        padding_rows = torch.arange(len(rows_R), len(self._bucket.tokens_R1), device=rows_R.device)
        reorder(self._state, torch.cat((rows_R, padding_rows)), self._used)

    def narrow(self, sentences_N: Tensor) -> None:
        """Keep only these sentences, in this order, in the bucket of their number."""
        rounded = _rounded(len(sentences_N))
        padded_N = _more(sentences_N, rounded)
        rows_R = rows_of(padded_N, self.beams)
        self._state = _apart(self._state)
        narrow(self._state, padded_N, rows_R, self._used)
        self._masks = {name: mask[rows_R] for name, mask in self._masks.items()}
        self.rows = len(sentences_N)
        self._enter(rounded)

    def _enter(self, sentences: int) -> None:
        """Move the state into the bucket of its size, if no other stepper is using it."""
        rows, parameters = sentences * self.beams, list(self._own.parameters())
        shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in _tensors(self._state))
        # Graphs read the weights where they were when they were recorded.
        weights = hash(tuple(parameter.data_ptr() for parameter in parameters))
        key = (shapes, rows, self._length, weights, self._autocast["dtype"], self._moving)
        tokens_R1 = torch.zeros(rows, 1, dtype=torch.long, device=parameters[0].device)
        new = _Bucket(self._state, {self._moving: tokens_R1, **self._masks}, self._moving)
        with _ENTERING:
            bucket = _taken(_BUCKETS.setdefault(self._own, {}), key, new)
            bucket.owner = weakref.ref(self)
        if bucket is not new:
            tensors = dict(_tensors(self._state))
            for name, tensor in _tensors(bucket.state):
                # A step may have added a buffer, which it fills from the start.
                tensor.copy_(tensors[name]) if name in tensors else tensor.zero_()
        self._bucket, self._state = bucket, bucket.state


def _taken(buckets: dict[object, _Bucket], key: object, new: _Bucket) -> _Bucket:
    """Return the bucket of a key if it is free; otherwise the new one, kept if there is none."""
    bucket = buckets.get(key)
    if bucket is not None and bucket.is_free():
        return bucket
    new.moves = bucket is not None or new.bytes > STATES  # it is used only once
    if not new.moves:
        total = new.bytes + sum(other.bytes for other in buckets.values())
        while len(buckets) >= BUCKETS or total > STATES:
            total -= buckets.pop(next(iter(buckets))).bytes
        buckets[key] = new
    return new


def _rounded(sentences: int) -> int:
    """Return the next power of two."""
    return 1 << max(0, sentences - 1).bit_length()


def _more(values_R: Tensor, rows: int) -> Tensor:
    """Repeat the first row until there are `rows`."""
    missing = rows - len(values_R)
    return torch.cat((values_R, values_R[:1].expand(missing, *values_R.shape[1:])))


def _padded(model: nn.Module, fixed: Mapping[str, Tensor], sentences: int) -> dict[str, Tensor]:
    """Return inputs with more rows, and with more positions on each axis that has a mask."""
    inputs = program_of(model).graph.inputs
    masked = {inputs[name].axes[-1] for name in fixed if inputs[name].kind == "mask"}
    limit = positions_of(model)
    padded = {}
    for name, value in fixed.items():
        wider = value
        for dim, axis in enumerate(inputs[name].axes):
            if axis in masked:
                more = -value.size(dim) % LENGTHS
                if limit is not None:
                    more = min(more, max(0, limit - value.size(dim)))
                shape = (*wider.shape[:dim], more, *wider.shape[dim + 1 :])
                wider = torch.cat((wider, wider.new_zeros(shape)), dim)
        padded[name] = _more(wider, sentences)
    return padded


def _tensors(state: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a decoding state by path."""
    if isinstance(state, Tensor):
        yield path, state
    elif isinstance(state, State):
        for name, part in zip(state._fields, state, strict=True):
            yield from _tensors(part, f"{path}/{name}")
    elif isinstance(state, Mapping):
        for name, inner in state.items():
            yield from _tensors(inner, f"{path}/{name}")
    elif isinstance(state, list | tuple):
        for index, inner in enumerate(state):
            yield from _tensors(inner, f"{path}/{index}")


def _apart(state: Any) -> Any:
    """Return a decoding state with the same tensors in other containers."""
    if isinstance(state, State):
        return State(*(dict(part) for part in state))
    if isinstance(state, Mapping):
        return {name: _apart(inner) for name, inner in state.items()}
    if isinstance(state, list | tuple):
        return [_apart(inner) for inner in state]
    return state
