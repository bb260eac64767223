"""The passes of decoding and of exports record what code generation writes, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.pipeline import (
    NAMES,
    DecodePasses,
    PassSettings,
    after,
    compile_steps,
    onnx_forms,
    pipeline,
    prepack,
    quantize,
    shortlist,
)
from weft.specs.load import load


def graph(name: str, **params: int) -> Graph:
    """Return the checked graph of a shipped spec."""
    return check(load(name).form, registry(), params)


@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        ("transformer-base", {f"decoder.{layer}" for layer in range(6)}),
        ("gpt2", {f"decoder.{layer}" for layer in range(12)}),
        ("universal-transformer", {"decoder"}),
        ("gru-attention", {""}),
        ("bert", set()),
    ],
)
def test_the_layers_that_run_at_every_step_are_compiled(name: str, compiled: set[str]) -> None:
    """Those of the decoder; shared layers once, and a model without a repeat as a whole."""
    assert compile_steps(graph(name)).execution.compiled == compiled


def test_each_pass_of_decoding_changes_the_graph_by_one_record() -> None:
    """Neither its nodes nor anything that another pass set."""
    made = graph("gru-attention")

    packed, compiled = prepack(made, "bfloat16"), compile_steps(made)

    assert replace(packed.execution, prepacked=None) == made.execution
    assert replace(compiled.execution, compiled=frozenset()) == made.execution
    assert packed.root is compiled.root is made.root
    rounded = quantize(made, "bfloat16")
    assert replace(rounded.execution, quantized=None) == made.execution
    assert rounded.root is made.root


@pytest.mark.parametrize(
    ("name", "head"),
    [("transformer-base", "head"), ("parsing-pointer", ""), ("bert", ""), ("gpt2", "head")],
)
def test_a_shortlist_is_one_of_the_output_projection(name: str, head: str) -> None:
    """Where logits are not those of a linear map, or nothing decodes, the graph stays as it is."""
    made = graph(name)

    found = shortlist(made)

    assert found.execution == replace(made.execution, shortlisted=head)
    assert found.root is made.root


def test_a_step_with_a_shortlist_is_not_compiled_as_a_whole() -> None:
    """It calls another map in every batch; layers do not."""
    assert compile_steps(shortlist(graph("gru-attention"))).execution.compiled == frozenset()
    assert compile_steps(shortlist(graph("gpt2", layers=1))).execution.compiled == {"decoder.0"}


def test_the_pipeline_of_decoding() -> None:
    """Padding is left out of the encoder, which runs once."""
    made = graph("transformer-base", layers=2)
    settings = PassSettings(
        purpose="decode", decode=DecodePasses(unpad=True, prepacked="float32", compiled=True)
    )

    steps = pipeline(made, settings)

    assert tuple(step.name for step in steps) == NAMES["decode"]
    last = steps[-1].graph.execution
    assert last.decoding
    assert last.unpad is not None
    assert last.unpad.masks == {"S": "source_mask"}
    assert (last.prepacked, last.compiled) == ("float32", {"decoder.0", "decoder.1"})
    assert not after(made, PassSettings(purpose="decode")).execution.decoding


def test_blocks_with_a_loop_over_positions_have_another_form_in_onnx() -> None:
    """A recurrent layer's loop would be unrolled; attention is exported as it is."""
    assert onnx_forms(graph("transformer-base")).execution.forms == {}
    assert onnx_forms(graph("gru-attention")).execution.forms == dict.fromkeys(
        ("encoder", "decoder"), "_scan=.recurrent.recurrent_onnx:scan"
    )
