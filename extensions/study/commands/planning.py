"""What the commands of a study print and draw besides its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....runtime.cli.common import terminal
from ....specs.findings import SpecError

if TYPE_CHECKING:
    from ..records import StudyPlan
    from ..study import Study


def refuse_wrong(plan: StudyPlan) -> None:
    """Print the warnings of a plan, and raise its errors.

    Raises:
        SpecError: the plan has errors.
    """
    terminal.show_warnings(plan.findings.warnings)
    if errors := plan.findings.errors:
        raise SpecError(errors)


def show_plan(study: Study, plan: StudyPlan) -> None:
    """Print the costs of the rows of a study, and what they change."""
    print("\n".join(terminal.columns(plan.table, 1)))
    seeds = len(study.settings.seeds)
    print(f"\none run  training at {plan.gigaflops:,.1f} GFLOP/s, without validations")
    print(f"all      {seeds} seed{'s' * (seeds > 1)} each, one run at a time")
    if plan.search:
        print(f"search   {plan.search}")
    print()
    for row in plan.rows:
        if row.name != study.settings.compare.baseline:
            print(f"{row.name}  {row.solved}".rstrip())
            print("\n".join(f"  {line}" for line in row.changes or ("no difference",)))


def draw_plan(plan: StudyPlan, out: str) -> None:
    """Write the page of a plan, and say so.

    Raises:
        InputError: the file cannot be written.
    """
    for problem in plan.draw(out):
        terminal.notice(problem)
    terminal.notice(f"written  {out}")


def note_edits(study: Study) -> None:
    """Say so if the study was edited since it was run.

    Raises:
        InputError: the study was not run.
    """
    from ..study import edited

    if edited(study):
        terminal.notice(
            "the study was edited after it was run, and this is about the study before: weft study"
            " run applies the changes"
        )
