"""`weft.Study`: plan, run and report a study from Python; the command `weft study` uses it too."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...plugin import InputError, On, SpecError, did_you_mean, locked
from ...specs.load import parse_overrides
from .document import StudySettings
from .jobs import PLAN, SEARCH_TASK, Job, jobs_of, open_plan, write_jobs, write_json
from .loading import load_study, study_of
from .planning.draft import draft_study
from .planning.identity import DataDigests
from .planning.plan import JobPlan, plan_study, with_choice, with_keys
from .planning.planned import Planned
from .planning.table import Speed, plan_record
from .planning.tune import best_of, chosen_metric
from .records import (
    StudyJob,
    StudyPlan,
    StudyReport,
    StudyScore,
    StudySearch,
    plan_of,
    report_of,
    scores_of,
    status_of_jobs,
)
from .report.commands import study_command
from .report.forms import FORMS, Form
from .report.page import write_pictures
from .report.record import Record, open_rows, study_record
from .report.search_report import best_trials, write_search_report
from .report.write import write_report
from .results import score_of
from .running import run_jobs
from .sampling import importances, optuna
from .search import Searching
from .speed import flops_per_second
from .transfer import pack, packed_plan, unpack, without_roots


@dataclass(frozen=True, slots=True)
class Begun:
    """The jobs of a study, written into its folder."""

    record: dict[str, Any]
    """The plan, with the chosen rows alone."""
    jobs: list[Job]
    """The jobs of the chosen rows."""
    todo: list[Job]
    """Those that are not done."""
    following: Callable[[], Begun]
    """Returns the jobs that the results ask for, when `todo` was run: a tuned row, more seeds.

    A job that has failed is not among them.
    """

    def rounds(self) -> Iterator[Begun]:
        """Yield these jobs, and when they were run, those that follow, as long as any are to do."""
        jobs = self
        while jobs.todo:
            yield jobs
            jobs = jobs.following()


def _written(overrides: Mapping[str, Any]) -> list[str]:
    """Return overrides as the option --set has them."""
    return [f"{path}={json.dumps(value)}" for path, value in overrides.items()]


def _silent(_: str) -> None:
    """Discard a line."""


class Study:
    """A study: variants of one run, trained with several seeds and compared.

    Nothing is trained before `run`.  `docs/studies.md` describes the file.
    """

    def __init__(
        self,
        name: str | Path,
        *,
        out: str | Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        gigaflops: float | None = None,
    ) -> None:
        """Read a study.

        Args:
            name: path of a study file, or name of a shipped study.
            out: folder of the study; default: `outputs/NAME`.
            overrides: dotted path to value, such as `{"budget.updates": 200}`.
            gigaflops: GFLOP/s with which a run trains, for estimates of durations; default: the
                speed of finished runs of the study, or 30 % of the measured peak.

        Raises:
            InputError: the file does not exist.
            SpecError: it is not a valid study.
        """
        self.settings, self._file = load_study(name, overrides)
        self.name, self.doc = self.settings.name, self.settings.doc
        self.folder = Path(out) if out is not None else Path("outputs") / self.name
        self.source, self.overrides = str(name), dict(overrides or {})
        self._speed = None if gigaflops is None else gigaflops * 1e9

    @classmethod
    def new(cls, run: str | Path, *, name: str = "", out: str | Path | None = None) -> Study:
        """Write a study of a run, to edit, and return it: rows that fit its model, with comments.

        Args:
            run: path of a run, or name of a shipped run.
            name: name of the study; default: that of the run with `-study`.
            out: the file to write, in the folder of the run, as by default: `NAME.json`.

        Raises:
            InputError: there is no such run, or the file exists or is elsewhere.
            SpecError: the run has mistakes.
        """
        return cls(draft_study(run, name=name, out=out))

    def __repr__(self) -> str:
        """Return the name, the number of rows and seeds, and the folder."""
        return f"{str(self.settings)[:-1]}, in {self.folder}>"

    def plan(self) -> StudyPlan:
        """Check and cost every row; errors and warnings are the `findings` of the result."""
        plan = plan_study(self.settings, self._file, self._limit())
        return plan_of(plan, flops_per_second(self.folder, self._speed))

    def _limit(self) -> Speed | None:
        """Return the speed that the budget of seconds is checked with; None without such a one."""
        limited = self.settings.budget.seconds is not None
        return flops_per_second(self.folder, self._speed) if limited else None

    def run(
        self, *, processes: int | None = None, rows: Iterable[str] = (), on: On = "local"
    ) -> StudyReport:
        """Train and measure everything that is not done yet, and write the report.

        SIGINT and SIGTERM stop the trainings with checkpoints, and the report is then that of what
        is done; the next call continues.  The failure of one training does not stop the others.

        Args:
            processes: number of trainings at the same time; default: one on this machine, on its
                own cores, and on a cluster as many as it takes.
            rows: names of the rows to train; by default all of them.  The report has all rows.
            on: where they run: `local`, `ray`, `dask:ADDRESS`, `slurm`, or settings.

        Returns:
            The report; its `failed` names trainings that failed.

        Raises:
            SpecError: the study has errors.
            InputError: there is no such row, another process uses the folder, or a file cannot be
                written.
        """
        plan = self.plan()
        with begun(self, plan, rows) as first:
            write_pictures(plan.plan, self.folder)
            for jobs in first.rounds():
                if run_jobs(jobs.todo, processes, on=on).stopped_by is not None:
                    break
            return self.report()

    def status(self) -> list[StudyJob]:
        """Return how far each training is.

        Raises:
            InputError: the study was not run.
        """
        return status_of_jobs(jobs_of(open_plan(self.folder), self.folder))

    def report(self, to: str | Path | None = None, *, forms: Sequence[Form] = FORMS) -> StudyReport:
        """Write the report of what is done.

        Args:
            to: folder of the report; default: `report` in the folder of the study.
            forms: what is written: "html", "md", "svg" and "pdf" (the figures; the Markdown shows
                the former), "tex", "csv" and "json".

        Raises:
            InputError: a form is unknown, the study was not run, or a file cannot be written.
        """
        return report_of(*write_report(self.folder, None if to is None else Path(to), forms))

    def results(self) -> list[StudyScore]:
        """Return the value of each metric, for each row, seed and split that is done.

        Raises:
            InputError: the study was not run.
        """
        return scores_of(study_record(self.folder))

    def pack(self, to: str | Path) -> list[Path]:
        """Write the results of each finished training to a file, `KEY.zip`, without weights.

        The file `plan.json` beside them has the rows of the study, for `unpack`.

        Args:
            to: folder of the files.

        Raises:
            InputError: the study was not run, or a file cannot be written.
        """
        return pack(self.folder, Path(to))

    def unpack(self, sources: Iterable[str | Path]) -> tuple[list[str], list[str]]:
        """Add finished trainings, which `run` then does not repeat.

        If the study was not run in its folder, and is the same as the packed one, it also gets the
        plan of that one, so that `report` needs no data.

        Args:
            sources: files from `pack`, or folders of them.

        Returns:
            Keys of the trainings that were added, and of those that were known already.

        Raises:
            InputError: a file is not that of a training, or another process uses the folder.
        """
        paths = [Path(source) for source in sources]
        plan = packed_plan(paths)
        unpacked = unpack(paths, self.folder)
        if plan is not None and not (self.folder / PLAN).is_file():
            document = _planned_document(self, plan)
            if document is not None and _complete(document) == _complete(plan["document"]):
                origin = {"source": self.source, "folder": str(self.folder), "document": document}
                write_json(self.folder / PLAN, {**plan, **origin})
        return unpacked

    def search(
        self,
        *,
        processes: int | None = None,
        on: On = "local",
        log: Callable[[str], None] | None = None,
    ) -> StudySearch:
        """Search the best row by the validation data; no test set is measured.

        It needs the extra `search`.  SIGINT and SIGTERM stop the trials with checkpoints; the next
        call continues.

        Args:
            processes: number of trials that train at the same time, as in `run`.
            on: where they run, as in `run`.
            log: called with a line for each trial that ends.

        Raises:
            SpecError: the study has errors.
            InputError: the study has no search, Optuna is not installed, or another process uses
                the folder.
        """
        if self.settings.search is None:
            raise InputError(
                "the study has no search",
                location=self.source,
                help="add 'search' with its 'factors'; see docs/studies.md",
            )
        optuna()
        log = log or _silent
        plan = self.plan()
        if plan.findings.errors:
            raise SpecError(plan.findings.errors)
        speed = self._limit()
        with locked(self.folder):
            searching = Searching(plan.plan, self.source, self.folder, log=log, speed=speed)
            if searching.others:
                log(f"{len(searching.others)} trials of other factors or settings are left out")
            searching.run(processes, on=on)
            overrides = _written(self.overrides)
            command = study_command("search", self.source, overrides, str(self.folder))
            paths = write_search_report(searching, self.name, command, self.folder)
        up = searching.metric.higher_is_better
        return StudySearch(
            trials=tuple(searching.trials),
            best=tuple(best_trials(searching)),
            importances=importances(searching.axes, searching.trials, higher_is_better=up),
            stopped_by=searching.stopped_by,
            paths=tuple(paths),
        )


def edited(study: Study) -> bool:
    """Return whether the file of a study has changed since the study was run.

    Raises:
        InputError: the study was not run.
    """
    plan = open_plan(study.folder)
    return bool(_planned_document(study, plan) != plan["document"])


def _planned_document(study: Study, plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the study as its file is, with the overrides of a plan; None if they do not fit."""
    try:
        settings, _ = load_study(study.source, parse_overrides(plan["overrides"]))
    except SpecError:
        return None
    return _document(settings)


