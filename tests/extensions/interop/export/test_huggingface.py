"""Exports for Hugging Face's library: tables read backwards, and what has no counterpart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from markdown_it import MarkdownIt
from safetensors.torch import load_file, save_file
from weft.extensions.interop.export.huggingface.export import export_huggingface
from weft.extensions.interop.export.huggingface.fit import chosen, fit, fits
from weft.extensions.interop.export.huggingface.tensors import assembled
from weft.extensions.interop.importing.table import load_table
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.graph import Graph
from weft.runtime.checkpoint.exporter import export
from weft.runtime.checkpoint.saving import Contents, save
from weft.runtime.cli.main import main
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import loaded

from ..small_exports import EVERY_TABLE, IDS, NEEDED, checkpoint, exportable, small

pytestmark = pytest.mark.integration


@EVERY_TABLE
def test_importing_an_export_gives_the_same_weights(name: str, spec: str, tmp_path: Path) -> None:
    """To the bit, for every shipped table, with all params solved from the graph alone."""
    table, source = load_table(name)
    ours = exportable(name, spec)

    fitting = fit(table, source, ours.graph, IDS)
    assert fitting.obstacles == ()
    tensors = assembled(table, source, ours.weights, fitting.configuration())
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(fitting.config))
    again = weft.import_hf(tmp_path, name)

    assert fingerprint(again.graph) == fingerprint(ours.graph)
    assert again.weights.keys() == ours.weights.keys()
    assert all(torch.equal(again.weights[path], weight) for path, weight in ours.weights.items())


RENAMED = {
    "source_embedding": "read",
    "target_embedding": "write",
    "encoder": "reader",
    "decoder": "writer",
    "self_attention": "own",
    "feed_forward": "map",
    "source_mask": "kept",
}


def renamed(graph: Graph) -> Graph:
    """Return a graph with other names of nodes, templates and inputs."""
    text = json.dumps(canonical(graph))
    for old, new in RENAMED.items():
        text = text.replace(f'"{old}"', f'"{new}"').replace(f'"{old}.', f'"{new}.')
        text = text.replace(f".{old}.", f".{new}.").replace(f"{old}_layer", f"{new}_layer")
    return graph_of(loaded(json.loads(text)))


def test_a_transformer_with_other_names_is_a_marian(tmp_path: Path) -> None:
    """Sines and cosines are put in Marian's order, a zero bias is added, outputs are the same."""
    graph = renamed(small("transformer-base", d_k=8))
    assert "reader.0.own.f.query.weight" in graph.weights()

    made = export_huggingface(checkpoint(graph), tmp_path / "out")

    assert (made.table, made.architecture) == ("marian", "MarianMTModel")
    assert made.same
    assert made.difference < 1e-4
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    given = checkpoint(graph).weights["read.weight"]
    order = [*range(0, 32, 2), *range(1, 32, 2)]
    assert torch.equal(tensors["model.shared.weight"], given[:, order])
    assert torch.equal(tensors["final_logits_bias"], torch.zeros(1, 40))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["activation_function"] == "relu"
    assert config["decoder_layers"] == 4
    assert config["eos_token_id"] == 1
    card = (tmp_path / "out" / "README.md").read_text()
    assert "MarianMTModel.from_pretrained" in card
    assert "features are reordered" in card


def test_a_card_shows_the_texts_of_a_checkpoint_as_text(tmp_path: Path) -> None:
    """A stranger's spec could say how to run code, or hold a picture that tells who reads it.

    So could the name of its run, and the names and signatures of scores.
    """
    hostile = (
        "## Use\n\n```python\nload(trust_remote_code=True)\n```\n<script>f()</script>"
        " ![tracker](https://example.org/t.png)"
    )
    graph = small("gpt2")
    headings = []
    for text in ("a model", hostile):
        described = checkpoint(graph_of(loaded({**canonical(graph), "doc": text})))
        out = tmp_path / str(len(headings))
        scores = {"scores": {text: 1.0}, "signatures": {text: text}}
        export_huggingface(replace(described, run={"name": text}), out, scores=scores)
        card = (out / "README.md").read_text().split("---", 2)[2]
        parsed = MarkdownIt("commonmark", {"html": True}).enable("table").parse(card)
        parts = [(part.type, part.tag) for part in parsed]
        inline = [inner.type for part in parsed for inner in part.children or ()]
        headings.append((parts, inline.count("image"), inline.count("html_inline")))

    assert headings[0] == headings[1]
    assert "trust\\_remote" in card or "trust_remote_code=True" in card


