"""The page of generated code is up to date, and its lines lead to the kernels that it names."""

from __future__ import annotations

import importlib
import inspect
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import weft
from generated_code import DECODING, MODEL, PAGE, RUN, TRAINING, Call, lines_of, page, printed
from weft.blocks.kernels.decode_state import Capacity
from weft.graphs.ir.execution import KernelChoice
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.pipeline import DecodePasses, PassSettings, after
from weft.runtime.codegen.build import build_sharing
from weft.runtime.spec.check import graph_of

ROOT = Path(__file__).parents[2]
SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1, "vocab": 50}
SENTENCES, LENGTH = 16, 24
"""More tokens than a product in parts needs, 256."""


@pytest.mark.integration
def test_the_page_is_of_today() -> None:
    """If this fails, run `make catalogue`."""
    assert (ROOT / "docs" / PAGE).read_text(encoding="utf-8") == page(), "run make catalogue"


@pytest.mark.parametrize("call", [*TRAINING, *DECODING], ids=lambda call: call.does)
def test_the_last_function_calls_the_kernel(call: Call) -> None:
    """The page quotes it."""
    name, file = call.chain[-1]
    found: Any = importlib.import_module("weft." + file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)

    assert call.kernel in inspect.getsource(found)


@pytest.mark.integration
def test_training_goes_from_the_lines_to_the_kernels() -> None:
    """The lines and functions of the page, in an update of a small model in bfloat16."""
    kernels = KernelChoice(None, {"*": "plain"})
    settings = PassSettings(unpad=True, kernels=kernels, precision="bfloat16")
    model = weft.build(after(translation(), settings)).train()
    ids = torch.randint(4, 50, (SENTENCES, LENGTH))

    with followed() as stacks, torch.autocast("cpu", torch.bfloat16):
        model(source=ids, target=ids)["loss"].backward()

    assert [call.does for call in TRAINING if not reached(call, stacks)] == []


@pytest.mark.needs("prepacking")
def test_decoding_goes_from_the_lines_to_the_kernels() -> None:
    """The lines and functions of the page, in a step of a small model."""
    owner = weft.build(weft.load("transformer-base", **SMALL)).eval()
    graph = graph_of(weft.load("transformer-base", **SMALL))
    passes = DecodePasses(unpad=True, prepacked="float32", compiled=True)
    settings = PassSettings(purpose="decode", decode=passes)
    source = torch.randint(4, 50, (2, LENGTH))
    capacity = Capacity(2, 1, LENGTH, torch.float32, torch.device("cpu"))

    with followed() as stacks, torch.inference_mode():
        model: Any = build_sharing(after(graph, settings), owner)
        state = model.begin(capacity, source=source, source_mask=source > 0)
        model.step(target=source[:, :1], state=state, position=0)

    assert [call.does for call in DECODING if not reached(call, stacks)] == []


def test_a_line_that_does_not_exist_is_refused() -> None:
    """Otherwise the page would have a row without a line."""
    call = Call("nothing", "self.nothing()", (), "")

    with pytest.raises(ValueError, match=r"no line 'self\.nothing\(\)' in a method 'forward'"):
        lines_of(call, printed("show", *MODEL, "--code"))


def test_the_run_is_that_of_the_paper() -> None:
    """Its model is Transformer base, so both halves of the page are of one model."""
    assert printed("show", RUN[0], "--code").startswith('"""transformer-base: ')


def translation() -> Graph:
    """Return the objective of the page with a small model."""
    model = {"spec": "transformer-base", "params": SMALL}
    sizes = {"vocab": 50, "source_vocab": 50}
    return graph_of(weft.load("translation", model=model, **sizes))


@contextmanager
def followed() -> Iterator[set[tuple[str, ...]]]:
    """Collect the stack of every call that generated code leads to, the outermost entry first.

    An entry is a line of generated code, or the file of a function with its name.
    """
    stacks: set[tuple[str, ...]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(str(ROOT)):
            return
        stack, here = [], frame
        while here is not None:
            stack.append(entry(here))
            here = here.f_back  # type: ignore[assignment]
        stacks.add(tuple(reversed(stack)))

    sys.setprofile(note)
    try:
        yield stacks
    finally:
        sys.setprofile(None)


def entry(frame: FrameType) -> str:
    """Return a line of generated code, or the file of a function with its name."""
    file, code = frame.f_code.co_filename, frame.f_code
    if file.startswith("<weft_generated"):
        return linecache.getline(file, frame.f_lineno).strip()
    return f"{file.removeprefix(str(ROOT) + '/')}:{code.co_qualname}"


def reached(call: Call, stacks: set[tuple[str, ...]]) -> bool:
    """Return whether a stack ends with the functions of a call, after its line."""
    wanted = [f"{file}:{name}" for name, file in call.chain]
    for stack in stacks:
        if stack[-1] != wanted[-1]:
            continue
        starts = [n for n, one in enumerate(stack) if one.startswith(call.line)]
        rest = iter(stack[starts[-1] :]) if starts else iter(())
        if all(one in rest for one in wanted):  # in this order, with others between them
            return True
    return False
