"""CTranslate2 exports give the same outputs as the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.extensions.interop.export import ctranslate2_spec as ct2_spec
from weft.extensions.interop.export.ctranslate2 import Checked, export_ctranslate2
from weft.runtime.checkpoint.checkpoint import Checkpoint
from weft.runtime.cli.main import main
from weft.specs.findings import InputError
from weft.specs.load import load, load_child

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra 'ctranslate2' is missing")
pytestmark = pytest.mark.integration

Make = Callable[..., Checkpoint]
T5 = {"layers": 2, "d_k": 8}
LLAMA = {"d_k": 8, "kv_heads": 2}
FEATURES: dict[str, dict[str, Any]] = {
    "transformer-base": {},
    "transformer-prenorm": {},
    "transformer-rotary": {},
    "transformer-gqa": {},
    "transformer-swiglu": {},
    "transformer-shared": {},
    "transformer-rmsnorm": {},
    "transformer-headgates": {},
    "transformer-layerscale-droppath": {},
    "transformer-untied": {},
    "transformer-released": {},
    "marian": {},
    "bart": {"max_length": 60},
    "t5": T5,
    "t5-1.1": T5,
    "gpt2": {"max_length": 60},
    "llama": LLAMA,
    "gemma": {**LLAMA, "d_k": 12, "kv_heads": 1},
}
NO_WAVES = {"position": {"use": "dropout@1", "params": {"dropout": 0.1}}}


@pytest.mark.parametrize("name", FEATURES)
def test_the_engine_agrees_with_the_model(checkpoint_of: Make, tmp_path: Path, name: str) -> None:
    """Each shipped kind of layer agrees in log probabilities (1e-4) and greedy outputs."""
    checkpoint = checkpoint_of(name, **FEATURES[name])

    checked = export_ctranslate2(checkpoint, tmp_path / "out")

    assert checked.largest < 1e-4
    assert checked.same == checked.outputs
    assert checked.tokens > 10


@pytest.mark.parametrize(
    ("parent", "params", "select", "changes"),
    [
        ("transformer-prenorm", {}, "**[use=sublayer@1]", {"params.order": "post"}),
        ("transformer-gqa", {}, "**.cross_attention/f", {"params.kv_heads": 1}),
        (
            "transformer-base",
            NO_WAVES,
            "*.*.self_attention/f",
            {"fill.position": {"use": "relative_keys@1", "params": {"reach": 3}}},
        ),
        ("llama", {}, "**.self_attention/f", {"fill.position": {"use": "alibi@1"}}),
        ("transformer-base", {}, "**/f[use=attention@1]", {"params.key_bias": False}),
    ],
    ids=["post-with-final-norm", "kv-heads-differ", "relative-keys", "alibi", "no-key-bias"],
)
def test_rarer_features_are_expressed_too(
    checkpoint_of: Make,
    tmp_path: Path,
    parent: str,
    params: dict[str, Any],
    select: str,
    changes: dict[str, Any],
) -> None:
    """Features that no shipped variant has are exported correctly too."""
    small = {"d_model": 32, "heads": 4, "layers": 2, "vocab": 40, "d_ff": 48, **params}
    known = load(parent).form.params
    given = {**small, **(LLAMA if parent == "llama" else {})}
    loaded = load(parent, {name: given[name] for name in given if name in known})
    params_of_rotary = ["params.rotary_base", "params.position"]
    unread = [{"select": "/", "remove": params_of_rotary}] if parent == "llama" else []
    child = {"name": "other", "patch": [{"select": select, "set": changes}, *unread]}

    checked = export_ctranslate2(
        checkpoint_of(load_child(loaded, child, "other.json")), tmp_path / "out"
    )

    assert checked.largest < 1e-4
    assert checked.same == checked.outputs


def test_quantized_weights_are_close_and_the_model_is_unchanged(
    checkpoint_of: Make, tmp_path: Path
) -> None:
    """int8 files are smaller, and quantization does not change the model's weights."""
    checkpoint = checkpoint_of("transformer-base")
    before = {path: weight.clone() for path, weight in checkpoint.weights.items()}

    checked = export_ctranslate2(checkpoint, tmp_path / "int8", quantization="int8")
    export_ctranslate2(checkpoint, tmp_path / "float32")

    assert 1e-4 < checked.largest < 1
    assert checked.default_mean > 1e-4
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("int8", "float32")]
    assert sizes[0] < sizes[1]
    assert all(torch.equal(before[path], weight) for path, weight in checkpoint.weights.items())


def test_a_processor_whose_integer_products_saturate_is_reported() -> None:
    """The export stays right there; the report tells how to compute with it."""
    fine = Checked(outputs=6, same=6, tokens=90, largest=0.1, mean=0.04, default_mean=0.04)
    saturating = replace(fine, default_mean=0.6)

    assert "warning" not in fine.report
    assert "differ by 0.6 on average; pass compute_type='float32'" in saturating.report


def test_a_fault_of_the_export_leaves_nothing(
    checkpoint_of: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The comparison finds positions that are off by one, and the exit code is 1."""
    checkpoint = checkpoint_of("transformer-base")
    right = ct2_spec._table
    monkeypatch.setattr(ct2_spec, "_table", lambda *given: right(*given).roll(-1, 0))
    out = tmp_path / "out"

    code = main(["export", str(checkpoint.folder), "--to", "ctranslate2", "-o", str(out)])

    assert code == 1
    assert "does not compute the same" in capsys.readouterr().err
    assert not out.exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["checkpoint"]


def test_tables_of_distances_that_differ_by_layer_are_refused(
    checkpoint_of: Make, tmp_path: Path
) -> None:
    """CTranslate2 uses the first layer's table; tied tables are supported, as in t5."""
    checkpoint = checkpoint_of("transformer-t5-bias")

    with pytest.raises(InputError, match="learned distances differ") as caught:
        export_ctranslate2(checkpoint, tmp_path / "out")

    assert 'tie ["encoder.*.self_attention.f.position.weight"]' in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_without_an_export_is_not_replaced(checkpoint_of: Make, tmp_path: Path) -> None:
    """The checkpoint folder itself is refused as output; an older export is replaced."""
    checkpoint = checkpoint_of("transformer-base")
    files = sorted(one.name for one in checkpoint.folder.iterdir())

    with pytest.raises(InputError, match="is not an export"):
        export_ctranslate2(checkpoint, checkpoint.folder)
    export_ctranslate2(checkpoint, tmp_path / "out")
    export_ctranslate2(checkpoint, tmp_path / "out", quantization="int8")

    assert sorted(one.name for one in checkpoint.folder.iterdir()) == files
    assert json.loads((tmp_path / "out" / "weft.json").read_text())["quantization"] == "int8"


def test_a_trained_model_translates_text_there(
    toy_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code in the exported README translates, with the exported tokenizer."""
    text = tmp_path / "text"
    text.write_text("sun moon\nriver stone bird\n")
    out = tmp_path / "ct2"
    options = ["--to", "ctranslate2", "-o", str(out), "--text", str(text)]

    assert main(["export", str(toy_checkpoint), *options]) == 0

    assert "2 of 2 outputs equal" in capsys.readouterr().out
    page = (out / "README.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    code = code.replace('"."', repr(str(out))).replace('"tokenizer', f'"{out}/tokenizer')
    # After so little training no sentence ends, so both stop at six tokens.
    code = code.replace("beam_size=5, length_penalty=1.0", "beam_size=1, max_decoding_length=6")
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    model = weft.open(toy_checkpoint, predict={"beam": 1, "max_length": 6})
    assert printed == model.translate(["A dog runs."])[0]
