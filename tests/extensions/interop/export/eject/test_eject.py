"""Ejected files of plain PyTorch: they do not import weft and compute the same."""

from __future__ import annotations

import ast
import builtins
import copy
import errno
import functools
import importlib
import importlib.metadata
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import weft
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from weft.extensions.interop.export import torch_kernels
from weft.extensions.interop.export.eject import eject, ejected_text
from weft.runtime.checkpoint.checkpoint import Checkpoint
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.codegen.examples import example_inputs, sizes_for
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import LoadedSpec, load, load_child, loaded

from .....objective_blocks import BLOCKS, LINE, TWICE, batch
from .....runtime.entries import ENTRIES
from .....runtime.test_shipped import inputs_of, perturbed

pytestmark = pytest.mark.integration

Make = Callable[..., Checkpoint]
BROAD = ["transformer-base", "gnmt-small", "conv-s2s", "moe-transformer", "mamba", "t5", "bert"]


def small(name: str) -> LoadedSpec:
    """Return a shipped spec at its small size."""
    return weft.load(name, **ENTRIES[name]["small"])


def ran(text: str) -> ModuleType:
    """Run a file with weft blocked from being imported."""

    def without_weft(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "weft":
            raise ModuleNotFoundError(name)
        return importing(name, *rest)

    importing = builtins.__import__
    made = ModuleType("ejected")
    made.__dict__["__builtins__"] = {**vars(builtins), "__import__": without_weft}
    exec(compile(text, "ejected.py", "exec"), made.__dict__)
    return made


@functools.cache
def ejected(name: str) -> tuple[str, str]:
    """Return the class and the file of a shipped spec at its small size."""
    return ejected_text(graph_of(small(name)))


def pair(name: str) -> tuple[nn.Module, nn.Module, ModuleType]:
    """Return a model and the ejected one, each with the weights of seed 7, and the file."""
    graph = graph_of(small(name))
    root, text = ejected(name)
    made = ran(text)
    other = getattr(made, root)().eval()
    made.initialize(other, seed=7)
    return build(graph, seed=7).eval(), other, made


@pytest.mark.parametrize("name", BROAD)
def test_it_has_the_same_weights_and_outputs(name: str) -> None:
    """Names of weights, initial weights from a seed, and all outputs are equal."""
    model, other, _ = pair(name)
    graph = graph_of(small(name))
    inputs = example_inputs(graph, sizes_for(graph, batch=2, length=9))

    with torch.no_grad():
        expected, found = model(**inputs), other(**inputs)

    ours, theirs = model.state_dict(), other.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[path], theirs[path]) for path in ours)
    assert expected.keys() == found.keys()
    for port, value in expected.items():
        assert torch.equal(value, found[port]), port


@pytest.mark.parametrize("name", ["forgetting", "softmax-off-by-one"])
def test_attention_that_is_written_out_is_ejected(name: str) -> None:
    """Merged, and node by node with a function of its own."""
    path = Path(__file__).parents[5] / "examples" / "published" / f"{name}.json"
    sizes = {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 8, "vocab": 9}
    graph = graph_of(weft.load(str(path), **sizes))
    root, text = ejected_text(graph)
    other = getattr(ran(text), root)().eval()
    model = build(graph).eval()
    other.load_state_dict(model.state_dict())
    inputs = example_inputs(graph, sizes_for(graph, batch=2, length=5))

    with torch.no_grad():
        torch.testing.assert_close(other(**inputs), model(**inputs), rtol=0, atol=0)


def test_attention_with_sinks_whose_weights_are_read_is_ejected() -> None:
    """The file has an `attend` of its own."""
    use = {"use": "attention@1", "in": {"x": "x"}, "params": {"heads": 2, "sinks": True}}
    spec = {
        "format": 1,
        "name": "told",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "node.y", "weights": "node.weights"},
        "nodes": {"node": use},
    }
    graph = graph_of(loaded(spec))
    root, text = ejected_text(graph)
    other = getattr(ran(text), root)().eval()
    model = build(graph).eval()
    other.load_state_dict(model.state_dict())
    x = torch.randn(2, 5, 8)

    with torch.no_grad():
        torch.testing.assert_close(other(x=x), model(x=x), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["transformer-base", "gnmt-small", "mamba"])
def test_it_decodes_step_by_step(name: str) -> None:
    """Each step equals the forward at its position, also after beams are reordered."""
    _, other, made = pair(name)
    graph = graph_of(small(name))
    inputs = example_inputs(graph, sizes_for(graph, batch=2, length=9))
    moving = next(n for n, t in graph.inputs.items() if graph.step_axis in t.axes)
    target_NT = inputs.pop(moving)
    capacity = made.Capacity(2, 2, target_NT.size(1), torch.float32, torch.device("cpu"))
    rows = torch.tensor([1, 0, 3, 2])

    with torch.no_grad():
        target_RT = target_NT.repeat_interleave(2, 0)
        target_RT[1::2] = target_RT[1::2].flip(1)
        state = other.begin(capacity, **inputs)
        steps = []
        for position in range(target_RT.size(1)):
            if position == 4:
                made.reorder(state, rows)
                target_RT[:, :4] = target_RT[rows, :4]
            given = {moving: target_RT[:, position : position + 1]}
            steps.append(other.step(**given, state=state, position=position)["logits"][:, -1])
        wide = {port: value.repeat_interleave(2, 0) for port, value in inputs.items()}
        whole = other(**wide, **{moving: target_RT})["logits"]

    assert torch.allclose(torch.stack(steps, 1)[:, 4:], whole[:, 4:], atol=1e-5)


