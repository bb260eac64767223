"""Recorded attention weights equal those of the forward pass, and no hooks remain."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import nn
from weft.runtime.analysis.attention_weights import recording
from weft.specs.findings import InputError

SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 2, "vocab": 20, "dropout": 0.0}


def inputs() -> dict[str, torch.Tensor]:
    """Return a batch of two pairs, one of them padded."""
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    return {
        "source": torch.randint(20, (2, 5)),
        "source_mask": mask,
        "target": torch.randint(20, (2, 4)),
    }


def test_maps_are_the_softmax_of_queries_and_keys() -> None:
    """Computed by hand from queries and keys of the second layer; outputs do not change."""
    model, given = weft.build(weft.load("transformer-tiny", **SMALL)).eval(), inputs()
    seen: dict[str, Any] = {}
    read: Any = model.get_submodule("decoder.1.cross_attention.f")
    hook = read.register_forward_hook(
        lambda _, __, wires, ___: seen.update(wires), with_kwargs=True
    )
    plain = model(**given)["logits"]
    hook.remove()

    with recording(model) as maps:
        recorded = model(**given)["logits"]

    assert torch.equal(recorded, plain)
    names = ("encoder.{}.self_attention.f", "decoder.{}.self_attention.f")
    every = [name.format(i) for name in (*names, "decoder.{}.cross_attention.f") for i in (0, 1)]
    assert sorted(maps) == sorted(every)
    query = read.query(seen["x"]).view(2, 4, 2, 8).transpose(1, 2)
    key = read.key(seen["memory"]).view(2, 5, 2, 8).transpose(1, 2)
    score = query @ key.mT / math.sqrt(8)
    share = score.masked_fill(~given["source_mask"][:, None, None], -math.inf).softmax(-1)
    torch.testing.assert_close(maps["decoder.1.cross_attention.f"], share)
    past = maps["decoder.0.self_attention.f"]
    assert past.shape == (2, 2, 4, 4)
    assert not past.triu(1).any()
    torch.testing.assert_close(past.sum(-1), torch.ones(2, 2, 4))


def test_layers_that_share_weights_are_counted() -> None:
    """One module runs for every layer: each run has its own map."""
    model = weft.build(weft.load("transformer-shared", **SMALL)).eval()

    with recording(model) as maps:
        model(**inputs())

    first, second = (maps[f"encoder.self_attention.f{end}"] for end in ("", " (2)"))
    assert first.shape == second.shape == (2, 2, 5, 5)
    assert not torch.equal(first, second)
    assert len(maps) == 6


def test_additive_attention_is_recorded() -> None:
    """One head, over the source."""
    spec = weft.load("gru-attention", d_model=8, d_hidden=6, vocab=20)
    model, given = weft.build(spec).eval(), inputs()

    with recording(model) as maps:
        model(**given)

    (weights,) = maps.values()
    assert weights.shape == (2, 1, 4, 5)
    assert not weights[1, ..., 3:].any()


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_layer_stays_compiled() -> None:
    """It runs uncompiled while recording; afterwards the same graph is used, without hooks."""
    from torch._dynamo.testing import CompileCounter  # noqa: PLC0415 - two seconds to import

    torch.compiler.reset()
    model, given = weft.build(weft.load("transformer-tiny", **SMALL)).eval(), inputs()
    counter = CompileCounter()
    layer: Any = model.get_submodule("encoder.0")
    layer.compile(backend=counter)
    with torch.no_grad():
        before = model(**given)["logits"]
        made = counter.frame_count

        with recording(model) as maps:
            model(**given)
        after = model(**given)["logits"]

    assert made == counter.frame_count == 1
    assert "encoder.0.self_attention.f" in maps
    torch.testing.assert_close(after, before)
    assert not any(module._forward_hooks for module in model.modules())
    torch.compiler.reset()


def test_hooks_are_gone_after_a_failure() -> None:
    """Hooks are removed after any exception."""
    model: nn.Module = weft.build(weft.load("transformer-tiny", **SMALL))

    with pytest.raises(weft.InputError), recording(model):
        model(no_such_input=1)

    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.integration
def test_an_opened_model_shows_its_maps(toy_checkpoint: Path) -> None:
    """By piece, for a given target or for the model's own translation."""
    model = weft.open(toy_checkpoint)
    sources = ["sun moon", "fire"]

    given = model.attention(sources, ["moon sun", ""])
    own = model.attention(sources)

    assert "".join(given[0].source) == "▁sun▁moon</s>"
    assert "".join(given[0].target) == "<s>▁moon▁sun"
    assert given[1].target == ("<s>",)
    weights = given[0].weights["decoder.0.cross_attention.f"]
    assert weights.shape == (2, len(given[0].target), len(given[0].source))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, len(given[0].target)))
    translated = model.translate(sources)
    again = model.attention(sources, translated)
    assert [maps.target for maps in own] == [maps.target for maps in again]
    for sources_, targets, problem in (
        (["sun"], ["a", "b"], "1 sources for 2 targets"),
        (["sun", " "], ["a", "b"], "source 2 is empty"),
    ):
        with pytest.raises(InputError, match=problem):
            model.attention(sources_, targets)
