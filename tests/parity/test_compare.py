"""`weft import hf --compare`: equal models pass, and a table with a fault is caught."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from weft.runtime.cli.main import main
from weft.specs.reader import shipped_names

from .conftest import scatter
from .test_hf_decoders import gemma, gpt2, llama, mistral, whisper
from .test_hf_encoders_decoders import (
    BERT,
    STACKS,
    albert,
    bart,
    distilbert,
    marian,
    roberta,
    t5,
    t5_gated,
)


def bert(hf: Any) -> Any:
    """Return a tiny BERT with three token types."""
    return hf.BertForMaskedLM(hf.BertConfig(**BERT, type_vocab_size=3))


def pretrained_bert(hf: Any) -> Any:
    """Return a tiny BERT with a second head, whose outputs have another name."""
    return hf.BertForPreTraining(hf.BertConfig(**BERT))


def headless_bart(hf: Any) -> Any:
    """Return a tiny BART without its head, which is the word table."""
    return hf.BartModel(hf.BartConfig(**STACKS, bos_token_id=2))


def vit(hf: Any) -> Any:
    """Return a tiny ViT."""
    return hf.ViTForImageClassification(
        hf.ViTConfig(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=12,
            patch_size=4,
            num_labels=7,
        )
    )


MODELS = [
    *(bert, pretrained_bert, roberta, distilbert, albert, gpt2, bart, headless_bart, marian),
    *(t5, t5_gated, llama, mistral, gemma, vit, whisper),
]


@pytest.fixture
def saved(hf: Any, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that saves a model with perturbed weights and returns its folder."""

    def save(make: Callable[[Any], Any], *, by: float = 0.2) -> Path:
        folder = tmp_path / "theirs"
        scatter(make(hf), by).save_pretrained(folder)
        return folder

    return save


def compared(folder: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    """Run the command with --json and return the exit code and the report."""
    code = main(["import", "hf", str(folder), "--out", str(out), "--compare", "--json", *more])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("make", MODELS)
def test_a_shipped_table_gives_equal_outputs(
    saved: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Any], Any],
) -> None:
    """For batches of several lengths with padding, also step by step; the checkpoint is written."""
    code, report = compared(saved(make), tmp_path / "ours", capsys)

    comparison = report["comparison"]
    assert code == 0, report
    assert comparison["equal"]
    assert max(one["relative"] for one in comparison["compared"]) <= comparison["tolerance"] == 1e-5
    assert all(one["values"] > 0 and one["sizes"]["B"] > 1 for one in comparison["compared"])
    decodes = make not in (bert, pretrained_bert, roberta, distilbert, albert, vit)
    outputs = {"logits", "logits in float64"} | ({"logits by steps"} if decodes else set())
    assert {one["output"] for one in comparison["compared"]} == outputs
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert len(comparison["compared"]) > 1 or make is vit
    assert (tmp_path / "ours" / "weights.safetensors").is_file()
    assert report["wrote"] == str(tmp_path / "ours")