@pytest.mark.slow
def test_a_checkpoint_loads_in_a_process_without_weft(checkpoint_of: Make, tmp_path: Path) -> None:
    """The usage lines in the file's docstring work, and outputs equal the model's."""
    checkpoint = checkpoint_of("transformer-base")
    inputs = example_inputs(checkpoint.graph, sizes_for(checkpoint.graph, batch=2, length=7))
    with torch.no_grad():
        expected = checkpoint.build()(**inputs)["logits"]
    out = tmp_path / "ejected"
    made = eject(checkpoint, out / "model.py")
    save_file({port: value.contiguous() for port, value in inputs.items()}, out / "inputs")
    head = made.file.read_text().split('"""')[1]
    lines = [line.strip() for line in head.splitlines() if line.startswith("    ")][:3]
    code = "\n".join(
        [
            "import sys, torch",
            "from model import TransformerBase",
            "from safetensors.torch import load_file, save_file",
            *lines,
            "with torch.no_grad():",
            "    logits = model(**load_file('inputs'))['logits']",
            "save_file({'logits': logits}, 'outputs')",
            "print('weft' in sys.modules)",
        ]
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=out, capture_output=True, text=True, check=False
    )

    assert done.stdout.strip() == "False", done.stderr
    assert made.weights == out / "weights.safetensors"
    assert torch.allclose(load_file(out / "outputs")["logits"], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["Tensor", "attend", "State", "nn"])
def test_name_collisions_are_resolved(name: str) -> None:
    """A spec may have the same name as something that its file needs."""
    loaded = load("transformer-base", ENTRIES["transformer-base"]["small"])
    graph = graph_of(load_child(loaded, {"name": name}, "other.json"))
    root, text = ejected_text(graph)
    made = getattr(ran(text), root)()
    model = build(graph).eval()
    made.load_state_dict(model.state_dict())
    inputs = example_inputs(graph, sizes_for(graph, batch=2, length=5))

    with torch.no_grad():
        assert torch.equal(made.eval()(**inputs)["logits"], model(**inputs)["logits"])


def test_an_objective_brings_its_models_and_rules(tmp_path: Path) -> None:
    """The rules of the spec and of its models change the initial weights as in weft."""
    held = {**LINE, "init": [{"select": "head", "constant": 3}]}
    spec: dict[str, Any] = copy.deepcopy(TWICE)
    spec["params"] |= {"model": {"spec": held}, "teacher": {"spec": LINE}}
    spec["init"] = [{"select": "teacher.head", "weights": "weight", "normal": 2}]
    (tmp_path / "twice.json").write_text(json.dumps(spec), encoding="utf-8")
    graph = graph_of(weft.load(tmp_path / "twice.json", blocks=BLOCKS))
    root, text = ejected_text(graph)
    made = ran(text)
    model, other = build(graph, seed=7).eval(), getattr(made, root)().eval()

    made.initialize(other, seed=7)

    ours, theirs = model.state_dict(), other.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[path], theirs[path]) for path in ours)
    found = other(**batch())
    assert all(torch.equal(value, found[port]) for port, value in model(**batch()).items())
    assert eject(graph, tmp_path / "objective.py").name == root


def test_the_command_writes_a_file_or_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Params can be overridden; an output that is not a Python file is refused."""
    options = ["--set", "d_model=16", "--set", "vocab=30", "--set", "layers=1"]

    assert main(["eject", "transformer-tiny", *options, "-o", str(tmp_path / "model.py")]) == 0
    assert "class TransformerTiny computes what the model computes" in capsys.readouterr().out
    assert main(["eject", "transformer-tiny", "-o", str(tmp_path / "model.txt")]) == 1
    assert "must end with .py" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["model.py"]
    text = (tmp_path / "model.py").read_text()
    assert "# d_model = 16" in text
    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")


def test_weights_of_another_checkpoint_are_not_replaced(checkpoint_of: Make) -> None:
    """The ejected weights would have the file name of the checkpoint's own weights."""
    checkpoint = checkpoint_of("transformer-base", layers=1)
    before = {one.name: one.stat().st_mtime_ns for one in checkpoint.folder.iterdir()}

    with pytest.raises(InputError, match="the folder holds a checkpoint"):
        eject(checkpoint, checkpoint.folder / "model.py")

    assert {one.name: one.stat().st_mtime_ns for one in checkpoint.folder.iterdir()} == before


