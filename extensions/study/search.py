"""Run a search: choose rows, train several at a time, stop the worse ones, and note everything.

A trial is a row, and its trainings are jobs of the study: they are found by their keys, so a row
that was trained before, by a search or by the study, is only measured.  Jobs of a search measure
the validation data; no test set is measured.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...plugin import Finding, Metric, SpecError
from .document import Search
from .jobs import (
    RESULT,
    SEARCH_TASK,
    TRAINED,
    Job,
    Measured,
    events,
    read_json,
    write_job,
)
from .planning.base import Run
from .planning.checks import of_rows
from .planning.identity import DataDigests, digest_of
from .planning.plan import Plan, planned_row, with_keys
from .planning.planned import Planned
from .planning.space import axes_of, row_at
from .pool import POLL, Slot, collected_signals, cores, slots, start_job, why_failed
from .sampling import is_worse, next_point
from .trials import StudyTrial, read_trials, write_trials


@dataclass(slots=True)
class _Active:
    """A trial that trains."""

    trial: StudyTrial
    waiting: list[Job]
    """Its jobs that are not begun, one for each seed."""
    job: Job
    process: subprocess.Popen[bytes]
    slot: Slot
    finished: list[Job] = field(default_factory=list)
    pruned: bool = False


class Searching:
    """A search in the folder of its study."""

    def __init__(
        self,
        plan: Plan,
        source: str,
        folder: Path,
        *,
        gpus: Sequence[str] = (),
        log: Callable[[str], None] = lambda _: None,
        speed: Callable[[Run], float] | None = None,
    ) -> None:
        """Read the trials of the search so far.

        Args:
            plan: a plan without errors, of a study with a search.
            source: file of the study.
            folder: folder of the study.
            gpus: as of `run_pool`.
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
        self._folder, self._gpus, self._log, self._speed = folder, gpus, log, speed
        self.axes, self._digests = axes_of(study), DataDigests()
        self.metric: Metric = metric_of(plan)
        self._up = self.metric.higher_is_better
        self._context = self._depends_on()
        stored, self.others = read_trials(folder, self.axes)
        self.trials = [trial for trial in stored if self._is_current(trial)]
        self.others += [trial for trial in stored if trial not in self.trials]
        self.stopped_by: signal.Signals | None = None

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

    def run(self, processes: int = 1) -> None:
        """Run the remaining trials; SIGINT and SIGTERM stop them with checkpoints.

        Args:
            processes: number of trials that train at the same time.
        """
        free = [
            Slot(number, slot_cores) for number, slot_cores in enumerate(slots(processes, cores()))
        ][::-1]
        active: list[_Active] = []
        interrupted = [trial for trial in self.trials if trial.state == "running"]
        with collected_signals() as received:
            while True:
                if received and self.stopped_by is None:
                    self.stopped_by = received[0]
                    for running in active:
                        running.process.send_signal(signal.SIGINT)
                while free and self.stopped_by is None:
                    trial = interrupted.pop(0) if interrupted else self._next()
                    if trial is None:
                        break
                    begun = self._begun(trial, free[-1])
                    if begun is not None:
                        active.append(begun)
                        free.pop()
                if not active:
                    return
                for finished in [running for running in active if not self._trains(running)]:
                    active.remove(finished)
                    free.append(finished.slot)
                time.sleep(POLL)

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

    def _begun(self, trial: StudyTrial, slot: Slot) -> _Active | None:
        """Start the first job of a trial; None if it is complete without one."""
        try:
            jobs = self._jobs(trial)
        except SpecError as error:
            self._end(trial, "refused", error.findings[0].problem)
            return None
        self._save()
        done = [job for job in jobs if job.state() == "done"]
        waiting = [job for job in jobs if job not in done]
        if not waiting:
            self._complete(trial, done)
            return None
        first = waiting.pop(0)
        process = start_job(first, slot, self._gpus)
        return _Active(trial, waiting, first, process, slot, done)

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
            what = Measured(SEARCH_TASK, ["valid"], [self.metric.model_dump(mode="json")])
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

    def _trains(self, running: _Active) -> bool:
        """Look at a trial that trains; return whether it goes on."""
        trial = running.trial
        if not running.finished:  # the first seed decides about pruning
            self._watch(running)
        code = running.process.poll()
        if code is None:
            return True
        trial.seconds = sum(_seconds(job) for job in (*running.finished, running.job))
        if running.pruned:
            self._end(trial, "pruned")
        elif running.job.state() == "done":
            running.finished.append(running.job)
            if running.waiting and self.stopped_by is None:
                running.job = running.waiting.pop(0)
                running.process = start_job(running.job, running.slot, self._gpus)
                return True
            if not running.waiting:
                self._complete(trial, running.finished)
        elif self.stopped_by is None:
            self._end(trial, "failed", why_failed(running.job, code))
        return False

    def _watch(self, running: _Active) -> None:
        """Read new validations of a trial, and stop it if they are worse."""
        name = self.metric.name
        curve = [
            float(event[name])
            for event in events(running.job)
            if event.get("type") == "valid" and name in event
        ]
        if len(curve) == len(running.trial.curve) or running.pruned:
            return
        running.trial.curve = curve
        self._save()
        trained = (running.job.folder / TRAINED).is_file()
        if not trained and is_worse(
            self.axes, self.trials, running.trial, self.search, higher_is_better=self._up
        ):
            running.pruned = True
            running.process.send_signal(signal.SIGINT)

    def _complete(self, trial: StudyTrial, jobs: Sequence[Job]) -> None:
        """Note the value of a trial."""
        values = [
            read_json(job.measured / RESULT)["splits"]["valid"]["scores"][self.metric.name]
            for job in jobs
        ]
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


def metric_of(plan: Plan) -> Metric:
    """Return the metric that a search optimizes.

    Raises:
        ValueError: the plan has errors.
    """
    run, search = plan.baseline.run, plan.study.search
    name = run.best if search is None or search.metric is None else search.metric
    for metric in run.metrics():
        if metric.name == name:
            return metric
    raise ValueError(name)


def _seconds(job: Job) -> float:
    """Return the seconds of a training, also of one that was stopped."""
    if (job.folder / TRAINED).is_file():
        return float(read_json(job.folder / TRAINED)["seconds"])
    return float(job.progress().get("train", {}).get("seconds", 0.0))
