"""Modules of plug-in blocks: each that does not fit its declaration is refused when building."""

# ruff: noqa: ARG002, D102, D107 - the docstring of a wrong class says what is wrong

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity, State
from weft.graphs.ir.block_type import BlockType, Slot
from weft.specs.findings import InputError


class Right(nn.Module):
    """W x plus the previous position, with a scale."""

    def __init__(self, d_model: int, scale: float) -> None:
        """Allocate the weight."""
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.empty(d_model, d_model)), scale

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the weight."""
        nn.init.normal_(self.weight, generator=generator)

    def forward(self, x: Tensor, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the sum."""
        del mask
        return (x + z) @ self.weight.T * self.scale

    def begin(self, capacity: Capacity) -> Any:
        """Return a state without tensors."""
        del capacity
        return State()

    def step(
        self, x: Tensor, z: Tensor, mask: Tensor | None = None, *, state: State, position: int
    ) -> Tensor:
        """Return the sum at one position."""
        del state, position
        return self(x, z, mask)


class ScaleParams(weft.Params):
    """Params of the block."""

    scale: float = 1.0


def signature(_: Any, __: Any) -> weft.Signature:
    """Return two required ports and an optional one."""
    inputs = ("x", "f[b t d_model]"), ("z", "f[b t d_model]"), ("mask", "mask[b t]?")
    return weft.Signature(
        inputs=tuple(weft.port(name, text) for name, text in inputs),
        outputs=(weft.port("y", "f[b t d_model]"),),
        behavior={"t": "causal"},
    )


def declared(module: Any, **changes: Any) -> BlockType:
    """Return the declaration of the block, computed by a module."""
    given: dict[str, Any] = {
        "name": "own",
        "doc": "A block of this test.",
        "source": "this test",
        "params": ScaleParams,
        "signature": signature,
        "weights": lambda a: {"weight": (a["d_model"], a["d_model"])},
        "module": module,
        "steps": True,
    }
    return BlockType(**given | changes)


def spec_of(tmp_path: Path, node: dict[str, Any]) -> Path:
    """Write a spec that uses a node between an embedding and a projection; it can decode."""
    nodes = {
        "embedding": {"use": "embedding@1", "params": {"d_model": 4}, "in": {"ids": "tokens"}},
        "own": node,
        "head": {"use": "linear@1", "params": {"d_out": 9}, "in": {"x": "own.y"}},
    }
    spec = {
        "format": 1,
        "name": "wrong",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"tokens": "ids:9[B T]"},
        "outputs": {"logits": "head.y"},
        "nodes": nodes,
        "step": {"axis": "T"},
    }
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(spec))
    return path


OWN = {"use": "own@1", "in": {"x": "embedding.y", "z": "embedding.y"}}


class NoScale(Right):
    """A constructor without the param."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, 1.0)


class Raising(Right):
    """A constructor with a mistake."""

    def __init__(self, d_model: int, scale: float) -> None:
        super().__init__(d_model, scale)
        self.other = nn.Linear(d_model, "4")  # type: ignore[arg-type]


class OnePort(Right):
    """A forward that lacks a port."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


class NoForward(nn.Module):
    """A module without forward."""

    def __init__(self, d_model: int, scale: float) -> None:
        super().__init__()


class NoStep(NoForward):
    """A module without begin and step."""

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        return x + z


class NoPosition(Right):
    """A step that does not take the position."""

    def step(self, x: Tensor, z: Tensor, *, state: State) -> Tensor:  # type: ignore[override]
        return x + z


class NoCapacity(Right):
    """A begin that does not take the capacity."""

    def begin(self) -> State:  # type: ignore[override]
        return State()


class NoGenerator(Right):
    """An initialize that does not take the generator."""

    def initialize(self) -> None:  # type: ignore[override]
        pass


class ListState(Right):
    """A begin that returns a list."""

    def begin(self, capacity: Capacity) -> Any:
        return [capacity]


class Halved(Right):
    """An output with fewer features."""

    def forward(self, x: Tensor, z: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, z, mask)[..., :2]


class Pair(Right):
    """Two outputs instead of one."""

    def forward(self, x: Tensor, z: Tensor, mask: Tensor | None = None) -> Any:
        return x, z


class Rounded(Right):
    """An output of integers."""

    def forward(self, x: Tensor, z: Tensor, mask: Tensor | None = None) -> Tensor:
        return x.long()


class Misspelled(Right):
    """A forward that reads an attribute that does not exist."""

    def forward(self, x: Tensor, z: Tensor, mask: Tensor | None = None) -> Tensor:
        return x @ self.wieght  # type: ignore[operator]


class WholeStep(Right):
    """A step with two positions instead of one."""

    def step(
        self, x: Tensor, z: Tensor, mask: Tensor | None = None, *, state: State, position: int
    ) -> Tensor:
        return torch.cat([x, z], 1)


