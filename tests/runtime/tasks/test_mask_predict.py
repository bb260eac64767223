"""Mask-predict task: masking, the loss, and training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.kernels.noise import masked_at_random
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.data.batches import Batch
from weft.runtime.decode.mask_predict import mask_predict
from weft.runtime.tasks.mask_predict import LENGTH_WEIGHT, MaskPredict
from weft.runtime.tasks.registry import make_task
from weft.specs.findings import InputError
from weft.specs.load import load

SMALL = {"spec": "mask-predict", "task": "mask_predict", "search": {}}
PARAMS = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "max_length": 16}


def test_one_to_all_words_are_masked_and_each_number_as_often() -> None:
    """2,000 rows of four words and 2,000 of two, with padding, within four standard deviations."""
    mask = torch.arange(5) < torch.tensor([4, 2] * 2000)[:, None]

    masked = masked_at_random(mask, torch.Generator().manual_seed(1))

    assert not (masked & ~mask).any()
    for first, words in ((0, 4), (1, 2)):
        counts = masked[first::2].sum(1).bincount(minlength=6)
        assert counts[0] == 0
        assert (counts[1 : words + 1] / 2000 - 1 / words).abs().max() < 4 * (0.25 / 2000) ** 0.5
    assert (masked[::2, :4].float().mean(0) - 0.625).abs().max() < 0.05


class Fixed(nn.Module):
    """Model that records its inputs and returns constant outputs."""

    def __init__(self, logits: Tensor, lengths: Tensor) -> None:
        """Store the outputs."""
        super().__init__()
        self.logits, self.lengths = logits, lengths
        self.asked: dict[str, Tensor] = {}

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Return the outputs."""
        self.asked = inputs
        return {"logits": self.logits, "lengths": self.lengths}


