"""Checking: load a spec, build its graph, and list what is wrong with it; no torch."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...blocks.registry import registry
from ...graphs.advice import advise
from ...graphs.checker.check import Explored, explore
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...specs.escaping import html_text
from ...specs.findings import Finding, InputError, SpecError, at_most, did_you_mean
from ...specs.load import LoadedSpec, load

_SHOWN = 3
"""Most findings that `repr` names."""


class Findings(list[Finding]):
    """All errors of a spec or, if it has none, its warnings; equal to `[]` if there are none."""

    @property
    def errors(self) -> Findings:
        """The errors: if there are none, the spec is valid."""
        return Findings(finding for finding in self if finding.level == "error")

    @property
    def warnings(self) -> Findings:
        """The warnings about a valid spec."""
        return Findings(finding for finding in self if finding.level == "warning")

    def render(self) -> str:
        """Return all findings as text, as the command `weft check` prints them."""
        return "\n\n".join(finding.render() for finding in self)

    def __repr__(self) -> str:
        """Return the first findings on one line, and how many there are."""
        shown = [repr(finding) for finding in self[:_SHOWN]]
        more = len(self) - _SHOWN
        return f"[{', '.join([*shown, *([f'... {more} more'] if more > 0 else [])])}]"

    def _repr_html_(self) -> str:
        """Return a table of the findings for notebooks."""
        return findings_html(self)


PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def explanation(code: str) -> str:
    """Return what a code means, with an example and the way out.

    Raises:
        InputError: no finding has that code.
    """
    text = PAGE.read_text(encoding="utf-8")
    paragraphs = dict(re.findall(r"^### (\w+)\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL))
    paragraph = paragraphs.get(code.upper())
    if paragraph is None:
        raise InputError(
            f"no finding has the code '{code}'",
            location="--explain",
            help=did_you_mean(code.upper(), paragraphs),
        )
    return f"{code.upper()}\n{paragraph.rstrip()}"


Source = LoadedSpec | str | Path
"""A spec: the result of `weft.load`, a path, or a shipped name."""


def check(spec: Source | Graph, *, blocks: Iterable[BlockType] = ()) -> Findings:
    """Return all errors of a spec; if it has none, its warnings.

    The list is empty if the spec is valid and nothing in it is unusual.  Warnings are listed in
    `docs/errors.md` under D; a spec excepts them by their codes: `"allow": ["D03"]`.

    Args:
        spec: the result of `load`, a path, or a shipped name.
        blocks: block types that the spec may use besides the installed ones.

    Raises:
        InputError: the file does not exist, or `blocks` cannot be used.
    """
    if isinstance(spec, Graph):
        return Findings(advise(spec))
    try:
        loaded = with_blocks(spec, blocks)
        graph, findings = analysed(loaded)
    except SpecError as error:
        return Findings(error.findings)
    return Findings(findings if graph is None else warnings_of(loaded, graph))


def warnings_of(loaded: LoadedSpec, graph: Graph) -> list[Finding]:
    """Return the warnings about a correct spec, in their files.

    Args:
        loaded: the spec.
        graph: its graph.
    """
    return at_most(loaded.place_all(advise(graph)), loaded.source)


def graph_of(spec: Source | Graph, blocks: Iterable[BlockType] = ()) -> Graph:
    """Return the graph of a spec.

    Args:
        spec: a loaded spec, a path, or a shipped name; a graph is returned as it is.
        blocks: block types that the spec may use besides the installed ones.

    Raises:
        InputError: the file does not exist, or `blocks` cannot be used.
        SpecError: the spec has mistakes; all of them are listed.
    """
    if isinstance(spec, Graph):
        return spec
    graph, findings = analysed(spec, blocks)
    if graph is None:
        raise SpecError(findings)
    return graph


def analysed(spec: Source, blocks: Iterable[BlockType] = ()) -> tuple[Graph | None, list[Finding]]:
    """Return the graph of a spec, or None, and all findings with their files.

    Args:
        spec: a loaded spec, a path, or a shipped name.
        blocks: block types that the spec may use besides the installed ones.

    Raises:
        InputError: the file does not exist, or `blocks` cannot be used.
        SpecError: the file cannot be read as a spec at all.
    """
    exploration = explored(with_blocks(spec, blocks))
    return (None if exploration.findings else exploration.graph), exploration.findings


def explored(loaded: LoadedSpec) -> Explored:
    """Return what is known of a spec that may have mistakes, with all findings in their files."""
    graph, templates, findings, _ = explore(
        loaded.recovered,
        registry(loaded.blocks),
        loaded.overrides,
        source=loaded.source,
        lost=loaded.lost,
    )
    placed = loaded.place_all(findings)
    if loaded.mistakes:
        placed = at_most([*loaded.mistakes, *placed], loaded.source)
    return Explored(graph, templates, placed, findings)


def with_blocks(spec: Source, blocks: Iterable[BlockType] = ()) -> LoadedSpec:
    """Return a spec, loaded if necessary, that may use further block types.

    Raises:
        InputError: the file does not exist, or the argument is not a spec.
        SpecError: the file is not valid JSON or does not have the form of a spec.
    """
    if isinstance(spec, str | Path):
        loaded = load(spec)
    elif isinstance(spec, LoadedSpec):
        loaded = spec
    else:
        raise InputError(
            f"an object of type {type(spec).__name__} is not a spec",
            location="spec",
            help="pass the result of weft.load, the path of a spec file, or a shipped name",
        )
    added = listed(blocks)
    return replace(loaded, blocks=(*loaded.blocks, *added)) if added else loaded


def listed(blocks: Iterable[BlockType]) -> tuple[BlockType, ...]:
    """Return the argument `blocks=` as a tuple.

    Raises:
        InputError: it cannot be iterated over, such as a single block type.
    """
    try:
        return tuple(blocks)
    except TypeError as error:
        raise InputError(
            f"'blocks' is of type {type(blocks).__name__}, not a list of block types",
            location="blocks",
            help="pass a list, such as blocks=[MY_BLOCK]",
        ) from error


_BOX = "border-left:3px solid {color};padding:.1em 0 .1em .8em;margin:.4em 0"
_FRAME = "width:100%;height:560px;border:1px solid #8886;border-radius:6px"
_RED, _GREEN, _AMBER = "#d1463d", "#2f9e57", "#b97f10"
"""Colors with a contrast of at least 3:1 on white and on #111."""
_MOST = 50
"""Maximum number of findings in one table."""