class Transposed(Right):
    """A weight of another shape than declared."""

    def __init__(self, d_model: int, scale: float) -> None:
        super().__init__(d_model, scale)
        self.weight = nn.Parameter(torch.empty(d_model, 2 * d_model))


class Undeclared(Right):
    """A parameter that is not declared."""

    def __init__(self, d_model: int, scale: float) -> None:
        super().__init__(d_model, scale)
        self.bias = nn.Parameter(torch.empty(d_model))


class Plain:
    """Not a module."""


WRONG: dict[str, tuple[type[Any], str, str, str]] = {
    "constructor lacks a param": (NoScale, "__init__", "argument 'scale'", "by name"),
    "constructor raises": (Raising, "__init__", "raises TypeError", "constructor"),
    "forward lacks a port": (OnePort, "forward", "keyword argument 'z'", "input ports by name"),
    "no forward": (NoForward, "forward", "missing", "define forward"),
    "no begin": (NoStep, "begin", "steps=True without it", "steps=False"),
    "begin without capacity": (NoCapacity, "begin", "1 by position", "take 'capacity'"),
    "begin returns a list": (ListState, "begin", "returns list, not a State", "weft.State"),
    "step without position": (NoPosition, "step", "argument 'position'", "by name"),
    "step of two positions": (WholeStep, "step", "[2, 2, 4], not [2, 1, 4]", "port's type"),
    "initialize": (NoGenerator, "initialize", "1 by position", "initialize(self, generator)"),
    "fewer features": (Halved, "forward", "[2, 6, 2], not [2, 6, 4]: f[B T 4]", "port's type"),
    "two outputs": (Pair, "forward", "'y' is tuple of 2", "one tensor for one"),
    "another dtype": (Rounded, "forward", "torch.int64, not float", "port's type"),
    "an unknown attribute": (Misspelled, "forward", "no attribute 'wieght'", "correct 'forward'"),
    "a weight's shape": (Transposed, "__init__", "shape [4, 8], declared [4, 4]", "nn.Parameter"),
    "an undeclared weight": (Undeclared, "__init__", "'bias' is not declared", "nn.Parameter"),
    "no module": (Plain, "", "not a subclass of torch.nn.Module", "nn.Module"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_wrong_module_is_refused(case: tuple[type[Any], str, str, str], tmp_path: Path) -> None:
    """The place names the block, the class and the method; the help names what it must be."""
    module, method, problem, help_ = case

    with pytest.raises(InputError) as caught:
        weft.build(spec_of(tmp_path, OWN), blocks=[declared(module)])

    where = f", method '{method}'" if method else ""
    assert caught.value.location == f"block 'own@1', class {__name__}:{module.__name__}{where}"
    assert problem in caught.value.problem
    assert help_ in caught.value.help


def test_the_right_module_is_built_and_decodes(tmp_path: Path) -> None:
    """The trial changes neither the weights nor the random numbers that follow."""
    path = spec_of(tmp_path, OWN)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)

    model = weft.build(path, blocks=[declared(Right)])

    assert torch.equal(torch.rand(1), expected)
    again = weft.build(path, blocks=[declared(Right)])
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


class Sum(nn.Module):
    """A loss that does not count its items."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float().sum()


def test_a_loss_counts_its_items(tmp_path: Path) -> None:
    """Training divides by their number, so a module without `weight` is refused."""
    loss = weft.BlockType(
        name="total",
        doc="The sum.",
        source="none",
        signature=lambda _, __: weft.Signature(
            inputs=(weft.port("x", "f[b d]"),), outputs=(weft.port("loss", "loss[]"),)
        ),
        arguments=lambda _, __: {},
        weighs=("x",),
        module=Sum,
    )
    spec = tmp_path / "total.json"
    spec.write_text(
        '{"format": 1, "name": "total", "axes": {"B": "batch"}, "inputs": {"x": "f[B 4]"},'
        ' "outputs": {"loss": "sum.loss"}, "nodes": {"sum": {"use": "total@1", "in": {"x": "x"}}}}'
    )

    with pytest.raises(InputError, match="declares 'weighs' without it") as caught:
        weft.build(spec, blocks=[loss])

    assert "returns the number of items" in caught.value.help


class Renamed(Right):
    """A probability under another name."""

    def __init__(self, d_model: int, scale: float) -> None:
        super().__init__(d_model, scale)
        self.rate, self.scale = self.scale, None  # type: ignore[assignment]


def test_dropout_is_kept_where_training_looks_for_it(tmp_path: Path) -> None:
    """Otherwise a run could not switch it off."""
    with pytest.raises(InputError, match="no attribute of this name") as caught:
        weft.build(spec_of(tmp_path, OWN), blocks=[declared(Renamed, dropout=("scale",))])

    assert "self.scale" in caught.value.help


def test_a_module_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in its file is an input error, with the exception of the import."""
    (tmp_path / "own_broken.py").write_text("import torch\nclass Own(torch.nn.Modul): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    block = declared("own_broken:Own")

    assert weft.check(spec_of(tmp_path, OWN), blocks=[block]) == [], "checking needs no torch"
    with pytest.raises(InputError, match="has no attribute 'Modul'") as caught:
        weft.build(spec_of(tmp_path, OWN), blocks=[block])

    assert caught.value.location == "block 'own@1', class own_broken:Own"
    assert "install the package" in caught.value.help


def test_a_file_without_the_class_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is imported only when the model is built."""
    (tmp_path / "own_empty.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(InputError, match="'own_empty' has no 'Own'"):
        weft.build(spec_of(tmp_path, OWN), blocks=[declared("own_empty:Own")])


class Around(nn.Module):
    """A wrapper that passes on no wires, and does not step."""

    def __init__(self, d_model: int, scale: float, f: nn.Module) -> None:
        """Store the module in the slot."""
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Any:
        """Return what the slot gives."""
        return self.f(x)


class AroundNothing(Around):
    """A wrapper that does not take its slot."""

    def __init__(self, d_model: int, scale: float) -> None:
        super().__init__(d_model, scale, nn.Identity())


class Inner(nn.Module):
    """A block for a slot, whose output has another shape than declared."""

    def __init__(self, d_model: int, scale: float) -> None:
        """Store nothing."""
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Return the last position twice."""
        return torch.cat([x, x[:, -1:]], 1)


def pointwise(**more: Any) -> Callable[[Any, Any], weft.Signature]:
    """Return a signature with one input and one output."""
    x, y = weft.port("x", "f[... d_model]"), weft.port("y", "f[... d_model]")
    return lambda _, __: weft.Signature(inputs=(x,), outputs=(y,), **more)


PLAIN: dict[str, Any] = {"steps": False, "weights": lambda _: {}}
SLOT = (Slot("f", weft.port("x", "f[... d_model]"), weft.port("y", "f[... d_model]")),)
ATTENTION = {"use": "attention@1", "params": {"heads": 2, "causal": True}}


@pytest.mark.parametrize(
    ("module", "method", "problem"),
    [
        (AroundNothing, "__init__", "argument 'f'"),
        (Around, "begin", "the block in a slot has it"),
    ],
)
def test_a_wrapper_must_take_its_slot_and_step(
    tmp_path: Path, module: type[nn.Module], method: str, problem: str
) -> None:
    """Decoding calls `begin` of the wrapper, because attention in its slot has a state."""
    node = {"use": "own@1", "in": {"x": "embedding.y"}, "fill": {"f": ATTENTION}}
    block = declared(module, signature=pointwise(slots=SLOT), **PLAIN)

    with pytest.raises(InputError) as caught:
        weft.build(spec_of(tmp_path, node), blocks=[block])

    assert f"method '{method}'" in caught.value.location
    assert problem in caught.value.problem


def test_a_block_in_the_slot_of_a_shipped_block_is_named(tmp_path: Path) -> None:
    """The message names the inner block, not the sub-layer around it."""
    fill = {"f": {"use": "own@1"}}
    node = {
        "use": "sublayer@1",
        "in": {"x": "embedding.y"},
        "params": {"order": "pre"},
        "fill": fill,
    }

    with pytest.raises(InputError) as caught:
        weft.build(
            spec_of(tmp_path, node), blocks=[declared(Inner, signature=pointwise(), **PLAIN)]
        )

    assert "block 'own@1', class" in caught.value.location
    assert "[2, 7, 4], not [2, 6, 4]" in caught.value.problem


class Long(Right):
    """A block that needs sequences of 8 positions."""

    def forward(self, x: Tensor, z: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the sum of chunks of 8."""
        return super().forward(x.unflatten(1, (-1, 8)).flatten(1, 2), z, mask)


def test_a_block_that_needs_longer_sequences_is_accepted(tmp_path: Path) -> None:
    """The trial is too short for it, which is no mistake."""
    model = weft.build(spec_of(tmp_path, OWN), blocks=[declared(Long)])

    tokens = torch.zeros(1, 16, dtype=torch.long)
    assert model(tokens=tokens)["logits"].shape == (1, 16, 9)


def test_it_is_validated_on_the_device_meta(tmp_path: Path) -> None:
    """Without values, the constructor and the weights are still compared."""
    with pytest.raises(InputError, match="'bias' is not declared"):
        weft.build(spec_of(tmp_path, OWN), blocks=[declared(Undeclared)], device="meta")


def test_a_decorated_class_of_a_notebook_is_validated_again(tmp_path: Path) -> None:
    """A cell that is run again may introduce a mistake."""
    notebook: Any = ModuleType("a_notebook_with_mistakes")
    sys.modules[notebook.__name__] = notebook
    block = declared(f"{notebook.__name__}:Own")
    notebook.Own = Right
    weft.build(spec_of(tmp_path, OWN), blocks=[block])
    notebook.Own = OnePort

    with pytest.raises(InputError, match="keyword argument 'z'"):
        weft.build(spec_of(tmp_path, OWN), blocks=[block])