def _complete(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a study with all defaults and without folders of data; None if it is not one."""
    try:
        settings = study_of(dict(document), PLAN)
    except SpecError:
        return None
    return dict(without_roots(settings.model_dump(mode="json")))


def _document(settings: StudySettings) -> dict[str, Any]:
    """Return a study as the plan in its folder has it."""
    return settings.model_dump(mode="json", exclude_unset=True)


@contextmanager
def begun(study: Study, plan: StudyPlan, rows: Iterable[str] = ()) -> Iterator[Begun]:
    """Lock the folder of a study, and write its jobs; those that are done stay as they are.

    Args:
        study: the study.
        plan: its plan.
        rows: names of the rows whose jobs are to do; by default all of them.

    Yields:
        The jobs.

    Raises:
        SpecError: the study has errors.
        InputError: there is no such row, another process uses the folder, or a file cannot be
            written.
    """
    if plan.findings.errors:
        raise SpecError(plan.findings.errors)
    row_names, chosen = [row.name for row in plan.rows], list(rows)
    for name in chosen:
        if name not in row_names:
            problem = f"the study has no row '{name}'"
            raise InputError(problem, location=study.source, help=did_you_mean(name, row_names))
    with locked(study.folder):
        yield _round(study, plan, chosen, [])


def _round(
    study: Study, plan: StudyPlan, chosen: Collection[str], attempted: Sequence[Job]
) -> Begun:
    """Write the jobs that the results so far ask for.

    Args:
        study: the study.
        plan: its plan.
        chosen: names of the rows whose jobs are to do; none: all rows.
        attempted: jobs that were run in this call.
    """
    failed = {job.key for job in attempted if job.state() != "done"}

    def record_of(current: JobPlan) -> dict[str, Any]:
        record = plan_record(current, plan.speed)
        record["document"] = _document(study.settings)
        record |= {"source": study.source, "folder": str(study.folder)}
        return record | {"overrides": _written(study.overrides)}

    record = proceed(plan.plan, study.folder, record_of, failed)
    selected = [row for row in record["rows"] if not chosen or row["name"] in chosen]
    shown = {**record, "rows": selected}
    # Equal rows share jobs, which have the name of the first one.
    jobs = jobs_of(shown, study.folder)
    tried = {(job.key, job.kind) for job in attempted}
    todo = [job for job in jobs if job.state() != "done" and (job.key, job.kind) not in tried]
    return Begun(shown, jobs, todo, lambda: _round(study, plan, chosen, [*attempted, *todo]))


def proceed(
    plan: JobPlan,
    out: Path,
    record_of: Callable[[JobPlan], Record],
    failed: Collection[str] = (),
) -> Record:
    """Write the jobs that the results so far ask for, and the plan with them.

    Rows are tuned first, then trained with the first seeds; more seeds follow for the rows whose
    comparisons are open.

    Args:
        plan: a plan without errors.
        out: folder of the study.
        record_of: returns a plan as plain data.
        failed: keys of jobs that have failed in this call, and are not waited for.

    Returns:
        The plan as plain data, as it is in the folder.
    """
    digests, seeds, looks = DataDigests(), plan.study.all_seeds(), plan.study.looks()
    current = replace(plan, rows=tuple(_untuned(plan, row) for row in plan.rows))
    record = record_of(current)
    jobs = write_jobs(current, out, record)
    if any(row.trials for row in plan.rows):
        choices = {row.name: _choice(plan, row, out, failed) for row in plan.rows if row.trials}
        current = _tuned(plan, choices, digests)
        record = record_of(current)
        jobs = write_jobs(current, out, record)
    for look, count in itertools.pairwise(looks):
        if not all(row.keys for row in current.rows):
            break
        if any(job.state() != "done" and job.key not in failed for job in jobs):
            break
        names = open_rows(out, look)
        if not names:
            break
        current = replace(
            current,
            rows=tuple(
                with_keys(plan.study, row, digests, seeds[:count]) if row.name in names else row
                for row in current.rows
            ),
        )
        record = record_of(current)
        jobs = write_jobs(current, out, record)
    return record


def _untuned(plan: JobPlan, row: Planned) -> Planned:
    """Return a row without jobs of its own if its values are not chosen yet."""
    return replace(row, keys={}) if _leader(plan, row) else row


def _leader(plan: JobPlan, row: Planned) -> str:
    """Return the name of the row whose tuning gives a row its values; `""` if it is not tuned."""
    tuned = {other.name for other in plan.rows if other.trials}
    return next((name for name in (row.name, row.row.follows) if name in tuned), "")


def _choice(
    plan: JobPlan, row: Planned, out: Path, failed: Collection[str]
) -> Mapping[str, Any] | None:
    """Return the best values of a row; None if a trial is still to be done, or all have failed."""
    if plan.study.tune is None:
        return None
    metric = chosen_metric(row.run, plan.study.tune.metric)
    means = list[float | None]()
    for trial in row.trials:
        jobs = [
            Job(out / "jobs" / key, row.name, seed, SEARCH_TASK) for seed, key in trial.keys.items()
        ]
        done = [job for job in jobs if job.state() == "done"]
        if any(job not in done and job.key not in failed for job in jobs):
            return None
        scores = [score_of(job, metric.name) for job in done]
        means.append(sum(scores) / len(scores) if len(done) == len(jobs) else None)
    best = best_of(means, higher_is_better=metric.higher_is_better)
    return None if best is None else row.trials[best].row.tuned


def _tuned(
    plan: JobPlan, choices: Mapping[str, Mapping[str, Any] | None], digests: DataDigests
) -> JobPlan:
    """Return a plan whose rows have the values that were chosen."""
    rows = []
    for row in plan.rows:
        values = choices.get(_leader(plan, row))
        rows.append(
            _untuned(plan, row) if values is None else with_choice(plan, row, values, digests)
        )
    return replace(plan, rows=tuple(rows))
