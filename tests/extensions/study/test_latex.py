"""The LaTeX of a report: escaped text, and tables that fit a page."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.study.report.latex import latex
from weft.specs.latex_text import tex

AWKWARD = r"""[x] #1 & 50 % of a_b~{c}^d \e `f` |g| <h> "i" --set j='k' é ł ß × ≤ … “l” -0.5"""
"""Every character that LaTeX interprets, and some beyond ASCII."""


def pair(name: str, difference: float, verdict: str) -> dict[str, Any]:
    """Return a comparison of a row with the baseline."""
    return {
        "baseline": "baseline",
        "other": name,
        "difference": difference,
        "low": difference - 1,
        "high": difference + 1,
        "p": 0.01,
        "adjusted": 0.0001,
        "verdict": verdict,
        "detectable": 1.5,
        "test": "t test",
    }


def recorded(
    names: tuple[str, ...], pairs: tuple[dict[str, Any], ...] = (), others: int = 0
) -> dict[str, Any]:
    """Return the record of rows with a mean of 30 in a metric and in some others."""
    rows = [
        {
            "name": name,
            "costs": {"parameters": 1_837_056},
            "seeds": {"1": {"state": "done"}, "2": {"state": "done"}},
            "trained": ["1", "2"],
            "same_as": "",
        }
        for name in names
    ]
    means = [{"name": name, "mean": 30.0, "spread": 0.5, "low": 29, "high": 31} for name in names]
    shared = {"split": "test", "higher_is_better": True, "examples": 1000, "apart": []}
    tables = [
        {**shared, "metric": metric, "rows": means, "comparisons": [*pairs]}
        for metric in ("bleu", *(f"other_{number}" for number in range(others)))
    ]
    return {
        "study": "a.study",
        "doc": "Which is better?",
        "baseline": "baseline",
        "pairs": "baseline",
        "level": 0.95,
        "rows": rows,
        "tables": tables,
        "primary": {"split": "test", "metric": "bleu"},
        "tuning": None,
        "target": None,
        "ladders": {},
        "sequential": "",
    }


TWO = ("baseline", "wide", "deep")
FOUND = (pair("wide", -2.0, "worse"), pair("deep", 0.25, "not distinguishable"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a & b % $ # _ { }", r"a \& b \% \$ \# \_ \{ \}"),
        ("\\ ~ ^", r"\textbackslash{} \textasciitilde{} \textasciicircum{}"),
        ("` |", r"\textasciigrave{} \textbar{}"),
        ("< > ± ×", r"$<$ $>$ $\pm$ $\times$"),
        ("\N{GREEK SMALL LETTER ALPHA} → Ω ≤ ∞", r"$\alpha$ $\to$ $\Omega$ $\le$ $\infty$"),
        ("a \N{EN DASH} b — c…", r"a -- b --- c\dots{}"),
        ('say "a b" ("c")', "say ``a b'' (``c'')"),
        ("it\N{RIGHT SINGLE QUOTATION MARK}s “so”", "it's ``so''"),
        ("--set root=DIR", r"-{}-set root=DIR"),
        ("a---b", "a-{}-{}-b"),
        ("two\n\nlines\tand\N{NO-BREAK SPACE}more", "two lines and more"),
        ("Gödel, Łódź", "Gödel, Łódź"),
    ],
)  # fmt: skip
def test_what_latex_interprets_is_escaped(text: str, expected: str) -> None:
    """An empty line would end the caption; two hyphens would become a dash."""
    assert tex(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-0.25", "$-$0.25"),
        ("[-1.41, +0.92]", "[$-$1.41, +0.92]"),
        ("\N{MINUS SIGN}3", "$-$3"),
        ("heads-16 and GPT-2", "heads-16 and GPT-2"),
        ("2020-2021, 1e-5", "2020-2021, 1e-5"),
    ],
)
def test_a_hyphen_before_a_number_is_a_minus(text: str, expected: str) -> None:
    """One inside of a name, a range or an exponent is not."""
    assert tex(text) == expected


