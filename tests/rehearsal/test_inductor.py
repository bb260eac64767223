"""Compiled layers without a GPU: the code that Inductor generates, and how much it launches.

The graphs of a layer's forward and backward pass are lowered to the Python code that would run on
the device; the code is read, not run.  `budgets.json` has its numbers of launches: `triton` are
kernels that Inductor generated, `library` are calls such as matrix products and attention.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from weft.graphs.passes.pipeline import PassSettings, after
from weft.runtime.codegen.build import build_empty
from weft.runtime.spec.check import graph_of

from .test_rehearsal import budget_is_kept

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Inductor itself uses what torch has deprecated
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.replace_random import replace_random_passes
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

pytestmark = [pytest.mark.rehearsal, pytest.mark.filterwarnings("ignore")]
TRITON = re.compile(r"\b(triton_\w+)\.run\(")
LIBRARY = re.compile(r"\b(?:extern_kernels\.\w+|torch\.ops\.aten\.\w+\.\w+)\(")


class _GeneratedError(Exception):
    """Ends the compiler when the code is there; its kernels need not be compiled."""


def lowered(graph: torch.fx.GraphModule, inputs: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the code that Inductor generates for a graph."""
    found: list[str] = []
    generate = GraphLowering.codegen

    def codegen(self: GraphLowering) -> Any:
        code = generate(self)[0]
        found.append(getattr(code, "value", code))
        raise _GeneratedError

    with monkeypatch.context() as patched:
        patched.setattr(GraphLowering, "codegen", codegen)
        with pytest.raises(Exception, match="_GeneratedError"):
            compile_fx_inner(graph, inputs, cudagraphs=False)
    return found[0]


def copied_weight(layer: torch.nn.Module, path: str) -> Tensor:
    """Return a weight, in bfloat16 if its module reads a copy."""
    holder, _, name = path.rpartition(".")
    weight = layer.get_parameter(path).detach()
    return (
        weight.bfloat16() if name in getattr(layer.get_submodule(holder), "copied", ()) else weight
    )


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_compiled_layer_launches_what_its_budget_says(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer of Transformer base in bfloat16 with dropout, 833 rows of 30 positions."""
    counts: dict[str, int] = {}

    def compiler(name: str) -> Callable[[torch.fx.GraphModule, Any], Any]:
        def compiled(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            code = lowered(graph, inputs, monkeypatch)
            called = code[code.index("def call") :]
            counts[f"{name} triton"] = len(TRITON.findall(called))
            counts[f"{name} library"] = len(LIBRARY.findall(called))
            return graph.forward

        return compiled

    def partitioned(graph: torch.fx.GraphModule, inputs: Any, **named: Any) -> Any:
        replace_random_passes(graph)
        return min_cut_rematerialization_partition(graph, inputs, **named)

    graph = after(graph_of(weft.load("transformer-base", vocab=37000)), PassSettings(unpad=False))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, V.set_fake_mode(mode):
        model: Any = build_empty(graph, device="cuda").train()
        layer = next(iter(getattr(model, side).children()))
        weights = {  # modules read copies of their weights, which are written before
            name: copied_weight(layer, name).requires_grad_()
            for name, _ in layer.named_parameters()
        }

        def run(x: Tensor, memory: Tensor, mask: Tensor, *given: Tensor) -> Tensor:
            wires = {"x": x, "mask": mask} | ({"memory": memory} if side == "decoder" else {})
            with torch.autocast("cuda", torch.bfloat16):
                found = functional_call(layer, dict(zip(weights, given, strict=True)), (), wires)
            return found[0] if isinstance(found, tuple) else found

        x, memory = (torch.randn(833, 30, 512, device="cuda", requires_grad=True) for _ in range(2))
        mask = torch.ones(833, 30, dtype=torch.bool, device="cuda")
        made = aot_function(
            run,
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            partition_fn=partitioned,
            decompositions=select_decomp_table(),
        )
        made(x, memory, mask, *weights.values()).sum().backward()

    assert counts["forward library"] > 0
    budget_is_kept(f"transformer-base, compiled {side} layer", counts)
