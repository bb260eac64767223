"""Choose the next trial of a search, and stop those that are worse, with Optuna.

Optuna sees the trials of the file anew at each call: its samplers and these pruners are functions
of the trials alone, and the file is all that a search continues from.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...plugin import InputError
from .document import Search
from .planning.identity import digest_of
from .planning.space import Axis, Value
from .trials import StudyTrial

if TYPE_CHECKING:
    from types import ModuleType

    from optuna import Study as OptunaStudy
    from optuna.distributions import BaseDistribution

INFORMED, RANDOM = 10, 200
"""Attempts to find a point that was not tried: by the sampler, then at random."""
LEAST = 8
"""Least number of complete trials from which importances are computed."""
_STARTUP = 4
"""Complete trials before the first one is pruned."""


def optuna() -> ModuleType:
    """Return the library.

    Raises:
        InputError: it is not installed.
    """
    try:
        import optuna as found  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            "a search needs Optuna, which is not installed",
            help="install it with 'pip install \"weft[search]\"'",
        ) from error
    found.logging.set_verbosity(found.logging.WARNING)
    return found


def next_point(
    axes: Sequence[Axis], trials: Sequence[StudyTrial], search: Search, *, higher_is_better: bool
) -> dict[str, Value] | None:
    """Return a point that was not tried; None if none is found, because few or none are left.

    The result is determined by the trials and the seed of the search.

    Args:
        axes: the factors.
        trials: the trials so far.
        search: settings of the search.
        higher_is_better: whether the metric is maximized.
    """
    library, tried = optuna(), [trial.values for trial in trials]
    space = _space(library, axes)
    for attempt in range(INFORMED + RANDOM):
        seed = int(digest_of([search.seed, len(trials), attempt], 8), 16)
        informed = search.sampler == "tpe" and attempt < INFORMED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # options of the sampler are called experimental
            sampler = (
                library.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
                if informed
                else library.samplers.RandomSampler(seed=seed)
            )
        optuna_study = _known(
            library, axes, trials, higher_is_better=higher_is_better, sampler=sampler
        )
        point = optuna_study.ask(space).params
        if point not in tried:
            return dict(point)
    return None


def is_worse(
    axes: Sequence[Axis],
    trials: Sequence[StudyTrial],
    trial: StudyTrial,
    search: Search,
    *,
    higher_is_better: bool,
) -> bool:
    """Return whether a running trial should stop, by its newest validation.

    Args:
        axes: the factors.
        trials: all trials.
        trial: the running one.
        search: settings of the search.
        higher_is_better: whether the metric is maximized.
    """
    if search.pruner == "none" or not trial.curve:
        return False
    library = optuna()
    percent = {"median": 50.0, "quartile": 25.0}[search.pruner]
    others = [other for other in trials if other.state in ("done", "pruned") and other is not trial]
    optuna_study = _known(library, axes, [*others, trial], higher_is_better=higher_is_better)
    pruner = library.pruners.PercentilePruner(percent, n_startup_trials=_STARTUP)
    return bool(pruner.prune(optuna_study, optuna_study.trials[-1]))


def importances(
    axes: Sequence[Axis], trials: Sequence[StudyTrial], *, higher_is_better: bool
) -> dict[str, float]:
    """Return the importance of each factor, between 0 and 1, most important first.

    The importances sum to 1; empty if fewer than `LEAST` trials are complete.

    Source: PED-ANOVA, Watanabe et al. 2023, https://arxiv.org/abs/2304.10255
    """
    done = [trial for trial in trials if trial.state == "done"]
    if len(done) < LEAST or len({trial.value for trial in done}) == 1:
        return {}
    library = optuna()
    optuna_study = _known(library, axes, done, higher_is_better=higher_is_better)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the evaluator is called experimental
        evaluator = library.importance.PedAnovaImportanceEvaluator()
        scores = library.importance.get_param_importances(optuna_study, evaluator=evaluator)
    return {name: float(value) for name, value in scores.items()}


def _space(library: ModuleType, axes: Sequence[Axis]) -> dict[str, BaseDistribution]:
    return {axis.name: _distribution(library, axis) for axis in axes}


def _distribution(library: ModuleType, axis: Axis) -> BaseDistribution:
    kinds, dimension = library.distributions, axis.factor
    if dimension is None:
        distribution: BaseDistribution = kinds.CategoricalDistribution([*axis.levels])
    elif axis.integral:
        distribution = kinds.IntDistribution(dimension.low, dimension.high, log=dimension.log)
    else:
        distribution = kinds.FloatDistribution(
            float(dimension.low or 0), float(dimension.high or 0), log=dimension.log
        )
    return distribution


def _known(
    library: ModuleType,
    axes: Sequence[Axis],
    trials: Sequence[StudyTrial],
    *,
    higher_is_better: bool,
    sampler: Any = None,
) -> OptunaStudy:
    """Return a study of Optuna with trials."""
    direction = "maximize" if higher_is_better else "minimize"
    states = library.trial.TrialState
    names: Mapping[str, Any] = {
        "running": states.RUNNING,
        "done": states.COMPLETE,
        "pruned": states.PRUNED,
        "failed": states.FAIL,
        "refused": states.FAIL,
    }
    optuna_study: OptunaStudy = library.create_study(direction=direction, sampler=sampler)
    space = _space(library, axes)
    for trial in trials:
        done = trial.state == "done"
        curve = {step: value for step, value in enumerate(trial.curve, 1) if math.isfinite(value)}
        optuna_study.add_trial(
            library.trial.create_trial(
                state=names[trial.state],
                params=dict(trial.values),
                distributions=space,
                value=trial.value if done else None,
                intermediate_values=curve,
            )
        )
    return optuna_study
