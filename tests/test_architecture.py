"""Rules for the code base: short files and folders, one import direction, fast imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from weft.blocks.registry import STANDARD

ROOT = Path(__file__).parent.parent
FOLDERS = ("specs", "graphs", "blocks", "runtime", "extensions")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
BLOCKS = [
    path
    for path in (ROOT / "blocks").rglob("*.py")
    if not re.search(r"_(module|onnx)\.py$|/kernels/|__init__", str(path))
]
"""Contracts of the blocks, params and the registry."""


def module_name(path: Path) -> str:
    """Return the import name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("weft", *parts)).removesuffix(".__init__")


def printed(code: str) -> str:
    """Run code in a fresh interpreter; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def imports_torch(*modules: str, among: tuple[str, ...] = ("torch", "numpy")) -> str:
    """Import modules in a fresh interpreter; return which modules of `among` were loaded."""
    return printed(f"import sys, {', '.join(modules)}; print(*{{*{among}}} & set(sys.modules))")


@pytest.mark.integration
def test_every_file_is_short_and_has_a_docstring() -> None:
    """A file has at most 600 lines and a docstring whose first line ends in a full stop."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES}

    long = [name for name, text in texts.items() if text.count("\n") > 600]
    heads = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in texts.items()}
    silent = [name for name, head in heads.items() if not head.partition("\n")[0].endswith(".")]

    assert long == []
    assert silent == []


def test_no_folder_has_many_files() -> None:
    """A folder has at most 20 files, so that its listing is read at a glance."""
    counts = Counter(path.parent.relative_to(ROOT) for path in SOURCES if path.stem != "__init__")
    unpackaged = {str(folder) for folder in counts if not (ROOT / folder / "__init__.py").exists()}

    assert unpackaged == set()
    assert {str(folder): count for folder, count in counts.items() if count > 20} == {}


@pytest.mark.integration
def test_reading_checking_and_drawing_need_no_torch() -> None:
    """`specs` and `graphs` import quickly and run without torch."""
    modules = [module_name(p) for p in SOURCES if p.relative_to(ROOT).parts[0] in FOLDERS[:2]]

    assert imports_torch(*modules) == ""


@pytest.mark.integration
def test_contracts_of_blocks_need_no_torch() -> None:
    """Every contract can be imported while importing torch and numpy fails."""
    blocked = "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
    contracts = [module_name(path) for path in BLOCKS]
    code = blocked + f"import {', '.join(contracts)}\nfrom weft.blocks.registry import registry"
    code += "\nprint(len(list(registry())))"

    assert int(printed(code)) == len(STANDARD)


def test_importing_the_public_api_needs_no_torch() -> None:
    """`import weft` is fast; torch is imported with the first model."""
    assert imports_torch("weft") == ""


@pytest.mark.integration
def test_only_blocks_know_a_block() -> None:
    """Other folders read a block's contract: they name no block and no class of a block's module.

    Examples in docstrings and messages, which contain more than the name, are allowed.
    """
    above = [path for path in SOURCES if path.relative_to(ROOT).parts[0] != "blocks"]
    named = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in above
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Constant) and node.value in STANDARD)
        or (isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_module"))
    }

    assert named == set()


def test_signatures_are_not_inspected_at_run_time() -> None:
    """Generated code calls a slot with named ports, so no call depends on a module's `forward`."""
    inspecting = {
        str(path.relative_to(ROOT)): line
        for path in SOURCES
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\b(getfullargspec|signature)\(", line) and "inspect" in line
    }

    # The arguments of torch's own wrapper differ by version.
    only = "_NAMES = inspect.signature(DistributedDataParallel).parameters"
    options = "    options_of_command = inspect.signature(function, eval_str=True)"
    plug_in = "        return inspect.signature(function)"  # to report a mistake, once
    theirs = "    names = inspect.signature(theirs.forward).parameters"
    assert inspecting == {
        "runtime/train/engine.py": only,
        "runtime/cli/common/command.py": options,
        "runtime/codegen/generated.py": plug_in,
        "extensions/interop/importing/comparison.py": theirs,
    }


def test_files_named_by_the_architecture_page_exist() -> None:
    """`docs/architecture.md` names files relative to the root of the repository."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./-]+(?:\.\w+|/))`", page)

    assert len(named) > 50
    assert [name for name in named if "/" in name and not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_using_a_model_loads_no_code_for_training_compiling_or_plotting() -> None:
    """Each of these modules takes longer to load than all of weft."""
    slow = ("torch._dynamo", "torch.distributed.fsdp", "sympy", "matplotlib", "sacrebleu")
    slow += ("torch._inductor", "networkx", "optuna", "graphviz", "rich")

    assert imports_torch("weft.runtime.api", "weft.runtime.cli.decoding", among=slow) == ""
