"""Attention weights, alignments, and their pages and pictures."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime import api
from weft.runtime.analysis.alignment import reading_source
from weft.runtime.analysis.attention_pictures import attention_pictures, groups_of
from weft.runtime.analysis.attention_weights import AttentionMaps, recording
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.data.symbols import Symbols
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load

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


@pytest.fixture
def folder(toy_checkpoint: Path) -> Path:
    """Return a checkpoint of a barely trained model: one layer of two heads on each side."""
    return toy_checkpoint


@pytest.mark.integration
def test_a_page_holds_the_weights_of_every_head(folder: Path, tmp_path: Path) -> None:
    """They equal those of `attention`, grouped by the sequences; each row sums to one."""
    out = tmp_path / "heads.html"

    assert main(["attend", str(folder), "sun moon", "--target", "tree", "-o", str(out)]) == 0

    text = out.read_text(encoding="utf-8")
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found.group(1))
    [maps] = api.open_model(folder).attention(["sun moon"], ["tree"])
    assert [group["title"] for group in data["groups"]] == [
        "source reads source",
        "target reads target",
        "target reads source",
    ]
    crossed = data["groups"][2]
    assert (tuple(crossed["reads"]), tuple(crossed["read"])) == (maps.target, maps.source)
    [layer] = crossed["layers"]
    for head, weights in zip(layer["heads"], maps.weights[layer["path"]].tolist(), strict=True):
        for row, wanted in zip(head, weights, strict=True):
            assert row == pytest.approx(wanted, abs=1e-4)
            assert sum(row) == pytest.approx(1.0, abs=0.01)


@pytest.mark.integration
def test_a_page_loads_nothing_and_escapes_words(folder: Path, tmp_path: Path) -> None:
    """Not even for a sentence that contains a script."""
    out = tmp_path / "heads.html"
    attack = "</script><script>alert(1)</script>"

    assert main(["attend", str(folder), attack, "--target", attack, "-o", str(out)]) == 0

    text = out.read_text(encoding="utf-8")
    assert text.count("<script") == 2
    assert "alert(1)" not in re.sub(r'(?s)id="data">.*?</script>', "", text)
    names = text.replace(attack, "").replace("http://www.w3.org/2000/svg", "")  # not an address
    assert not re.search(r"https?://|src=|href=|@import", names)
    assert "default-src 'none'" in text


@pytest.mark.integration
def test_a_picture_is_written(folder: Path, tmp_path: Path) -> None:
    """One PNG of all groups, or vectors of the selected one."""
    out = tmp_path / "heads.png"

    assert main(["attend", str(folder), "sun moon", "-o", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")

    only = ["--only", "target reads source"]
    vectors = tmp_path / "heads.svg"
    assert main(["attend", str(folder), "sun moon", *only, "-o", str(vectors)]) == 0
    assert b"<svg" in vectors.read_bytes()
    assert b"<image" not in vectors.read_bytes()  # no pixels


@pytest.mark.integration
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["sun", "-o", "heads.gif"], "the suffix '.gif'"),
        (["", "-o", "heads.png"], "is empty"),
        (["sun", "--only", "cross", "-o", "heads.png"], "target reads source"),
        (["sun " * 300, "--target", "moon", "-o", "heads.html"], "more than 200 pieces"),
    ],
)
def test_a_page_that_cannot_be_drawn_is_refused(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: str,
) -> None:
    """The error has a help text, and no file is written."""
    monkeypatch.chdir(tmp_path)

    assert main(["attend", str(folder), *options]) == 1

    assert words in capsys.readouterr().err
    assert list(tmp_path.glob("heads.*")) == []


@pytest.mark.integration
def test_sentences_of_equal_length_are_distinguished(folder: Path) -> None:
    """By the axes of the graph, not by their length."""
    model = api.open_model(folder)
    [maps] = model.attention(["sun moon"], ["tree"])
    size = min(len(maps.source), len(maps.target))
    same = AttentionMaps(
        source=maps.source[:size],
        target=maps.target[:size],
        weights={path: w[:, :size, :size] for path, w in maps.weights.items()},
    )

    titles = [group.title for group in groups_of(model.graph, same)]

    assert titles == ["source reads source", "target reads target", "target reads source"]


ATTENTION_SAMPLES_SMALL = {
    "vocab": 8,
    "d_model": 8,
    "heads": 2,
    "d_ff": 12,
    "layers": 1,
    "dropout": 0.0,
}
WORDS = Symbols(["a", "b", "c", "d"])


@pytest.mark.integration
def test_short_pairs_are_drawn(tmp_path: Path) -> None:
    """An empty source and a long one are left out; the mode of the model is restored."""
    graph = check(load("transformer-tiny").form, registry(), ATTENTION_SAMPLES_SMALL)
    model = build(graph).train()
    pairs = [("", "a"), ("a " * 60, "b"), ("a b", "c"), ("d", "a b"), ("b", "b")]

    paths = attention_pictures(model, graph, (WORDS, WORDS), pairs, tmp_path)

    assert [path.name for path in paths] == ["attention-1.png", "attention-2.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert model.training


def test_a_model_without_a_source_has_no_pictures(tmp_path: Path) -> None:
    """Training continues without them."""
    graph = check(load("gpt2").form, registry(), {**ATTENTION_SAMPLES_SMALL, "max_length": 16})

    assert attention_pictures(build(graph), graph, (WORDS, WORDS), [("a", "b")], tmp_path) == []


@pytest.fixture(scope="module")
def model(toy_checkpoint: Path) -> api.Model:
    """Return a barely trained model."""
    return api.open_model(toy_checkpoint)


@pytest.mark.integration
def test_pairs_are_independent_of_their_neighbours(model: api.Model) -> None:
    """Of any length, more than fit one batch, with an empty source and an empty target."""
    sources = ["sun moon", "", "river stone bird wind leaf", "tree"] * 10
    targets = ["moon sun", "tree", "leaf", ""] * 10

    together = model.align(sources, targets)

    assert together == [
        model.align([one], [other])[0] for one, other in zip(sources, targets, strict=True)
    ]
    for one, source in zip(together, sources, strict=True):
        assert [number for _, number in one.pairs] == list(range(len(one.target) if source else 0))
        assert all(0 <= place < len(one.source) for place, _ in one.pairs)


@pytest.mark.integration
def test_without_targets_the_translations_are_aligned(model: api.Model) -> None:
    """For each piece of the model's translation."""
    lines = ["sun moon", "river stone"]

    assert model.align(lines) == model.align(lines, model.translate(lines))
    with pytest.raises(InputError, match="1 sources for 2 targets"):
        model.align(["sun"], ["moon", "tree"])


@pytest.mark.integration
def test_a_model_that_reads_no_source_by_attention_is_refused() -> None:
    """The error names its spec."""
    spec = weft.load("bytenet", vocab=11, d_model=8, sets=1)
    graph = graph_of(spec)

    with pytest.raises(InputError, match="alignment needs an attention") as caught:
        reading_source(graph, weft.build(spec))

    assert "bytenet" in caught.value.location


@pytest.mark.integration
def test_recurrent_models_align_too() -> None:
    """Their attention has one head."""
    spec = weft.load("gru-attention", vocab=11, d_model=8)

    assert reading_source(graph_of(spec), weft.build(spec))
