"""Display in notebooks: SVG pictures and HTML of specs, findings and diffs; no torch.

Every text of a spec is untrusted and is escaped.  Colors are readable on light and on dark
backgrounds; pictures bring their own white background.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from ...specs.escaping import html_text
from ...specs.findings import Finding

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
