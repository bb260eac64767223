"""Measure attention that is written out from nodes against `attention@1`, on one thread.

    python benchmarks/written_attention.py              # minutes
    python benchmarks/written_attention.py --runs 3     # a rough figure

Both models have the same weights, and run in one process, alternating.  A row of the table is the
median of the ratios of neighboring runs, with their quartiles; the time is that of the processor,
so that other programs on the machine count as little as possible.  `apart` is the model whose
nodes are computed one by one, as the pass `merge` leaves them if it is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.kernels.processor import processor_name
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.specs.load import loaded

Run = Callable[[Any], float]


def node(use: str, params: dict[str, Any], **wires: str) -> dict[str, Any]:
    """Return a node."""
    return {"use": use, "in": wires, "params": params}


def spec_of(kind: str, width: int, heads: int, *, written: bool) -> dict[str, Any]:
    """Return a spec of one attention: causal, padded, or with a bias that is a product."""
    inputs = {"x": f"f[B T {width}]"}
    causal = {"causal": "t"} if kind != "padded" else {}
    if kind == "padded":
        inputs["mask"] = "mask[B T]"
    mask = {"mask": "mask"} if kind == "padded" else {}
    if not written:
        params = {"heads": heads, "causal": bool(causal)}
        nodes = {"out": node("attention@1", params, x="x", **mask)}
    else:
        split = {"y": "b t (h k) -> b h t k", "sizes": {"h": heads}}
        nodes = {}
        for name in ("query", "key", "value"):
            nodes[name] = node("linear@1", {"d_out": width}, x="x")
            nodes[f"{name}_heads"] = node("einsum@1", split, x=f"{name}.y")
        by = {"by": (width // heads) ** -0.5}
        softmax = {"y": "b h t s", **causal, **({"mask": "b s"} if mask else {})}
        product, total = "b h t k, b h s k -> b h t s", "b h t s, b h s k -> b h t k"
        nodes |= {
            "product": node("einsum@1", {"y": product}, x="query_heads.y", z="key_heads.y"),
            "scores": node("elementwise@1", {"y": "by * x", "values": by}, x="product.y"),
            "weights": node("softmax@1", softmax, x="scores.y", **mask),
            "sum": node("einsum@1", {"y": total}, x="weights.y", z="value_heads.y"),
            "merge": node("einsum@1", {"y": "b h t k -> b t (h k)"}, x="sum.y"),
            "out": node("linear@1", {"d_out": width}, x="merge.y"),
        }
    return {
        "format": 1,
        "name": "written" if written else "block",
        "axes": {"B": "batch", "T": "time"},
        "inputs": inputs,
        "outputs": {"y": "out.y"},
        **({"step": {"axis": "T"}} if causal else {}),
        "nodes": nodes,
    }


def models(kind: str, width: int, heads: int) -> list[Any]:
    """Return the block, the merged nodes, and the nodes one by one, with the same weights."""
    written = graph_of(loaded(spec_of(kind, width, heads, written=True)))
    graphs: list[Graph] = [
        graph_of(loaded(spec_of(kind, width, heads, written=False))),
        written,
        replace(written, execution=replace(written.execution, merges=False)),
    ]
    built: list[Any] = [build(graph) for graph in graphs]
    weights = built[0].out.state_dict()
    for model in built[1:]:
        model.load_state_dict(weights)
    return built


def updating(inputs: dict[str, Tensor]) -> Run:
    """Return what measures a forward and a backward pass, in seconds."""

    def run(model: Any) -> float:
        start = time.process_time()
        model(**inputs)["y"].sum().backward()
        return time.process_time() - start

    return run


def decoding(x: Tensor) -> Run:
    """Return what measures the steps over all positions, in seconds."""

    def run(model: Any) -> float:
        start = time.process_time()
        with torch.inference_mode():
            state = model.begin(
                Capacity(x.size(0), 1, x.size(1), torch.float32, torch.device("cpu"))
            )
            for position in range(x.size(1)):
                step = {"x": x[:, position : position + 1]}
                model.step(**step, state=state, position=position)
        return time.process_time() - start

    return run


def main() -> None:
    """Print a row of a table for each form and length."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{processor_name()}, torch {torch.__version__}, one thread, float32, {options.heads}")
    print(f"heads, width {options.width}; load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| attention | what | B x T | block ms | written / block | apart / block |")
    print("|---|---|---|---|---|---|")
    generator = torch.Generator().manual_seed(1)
    for kind in ("causal", "padded"):
        built = models(kind, options.width, options.heads)
        for length in options.lengths:
            rows = max(1, options.tokens // length)
            x = torch.randn(rows, length, options.width, generator=generator)
            inputs = {"x": x}
            if kind == "padded":
                lengths = torch.randint(length // 2, length + 1, (rows,), generator=generator)
                inputs["mask"] = torch.arange(length) < lengths[:, None]
            runs = {"update": updating(inputs)}
            if kind == "causal" and length <= 128:  # longer ones take minutes
                runs["decode"] = decoding(x)
            for what, run in runs.items():
                times: list[list[float]] = [[run(model) for model in built]]  # the first warms up
                times = [[run(model) for model in built] for _ in range(options.runs)]
                block = statistics.median(row[0] for row in times)
                ratios = [[row[other] / row[0] for row in times] for other in (1, 2)]
                cells = []
                for values in ratios:
                    low, middle, high = statistics.quantiles(values, n=4)
                    cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
                print(
                    f"| {kind} | {what} | {rows} x {length} | {block * 1e3:.1f} |"
                    f" {cells[0]} | {cells[1]} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