def test_the_loss_is_of_masked_words_and_of_the_length(
    toy_run: Callable[..., Any], tmp_path: Path
) -> None:
    """Compare with torch's cross-entropy over the masked words; the end token is not a word."""
    run = toy_run(**SMALL, params=PARAMS, loss={"smoothing": 0.1})
    graph = check(load("mask-predict").form, registry(), PARAMS)
    made = make_task(run, api.prepare_run(run, tmp_path / "run"), graph)
    task = replace(made, head=None)  # the model of this test computes the logits directly
    pad, eos, bos = task.target.pad, task.target.eos, task.target.bos
    vocab = task.target.vocab_size
    target = torch.tensor([[7, 8, 9, eos], [6, 5, eos, pad]])
    source = torch.tensor([[4, eos], [5, eos]])
    batch = Batch(source=source, target=target, rows=torch.arange(2).numpy(), pad=pad)
    model = Fixed(torch.randn(2, 3, vocab), torch.randn(2, 16))
    torch.manual_seed(3)

    sums = task.loss(model, batch)

    words = torch.tensor([[7, 8, 9], [6, 5, pad]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    asked = model.asked
    masked = asked["target"] == bos
    assert torch.equal(asked["target_mask"], mask)
    assert masked.any(1).all()
    assert torch.equal(asked["target"], words.masked_fill(masked, bos))
    of_words = F.cross_entropy(model.logits[masked], words[masked], label_smoothing=0.1)
    of_length = F.cross_entropy(model.lengths, torch.tensor([2, 1]))
    assert sums.tokens == 7
    torch.testing.assert_close(sums.loss / 7, of_words + LENGTH_WEIGHT * of_length)
    torch.testing.assert_close(sums.nll / 7, F.cross_entropy(model.logits[masked], words[masked]))


def test_a_spec_of_another_form_is_refused(toy_run: Callable[..., Any], tmp_path: Path) -> None:
    """A translation model without a target mask raises an error."""
    run = toy_run(**SMALL, params=PARAMS)
    graph = check(load("transformer-tiny").form, registry(), {})
    task = make_task(run, api.prepare_run(run, tmp_path / "run"), graph)

    assert isinstance(task, MaskPredict)
    with pytest.raises(InputError, match="mask-predict needs an input 'target_mask' of kind mask"):
        task.check(graph)


def test_a_length_that_needs_the_target_is_refused(
    toy_run: Callable[..., Any], tmp_path: Path
) -> None:
    """The length must be known before a word is written."""
    run = toy_run(**SMALL, params=PARAMS)
    prepared = api.prepare_run(run, tmp_path / "run")
    form = load("mask-predict").form
    pool = form.nodes["length_pool"].model_copy(update={"in_": {"x": "decoder.x"}})
    other = form.model_copy(update={"nodes": {**form.nodes, "length_pool": pool}})
    graph = check(other, registry(), {**PARAMS, "vocab": prepared.source_tokenizer.vocab_size})

    with pytest.raises(InputError, match="'lengths' depends on the target"):
        make_task(run, prepared, graph).check(graph)


@pytest.mark.slow
def test_a_run_trains_translates_and_resumes(
    toy_run: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed run gives the same bits as an uninterrupted one; its checkpoint translates."""
    changes: dict[str, Any] = {**SMALL, "params": PARAMS, "updates": 8}
    whole = api.train(toy_run(**changes), out=tmp_path / "whole")
    api.train(toy_run(**{**changes, "updates": 4}), out=tmp_path / "parts")
    parts = api.train(toy_run(**changes), out=tmp_path / "parts", resume=True)
    assert whole.checkpoint is not None
    assert parts.checkpoint is not None
    first, second = (api.open_model(each.checkpoint) for each in (whole, parts) if each.checkpoint)

    for name, weight in first.module.state_dict().items():
        assert torch.equal(weight, second.module.state_dict()[name]), name
    lines = ["sun moon tree", "", "fire"]
    found = first.translate(lines)
    assert found[1] == ""
    assert found == [first.translate([line])[0] for line in lines]
    assert found == second.translate(lines)
    assert main(["evaluate", str(whole.checkpoint), "--json", "--iterations", "3"]) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert report["lines"] == 10
    assert report["search"]["iterations"] == 3


def test_the_source_is_read_once_and_comes_out_the_same(
    toy_run: Callable[..., Any], tmp_path: Path
) -> None:
    """Running the complete model in every iteration gives the same words."""
    result = api.train(toy_run(**SMALL, params=PARAMS, updates=6), out=tmp_path / "run")
    assert result.checkpoint is not None
    model = api.open_model(result.checkpoint)
    task, module = model.task, model.module
    assert task is not None
    ids = task.source.encode("sun moon tree river")
    source = torch.tensor([[*ids, task.source.eos]])

    [[best, *_]] = model.translator.decode([ids])

    length = len(best.tokens)
    again = mask_predict(
        lambda words, mask: module(
            source=source,
            source_mask=torch.ones_like(source, dtype=torch.bool),
            target=words,
            target_mask=mask,
        )["logits"],
        torch.tensor([[length]]),
        iterations=model.search.iterations,
        mask=task.target.bos,
        never={task.target.eos, task.target.pad},
    )
    assert best.tokens == again[0][0].tokens
    assert best.log_probability == pytest.approx(again[0][0].log_probability, abs=1e-4)


@pytest.mark.slow
def test_a_run_learns_to_reverse_words(toy_run: Callable[..., Any], tmp_path: Path) -> None:
    """Nearly all lines of two to five words are reversed, including unseen ones."""
    run = toy_run(
        **SMALL,
        params={**PARAMS, "d_model": 64, "heads": 4, "d_ff": 128, "layers": 2, "dropout": 0.0},
        tokenizer={"vocab_size": 60},
        updates=300,
        batch={"tokens": 500},
        schedule={"type": "constant", "rate": 0.003},
        evaluate={"every": 300, "best": "nll", "bleu": False},
        checkpoint={"every": 300, "keep": 1, "average": 1},
    )
    words, draw = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf"), Random(5)
    lines = [draw.choices(words, k=draw.randint(2, 5)) for _ in range(3020)]
    for ending, step in (("src", 1), ("tgt", -1)):
        text = "".join(" ".join(line[::step]) + "\n" for line in lines[20:])
        (tmp_path / "data" / f"train.{ending}").write_text(text)

    result = api.train(run, out=tmp_path / "run")

    assert result.averaged is not None
    model = api.open_model(result.averaged)
    found = model.translate([" ".join(line) for line in lines[:20]])
    wanted = [" ".join(line[::-1]) for line in lines[:20]]
    assert sum(ours == right for ours, right in zip(found, wanted, strict=True)) >= 18
