"""States as flat lists of named tensors, and steps that grow by one position."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import weft
from weft.blocks.kernels.decode_state import Capacity, State
from weft.extensions.interop.export.onnx_graph import (
    GROWN,
    Begin,
    OnnxStep,
    grown_of,
    leaves,
    loop_of,
    rebuilt,
)
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load

SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 2, "vocab": 20}


def test_a_state_is_taken_apart_and_put_together_again() -> None:
    """The state is nested by node, layer and slot, and has a constant value."""
    tensors = [torch.full((1,), float(n)) for n in range(4)]
    state = {
        "=memory.y": tensors[0],
        "decoder": [
            {"mix": {"f": State(appended={"key": tensors[1]}, fixed={"mask": tensors[2]})}}
        ],
        "rnn": State(carried={"h": tensors[3]}),
    }

    flat = list(leaves(state))
    again = rebuilt(state, (leaf.value + 10 for leaf in flat))

    assert [(leaf.name, leaf.kind) for leaf in flat] == [
        ("memory.y", "fixed"),
        ("decoder.0.mix.f.key", "appended"),
        ("decoder.0.mix.f.mask", "fixed"),
        ("rnn.h", "carried"),
    ]
    assert [leaf.value.item() for leaf in leaves(again)] == [10.0, 11.0, 12.0, 13.0]
    assert list(again) == list(state)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["transformer-base", "bytenet", "extended-neural-gpu"])
def test_steps_over_a_past_that_grows_equal_the_forward(name: str) -> None:
    """Begin once, then step position by position beyond the source's length."""
    known = load(name).form.params
    given = {key: value for key, value in {**SMALL, "sets": 1, "steps": 2}.items() if key in known}
    graph = graph_of(weft.load(name, **given))
    model, loop = build(graph).eval(), loop_of(graph)
    fixed = torch.randint(4, 20, (3, 4)), torch.arange(4) < torch.tensor([[4], [2], [3]])
    target = torch.randint(4, 20, (3, 7))
    names = dict(zip(loop.fixed, fixed, strict=True))

    with torch.no_grad():
        like, long = (
            model.begin(Capacity(3, 1, capacity, torch.float32, torch.device("cpu")), **names)
            for capacity in (1, 9)
        )
        grown, counted = grown_of(like, long), name != "transformer-base"
        begin = Begin(model, loop, like)
        step = OnnxStep(model, loop, like, counted=counted, grown=grown)
        kinds = [GROWN if leaf.name in grown else leaf.kind for leaf in leaves(like)]
        values, found = list(begin(*fixed)), []
        for position in range(7):
            past = [torch.zeros(position)] if counted else []
            logits, *written = step(target[:, position : position + 1], *past, *values)
            found.append(logits)
            fresh = iter(written)
            pairs = zip(kinds, values, strict=True)
            values = [value if kind == "fixed" else next(fresh) for kind, value in pairs]
        whole = model(**names, target=target)["logits"]

    lengths = {value.size(-2) for k, value in zip(kinds, values, strict=True) if k == "appended"}
    assert lengths <= {7}
    assert (GROWN in kinds) == (name == "extended-neural-gpu")
    assert torch.allclose(torch.stack(found, 1), whole, atol=1e-5)


def test_the_decoded_input_must_be_ids() -> None:
    """A graph that decodes vectors is refused."""
    graph = graph_of(weft.load("gpt2", d_model=16, heads=2, layers=1, vocab=20, max_length=8))
    moved = replace(graph, outputs={"other": graph.outputs["logits"]})

    assert loop_of(graph).tokens == "tokens"
    with pytest.raises(InputError, match="do not map one input of ids"):
        loop_of(moved)
