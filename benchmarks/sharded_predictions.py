"""Measure memory and time of predictions with weights that FSDP shards over processes.

    torchrun --standalone --nproc-per-node 2 benchmarks/sharded_predictions.py --layers 12

Each process decodes its own rows with one model in two ways: with a complete copy of the weights in
each process, and as validations do, with layers that are gathered when they run.  Printed are, for
each process, the bytes of its shards, of a complete model and of its largest layer, the growth of
its resident memory at its peak, the seconds, and whether the outputs are the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import weft
from torch import nn
from weft.graphs.passes.parallel import layers_of, parallelize
from weft.runtime.checkpoint.saving import weights_of
from weft.runtime.codegen.build import build, build_empty
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.settings import BeamSearch
from weft.runtime.spec.check import graph_of
from weft.runtime.train.distributed.parallel_settings import ParallelSettings
from weft.runtime.train.distributed.sharding import full_tensors, local_shard
from weft.runtime.train.distributed.stopping import StopRequest
from weft.runtime.train.distributed.world import World, world
from weft.runtime.train.engine import Engine

TOKENS = SpecialTokens(1, 2, 0)
MB = 1e6


def resident(key: str) -> float:
    """Return a line of the memory of this process in MB: VmRSS, or VmHWM for the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith(key))


def measured(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return a result, the growth of the resident memory at its peak in MB, and the seconds."""
    Path("/proc/self/clear_refs").write_text("5")
    before, began = resident("VmRSS"), time.perf_counter()
    result = work()
    return result, resident("VmHWM") - before, time.perf_counter() - began


def size(model: nn.Module, path: str = "") -> float:
    """Return the MB of all weights of a part of a model."""
    return sum(p.numel() * 4 for p in model.get_submodule(path).parameters()) / MB


def decoded(model: nn.Module, rank: int, tokens: int) -> list[Any]:
    """Return the outputs for four rows of a process."""
    rows = [Request([3 + (rank + row + at) % 90 for at in range(8)] + [2]) for row in range(4)]
    search = BeamSearch(beam=2, max_extra=tokens)
    with torch.inference_mode():
        return [[h.tokens for h in row] for row in decode_ids([model], rows, TOKENS, search)]


def report(process: World, options: argparse.Namespace) -> list[str]:
    """Return the lines of a process."""
    params = {"d_model": options.width, "d_ff": 4 * options.width, "layers": options.layers}
    loaded = graph_of(weft.load("transformer-tiny", **params, vocab=100))
    graph = parallelize(loaded, data="fsdp", tensor=1, processes=process.size)
    losses: Any = nullcontext()
    engine = Engine(build(graph, seed=1), losses, graph, process)
    complete_size = size(engine.model)
    largest = max(size(engine.model, path) for path in layers_of(graph))
    engine.spread()
    shards = sum(local_shard(p).numel() * 4 for p in engine.model.parameters()) / MB

    def complete() -> list[Any]:
        weights = full_tensors(weights_of(engine.model, graph), gather=True)
        model = build_empty(graph).eval()
        model.load_state_dict(weights, strict=False)
        model.tie()  # type: ignore[operator]
        return decoded(model, process.rank, options.tokens)

    def late() -> list[Any]:
        with engine.evaluated() as evaluated, evaluated.answering(StopRequest()) as model:
            return decoded(model, process.rank, options.tokens)

    sizes = f"{shards:.0f} MB, complete {complete_size:.0f} MB, largest layer {largest:.1f} MB"
    lines = [f"process {process.rank}: shards {sizes}"]
    late()  # what the first call allocates for good
    outputs = []
    for name, work in (("layers", late), ("complete copy", complete)):
        process.wait()
        output, grown, seconds = measured(work)
        outputs.append(output)
        lines.append(f"  {name:14} peak +{grown:.0f} MB, {seconds:.1f} s")
    lines.append(f"  outputs {'equal' if outputs[0] == outputs[1] else 'DIFFER'}")
    return lines


def main() -> None:
    """Print the lines of all processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=12, help="layers of each stack")
    parser.add_argument("--width", type=int, default=256, help="d_model")
    parser.add_argument("--tokens", type=int, default=12, help="tokens beyond those of a source")
    options = parser.parse_args()
    with world(torch.device("cpu"), ParallelSettings(data="fsdp")) as process:
        for lines in process.gathered(report(process, options)):
            print("\n".join(lines), flush=True)
        dist.barrier()


if __name__ == "__main__":
    main()
