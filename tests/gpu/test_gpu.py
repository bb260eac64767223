"""GPU tests: half precision close to full precision, few graphs, stepping, training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.execution import KernelChoice
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.pipeline import PassSettings, after
from weft.runtime.codegen.build import build
from weft.runtime.compile import autotune
from weft.runtime.compile.torch_compile import compile_model
from weft.runtime.decode.stepper import ModelStepper
from weft.specs.load import load

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_compiler")]

VOCAB = 64
SMALL = {"vocab": VOCAB, "d_model": 64, "heads": 4, "d_ff": 128, "layers": 2, "dropout": 0.0}
HALF = {"rtol": 0.05, "atol": 0.15}
"""bfloat16 has 8 bits: after a dozen sub-layers, logits near 3 have about two digits."""


def transformer(*passes: Callable[[Graph], Graph], **params: Any) -> Any:
    """Return a small Transformer on the GPU, after passes over its graph."""
    graph = check(load("transformer-tiny").form, registry(), {**SMALL, **params})
    for change in passes:
        graph = change(graph)
    return build(graph).to("cuda")


def unpadded_by_kernel(graph: Graph) -> Graph:
    """Return an unpadded graph whose attention uses the kernel for variable lengths."""
    return after(graph, PassSettings(kernels=KernelChoice("torch", {"*": "varlen"})))


def batch(rows: int = 4, source: int = 9, target: int = 7, seed: int = 0) -> dict[str, Tensor]:
    """Return a batch on the GPU, including padding."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, source + 1, (rows, 1), generator=generator)
    values = {
        "source": torch.randint(VOCAB, (rows, source), generator=generator),
        "source_mask": torch.arange(source) < lengths,
        "target": torch.randint(VOCAB, (rows, target), generator=generator),
    }
    return {name: value.to("cuda") for name, value in values.items()}


def half() -> torch.autocast:
    """Return the context of mixed precision."""
    return torch.autocast("cuda", torch.bfloat16)


def test_the_gpu_computes_the_same_as_the_cpu() -> None:
    """In full precision, the GPU kernels give the CPU's logits, including padding."""
    model, inputs = transformer().eval(), batch()
    with torch.no_grad():
        found = model(**inputs)["logits"].cpu()
        expected = model.cpu()(**{name: value.cpu() for name, value in inputs.items()})["logits"]

    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_half_precision_is_near_full_precision() -> None:
    """Mixed precision changes the logits only within its rounding error."""
    model, inputs = transformer().eval(), batch()
    with torch.no_grad():
        expected = model(**inputs)["logits"]
        with half():
            found = model(**inputs)["logits"]

    torch.testing.assert_close(found.float(), expected, **HALF)


def test_a_sentence_of_only_padding_gives_finite_logits() -> None:
    """Fused GPU kernels also give zeros for rows whose mask is false everywhere."""
    model, inputs = transformer(), batch()
    inputs["source_mask"][0] = False

    with half():
        logits = model(**inputs)["logits"]
    logits.float().square().mean().backward()

    assert logits.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_compiled_is_eager_in_half_precision() -> None:
    """Logits agree within bfloat16 precision, with one graph per template."""
    eager, fast, inputs = transformer().eval(), transformer().eval(), batch()
    report = compile_model(fast, "layers")

    with torch.no_grad(), half():
        found, expected = fast(**inputs)["logits"], eager(**inputs)["logits"]

    torch.testing.assert_close(found.float(), expected.float(), **HALF)
    assert report.found == report.expected == 2


def test_auto_compiles_on_a_gpu() -> None:
    """`auto` compiles on a GPU, where compiling pays."""
    report = compile_model(transformer())

    assert (report.mode, report.compiled) == ("layers", 4)


def test_twenty_shapes_need_two_graphs_of_a_template_at_most() -> None:
    """Rows and lengths vary between training batches, in mixed precision.

    Inductor makes a second graph for lengths that fill the vectors of its attention kernels.
    """
    model = transformer()
    report = compile_model(model, "layers")
    shapes = [(4, 9, 7), (8, 8, 8), (7, 3, 7), (9, 5, 6), (5, 2, 2)]
    shapes += [(2 + i, 17 - i, 3 + i % 5) for i in range(15)]

    for seed, (rows, source, target) in enumerate(shapes):
        with half():
            logits = model(**batch(rows, source, target, seed))["logits"]
        logits.float().logsumexp(-1).mean().backward()

    assert len(set(shapes)) == 20
    assert 2 == report.expected <= report.found <= 4


