"""Wrong uses of the public API: each error names the cause and, where there is one, the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import nn
from weft.blocks.residual.sublayer import LINEAR

TINY = {"vocab": 11, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 1}


def block(**changes: Any) -> weft.BlockType:
    """Return the declaration of a block of our own."""
    given: dict[str, Any] = {
        "name": "own",
        "doc": "A block of this test.",
        "source": "this test",
        "signature": lambda _, __: weft.Signature(
            inputs=(weft.port("x", "f[...]"),), outputs=(weft.port("y", "f[...]"),)
        ),
        "module": "torch.nn:Identity",
    }
    return weft.BlockType(**given | changes)


def local_class() -> type[nn.Module]:
    """Return a class that no module has as a global name."""

    class Local(nn.Module):
        """A class inside a function."""

    return Local


def model() -> Any:
    """Return a small model."""
    return weft.build(weft.load("transformer-tiny", **TINY))


def unpadded_twice() -> None:
    """Unpad a graph again."""
    weft.unpad(weft.unpad("transformer-tiny"))


@dataclass(frozen=True)
class Wrong:
    """A wrong use, and what the error says about it."""

    use: Callable[[], object]
    problem: str
    way_out: str = ""
    error: type[Exception] = weft.InputError


WRONG = {
    "no such spec": Wrong(lambda: weft.load("transformer-bas"), "bas", "'transformer-base'"),
    "not a name": Wrong(lambda: weft.load({"format": 1}), "dict is not the name", "path"),
    "not a spec": Wrong(lambda: weft.build(3), "type int is not a spec", "weft.load"),
    "unknown param": Wrong(
        lambda: weft.build(weft.load("bert", layrs=2)), "layrs", "'layers'", weft.SpecError
    ),
    "a broken requirement": Wrong(
        lambda: weft.diff("transformer-base", weft.load("transformer-base", heads=7)),
        "'d_model % heads == 0' does not hold",
        "change one",
        weft.SpecError,
    ),
    "unknown suffix": Wrong(lambda: weft.draw("bert", "bert.gif"), "'.gif'", ".svg"),
    "unknown style": Wrong(lambda: weft.draw("bert", "a.dot", style="pape"), "'pape'", "'paper'"),
    "unknown form": Wrong(lambda: weft.draw("bert", "a.dot", "fold"), "'fold'", "'folded'"),
    "no such device": Wrong(lambda: weft.build("bert", device="gpu"), "'gpu'", "use 'cpu'"),
    "swap of nothing": Wrong(
        lambda: weft.load("bert").swap("decoder.*", "linear@1"), "decoder", error=weft.SpecError
    ),
    "class as a block": Wrong(
        lambda: weft.load("bert", blocks=[nn.Linear]), "the class Linear is not a BlockType", "pass"
    ),
    "one block": Wrong(
        lambda: weft.check("bert", blocks=LINEAR), "not a list", "blocks=[MY_BLOCK]"
    ),
    "shipped block": Wrong(
        lambda: weft.check("bert", blocks=[LINEAR]), "'linear@1' already exists", "another name"
    ),
    "same key twice": Wrong(
        lambda: weft.load("bert", blocks=[block(), block()]), "'own@1' already exists", "'major'"
    ),
    "no such module": Wrong(
        lambda: weft.load("bert", blocks=[block(module="no_such_package.file:Own")]),
        "'no_such_package.file:Own' of block 'own@1' cannot be imported",
        "'package.file:Class'",
    ),
    "no such class": Wrong(
        lambda: weft.load("bert", blocks=[block(module="torch.nn:Own")]), "'torch.nn:Own'", "top"
    ),
    "local class": Wrong(
        lambda: weft.load("bert", blocks=[block(module=local_class())]), "<locals>", "top level"
    ),
    "foreign module": Wrong(
        lambda: weft.compile(nn.Linear(1, 1)), "Linear was not built from a spec", "weft.build"
    ),
    "no fused loss": Wrong(
        lambda: weft.fuse_losses("transformer-tiny"), "no loss over a linear map", "cross_entropy@1"
    ),
    "unpadded twice": Wrong(unpadded_twice, "already unpadded", "once"),
    "unknown mode": Wrong(lambda: weft.compile(model(), "fast"), "'fast'", "layers"),
    "no such checkpoint": Wrong(lambda: weft.open("no/such"), "no such checkpoint", "folder"),
    "unknown precision": Wrong(lambda: weft.open("folder", precision="fp16"), "'fp16'", "bfloat16"),
    "unknown engine": Wrong(lambda: weft.export("folder", "onxx", "out"), "'onxx'", "'onnx'"),
    "no such run": Wrong(lambda: weft.train("multi30k"), "multi30k", "multi30k-en-de"),
    "unknown setting": Wrong(
        lambda: weft.train("demo", overrides={"update": 2}), "update", "'updates'", weft.SpecError
    ),
    "eject without .py": Wrong(lambda: weft.eject("bert", "model.txt"), ".py", "model.py"),
    "no such folder to import": Wrong(lambda: weft.import_hf("no/such/model"), "no/such/model"),
    "forgotten input": Wrong(lambda: model()(source=torch.ones(1, 2)), "missing", "example"),
    "unknown axis": Wrong(lambda: weft.example_inputs("bert", {"X": 2}), "no axis 'X'", "known: "),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_the_error_names_cause_and_way_out(
    wrong: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception is of the documented type, and its text is enough to correct the call."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(weft.WeftError) as caught:
        wrong.use()

    assert type(caught.value) is wrong.error
    assert wrong.problem in str(caught.value)
    assert "help: " in str(caught.value) or not wrong.way_out
    assert wrong.way_out in str(caught.value).partition("help: ")[2]
    assert list(tmp_path.iterdir()) == []


def test_checking_reports_a_file_that_is_not_a_spec_as_findings(tmp_path: Path) -> None:
    """`weft.check` returns every error of a file; only a missing file is an exception."""
    file = tmp_path / "broken.json"
    file.write_text(json.dumps({"format": 1, "nodez": {}}))

    assert {finding.source for finding in weft.check(file)} == {str(file)}
    with pytest.raises(weft.InputError):
        weft.check(tmp_path / "missing.json")
