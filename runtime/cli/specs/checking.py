"""The command `weft check`; no torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....specs.files import write_beside
from ....specs.findings import Finding, InputError, SpecError
from ....specs.form import kind_of
from ....specs.json_tree import Source
from ....specs.reader import LARGEST, SHIPPED, find, read_json, read_text, text_of
from ...spec.check import explanation
from ...spec.fixing import described, fixed
from ..common import terminal
from ..common.command import SPECS, command, wrong
from ..common.parameters import Json, Overrides, argument, complete_specs, overridden
from .documents import DOCUMENTS, CheckedDocument, document_of

if TYPE_CHECKING:
    pass

STDIN = "<stdin>"
"""Name of the standard input in findings."""


@command(
    SPECS,
    "weft check my.json --set layers=4",
    "weft check models/*.json",
    "weft check my.json --fix",
    "weft check multi30k-en-de --set data.root=DIR",
    "weft check --explain T03",
    note="""Of a run, this checks the spec with the run's params, the files, lengths and selections,
and settings without effect, before any data is read; `weft train` does the same first.

Warnings are about correct specs in which something is unusual. They do not change the exit code; a
spec excepts them by their codes, such as `"allow": ["D03"]`.""",
)
def check(
    specs: Annotated[
        list[str] | None,
        argument(
            "SPEC...",
            "Spec, run or study files, or names of shipped ones (see `weft list`); `-` is standard "
            "input.",
            complete_specs,
        ),
    ] = None,
    *,
    overrides: Overrides = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Correct what can only have been meant in one way, such as a misspelled name, in "
            "the files. Comments and formatting stay.",
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 1 if there are warnings, too.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="CODE",
            help="Instead of checking, print what the code of a finding means.",
            show_default=False,
        ),
    ] = None,
    json_: Json = False,
) -> int:
    """Check specs or runs and report every mistake, with its place and a way to fix it."""
    if explain is not None:
        if specs or overrides or fix or strict:
            raise wrong("--explain", "it takes no specs, and no other option but --json")
        text = explanation(explain)
        print(json.dumps({"code": explain.upper(), "text": text}) if json_ else text)
        return 0
    if not specs:
        raise wrong("SPEC...", "name a spec or a run, or '-' for standard input")
    changes = overridden(overrides)
    reports = [_checked(name, changes, fix=fix, quiet=json_) for name in specs]
    if json_:
        print(json.dumps(reports[0] if len(reports) == 1 else reports, indent=2))
    levels = {finding["level"] for report in reports for finding in report["findings"]}
    return int("error" in levels or (strict and bool(levels)))


def _checked(name: str, overrides: dict[str, Any], *, fix: bool, quiet: bool) -> dict[str, Any]:
    """Check one spec or run, print the outcome unless `quiet`, and return it as plain data."""
    try:
        source = _source(name)
        applied = _fix(source, overrides, quiet=quiet) if fix else ()
        outcome = _outcome(_source(name) if applied else source, overrides)
    except InputError as error:
        applied, outcome = (), CheckedDocument([_as_finding(error, name)])
    errors = [finding for finding in outcome.findings if finding.level == "error"]
    if not quiet:
        terminal.show_warnings(
            finding for finding in outcome.findings if finding.level == "warning"
        )
        if errors:
            terminal.show_error(SpecError(errors), name)
        else:
            print(outcome.summary)
    report = {"spec": name, "findings": [finding.as_json() for finding in outcome.findings]}
    if applied:
        report["fixed"] = [finding.as_json() for finding in applied]
    return {**report, **({} if errors else {"fingerprint": outcome.fingerprint})}


def _source(name: str) -> Source:
    """Return the name of an input with its text.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    if name == "-":
        return Source(STDIN, text_of(sys.stdin.buffer.read(LARGEST + 1), STDIN))
    folders = [folder for kind in DOCUMENTS.forms().values() for folder in kind.folders]
    path = find(name, *folders)
    return Source(str(path), read_text(path))


def _outcome(source: Source, overrides: dict[str, Any]) -> CheckedDocument:
    """Check the text of a file; one of an unknown kind is read as a spec."""
    try:
        value = read_json(source.text, source)
        kind = kind_of(value)
        document_kind = kind if kind in DOCUMENTS.names() else "spec"
        return document_of(document_kind).check(value, source, overrides)
    except SpecError as error:
        return CheckedDocument(list(error.findings))
    except InputError as error:
        return CheckedDocument([_as_finding(error, source)])


def _as_finding(error: InputError, name: str) -> Finding:
    """Return an error as a finding, so that programs always get the same JSON."""
    source = error.location or name
    return Finding(code="", at="", problem=error.problem, help=error.help, source=source)


def _fix(source: Source, overrides: dict[str, Any], *, quiet: bool) -> tuple[Finding, ...]:
    """Apply the certain fixes to a file, say what was changed, and return the fixed findings.

    Raises:
        InputError: it is not a file of the user's, or cannot be written.
    """
    path = Path(source)
    if not path.is_file() or path.is_relative_to(SHIPPED):
        what = "the standard input" if source == STDIN else "a file that weft ships"
        raise InputError(
            f"{what} cannot be fixed", location=source, help="copy it to a file, and fix that"
        )

    def findings_in(text: str) -> list[Finding]:
        return _outcome(Source(source, text), overrides).findings

    correction = fixed(source.text, findings_in, source)
    if correction.applied:
        write_beside(path, correction.text.encode(), "file")
    for finding in () if quiet else sorted(correction.applied, key=_line_and_column):
        edits = ", ".join(map(described, finding.fix.edits if finding.fix else ()))
        spot = finding.spot
        location = f"{source}:{spot.line}:{spot.column}" if spot else source
        terminal.notice(f"fixed {location}: {finding.problem}; {edits}")
    return correction.applied


def _line_and_column(finding: Finding) -> tuple[int, int]:
    return (finding.spot.line, finding.spot.column) if finding.spot else (0, 0)
