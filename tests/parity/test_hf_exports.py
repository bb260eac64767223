"""Exports are opened by Hugging Face's library and compute the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.extensions.interop.export.huggingface.export import export_huggingface
from weft.extensions.interop.importing.comparison import compare
from weft.runtime.checkpoint.saving import Contents, save
from weft.runtime.data.settings import PieceSettings
from weft.runtime.data.tokenizer import train_tokenizer

from ..extensions.interop.small_exports import EVERY_TABLE, checkpoint, exportable, small


@EVERY_TABLE
def test_from_pretrained_computes_the_same(hf: Any, tmp_path: Path, name: str, spec: str) -> None:
    """Logits equal at 1e-5, padding included; and ours equal those of the exported checkpoint."""
    del hf
    export = export_huggingface(exportable(name, spec), tmp_path / "out", table=name)
    report = compare(weft.import_hf(tmp_path / "out", name), tmp_path / "out", name)

    assert report.equal, str(report)
    assert export.same
    lacking = [note for note in report.notes if "lacks weights" in note]
    unused = ("embed_positions", "num_batches_tracked")  # tables of sines, and what no one reads
    assert all(any(name in note for name in unused) for note in lacking)


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


def test_pieces_of_users_are_whole_in_the_reopened_tokenizer(hf: Any, tmp_path: Path) -> None:
    """The ids of AutoTokenizer are ours, with the begin piece of a prompt before them."""
    text = ["<user> a dog runs over the grass", "two men are sitting <end>"] * 9
    settings = PieceSettings(type="bpe", vocab_size=40, user_symbols=("<user>", "<end>"))
    tokenizer = train_tokenizer(text, settings, tmp_path / "trained.model")
    files = {"tokenizer.model": tokenizer.bytes}
    special = {"begin": tokenizer.bos, "end": tokenizer.eos, "pad": tokenizer.pad}
    state = {"imported": {"table": "own", "tokens": special}}
    model = checkpoint(small("llama"), tmp_path, state=state, tokenizers=files)

    export_huggingface(model, tmp_path / "out", table="llama")

    reader = hf.AutoTokenizer.from_pretrained(tmp_path / "out")
    for line in [*text[:2], "<user><end> men<user>are", "the <end>  <user>"]:
        ids = tokenizer.encode(line)
        assert reader(line)["input_ids"] == [tokenizer.bos, *ids]
        assert reader.decode(ids) == tokenizer.decode(ids)


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


@pytest.mark.parametrize("legacy", [True, False])
def test_an_export_has_the_names_that_the_class_of_its_config_reads(
    hf: Any, tmp_path: Path, *, legacy: bool
) -> None:
    """The head of DeBERTa has other names without `legacy`, and the class ignores the first ones.

    It would compute with a head drawn anew, after a warning alone.
    """
    if not legacy and hf.__version__ < "5":
        pytest.skip("transformers 4 ties the inner map of this head to the embedding")
    config = hf.DebertaV2Config(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=4,
        position_biased_input=False,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        legacy=legacy,
    )
    theirs = hf.DebertaV2ForMaskedLM(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    weft.import_hf(tmp_path / "theirs").save(tmp_path / "ours")

    weft.export(tmp_path / "ours", "huggingface", tmp_path / "out")

    again, report = type(theirs).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report.values()), report
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