def faulty(folder: Path, name: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Write a shipped table with a fault."""
    table = json.loads(Path(shipped_names("imports")[f"hf-{name}"]).read_text())
    change(table)
    path = folder / "faulty.json"
    path.write_text(json.dumps(table))
    return path


def swap_query_and_key(table: dict[str, Any]) -> None:
    """Read the queries of every layer from its keys, and the keys from its queries."""
    weights = table["weights"]
    query, key = (
        next(k for k in weights if f"self_attention.f.{n}." in k) for n in ("query", "key")
    )
    weights[query], weights[key] = weights[key], weights[query]


def swap_decoder_norms(table: dict[str, Any]) -> None:
    """Exchange two norms of every decoder layer."""
    weights = table["weights"]
    one, two = "decoder.{i}.self_attention.norm.{p}", "decoder.{i}.cross_attention.norm.{p}"
    weights[one], weights[two] = weights[two], weights[one]


def larger_eps(table: dict[str, Any]) -> None:
    """Add a number to eps that the configuration does not have."""
    table["params"]["eps"] = "=layer_norm_eps + 1/1000"


def other_activation(table: dict[str, Any]) -> None:
    """Compute GELU by its approximation."""
    table["params"]["activation"]["cases"]["gelu"] = "gelu_tanh"


def swap_positions(table: dict[str, Any]) -> None:
    """Exchange the positions of the encoder and of the decoder."""
    weights = table["weights"]
    one, two = "source_position.weight", "target_position.weight"
    weights[one], weights[two] = weights[two], weights[one]


FAULTS: dict[str, tuple[Callable[[Any], Any], str, Callable[[dict[str, Any]], None], str]] = {
    "query and key": (bert, "bert", swap_query_and_key, "encoder.0, theirs bert.encoder.layer.0"),
    "eps": (bert, "bert", larger_eps, "the input of encoder.0, theirs the input of bert.encoder"),
    "activation": (bert, "bert", other_activation, "encoder.0, theirs bert.encoder.layer.0"),
    "norms": (bart, "bart", swap_decoder_norms, "decoder.0, theirs model.decoder.layers.0"),
    "positions": (bart, "bart", swap_positions, "the input of encoder.0, theirs the input of"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_in_a_table_is_caught(
    saved: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fault: tuple[Callable[[Any], Any], str, Callable[[dict[str, Any]], None], str],
) -> None:
    """The exit code is 1, nothing is written, and the first layer that differs is named."""
    make, name, change, first = fault
    folder, table = saved(make), faulty(tmp_path, name, change)
    before = set(tmp_path.iterdir())

    code, report = compared(folder, tmp_path / "ours", capsys, "--as", str(table))

    assert code == 1
    assert not report["comparison"]["equal"]
    assert report["comparison"]["first"].startswith(first)
    assert report["wrote"] is None
    assert set(tmp_path.iterdir()) == before


def test_a_report_for_people(
    saved: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the difference, the tolerance, the output and the layer; a checkpoint is kept."""
    folder, out = saved(bert), str(tmp_path / "ours")
    table = faulty(tmp_path, "bert", swap_query_and_key)
    assert main(["import", "hf", str(folder), "--out", out, "--compare"]) == 0
    right = capsys.readouterr().out
    weights = (tmp_path / "ours" / "weights.safetensors").read_bytes()

    code = main(["import", "hf", str(folder), "--out", out, "--as", str(table), "--compare"])

    wrong = capsys.readouterr().out
    assert code == 1
    assert "values in 3 batches with BertForMaskedLM" in right
    assert "tolerance 1e-05" in right
    assert "differs" not in right
    assert "differs: logits (B = 3, T = 7)" in wrong
    assert "first difference: encoder.0" in wrong
    assert "wrote nothing" in wrong
    assert (tmp_path / "ours" / "weights.safetensors").read_bytes() == weights


def test_no_code_of_the_folder_runs(
    saved: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither code that the configuration names nor a pickle next to the weights."""
    folder = saved(bert)
    config = json.loads((folder / "config.json").read_text())
    names = {"AutoConfig": "evil.Config", "AutoModelForMaskedLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": names}))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle")

    code, report = compared(folder, tmp_path / "ours", capsys)

    assert (code, report["comparison"]["equal"]) == (0, True)
    assert not (tmp_path / "ran").exists()


def test_weights_that_their_class_lacks_are_named(
    saved: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Transformers would draw them, so the outputs differ for that reason."""
    folder = saved(bert)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    del tensors["cls.predictions.transform.dense.bias"]
    save_file(tensors, file, metadata={"format": "pt"})

    def fill(table: dict[str, Any]) -> None:
        weights = table["weights"]
        weights["transform.weight"] = "cls.predictions.transform.dense.weight"
        weights["transform.bias"] = {"fill": 0.5}
        del weights["transform.{p}"]

    table = faulty(tmp_path, "bert", fill)
    code, report = compared(folder, tmp_path / "ours", capsys, "--as", str(table))

    assert code == 1
    assert report["comparison"]["first"] is None, "the layers are equal"
    assert "cls.predictions.transform.dense.bias" in report["comparison"]["notes"][0]


def test_a_class_that_is_not_installed_is_named(
    saved: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model whose class is code in its folder cannot be compared."""
    folder = saved(bert)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["OwnBert"]}))
    table = faulty(tmp_path, "bert", lambda table: table.update(architectures=["OwnBert"]))

    code = main(["import", "hf", str(folder), "--as", str(table), "--compare", "--out", "ours"])

    error = capsys.readouterr().err
    assert code == 1
    assert "has no class OwnBert" in error
    assert "without --compare" in error
