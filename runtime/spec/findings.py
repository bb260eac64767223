"""`Findings`, the list that `weft.check` returns; no torch."""

from __future__ import annotations

from ...specs.findings import Finding
from .display import findings_html

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