def box(lines: Iterable[str], color: str) -> str:
    """Return lines of HTML in a box with a colored left edge."""
    return f'<div style="{_BOX.format(color=color)}">{"<br>".join(lines)}</div>'


def findings_html(findings: Iterable[Finding]) -> str:
    """Return findings as HTML, or a line that says that there are none."""
    every = list(findings)
    if not every:
        return box(["no findings"], _GREEN)
    colors = {"error": _RED, "warning": _AMBER}
    boxes = [box(_lines(finding), colors[finding.level]) for finding in every[:_MOST]]
    if more := len(every) - _MOST:
        boxes += [box([f"and {more} more"], _RED)] if more > 0 else []
    return "".join(boxes)


def _lines(finding: Finding) -> list[str]:
    """Return a finding as lines of HTML: problem, place, evidence and help."""
    lines = [f"<b>{finding.level}[{html_text(finding.code)}]</b>: {html_text(finding.problem)}"]
    lines.append(f"<code>{html_text(finding.location)}</code>")
    lines += [f"<code>{html_text(line)}</code>" for line in finding.evidence]
    if finding.help:
        lines.append(f"help: {html_text(finding.help)}")
    return lines


def note_html(text: str) -> str:
    """Return a note, such as why there is no picture, as HTML."""
    return box([html_text(text)], _AMBER)


def text_html(text: str) -> str:
    """Return preformatted text as HTML."""
    lines = "\n".join(html_text(line) for line in text.splitlines())
    return f'<pre style="margin:.4em 0">{lines}</pre>'


def frame_html(page: str, title: str) -> str:
    """Return a complete page inside a frame of its own, on one line.

    The frame has no access to the document around it; the page may run its script and save files.
    """
    text = html.escape(page, quote=True).replace("\n", "&#10;")
    sandbox = "allow-scripts allow-downloads"
    return (
        f'<iframe title="{html_text(title)}" sandbox="{sandbox}" style="{_FRAME}" srcdoc="{text}">'
        "</iframe>"
    )
