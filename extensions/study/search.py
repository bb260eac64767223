"""Run a search: choose rows, train several at a time, stop the worse ones, and note everything.

A trial is a row, and its trainings are jobs of the study: they are found by their keys, so a row
that was trained before, by a search or by the study, is only measured.  Jobs of a search measure
the validation data; no test set is measured.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...plugin import Finding, Metric, On, SpecError
from .document import Search
from .jobs import (
    SEARCH_TASK,
    TRAINED,
    Job,
    Measures,
    Trained,
    events,
    read_json,
    write_job,
)
from .planning.base import Run
from .planning.checks import of_rows
from .planning.identity import DataDigests, digest_of
from .planning.plan import JobPlan, planned_row, with_keys
from .planning.planned import Planned
from .planning.space import axes_of, row_at
from .planning.tune import chosen_metric
from .results import score_of
from .running import JobRunner
from .sampling import is_worse, next_point
from .trials import StudyTrial, read_trials, write_trials


@dataclass(slots=True)
class _Active:
    """A trial that trains."""

    trial: StudyTrial
    waiting: list[Job]
    """Its jobs that are not begun, one for each seed."""
    finished: list[Job]
    pruned: bool = False


class Searching:
    """A search in the folder of its study."""

    def __init__(
        self,
        plan: JobPlan,
        source: str,
        folder: Path,
        *,
        log: Callable[[str], None] = lambda _: None,
        speed: Callable[[Run], float] | None = None,
    ) -> None:
        """Read the trials of the search so far.

        Args:
            plan: a plan without errors, of a study with a search.
            source: file of the study.
            folder: folder of the study.
            log: called with a line for each trial that ends.
            speed: FLOP/s with which a run trains, for the limit on its duration; None checks no
                duration.

        Raises:
            InputError: a file is damaged.
            ValueError: the study has no search.
        """
        study = plan.study
        if study.search is None or plan.base is None:
            raise ValueError(source)
        self.search: Search = study.search
        self._plan, self._study, self._base, self._source = plan, study, plan.base, source
        self._folder, self._log, self._speed = folder, log, speed
        self.axes, self._digests = axes_of(study), DataDigests()
        self.metric: Metric = metric_of(plan)
        self._up = self.metric.higher_is_better
        self._context = self._depends_on()
        stored, self.others = read_trials(folder, self.axes)
        self.trials = [trial for trial in stored if self._is_current(trial)]
        self.others += [trial for trial in stored if trial not in self.trials]
        self.stopped_by: signal.Signals | None = None
        self._active: dict[Job, _Active] = {}

    def _depends_on(self) -> str:
        """Return a digest of what the value of a trial depends on besides its factors."""
        study, keys = self._study, self._plan.baseline.keys
        seeds = {str(seed): keys[seed] for seed in study.seeds[: self.search.seeds]}
        measure = study.measure.model_dump(mode="json", include={"checkpoint", "predict"})
        match = study.match.model_dump(mode="json") if study.match else None
        return digest_of([seeds, measure, match, self.metric.model_dump(mode="json")])

    def _is_current(self, trial: StudyTrial) -> bool:
        """Return whether a trial counts.

        Its value is that of the present settings, or it is measured again: if only the measurement
        has changed, its trainings are still those of the study.
        """
        if trial.context == self._context:
            return True
        try:
            keys = self._planned(trial).keys
        except SpecError:
            return False
        seeds = self._study.seeds[: self.search.seeds]
        folders = [self._folder / "jobs" / keys[seed] for seed in seeds]
        if not all((folder / TRAINED).is_file() for folder in folders):
            return False
        trial.state, trial.value, trial.curve, trial.why = "running", None, [], ""
        return True

    def run(self, processes: int | None = None, *, on: On = "local") -> None:
        """Run the remaining trials; SIGINT and SIGTERM stop them with checkpoints.

        Args:
            processes: number of trials that train at the same time, as of `JobRunner`.
            on: the executor.
        """
        runner = JobRunner(on, processes)
        interrupted = [trial for trial in self.trials if trial.state == "running"]
        begun: list[_Active] = []

        def next_job() -> Job | None:
            while not begun:
                trial = interrupted.pop(0) if interrupted else self._next()
                if trial is None:
                    return None
                begun.extend(self._begun(trial))
            active = begun.pop()
            job = active.waiting.pop(0)
            self._active[job] = active
            return job

        def look() -> None:
            for job, active in self._active.items():
                if not active.finished and self._is_worse(job, active):  # the first seed decides
                    active.pruned = True
                    runner.interrupt(job)

        def ended(job: Job, problem: str) -> None:
            begun.extend(self._continued(job, problem))

        runner.run(next_job, ended, look)
        self.stopped_by = runner.stopped_by

    def _next(self) -> StudyTrial | None:
        """Return a new trial; None if the budget is spent or no point is left."""
        spent = sum(trial.seconds for trial in self.trials)
        limit = self.search.seconds
        if len(self.trials) >= self.search.trials or (limit is not None and spent >= limit):
            return None
        values = next_point(self.axes, self.trials, self.search, higher_is_better=self._up)
        if values is None:
            return None
        number = 1 + max((trial.number for trial in (*self.trials, *self.others)), default=-1)
        trial = StudyTrial(number=number, values=values, context=self._context)
        self.trials.append(trial)
        return trial

    def _begun(self, trial: StudyTrial) -> list[_Active]:
        """Write the jobs of a trial; none if it is complete without one."""
        try:
            jobs = self._jobs(trial)
        except SpecError as error:
            self._end(trial, "refused", error.findings[0].problem)
            return []
        self._save()
        done = [job for job in jobs if job.state() == "done"]
        waiting = [job for job in jobs if job not in done]
        if waiting:
            return [_Active(trial, waiting, done)]
        self._complete(trial, done)
        return []

    def _jobs(self, trial: StudyTrial) -> list[Job]:
        """Write the jobs of a trial, one for each seed of the search.

        Raises:
            SpecError: its values do not go together.
        """
        planned = self._planned(trial)
        trial.parameters, trial.context, jobs = planned.costs.parameters, self._context, []
        for seed in self._study.seeds[: self.search.seeds]:
            key = planned.keys[seed]
            folder = self._folder / "jobs" / key
            what = Measures(SEARCH_TASK, ["valid"], [self.metric.model_dump(mode="json")])
            write_job(self._study, self._base, planned, seed, folder, self._digests, what)
            trial.jobs[str(seed)] = key
            jobs.append(Job(folder, f"trial {trial.number}", seed, SEARCH_TASK))
        return jobs

    def _planned(self, trial: StudyTrial) -> Planned:
        row = row_at(self.axes, trial.values, f"trial-{trial.number}", self._source)
        wrong: list[Finding] = []
        planned = planned_row(self._study, self._base, row, self._plan.baseline, wrong)
        if planned is not None:
            wrong += of_rows(self._study, self._base, [planned], self._plan.baseline, self._speed)
        if planned is None or wrong:
            raise SpecError(wrong)
        return with_keys(self._study, planned, self._digests)

    def _continued(self, job: Job, problem: str) -> list[_Active]:
        """Note that a job ended; return its trial if it has more."""
        active = self._active.pop(job)
        trial = active.trial
        trial.seconds = sum(_seconds(job) for job in (*active.finished, job))
        if active.pruned:
            self._end(trial, "pruned")
        elif problem:
            self._end(trial, "failed", problem)
        elif job.state() == "done":
            active.finished.append(job)
            if active.waiting:
                return [active]
            self._complete(trial, active.finished)
        return []

    def _is_worse(self, job: Job, active: _Active) -> bool:
        """Read new validations of a trial; return whether they are worse than those of others."""
        name = self.metric.name
        curve = [
            float(event[name])
            for event in events(job)
            if event.get("type") == "valid" and name in event
        ]
        if len(curve) == len(active.trial.curve) or active.pruned:
            return False
        active.trial.curve = curve
        self._save()
        return not (job.folder / TRAINED).is_file() and is_worse(
            self.axes, self.trials, active.trial, self.search, higher_is_better=self._up
        )

    def _complete(self, trial: StudyTrial, jobs: Sequence[Job]) -> None:
        """Note the value of a trial."""
        values = [score_of(job, self.metric.name) for job in jobs]
        trial.value = float(sum(values) / len(values))
        self._end(trial, "done")

    def _end(self, trial: StudyTrial, state: str, why: str = "") -> None:
        trial.state, trial.why = state, why  # type: ignore[assignment]
        self._save()
        values = ", ".join(f"{name}={value}" for name, value in trial.values.items())
        result = f"{self.metric.name} {trial.value:.4g}" if trial.value is not None else why
        self._log(f"trial {trial.number}: {state} {result}  ({values})")

    def _save(self) -> None:
        write_trials(self._folder, [*self.others, *self.trials])


def metric_of(plan: JobPlan) -> Metric:
    """Return the metric that a search optimizes.

    Raises:
        ValueError: the plan has errors.
    """
    search = plan.study.search
    return chosen_metric(plan.baseline.run, None if search is None else search.metric)


def _seconds(job: Job) -> float:
    """Return the seconds of a training, also of one that was stopped."""
    if (job.folder / TRAINED).is_file():
        return float(read_json(job.folder / TRAINED, Trained)["seconds"])
    return float(job.progress().get("train", {}).get("seconds", 0.0))
