"""Exports are opened by Hugging Face's library and compute the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.extensions.interop.export.huggingface.export import export_huggingface
from weft.extensions.interop.export.huggingface.fit import fit, specs_of
from weft.extensions.interop.importing.comparison import compare
from weft.extensions.interop.importing.inherit import FOLDER
from weft.extensions.interop.importing.plan import assigned
from weft.extensions.interop.importing.table import load_table
from weft.graphs.ir.canonical import canonical
from weft.graphs.ir.graph import Graph
from weft.runtime.checkpoint.checkpoint import Checkpoint
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.tokenizer import train_tokenizer
from weft.runtime.spec.check import graph_of
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

SMALL: dict[str, Any] = {
    "d_model": 32,
    "d_embedding": 32,
    "heads": 4,
    "kv_heads": 2,
    "d_k": 16,
    "buckets": 8,
    "d_ff": 16,
    "layers": 4,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "max_length": 32,
    "vocab": 40,
    "mels": 6,
    "labels": 5,
    "height": 12,
    "width": 12,
    "patch": 4,
    "sliding_window": 4,
    "rotary_base": 500.0,
}
TABLES = [name.removeprefix("hf-") for name in shipped_names(FOLDER)]
IDS = {"begin": 2, "end": 1, "pad": 0}


def checkpoint(graph: Graph, folder: Path, **more: Any) -> Checkpoint:
    """Return a checkpoint with varied weights."""
    model = weft.build(graph, seed=1)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    own = {"run": {}, "state": {"imported": {"table": "own", "tokens": IDS}}, "tokenizers": {}}
    weights = weights_of(model, graph)
    return Checkpoint(folder=folder, graph=graph, weights=weights, **{**own, **more})


def small(name: str, **more: Any) -> Graph:
    """Return the graph of a small shipped spec as a checkpoint has it, without params."""
    known = load(name).form.params
    given = {key: value for key, value in {**SMALL, **more}.items() if key in known}
    return graph_of(loaded(canonical(graph_of(load(name, given)))))


NEEDED: dict[str, dict[str, Any]] = {
    "distilbert": {"types": 1},
    "m2m-100": {
        "position": {
            "use": "sinusoidal_position@1",
            "params": {"form": "concatenated", "first": IDS["pad"] + 1},
        }
    },
}
"""Table to params without which a spec cannot be one of its models."""


@pytest.mark.parametrize(
    ("name", "spec"),
    [(name, spec) for name in TABLES for spec in specs_of(load_table(name)[0].spec)],
)
def test_from_pretrained_computes_the_same(hf: Any, tmp_path: Path, name: str, spec: str) -> None:
    """Logits equal at 1e-5, padding included; and ours equal those of the exported checkpoint."""
    del hf
    table, source = load_table(name)
    params = NEEDED.get(name, {})
    graph = fit(table, source, small(spec, **params), IDS).graph  # with the params that it fixes
    ours = checkpoint(graph_of(loaded(canonical(graph))), tmp_path)
    plan, _ = assigned(table, source, ours.weights)
    for path, origin in plan.items():
        if not origin.weight.names:
            ours.weights[path].fill_(origin.weight.fill or 0.0)

    made = export_huggingface(ours, tmp_path / "out", table=name)
    found = compare(weft.import_hf(tmp_path / "out", name), tmp_path / "out", name)

    assert found.equal, str(found)
    assert made.same
    lacking = [note for note in found.notes if "lacks weights" in note]
    assert all("embed_positions" in note for note in lacking)  # tables of sines


def test_a_translation_model_translates_in_their_library(hf: Any, tmp_path: Path) -> None:
    """Text to text: their tokenizer gives our ids, and beam search the same words."""
    text = ["a dog runs over the grass", "two men are sitting", "the cat sees a dog"] * 4
    settings = PieceSettings(type="bpe", vocab_size=40)
    tokenizer = train_tokenizer(text, settings, tmp_path / "trained.model")
    state: dict[str, Any] = {"imported": {"table": "own"}}
    special = {"begin": tokenizer.bos, "end": tokenizer.eos, "pad": tokenizer.pad}
    state["imported"]["tokens"] = special
    state["imported"]["search"] = {
        "beam": 3,
        "penalty": "length",
        "alpha": 0.7,
        "ends": "best",
        "max_factor": 0.0,
        "max_extra": 12,
    }
    files = {"tokenizer.model": tokenizer.bytes}
    graph = small("transformer-base", d_k=8)
    made = checkpoint(graph, tmp_path, state=state, tokenizers=files)
    contents = Contents(graph=made.graph, weights=made.weights, state=state, tokenizers=files)
    save(tmp_path / "ours", contents)

    weft.export(tmp_path / "ours", "huggingface", tmp_path / "out")

    theirs = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    reader = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours = weft.open(tmp_path / "ours")
    assert ours.search.beam == 3
    for line in text[:3]:
        ids = reader(line)["input_ids"]
        assert ids == [*tokenizer.encode(line), tokenizer.eos]
        never = [[special["begin"]], [special["pad"]]]
        written = theirs.generate(torch.tensor([ids]), bad_words_ids=never)[0].tolist()[1:]
        end = written.index(tokenizer.eos) if tokenizer.eos in written else len(written)
        [[best, *_]] = ours.decode([ids])
        assert list(best.tokens) == written[:end]
    config = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert (config["num_beams"], config["length_penalty"], config["max_length"]) == (3, 0.7, 13)


def test_generation_settings_are_imported_and_exported(hf: Any, tmp_path: Path) -> None:
    """Ids, beams and lengths of `generation_config.json` are defaults of the checkpoint."""
    config = hf.MarianConfig(
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        vocab_size=40,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    theirs = hf.MarianMTModel(config)
    theirs.generation_config = hf.GenerationConfig(
        num_beams=5,
        length_penalty=0.8,
        max_length=21,
        min_length=3,
        no_repeat_ngram_size=2,
        eos_token_id=7,
        pad_token_id=0,
        decoder_start_token_id=0,
        encoder_no_repeat_ngram_size=3,
    )
    theirs.save_pretrained(tmp_path / "theirs")

    made = weft.import_hf(tmp_path / "theirs")
    made.save(tmp_path / "ours")
    ours = weft.open(tmp_path / "ours")

    assert any("encoder_no_repeat_ngram_size" in note for note in made.notes)
    assert made.state["imported"]["tokens"]["end"] == 7
    search = ours.search
    assert (search.beam, search.penalty, search.alpha, search.ends) == (5, "length", 0.8, "best")
    assert (search.max_factor, search.max_extra, search.min_length) == (0, 20, 2)
    assert search.no_repeat == 2
    weft.export(tmp_path / "ours", "huggingface", tmp_path / "again")
    again = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    same = ("num_beams", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size")
    assert {key: again[key] for key in same} == {
        key: getattr(theirs.generation_config, key) for key in same
    }