def test_the_table_has_the_differences_of_the_first_metric() -> None:
    """Signs are minuses, what was found is bold, and the caption says what is shown."""
    lines = latex(recorded(TWO, FOUND)).splitlines()

    assert lines[0] == r"% Needs \usepackage{booktabs}."
    start, same = lines.index(r"\midrule"), r"1,837,056 & 30.00 $\pm$ 0.50"
    assert lines[start + 1 : start + 4] == [
        rf"baseline & {same} &  &  &  \\",
        rf"wide & {same} & \textbf{{$-$2.00}} & [$-$3.00, $-$1.00] & $<$ 0.001 \\",
        rf"deep & {same} & +0.25 & [$-$0.75, +1.25] & $<$ 0.001 \\",
    ]
    [caption] = [line for line in lines if line.startswith(r"\caption")]
    assert caption.startswith(r"\caption{Which is better? Metric: bleu on test, 1,000 examples. ")
    assert caption.endswith(" Bold differences from baseline are significant.}")
    assert r"\label{tab:a-study}" in lines


def test_columns_without_a_value_are_left_out() -> None:
    """Nothing is compared, so there are no differences."""
    text = latex(recorded(("baseline", "failed")))

    assert r"row & parameters & bleu \\" in text
    assert "ifferences" not in text


def test_a_note_on_a_row_is_in_the_caption() -> None:
    """Rows with the same note have the same letter."""
    record = recorded(("baseline", "a", "b", "c"))
    for row, same in zip(record["rows"][1:], ("baseline", "a", "a"), strict=True):
        row["same_as"] = same

    text = latex(record)

    assert [f"{name}$^{{{mark}}}$ & " in text for name, mark in ("aa", "bb", "cb")] == [True] * 3
    assert "$^{a}$ same as baseline. $^{b}$ same as a.}" in text


def test_large_tables_are_divided() -> None:
    """40 rows fit on a page, and three other measurements beside the names."""
    text = latex(recorded(tuple(f"row{number}" for number in range(41)), others=4))

    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2 * (1 + 2)
    assert text.count("row40 & ") == 3
    labels = re.findall(r"\\label\{tab:a-study(.*?)\}", text)
    assert labels == ["", "-2", "-3", "-4", "-5", "-6"]


def test_a_bracket_at_the_start_of_a_line_is_no_argument() -> None:
    r"""After `\\`, LaTeX would read a length, or a star."""
    text = latex(recorded(("[x]", "*")))

    assert "\n{}[x] & " in text
    assert "\n{}* & " in text


def test_letters_that_pdflatex_cannot_set_are_listed() -> None:
    """They stay, because LuaLaTeX and XeLaTeX can set them."""
    text = latex(recorded(("語é語",)))

    assert text.splitlines()[1] == "% pdfLaTeX cannot set 語: use LuaLaTeX or XeLaTeX."
    assert "語é語 & " in text


@pytest.mark.integration
def test_the_tables_fit_a_page(tmp_path: Path) -> None:
    """LaTeX sets them without an error, and nothing is wider or higher than the text."""
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex")
    long = "decoder.layers=4,decoder.heads=8,decoder.positions=relative_bias"
    names = ("baseline", "wide", AWKWARD, long, *(f"row-{number}" for number in range(60)))
    found = [pair(name, -123.456, "worse") for name in names[1:]]
    record = {**recorded(names, tuple(found), others=4), "doc": f"{AWKWARD}\n\nlast"}
    for one in record["tables"]:
        one["split"] = record["primary"]["split"] = "test_2016_flickr"
    record["rows"][1]["same_as"] = "baseline"
    (tmp_path / "table.tex").write_text(latex(record))
    (tmp_path / "paper.tex").write_text(
        "\\documentclass{article}\n\\usepackage{booktabs}\n"
        "\\begin{document}\n\\input{table}\n\\end{document}\n"
    )

    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:]
    assert re.findall(r"Overfull.*|.*too large for page.*|.*Missing character.*", done.stdout) == []
