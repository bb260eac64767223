"""A model whose layers are gathered when they run answers as the model itself does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
import weft
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.parallel import parallelize
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.settings import BeamSearch
from weft.runtime.spec.check import graph_of
from weft.runtime.train.distributed.late_weights import LateModel
from weft.runtime.train.distributed.stopping import Interrupted, StopRequest
from weft.runtime.train.distributed.world import World
from weft.runtime.train.engine import Engine
from weft.runtime.train.losses import LossSums

TOKENS = SpecialTokens(1, 2, 0)
ROWS = ([Request([5, 6, 7, 8, 2])], [Request([9, 2]), Request([4, 3, 2])])
"""Sources of two processes; their outputs differ in length."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Return an encoder-decoder with two layers in each stack, and tied embeddings."""
    return graph_of(weft.load("transformer-tiny", d_model=8, heads=2, d_ff=8, layers=2, vocab=11))


@pytest.fixture(scope="module")
def model(graph: Graph) -> nn.Module:
    """Return its module with weights."""
    return weft.build(graph, seed=3).eval()


class Team:
    """The collectives of threads that stand for processes."""

    device = torch.device("cpu")

    def __init__(self, size: int) -> None:
        """Begin without a value."""
        self._barrier, self._values = threading.Barrier(size), dict[int, tuple[float, ...]]()

    def largest(self, *values: float) -> list[float]:
        """Return the maximum of each number over all threads."""
        self._values[threading.get_ident()] = values
        self._barrier.wait(60)
        maxima = [max(column) for column in zip(*self._values.values(), strict=True)]
        self._barrier.wait(60)
        return maxima


def decoded(model: nn.Module, rows: Sequence[Request]) -> list[tuple[Sequence[int], float]]:
    """Return the tokens and the score of the best output for each row."""
    hypotheses = decode_ids([model], rows, TOKENS, BeamSearch(beam=2, max_extra=4 * len(rows)))
    return [(best.tokens, best.score) for best, *_ in hypotheses]


@pytest.mark.integration
def test_outputs_have_the_same_bits(graph: Graph, model: nn.Module) -> None:
    """Of a forward pass and of a beam search, which runs the steps of layers."""
    late = LateModel(model, graph, World())
    inputs: dict[str, Tensor] = weft.example_inputs(graph)

    with torch.inference_mode(), late.running(StopRequest()):
        assert late.model(**inputs)["logits"].equal(model(**inputs)["logits"])
        assert decoded(late.model, ROWS[1]) == decoded(model, ROWS[1])


@pytest.mark.integration
def test_only_the_layer_that_runs_has_weights(graph: Graph, model: nn.Module) -> None:
    """Counted in numbers of weights when each layer ends, beside those outside of layers."""
    late, sizes = LateModel(model, graph, World()), list[int]()
    inputs: dict[str, Tensor] = weft.example_inputs(graph)
    layer = sum(weight.numel() for weight in model.get_submodule("decoder.0").parameters())
    table = model.get_parameter("source_embedding.weight").numel()

    def count(*_: Any) -> None:
        sizes.append(sum(t.numel() for part in late._values.values() for t in part.values()))

    for at in ("encoder.0", "decoder.0", "decoder.1"):
        late.model.get_submodule(at).register_forward_hook(count)
    with torch.inference_mode(), late.running(StopRequest()):
        late.model(**inputs)
    count()

    assert sizes[0] < sizes[1] == sizes[2] == layer + table
    assert sizes[3] == 0


def in_threads(model: nn.Module, graph: Graph, work: Callable[[LateModel, int], Any]) -> list[Any]:
    """Return what two threads that stand for processes return."""
    team: Any = Team(2)
    with ThreadPoolExecutor(2) as pool:
        futures = [
            pool.submit(lambda rank: work(LateModel(model, graph, team), rank), rank)
            for rank in range(2)
        ]
        return [future.result(60) for future in futures]


@pytest.mark.integration
def test_each_process_answers_its_own_rows(graph: Graph, model: nn.Module) -> None:
    """One has no rows left, and another runs more steps."""

    def work(late: LateModel, rank: int) -> list[Any]:
        with late.running(StopRequest()):
            return [decoded(late.model, ROWS[rank]) for _ in range(rank + 1)]

    first, second = in_threads(model, graph, work)

    assert first == [decoded(model, ROWS[0])]
    assert second == [decoded(model, ROWS[1])] * 2


@pytest.mark.integration
def test_a_request_to_one_process_ends_the_answers_of_all(graph: Graph, model: nn.Module) -> None:
    """Also of one that has answered its rows, and waits for the others."""

    def work(late: LateModel, rank: int) -> str:
        stop = StopRequest()
        try:
            with late.running(stop):
                stop.signal = 15 * rank
                if rank:
                    decoded(late.model, ROWS[rank])
        except Interrupted:
            return "interrupted"
        return "answered"

    assert in_threads(model, graph, work) == ["interrupted"] * 2


class SumOfLogits:
    """Losses that stand for those of an objective."""

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> LossSums:
        """Return the sum of all logits."""
        total = model(**batch)["logits"].sum()
        return LossSums(loss=total, nll=total.detach(), tokens=torch.ones(()))


@pytest.fixture
def sharded(graph: Graph) -> Iterator[Engine]:
    """Return a copy of the model that FSDP shards over the one process of a group."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "tensor"))
        spread = parallelize(graph, data="fsdp", tensor=1, processes=2)
        copy = weft.build(spread, seed=3)
        losses: Any = SumOfLogits()
        engine = Engine(copy, losses, spread, World(mesh=mesh))
        assert engine.spread()
        yield engine
    finally:
        dist.destroy_process_group()


@pytest.mark.integration
def test_shards_are_validated_before_the_first_update_and_then_train(
    sharded: Engine, graph: Graph, model: nn.Module
) -> None:
    """A resumed run begins with a validation that a signal put off; FSDP has run no update yet."""
    inputs: dict[str, Tensor] = weft.example_inputs(graph)

    with sharded.evaluated() as evaluated:
        with torch.no_grad():
            logits = evaluated.model(**inputs)["logits"]
        with evaluated.answering(StopRequest()) as late:
            outputs = decoded(late, ROWS[1])
    sharded.loss(inputs).loss.backward()

    assert torch.equal(logits, model(**inputs)["logits"])
    assert outputs == decoded(model, ROWS[1])
    assert all(weight.grad is not None for weight in sharded.model.parameters())
