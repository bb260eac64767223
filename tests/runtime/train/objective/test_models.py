"""Runs of translation, mask-predict and parsing, and the pictures of attention."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor
from torch.nn import functional as F
from weft.blocks.kernels.noise import masked_at_random
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.decode.decode import Request
from weft.runtime.decode.predictors import mask_predict as decoding
from weft.runtime.decode.predictors.mask_predict import mask_predict
from weft.runtime.train.context import training_context
from weft.runtime.train.device import RunDevice, choose
from weft.runtime.train.distributed.sampler import stream_micro_batches
from weft.runtime.train.distributed.world import World
from weft.runtime.train.history import read
from weft.runtime.train.objective import Objective
from weft.runtime.train.plan import load_run, plan_run
from weft.runtime.train.run import Run
from weft.runtime.train.trainer import Trainer
from weft.runtime.train.validation import predictors
from weft.specs.findings import InputError, SpecError

from ...toy_treebank import bank, make_runs
from .conftest import SMALL, Writer, equal, weights

pytestmark = pytest.mark.integration

STILL = {"spec": "transformer-tiny", "params": {**SMALL, "dropout": 0.0}}
"""A model without dropout."""
EPS = 1e-6
"""Of Adam, large enough that it does not scale up the rounding errors of gradients near 0."""
SETTINGS: dict[str, dict[str, Any]] = {
    "accumulated": {},
    "one batch": {"accumulate": 1},
    "unpadded": {"padding": "unpadded"},
    "without passes": {"without": ["unpad", "fuse", "kernels"]},
    "unpadded, not fused": {"padding": "unpadded", "without": ["fuse"]},
    "clipped": {"optimizer": {"clip": 0.1, "eps": EPS}},
    "smoothed": {"params": {"model": STILL, "label_smoothing": 0.3}},
    "not smoothed": {"params": {"model": STILL, "label_smoothing": 0.0}},
    "activation checkpointing": {"activation_checkpointing": ["model.decoder.*"]},
}
UPDATES = 6


@pytest.mark.parametrize("name", SETTINGS)
def test_weights_and_losses_are_those_of_plain_torch(
    objective_run: Writer, tmp_path: Path, name: str
) -> None:
    """Teacher forcing, the mean over all tokens of an update, and Adam, written by hand."""
    given = {"params": {"model": STILL}, "updates": UPDATES, "optimizer": {"eps": EPS}}
    settings = {**given, **SETTINGS[name]}
    file = objective_run("translation", **settings)
    result = api.train(file, out=tmp_path / "run")
    assert result.checkpoint is not None
    run, _ = load_run(file)

    wanted, losses = by_hand(run, tmp_path / "hand")

    found = {k.removeprefix("model."): v for k, v in weights(result.checkpoint).items()}
    for path, weight in found.items():
        if path.endswith("key.bias"):
            continue  # softmax ignores it, so its gradient is rounding errors, which Adam scales up
        torch.testing.assert_close(weight, wanted[path], rtol=1e-4, atol=2e-6)
    reported = [e["loss"] for e in read(tmp_path / "run") if e["type"] == "train"]
    assert reported[0] == pytest.approx(sum(losses) / UPDATES, rel=1e-5)


def by_hand(run: Run, folder: Path) -> tuple[dict[str, Tensor], list[float]]:
    """Return the weights after all updates, and the loss of each, by plain torch."""
    prepared = api.prepare_run(plan_run(run, "toy"), folder)
    spec = api.open_model(folder.parent / "run/averaged").graph
    model = build(spec, seed=run.seed).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=0.003, betas=run.optimizer.betas, eps=run.optimizer.eps
    )
    smoothing = run.params.get("label_smoothing", 0.1)
    stream = stream_micro_batches(prepared.train, run.batch, run.seed, accumulate=run.accumulate)
    begin, losses = prepared.vocabularies["text"].bos, []
    for _ in range(run.updates):
        batches = [batch.inputs for _, batch in next(stream).batches]
        tokens = sum(int((one["target"] != 0).sum()) for one in batches)
        total = torch.zeros(())
        for one in batches:
            source, target = one["source"], one["target"]
            shifted = torch.cat((torch.full_like(target[:, :1], begin), target[:, :-1]), 1)
            logits = model(source=source, source_mask=source != 0, target=shifted)["logits"]
            total = total + F.cross_entropy(
                logits.flatten(0, 1),
                target.flatten(),
                ignore_index=0,
                label_smoothing=smoothing,
                reduction="sum",
            )
        (total / tokens).backward()
        if run.optimizer.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), run.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item() / tokens)
    return dict(model.state_dict()), losses


def test_the_deployed_checkpoint_opens_and_equals_the_model_inside(
    objective_run: Writer, tmp_path: Path
) -> None:
    """`averaged` and `best` hold the model alone; a training checkpoint holds the objective."""
    result = api.train(objective_run("translation"), out=tmp_path / "run")
    assert result.averaged is not None
    assert result.checkpoint is not None

    inside = weights(result.checkpoint)
    last = {k.removeprefix("model."): v for k, v in inside.items() if k.startswith("model.")}
    deployed = open_checkpoint(result.averaged)
    assert deployed.graph.name == "transformer-tiny"
    assert weights(result.averaged).keys() == last.keys()
    assert equal(weights(tmp_path / "run/best"), last)


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


WORDS = {"d_model": 32, "d_pieces": 16, "d_letters": 8, "d_characters": 8, "layers": 1}
PARSING_UPDATES = 5


class Kind(NamedTuple):
    """One kind of parser, as a task and as an objective."""

    spec: str
    params: Mapping[str, Any]
    objective: str
    sizes: Mapping[str, Any]
    """Params of the spec that follow the columns."""
    predict: Mapping[str, Any]
    linearization: str = ""


TAGS = {"tags": "=tags", "leaves": "=leaves", "nodes": "=nodes"}
PAIRS = {"d_model": 32, "heads": 2, "d_ff": 64, "layers": 1}
KINDS = {
    "chart": Kind(
        "parsing-span-lstm",
        {**WORDS, "d_hidden": 16, "dropout": 0.1},
        "chart-parsing",
        {"labels": "=labels", "tags": "=tags"},
        {"type": "cky"},
    ),
    "tags": Kind(
        "parsing-tags", {**WORDS, "dropout": 0.1}, "tag-parsing", TAGS, {"type": "tree_tags"}
    ),
    "sequence": Kind(
        "parsing-small",
        {**PAIRS, "dropout": 0.1},
        "sequence-parsing",
        {},
        {"type": "tree_beam", "beam": 2, "alpha": 0.3, "max_extra": 60},
        "vinyals",
    ),
    "copying": Kind(
        "parsing-aligned",
        {**PAIRS, "dropout": 0.1},
        "copy-parsing",
        {"source_vocab": 40},
        {"type": "tree_beam", "beam": 2, "alpha": 0.3, "max_extra": 60},
        "top_down",
    ),
}


def objective_run(root: Path, kind: Kind, decoder: str, **changes: Any) -> Run:
    """Return the run of an objective on the toy treebank; keyword arguments replace keys."""
    own = {"linearization": kind.linearization} if kind.linearization else {}
    trees = {"decoder": decoder, **own}
    symbols: dict[str, Any] = {"type": "symbols"}
    if kind.linearization == "top_down":
        symbols |= {"spelling": "words", "only": "brackets"}
    value: dict[str, Any] = {
        "format": 1,
        "name": "toy",
        "objective": kind.objective,
        "params": {"model": {"spec": kind.spec, "params": {**kind.params, **kind.sizes}}},
        "data": {
            "root": str(root),
            "columns": {
                "source": {"type": "text", "tokenizer": "words"},
                "target": {"type": "text", "tokenizer": "symbols"},
                "tree": {"type": "tree", "decoder": decoder, **own},
            },
            "train": {"trees": {"files": ["train.trees.gz"], **trees}},
            "valid": {"trees": {"files": ["valid.trees"], **trees}},
        },
        "tokenizers": {"words": {"type": "bpe", "vocab_size": 40}, "symbols": symbols},
        "batch": {"tokens": 300},
        "accumulate": 1,
        "updates": 6,
        "schedule": {"peak": 0.003},
        "evaluate": {"every": 3, "metrics": ["evalb"], "best": "evalb"},
        "checkpoint": {"every": 2, "keep": 3, "average": 2},
        "predict": kind.predict,
        "answers": "tree",
        "threads": 1,
        "precision": "float32",
    }
    return Run.model_validate({**value, **changes})


def trainer_of(run: Run, folder: Path) -> Trainer:
    """Return a trainer before its first update."""
    torch.manual_seed(7)
    place: RunDevice = choose(run)
    context = training_context(plan_run(run, run.name), folder, place, World(), api.Silent())
    trainer = Trainer(context, resume=False)
    trainer.history.close()
    return trainer


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_trains_and_parses(name: str, tmp_path: Path) -> None:
    """The loss falls; the predictor gives trees over the words, of trees and of texts."""
    make_runs(tmp_path / "banks")
    decoder = name if name in ("chart", "tags") else "sequence"
    run = objective_run(tmp_path / "banks", KINDS[name], decoder)
    trainer = trainer_of(run, tmp_path / "run")
    stream = trainer._stream_micro_batches()
    losses = [trainer._update(next(stream))[0].item() for _ in range(PARSING_UPDATES)]
    trees = bank(4, 5)

    model = trainer.model.get_submodule("model").eval()
    graph, columns = trainer.context.graph, trainer.context.corpus.columns
    predictor = predictors(run, graph, columns)(model)
    found = predictor.predict([{"tree": tree} for tree in trees])
    [by_text] = predictor.predict([{"source": "the dog sees the cat ."}])

    assert losses[-1] < losses[0]
    for parse, tree in zip(found, trees, strict=True):
        assert [leaf.word for leaf in parse.tree.leaves()] == [one.word for one in tree.leaves()]
    assert len([*by_text.tree.leaves()]) == 6


def test_the_validation_has_f1_and_a_checkpoint_is_chosen_by_it(tmp_path: Path) -> None:
    """Training to the end, with metrics of trees by name."""
    make_runs(tmp_path / "banks")
    run = objective_run(tmp_path / "banks", KINDS["tags"], "tags", updates=60)
    values: list[Mapping[str, Any]] = []

    class Listener(api.Silent):
        def validated(self, update: int, found: Mapping[str, Any]) -> None:  # noqa: ARG002
            values.append(found)

    api.train(run, out=tmp_path / "run", listener=Listener())

    assert {"tags", "leaves", "nodes", "loss", "evalb"} <= values[-1].keys()
    assert values[-1]["evalb"] > values[0]["evalb"]
    assert values[-1]["loss"] == pytest.approx(
        sum(values[-1][name] for name in ("tags", "leaves", "nodes"))
    )


def test_a_predictor_for_other_trees_is_refused(tmp_path: Path) -> None:
    """Such as CKY for a model that tags words, before training begins."""
    make_runs(tmp_path / "banks")
    run = objective_run(tmp_path / "banks", KINDS["tags"], "tags", predict={"type": "cky"})

    with pytest.raises(InputError, match="'cky' needs trees for the decoder 'chart'"):
        trainer_of(run, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tree": {"type": "tree", "decoder": "chart"}}, "the reader has the decoder 'tags'"),
        ({"tree": {"type": "tree", "decoder": "tags", "words": "word"}}, "no text column 'word'"),
        (
            {"tree": {"type": "tree", "decoder": "tags", "linearization": "top_down"}},
            "'linearization' has no effect",
        ),
        ({"target": {"type": "text", "tokenizer": "words"}}, "needs whole symbols"),
    ],
    ids=["decoder", "words", "linearization", "pieces"],
)
def test_settings_that_do_not_fit_are_refused(
    change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    """Before any data is read."""
    good = objective_run(tmp_path, KINDS["tags"], "tags").model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    good["data"]["columns"] |= change
    if "target" in change:
        del good["tokenizers"]["symbols"]

    with pytest.raises(ValueError, match=problem):
        Run.model_validate(good)


PICTURES_SETTINGS = {
    "predict": {"type": "greedy", "max_length": 8},
    "answers": "target",
    "updates": 2,
    "trackers": ["tensorboard"],
}


def test_a_translation_run_logs_pictures_at_each_validation(
    objective_run: Writer, tmp_path: Path
) -> None:
    """One file for each picture, and an image of each in the event file."""
    evaluate = {"every": 1, "pictures": 2, "samples": 2}
    file = objective_run("translation", **PICTURES_SETTINGS, evaluate=evaluate)

    api.train(file, out=tmp_path / "run")

    events = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    assert [one.step for one in events.Images("attention/2")] == [1, 2]
    names = sorted(path.name for path in (tmp_path / "run/pictures").iterdir())
    assert names == ["attention-1.png", "attention-2.png"]


def test_pictures_without_trackers_are_refused(objective_run: Writer, tmp_path: Path) -> None:
    """Nothing would show them."""
    settings = {**PICTURES_SETTINGS, "trackers": []}
    file = objective_run("translation", **settings, evaluate={"every": 2, "pictures": 2})

    with pytest.raises(SpecError, match="'pictures' are logged to trackers, but the run has none"):
        api.train(file, out=tmp_path / "run")
