"""ONNX exports: onnxruntime agrees with the model, also for lengths that were not traced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.blocks.feed_forward.feed_forward_module import FeedForward
from weft.extensions.interop.export import onnx as to_onnx
from weft.extensions.interop.export.ctranslate2 import Plain
from weft.extensions.interop.export.onnx import export_onnx
from weft.runtime.checkpoint.checkpoint import Checkpoint, open_checkpoint
from weft.runtime.checkpoint.tokenizers import special_tokens_of
from weft.runtime.cli.main import main
from weft.runtime.data.tokenizer import Tokenizer
from weft.specs.findings import InputError
from weft.specs.load import load, load_child

pytest.importorskip("onnxscript", reason="the extra 'onnx' is missing")
pytest.importorskip("onnxruntime", reason="the extra 'onnx' is missing")
pytestmark = pytest.mark.slow

Make = Callable[..., Checkpoint]
ONE = {"layers": 1, "d_model": 16, "heads": 2, "d_ff": 24}
BERT = {**ONE, "max_length": 60}


def documented() -> Callable[..., list[int]]:
    """Return the decoding function of docs/exporting.md."""
    page = (Path(__file__).parents[5] / "docs" / "exporting.md").read_text()
    parts = [part.split("```")[0] for part in page.split("```python\n")]
    names: dict[str, Any] = {}
    exec(compile(next(p for p in parts if "import onnxruntime" in p), "page", "exec"), names)
    found: Callable[..., list[int]] = names["greedy"]
    return found


@pytest.mark.parametrize(
    ("name", "params"),
    [("transformer-base", ONE), ("extended-neural-gpu", {"d_model": 16, "steps": 2})],
    ids=["appended", "grown"],
)
def test_the_loop_of_the_documentation_decodes(
    checkpoint_of: Make, tmp_path: Path, name: str, params: dict[str, Any]
) -> None:
    """The function of docs/exporting.md works, with only numpy and onnxruntime."""
    checkpoint = checkpoint_of(name, **params)
    out = tmp_path / "out"
    checked = export_onnx(checkpoint, out)
    source = [5, 9, 12, 7, 1]

    found = documented()(str(out), source, most=12)

    plain = Plain(checkpoint.build(), checkpoint.graph, "source", "target")
    special_tokens = special_tokens_of(checkpoint)
    assert found == plain.greedy(source, [special_tokens.begin], special_tokens, 12)
    assert len(found) > 3
    assert checked.graphs == ("begin.onnx", "step.onnx")
    assert checked.largest < 1e-4


def test_a_trained_model_translates_text_there(toy_checkpoint: Path, tmp_path: Path) -> None:
    """It uses the tokenizer in the exported folder."""
    export_onnx(open_checkpoint(toy_checkpoint), tmp_path / "out")
    tokenizer = Tokenizer.open(tmp_path / "out" / "tokenizer.model")
    lines = ["sun moon", "river stone bird"]

    found = [
        tokenizer.decode(
            documented()(str(tmp_path / "out"), [*tokenizer.encode(line), tokenizer.eos], most=6)
        )
        for line in lines
    ]

    assert found == weft.open(toy_checkpoint, predict={"beam": 1, "max_length": 6}).translate(lines)
    assert all(found)


def test_a_node_that_cannot_be_expressed_is_named(checkpoint_of: Make, tmp_path: Path) -> None:
    """The spec does not decode, but has a decoder whose forward loops over positions."""
    parent = load("extended-neural-gpu", {"d_model": 8, "steps": 1, "vocab": 20})
    child = {"name": "scorer", "patch": [{"select": "/", "remove": ["step"]}]}
    checkpoint = checkpoint_of(load_child(parent, child, "scorer.json"))

    with pytest.raises(InputError, match=r"'decoder' \(conv_gru_decoder@1\)") as caught:
        export_onnx(checkpoint, tmp_path / "out")

    assert "weft eject" in str(caught.value)
    assert not (tmp_path / "out").exists()


def _looks(self: nn.Module, x: Tensor) -> Tensor:  # noqa: ARG001
    return x * 2 if x.sum() > 0 else x


def _unknown(self: nn.Module, x: Tensor) -> Tensor:  # noqa: ARG001
    return torch.special.bessel_j0(x)


@pytest.mark.parametrize("forward", [_looks, _unknown], ids=["branch", "operator"])
def test_an_error_of_torch_names_the_node(
    checkpoint_of: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forward: Callable[[nn.Module, Tensor], Tensor],
) -> None:
    """The message names the node running at the failure, or the one with the operator."""
    checkpoint = checkpoint_of("transformer-base", **ONE)
    monkeypatch.setattr(FeedForward, "forward", forward)

    with pytest.raises(InputError, match=r"cannot express node 'encoder.0.feed_forward.f'"):
        export_onnx(checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_reported_with_the_path(
    checkpoint_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the path, and nothing is left there."""
    checkpoint = checkpoint_of("bert", **BERT)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", full)

    with pytest.raises(InputError, match="No space left"):
        export_onnx(checkpoint, tmp_path / "out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["checkpoint"]


def test_a_fault_of_the_export_leaves_nothing(
    checkpoint_of: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The comparison finds slightly wrong weights, and the exit code is 1."""
    checkpoint = checkpoint_of("bert", **BERT)
    write = to_onnx.write_onnx

    def off(module: Any, *rest: Any) -> None:
        weight = next(p for p in module.parameters() if p.dim() > 1)
        with torch.no_grad():
            weight.mul_(1.01)
            write(module, *rest)
            weight.div_(1.01)

    monkeypatch.setattr(to_onnx, "write_onnx", off)

    assert (
        main(["export", str(checkpoint.folder), "--to", "onnx", "-o", str(tmp_path / "out")]) == 1
    )
    assert "does not compute the same" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
