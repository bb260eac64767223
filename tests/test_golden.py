"""What users see, compared with stored texts: `make golden` rewrites them, and the diff is read.

Each text is in `tests/golden/now/`.  A change of one is a change that users notice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import weft
from weft.runtime.cli.main import load_commands, main
from weft.runtime.codegen.generated import program_of

from .api_listing import listing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Golden = Callable[[str, str], None]

pytestmark = pytest.mark.golden
GENERATED = ("transformer-tiny", "transformer-parallel", "gru-attention", "universal-transformer")
"""Specs whose Python is kept: plain, with two slots, recurrent, with shared copies."""
DRAWN = ("transformer-tiny", "bert", "parsing-span", "conv-s2s")
COSTS = ("transformer-base", "llama", "moe-transformer")


@pytest.mark.parametrize("name", GENERATED)
def test_generated_source(name: str, golden: Golden) -> None:
    """The Python that a spec becomes."""
    params = {"d_model": 16, "heads": 2, "d_ff": 32} if name != "gru-attention" else {}
    model = weft.build(weft.load(name, vocab=50, **params))

    golden(f"now/generated/{name}.py.txt", program_of(model).source)


@pytest.mark.parametrize("form", ["folded", "typed"])
@pytest.mark.parametrize("name", DRAWN)
def test_diagrams(name: str, form: str, golden: Golden, tmp_path: Path) -> None:
    """The DOT text of a picture; graphviz is not needed."""
    out = tmp_path / "drawn.dot"

    weft.draw(name, out, form=form)  # type: ignore[arg-type]

    golden(f"now/diagrams/{name}-{form}.dot", out.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", COSTS)
def test_cost_tables(name: str, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    """What `weft cost` prints."""
    assert main(["cost", name]) == 0

    golden(f"now/costs/{name}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["transformer-base", "parsing-span"])
def test_outlines(name: str, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    """What `weft show` prints."""
    assert main(["show", name]) == 0

    golden(f"now/outlines/{name}.txt", capsys.readouterr().out)


def test_a_difference(golden: Golden) -> None:
    """What `weft diff` prints."""
    found = weft.diff("transformer-base", "transformer-prenorm")

    golden("now/diff.txt", found.render())


@pytest.mark.integration
@pytest.mark.parametrize("name", ["", *load_commands()])
def test_help(
    name: str, golden: Golden, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `weft COMMAND --help` prints in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    assert main([*name.split(), "--help"]) == 0

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    golden(f"now/help/{name or 'weft'}.txt", "\n".join(lines) + "\n")


def test_public_api(golden: Golden) -> None:
    """Names, signatures, fields and members of everything that `import weft` exports."""
    golden("now/api.txt", "\n".join(listing()) + "\n")


def test_every_golden_text_is_compared(request: pytest.FixtureRequest) -> None:
    """No file is left over from a test that is gone."""
    folder = request.path.parent / "golden" / "now"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    wanted = {
        *(f"generated/{name}.py.txt" for name in GENERATED),
        *(f"diagrams/{name}-{form}.dot" for name in DRAWN for form in ("folded", "typed")),
        *(f"costs/{name}.txt" for name in COSTS),
        *(f"outlines/{name}.txt" for name in ("transformer-base", "parsing-span")),
        "diff.txt",
        *(f"help/{name}.txt" for name in load_commands()),
        "help/weft.txt",
        "api.txt",
    }

    assert found == wanted


def test_golden_texts_name_no_folder_of_a_machine(request: pytest.FixtureRequest) -> None:
    """They are the same wherever the checkout is."""
    folder = request.path.parent / "golden" / "now"
    for path in folder.rglob("*"):
        if path.is_file():
            assert not re.search(r"/(home|work|tmp|root|Users)/", path.read_text()), path