@pytest.mark.parametrize(
    ("spec", "more", "table", "problem"),
    [
        ("transformer-prenorm", {}, "marian", "has order pre, not post"),
        ("gpt2", {"activation": "tanh"}, "gpt2", "'activation_function' has no value for tanh"),
        ("gla", {}, None, "is gated_linear_attention@1, not attention@1"),
        ("transformer-rotary", {}, "marian", "'encoder.*.self_attention/f/position' (rotary@1)"),
    ],
)
def test_what_has_no_counterpart_is_named(
    spec: str, more: dict[str, Any], table: str | None, problem: str
) -> None:
    """With its path and its value."""
    with pytest.raises(InputError) as error:
        chosen(small(spec, **more), IDS, table)

    assert problem in error.value.problem


def test_a_weight_without_counterpart_is_named() -> None:
    """DistilBERT has no token types, so their vectors must be zero."""
    made = checkpoint(small("bert", **NEEDED["distilbert"]))
    table, source = load_table("distilbert")
    found = fit(table, source, made.graph, IDS)

    with pytest.raises(InputError, match=r"'type_embedding\.weight' has no counterpart"):
        assembled(table, source, made.weights, found.configuration())


def test_the_nearest_architecture_comes_first() -> None:
    """Without mistakes in between: the shipped specs of the tables, and one that is none."""
    best = fits(small("transformer-base", d_k=8))[0]

    assert (best.name, best.obstacles) == ("marian", ())
    assert fits(small("transformer-rotary", d_k=8))[0].name == "marian"


def test_the_command_exports_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a checkpoint folder; the scores of an evaluation stand in the card."""
    made = checkpoint(small("gpt2"))
    save(
        tmp_path / "ours",
        Contents(graph=made.graph, weights=made.weights, state=made.state),
    )
    report = {"scores": {"bleu": 31.25}, "signatures": {"bleu": "nrefs:1|tok:13a"}}
    (tmp_path / "scores.json").write_text(json.dumps(report))
    out = tmp_path / "theirs"
    words = ["export", str(tmp_path / "ours"), "--to", "huggingface", "-o", str(out)]

    assert main([*words, "--scores", str(tmp_path / "scores.json")]) == 0
    assert "GPT2LMHeadModel" in capsys.readouterr().out
    assert "| bleu | 31.25 | `nrefs:1\\|tok:13a` |" in (out / "README.md").read_text()
    assert json.loads((out / "config.json").read_text())["n_head"] == 4

    assert main(["fits", str(tmp_path / "ours"), "--most", "1"]) == 0
    assert "gpt2  fits: gpt2 with d_model 32, heads 4" in capsys.readouterr().out
    assert main(["fits", "gla", "--most", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["fits"] is False


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--to", "huggingface", "--quantization", "int8"], "--quantization"),
        (["--to", "onnx", "--as", "bert"], "--as"),
    ],
)
def test_an_option_without_effect_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], problem: str
) -> None:
    """Before the checkpoint is opened."""
    assert main(["export", str(tmp_path), *flags, "-o", str(tmp_path / "out")]) != 0
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_setting_without_effect_is_refused_in_python(tmp_path: Path) -> None:
    """As on the command line."""
    with pytest.raises(InputError, match="'table' has no effect on 'onnx'"):
        export(tmp_path, "onnx", tmp_path / "out", table="bert")
    with pytest.raises(InputError, match="'quantization' has no effect on 'huggingface'"):
        export(tmp_path, "huggingface", tmp_path / "out", quantization="int8")


def test_another_folder_is_not_overwritten(tmp_path: Path) -> None:
    """Only an older export is."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")

    with pytest.raises(InputError, match="exists and is not an export"):
        export_huggingface(checkpoint(small("gpt2")), tmp_path / "out")

    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_norms_that_lose_bits_are_reported(tmp_path: Path) -> None:
    """Gemma's files store gains minus 1, so gains near zero lose their last bits."""
    made = checkpoint(small("gemma"))
    weights = {**made.weights, "norm.weight": torch.full((32,), 1e-3 / 3)}

    report = export_huggingface(replace(made, weights=weights), tmp_path / "out")

    assert not report.same
    assert any(note.startswith("norm.weight: 32 values change") for note in report.notes)