def test_a_tokenizer_does_not_replace_another_file(checkpoint_of: Make, tmp_path: Path) -> None:
    """Its name is that of the checkpoint, which a stranger may have chosen."""
    made = replace(checkpoint_of("transformer-base", layers=1), tokenizers={"package.json": b"1"})
    (tmp_path / "package.json").write_text("mine")

    with pytest.raises(InputError, match="would replace another file"):
        eject(made, tmp_path / "model.py")

    assert not (tmp_path / "model.py").exists()
    assert (tmp_path / "package.json").read_text() == "mine"


def test_tokenizers_and_special_ids_come_with_it(checkpoint_of: Make, tmp_path: Path) -> None:
    """The folder suffices to read and write text."""
    made = replace(
        checkpoint_of("transformer-base", layers=1), tokenizers={"tokenizer.model": b"1"}
    )

    found = eject(made, tmp_path / "ejected" / "model.py")

    assert found.tokens == {"begin": 3, "end": 1, "pad": 0}
    assert found.tokenizers == (tmp_path / "ejected" / "tokenizer.model",)
    assert found.tokenizers[0].read_bytes() == b"1"
    head = found.file.read_text().split('"""')[1]
    assert "next to it: tokenizer.model.\nSpecial ids: begin 3, end 1, padding 0." in head


def test_special_ids_are_numbers(checkpoint_of: Make, tmp_path: Path) -> None:
    """A checkpoint of a stranger may have any values; a text would end the docstring."""
    tokens = {"begin": '"""; print(1); """', "end": [1, 2], "pad": 0, "other": 3}
    made = replace(
        checkpoint_of("transformer-base", layers=1), state={"imported": {"tokens": tokens}}
    )

    found = eject(made, tmp_path / "model.py")

    assert found.tokens == {"end": [1, 2], "pad": 0}
    assert "print(1)" not in found.file.read_text()


def test_a_file_that_cannot_be_written_leaves_no_weights(
    checkpoint_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No partial files are left either."""
    checkpoint = checkpoint_of("transformer-base", layers=1)

    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)

    with pytest.raises(InputError, match="No space left"):
        eject(checkpoint, tmp_path / "ejected" / "model.py")
    assert list((tmp_path / "ejected").iterdir()) == []


def test_files_are_laid_out_and_need_no_more_than_they_import(tmp_path: Path) -> None:
    """No line is too long, and ruff finds no missing or unused names."""
    importlib.metadata.version("ruff")
    for name in ("transformer-base", "conv-s2s", "t5"):
        (tmp_path / f"{name}.py").write_text(ejected(name)[1])
    ruff = Path(sys.executable).with_name("ruff")
    options = ["--isolated", "--line-length", "100", "--select", "F,E,W,I", "--no-cache"]

    done = subprocess.run(
        [ruff, "check", *options, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout


DRIVER = """
import importlib, sys, torch
from safetensors.torch import load_file, save_file
for name, root in [pair.split("=") for pair in sys.argv[1:]]:
    made = getattr(importlib.import_module(name), root)().eval()
    made.load_state_dict(load_file(f"{name}.weights"))
    with torch.no_grad():
        found = made(**load_file(f"{name}.inputs"))
    save_file({k: v.contiguous().clone() for k, v in found.items()}, f"{name}.outputs")
assert "weft" not in sys.modules
"""


@pytest.mark.slow
def test_every_shipped_spec_is_ejected(tmp_path: Path) -> None:
    """All files run in one process without weft, with lengths that fit each spec."""
    wanted: dict[str, dict[str, Tensor]] = {}
    pairs = []
    for number, name in enumerate(ENTRIES):
        graph = graph_of(small(name))
        model = perturbed(build(graph))
        inputs = inputs_of(name, graph)
        file = f"model_{number}"
        made = eject(graph, tmp_path / f"{file}.py")
        weights = {path: value.clone() for path, value in model.state_dict().items()}
        save_file(weights, tmp_path / f"{file}.weights")
        save_file({p: v.contiguous() for p, v in inputs.items()}, tmp_path / f"{file}.inputs")
        with torch.no_grad():
            wanted[file] = model(**inputs)
        pairs.append(f"{file}={made.name}")

    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *pairs],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for file, expected in wanted.items():
        found = load_file(tmp_path / f"{file}.outputs")
        for port, value in expected.items():
            assert torch.allclose(found[port], value, atol=1e-5, equal_nan=True), (file, port)


@pytest.mark.parametrize("name", BROAD)
def test_nothing_is_left_that_nothing_uses(name: str) -> None:
    """The file reads like a person's: no unused definition, and no hook of training."""
    _, text = ejected_text(graph_of(small(name)), trained=True)
    tree = ast.parse(text)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words = {*read, *(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))}

    assert len(defined - read) == 1  # the model
    assert words.isdisjoint({"batched", "copies", "operand", "with_padding", "lora", "places"})


def test_replaced_functions_take_the_same_arguments() -> None:
    """A call of a block would fail in the file only."""
    for module, names in torch_kernels.REPLACED.items():
        if not module.startswith("blocks."):
            continue
        for name in names:
            ours = getattr(importlib.import_module(f"weft.{module}"), name)
            theirs = getattr(torch_kernels, name)
            arguments = [inspect.signature(kind).parameters.keys() for kind in (ours, theirs)]
            assert arguments[0] == arguments[1], name
