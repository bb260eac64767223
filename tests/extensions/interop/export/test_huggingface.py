"""Exports for Hugging Face's library: tables read backwards, and what has no counterpart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from safetensors.torch import load_file, save_file
from weft.extensions.interop.export.huggingface.export import export_huggingface
from weft.extensions.interop.export.huggingface.fit import chosen, fit, fits, specs_of
from weft.extensions.interop.export.huggingface.tensors import assembled
from weft.extensions.interop.importing.inherit import FOLDER
from weft.extensions.interop.importing.plan import assigned
from weft.extensions.interop.importing.table import load_table
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.graph import Graph
from weft.runtime.checkpoint.checkpoint import Checkpoint
from weft.runtime.checkpoint.exporter import export
from weft.runtime.checkpoint.saving import Contents, save
from weft.runtime.cli.main import main
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

pytestmark = pytest.mark.integration

SMALL: dict[str, Any] = {
    "d_model": 16,
    "d_embedding": 16,
    "heads": 2,
    "kv_heads": 1,
    "d_k": 8,
    "d_ff": 10,
    "rotary_base": 500.0,
    "layers": 4,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "max_length": 12,
    "vocab": 11,
    "types": 2,
    "labels": 3,
    "height": 8,
    "width": 8,
    "patch": 4,
    "mels": 4,
    "sliding_window": 4,
    "buckets": 8,
}
"""Sizes of every kind; a spec gets those that it has as numbers."""
IDS = {"begin": 3, "end": 2, "pad": 1}
POSITION = {"form": "concatenated", "first": IDS["pad"] + 1}
NEEDED: dict[str, dict[str, Any]] = {
    "distilbert": {"types": 1},
    "m2m-100": {"position": {"use": "sinusoidal_position@1", "params": POSITION}},
}
"""Table to params without which a spec cannot be one of its models."""
TABLES = [name.removeprefix("hf-") for name in shipped_names(FOLDER)]


def small(name: str, **more: Any) -> Graph:
    """Return the graph of a shipped spec at a small size, as a checkpoint has it: no params."""
    known = load(name).form.params
    sizes = {key: value for key, value in SMALL.items() if key in known}
    if name.startswith("transformer"):
        del sizes["d_k"]
    return graph_of(loaded(canonical(graph_of(load(name, {**sizes, **more})))))


def checkpoint(graph: Graph, folder: Path = Path("none"), **more: Any) -> Checkpoint:
    """Return a checkpoint with random weights; vectors are near one, as gains of norms are."""
    torch.manual_seed(7)
    weights = {
        path: torch.rand(shape) + 0.5 if len(shape) == 1 else torch.randn(shape)
        for path, shape in graph.weights().items()
    }
    state = {"imported": {"table": "own", "tokens": IDS}}
    return Checkpoint(
        folder=folder, graph=graph, weights=weights, run={}, state=state, tokenizers={}, **more
    )


@pytest.mark.parametrize(
    ("name", "spec"),
    [(name, spec) for name in TABLES for spec in specs_of(load_table(name)[0].spec)],
)
def test_importing_an_export_gives_the_same_weights(name: str, spec: str, tmp_path: Path) -> None:
    """To the bit, for every shipped table, with all params solved from the graph alone."""
    table, source = load_table(name)
    # Some tables fix params of their spec, such as an activation.
    nearest = fit(table, source, small(spec, **NEEDED.get(name, {})), IDS).graph
    graph = graph_of(loaded(canonical(nearest)))
    weights = dict(checkpoint(graph).weights)
    plan, _ = assigned(table, source, weights)
    for path, origin in plan.items():
        if not origin.weight.names:  # the library has no such tensor, and computes with this
            weights[path] = torch.full_like(weights[path], origin.weight.fill or 0.0)

    found = fit(table, source, graph, IDS)
    assert found.obstacles == ()
    save_file(
        assembled(table, source, weights, found.configuration()), tmp_path / "model.safetensors"
    )
    (tmp_path / "config.json").write_text(json.dumps(found.config))
    again = weft.import_hf(tmp_path, name)

    assert fingerprint(again.graph) == fingerprint(graph)
    assert again.weights.keys() == weights.keys()
    assert all(torch.equal(again.weights[path], weight) for path, weight in weights.items())


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
    graph = renamed(small("transformer-base"))
    assert "reader.0.own.f.query.weight" in graph.weights()

    made = export_huggingface(checkpoint(graph), tmp_path / "out")

    assert (made.table, made.architecture) == ("marian", "MarianMTModel")
    assert made.same
    assert made.difference < 1e-4
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    given = checkpoint(graph).weights["read.weight"]
    order = [*range(0, 16, 2), *range(1, 16, 2)]
    assert torch.equal(tensors["model.shared.weight"], given[:, order])
    assert torch.equal(tensors["final_logits_bias"], torch.zeros(1, 11))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["activation_function"] == "relu"
    assert config["decoder_layers"] == 4
    assert config["eos_token_id"] == 2
    card = (tmp_path / "out" / "README.md").read_text()
    assert "MarianMTModel.from_pretrained" in card
    assert "features are reordered" in card


@pytest.mark.parametrize(
    ("spec", "more", "table", "problem"),
    [
        ("transformer-prenorm", {}, "marian", "has order pre, not post"),
        ("gpt2", {"activation": "tanh"}, "gpt2", "'activation_function' has no value for tanh"),
        ("mamba", {}, None, "is mamba2@1, not attention@1"),
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
    best = fits(small("transformer-base"))[0]

    assert (best.name, best.obstacles) == ("marian", ())
    assert fits(small("transformer-rotary"))[0].name == "marian"


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
    assert "| bleu | 31.25 | `nrefs:1|tok:13a` |" in (out / "README.md").read_text()
    assert json.loads((out / "config.json").read_text())["n_head"] == 2

    assert main(["fits", str(tmp_path / "ours"), "--most", "1"]) == 0
    assert "gpt2  fits: gpt2 with d_model 16, heads 2" in capsys.readouterr().out
    assert main(["fits", "mamba", "--most", "1", "--json"]) == 1
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
    weights = {**made.weights, "norm.weight": torch.full((16,), 1e-3 / 3)}

    report = export_huggingface(replace(made, weights=weights), tmp_path / "out")

    assert not report.same
    assert any(note.startswith("norm.weight: 16 values change") for note in report.notes)
