"""Mask-predict: masking, the losses of its objective, and training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from weft.blocks.kernels.noise import masked_at_random
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.decode.decode import Request
from weft.runtime.decode.predictors import mask_predict as decoding
from weft.runtime.decode.predictors.mask_predict import mask_predict
from weft.runtime.train.objective import Objective
from weft.runtime.train.run import Run
from weft.specs.findings import SpecError

pytestmark = pytest.mark.integration

PARAMS = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.0}


def mask_run(toy_run: Callable[..., Run], **changes: Any) -> Run:
    """Return a small run of mask-predict."""
    data = toy_run().data.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data["columns"]["target"]["end"] = False
    own = {**PARAMS, **changes.pop("params", {}), "max_length": "=max_length"}
    run = toy_run(objective="mask-predict", data=data, predict={"type": "mask_predict"}, **changes)
    params = {"model": {"spec": "mask-predict", "params": own}, "max_length": 16}
    return run.model_copy(update={"params": params})


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


def test_the_losses_are_of_masked_words_and_of_the_length(toy_run: Callable[..., Any]) -> None:
    """Compare with torch's cross-entropy of the words that the objective masked."""
    graph = Objective.of(mask_run(toy_run), "toy").graph
    objective = build(graph, seed=1).eval()
    source = torch.tensor([[4, 6, 1], [5, 1, 0]])
    words = torch.tensor([[7, 8, 9], [6, 5, 0]])
    read: dict[str, torch.Tensor] = {}
    model = objective.get_submodule("model")
    model.register_forward_pre_hook(lambda *given: read.update(given[-1]), with_kwargs=True)
    torch.manual_seed(3)

    losses = objective(source=source, target=words)

    mask = words != 0
    masked = (read["target"] != words) & mask
    assert torch.equal(read["target_mask"], mask)
    assert masked.any(1).all()
    assert read["target"][masked].unique().numel() == 1
    with torch.no_grad():
        outputs = model(**read)
    of_words = F.cross_entropy(
        outputs["logits"][masked], words[masked], label_smoothing=0.1, reduction="sum"
    )
    of_lengths = F.cross_entropy(outputs["lengths"], torch.tensor([2, 1]), reduction="sum")
    torch.testing.assert_close(losses["words"], of_words)
    torch.testing.assert_close(losses["lengths"], of_lengths)
    assert graph.losses == {"words": 1.0, "lengths": 0.1}


def test_a_model_of_another_form_is_refused(toy_run: Callable[..., Any], tmp_path: Path) -> None:
    """A translation model has no lengths."""
    params = {"model": {"spec": "transformer-tiny", "params": PARAMS}}
    run = mask_run(toy_run).model_copy(update={"params": params})

    with pytest.raises(SpecError, match="has no output 'lengths'"):
        api.train(run, out=tmp_path / "run")


@pytest.mark.slow
def test_a_run_trains_translates_and_resumes(
    toy_run: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed run gives the same bits as an uninterrupted one; its checkpoint translates."""
    whole = api.train(mask_run(toy_run, updates=8), out=tmp_path / "whole")
    api.train(mask_run(toy_run, updates=4), out=tmp_path / "parts")
    parts = api.train(mask_run(toy_run, updates=8), out=tmp_path / "parts", resume=True)
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
    assert report["rows"] == 10
    assert report["predictor"]["iterations"] == 3


def test_the_source_is_read_once_and_comes_out_the_same(
    toy_run: Callable[..., Any], tmp_path: Path
) -> None:
    """Running the complete model in every iteration gives the same words."""
    result = api.train(mask_run(toy_run, updates=6), out=tmp_path / "run")
    assert result.checkpoint is not None
    model = api.open_model(result.checkpoint)
    predictor, module = model.line_predictor(), model.module
    ids = predictor.source.encode("sun moon tree river")
    source = torch.tensor([[*ids, predictor.source.eos]])

    [[best, *_]] = predictor.decode_requests([Request(ids)])

    length = len(best.tokens)
    again = mask_predict(
        lambda words, mask: module(
            source=source,
            source_mask=torch.ones_like(source, dtype=torch.bool),
            target=words,
            target_mask=mask,
        )["logits"],
        torch.tensor([[length]]),
        iterations=model.strategy.iterations,
        mask=predictor.target.bos,
        never={predictor.target.eos, predictor.target.pad},
    )
    assert best.tokens == again[0][0].tokens
    assert best.log_probability == pytest.approx(again[0][0].log_probability, abs=1e-4)


@pytest.mark.slow
def test_a_run_learns_to_reverse_words(toy_run: Callable[..., Any], tmp_path: Path) -> None:
    """Nearly all lines of two to five words are reversed, including unseen ones."""
    run = mask_run(
        toy_run,
        params={"d_model": 64, "heads": 4, "d_ff": 128, "layers": 2},
        tokenizers={"tokenizer": {"type": "bpe", "vocab_size": 60}},
        updates=300,
        batch={"tokens": 500},
        schedule={"peak": 0.003},
        evaluate={"every": 300, "best": "nll", "samples": 0},
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


def test_no_output_contains_the_unknown_token_if_all_texts_can_be_spelled(
    toy_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the other searches: a tokenizer with byte fallback never needs it."""
    bytes_ = {"tokenizer": {"type": "bpe", "vocab_size": 300, "byte_fallback": True}}
    result = api.train(mask_run(toy_run, updates=1, tokenizers=bytes_), out=tmp_path / "run")
    assert result.checkpoint is not None
    model, given = api.open_model(result.checkpoint), dict[str, Any]()

    def watched(*args: Any, **named: Any) -> Any:
        given.update(named)
        return mask_predict(*args, **named)

    monkeypatch.setattr(decoding, "mask_predict", watched)
    model.line_predictor().decode_requests([Request([5, 6])])

    target = model.line_predictor().target
    assert given["never"] == {target.eos, target.pad, target.unk}