@pytest.mark.parametrize("beams", [1, 3])
def test_stepping_equals_the_parallel_forward(beams: int) -> None:
    """Steps give the parallel outputs, also after the beams were reordered."""
    model, inputs = transformer().eval(), batch(rows=2)
    fixed = {name: inputs[name] for name in ("source", "source_mask")}
    target = batch(rows=2 * beams, seed=1)["target"]
    spread = {name: value.repeat_interleave(beams, 0) for name, value in fixed.items()}
    parents = torch.arange(2 * beams, device="cuda").view(2, beams).flip(1).flatten()
    turned = torch.cat([target[parents, :3], target[:, 3:]], 1)

    with torch.no_grad():
        before = model(**spread, target=target)["logits"]
        after = model(**spread, target=turned)["logits"]
        stepper = ModelStepper(model, fixed, beams=beams, length=7)
        for place in range(7):
            if place == 3:
                stepper.reorder(parents)
            found = stepper.step(target[:, place], place)
            expected = (before if place < 3 else after)[:, place]
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_unpadded_rows_need_no_synchronization_and_change_nothing() -> None:
    """Attention uses the kernel for variable lengths; the host counts the rows."""
    inputs = batch()
    inputs["source"] = inputs["source"].clamp(min=1).masked_fill(~inputs["source_mask"], 0)
    inputs["target"] = inputs["target"].clamp(min=1)
    padded, unpadded = transformer().train(), transformer(unpadded_by_kernel).train()
    counts = {
        "source_mask": int(inputs["source_mask"].sum()),
        "target": inputs["target"].numel(),
    }
    found = {}
    for name, model in (("padded", padded), ("unpadded", unpadded)):
        if name == "unpadded":
            unpadded.batched.expect(counts)
            torch.cuda.set_sync_debug_mode("error")
        try:
            with half():
                found[name] = model(**inputs)["logits"]
            found[name].float().square().mean().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    torch.testing.assert_close(found["unpadded"], found["padded"], **HALF)
    for left, right in zip(unpadded.parameters(), padded.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=0.1, atol=0.02)


def test_compiled_layers_attend_without_padding() -> None:
    """The kernel for variable lengths in compiled layers gives the outputs of eager ones."""
    inputs = batch()
    inputs["source"] = inputs["source"].clamp(min=1).masked_fill(~inputs["source_mask"], 0)
    inputs["target"] = inputs["target"].clamp(min=1)
    eager, fast = (transformer(unpadded_by_kernel).train() for _ in range(2))
    compile_model(fast, "layers")
    counts = {
        "source_mask": int(inputs["source_mask"].sum()),
        "target": inputs["target"].numel(),
    }
    found = []
    for model in (eager, fast):
        model.batched.expect(counts)
        with half():
            found.append(model(**inputs)["logits"].float())
        found[-1].square().mean().backward()

    torch.testing.assert_close(found[1], found[0], **HALF)
    for left, right in zip(fast.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=0.1, atol=0.02)


def test_auto_measures_varlen_for_unpadded_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel exists on this GPU, forward and backward; where it is slower, it is not used."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.delenv("WEFT_ATTENTION")
    monkeypatch.setattr(autotune, "_known", {})

    found = autotune.choose_kernels(torch.device("cuda"), half=True)

    assert "varlen for attention without padding" in found.reason
    assert found.attention.get("unpadded", "varlen") == "varlen"


def test_training_in_half_precision_learns() -> None:
    """Twenty updates on one batch reduce its loss, with dropout."""
    model, inputs = transformer(dropout=0.1).train(), batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    losses = []

    for _ in range(20):
        with half():
            logits = model(**inputs)["logits"]
        loss = F.cross_entropy(logits.float().flatten(0, 1), inputs["target"].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert all(weight.dtype == torch.float32 for weight in model.parameters())
    assert losses[-1] < 0.7 * losses[0]
