"""Training loop with validation, checkpoints, early stopping and resuming.

The losses of the objective give the gradient; the listener of the context receives the progress.
The order of the data and the dropout of each update are functions of the seed, so a run that
was killed and resumed ends with bitwise the same weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ...blocks.kernels.noise import seed_draws
from ...graphs.passes import widths
from ...graphs.passes.freeze import trained_weights
from ...specs.findings import InputError
from ..checkpoint.average import average_weights
from ..checkpoint.checkpoint import tensors_in
from ..checkpoint.curve import changes_gradually, curve_at
from ..checkpoint.saving import Contents, deployed, save
from ..checkpoint.state import RunState
from ..codegen.build import build
from ..compile.autotune import Kernels
from ..compile.torch_compile import CompileReport, compile_model
from ..data.batches import prefetch
from ..data.plans.mixture import stages_of
from ..data.plans.planning import DataPosition
from ..system.detail import Detail
from ..system.memory import MemoryTrimmer
from .checks.effects import batch_advice, has_time_axis, longest_text
from .context import Progress, Result, TrainingContext
from .device import deterministic
from .distributed.heartbeat import watched
from .distributed.sampler import (
    MicroBatches,
    check_share,
    seed_of,
    stream_micro_batches,
)
from .distributed.stopping import AGAIN, Interrupted, StopRequest, signal_name
from .distributed.world import World
from .engine import Engine, EvaluatedModel, LossScaling
from .history import History, LogWindow
from .passes import Dropouts, chosen_kernels, freeze, planned_graph
from .recipe.groups import weight_groups, with_widths
from .recipe.optimize import averaged_weights, make_optimizer, scale_weights, set_rates
from .recipe.schedule import peak_of, share_of_peak
from .restore import newest, restore, state_in
from .retention import checkpoints, regular, thin
from .run import CheckpointSettings, Run


def _newest(folder: Path) -> Path | None:
    return next(reversed(checkpoints(folder)), None)


def _not_finite(context: TrainingContext, update: int) -> InputError:
    """Return the error of a loss or gradient that is not finite.

    Args:
        context: the training.
        update: number of the last update.
    """
    when = "before" if context.placement.waits_for_values else "at"
    newest = _newest(context.folder)
    last = f"; the last good checkpoint is {newest}" if newest else ""
    return InputError(
        f"the loss or its gradient is not finite {when} update {update + 1}{last}",
        location=str(context.folder),
        help="lower the learning rate, raise the warmup, or set 'optimizer.clip'",
    )


@contextmanager
def enough_memory(
    context: TrainingContext, state: RunState, during: Literal["update", "validation"] = "update"
) -> Iterator[None]:
    """Name the settings that need less memory if that of the device is too small.

    Args:
        context: the training.
        state: its state, which knows the last update.
        during: what is computed.

    Raises:
        InputError: the memory of the device is too small.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise too_large(context, state.update, during) from error


def too_large(
    context: TrainingContext, update: int, during: Literal["update", "validation"] = "update"
) -> InputError:
    """Return the error of an update, or a validation, that did not fit into the device's memory.

    Args:
        context: the training.
        update: number of the last update.
        during: what did not fit.
    """
    run, newest = context.run, _newest(context.folder)
    again = f"; continue from {newest} with --resume" if newest else ""
    failed = f"update {update + 1}"
    smaller, more = _smaller_batches(run), []
    if during == "validation":
        failed = f"the validation after update {update}"
        more += ["give the predictor a smaller 'beam'"] if hasattr(run.predict, "beam") else []
    elif not run.activation_checkpointing:
        more += ["set 'activation_checkpointing'"]
    ways = [*([smaller] if smaller else []), *(more or ["train a smaller model"])]
    return InputError(
        f"the memory of {context.placement.device} is too small for {failed}{again}",
        location="/batch/tokens" if has_time_axis(run) else "/batch/max_sentences",
        help=", or ".join(ways),
    )


def _smaller_batches(run: Run) -> str:
    """Return how to halve the batches of a run; "" if they cannot be smaller."""
    if isinstance(run.batch.tokens, tuple):
        return f"write half of the {run.token_range()[1]} tokens into the pieces of 'batch.tokens'"
    tokens, sentences = run.batch.tokens // 2, (run.batch.max_sentences or 0) // 2
    sizes = {}
    if has_time_axis(run):
        sizes["batch.tokens"] = tokens
    if run.batch.max_sentences is not None:
        sizes["batch.max_sentences"] = sentences
    if min(sizes.values()) < 1 or (has_time_axis(run) and tokens < max(2, longest_text(run) or 0)):
        return ""
    written = [f"'{name}' to {size}" for name, size in sizes.items()]
    return (
        f"set {', '.join(written)} and 'accumulate' to {run.batches_at(1) * 2}, which keeps the"
        f" {'tokens' if has_time_axis(run) else 'rows'} of an update"
    )


_OWN = 3
"""Number of sums that are always reported: loss, nll and auxiliary loss."""
REPORT_EVERY = 10
"""Updates between reports; the loop does not wait for the device in between."""


class Trainer:
    """Train one run, from the start or from its newest checkpoint."""

    def __init__(self, context: TrainingContext, *, resume: bool) -> None:
        """Build the model and the optimizer, or restore them from the newest checkpoint.

        Raises:
            InputError: no checkpoint of the run can be resumed, or it belongs to another graph.
        """
        self.context, self.run, self.world = context, context.run, context.world
        run, folder, world = context.run, context.folder, context.world
        self.stop_reason = ""
        self.stop = StopRequest(again_after=AGAIN if world.size > 1 else 0.0)
        self._unchecked = torch.zeros((), dtype=torch.float64)
        """Sum of losses and gradient norms since the last check that they are finite."""
        if warning := check_share(run.batch_range()[0], world.data_parallel_size):
            context.listener.log(warning)
        if advice := batch_advice(run, context.placement.device, world.data_parallel_size):
            context.listener.log(advice)
        checkpoint = newest(context, resume=resume)
        self.state = state_in(checkpoint)
        graph = planned_graph(context, self._kernels())
        self.model = build(graph, seed=run.seed, device=context.placement.device)
        self._dropouts = Dropouts(self.model, graph)
        grown = self._scaled()
        restored = restore(self.model, context, checkpoint)
        self.state.data = context.data
        freeze(self.model, context)
        self.report = self._compile()
        context.listener.log(Detail(self.report))
        self.engine = Engine(self.model, context.losses, context.graph, world)
        if summary := self.engine.spread():
            context.listener.log(summary)
        trained = trained_weights(context.graph, context.freeze, context.train)
        groups = weight_groups(run.optimizer, context.graph, trained)
        groups = with_widths(groups, grown)
        self._peak = peak_of(run.schedule, context.model.params)
        self.optimizer = make_optimizer(self.model, groups, self._peak, run.checkpoint.ema)
        self.scaling = LossScaling(context.placement, self.state)
        if restored is not None:
            self.engine.recall(self.optimizer, restored)
        main = world.is_main_process
        self.history = History(
            folder if main else None,
            update=self.state.update,
            trackers=context.trackers(self.state.update) if main else None,
        )
        self._last_save = time.monotonic()

    def _scaled(self) -> Mapping[str, widths.WidthGrowth]:
        """Scale the initial weights to the width of the model; return how each weight grows."""
        context = self.context
        if context.base is None:
            return {}
        grown = widths.growth(context.graph, context.base)
        scale_weights(self.model, build(context.base, seed=context.run.seed), grown)
        return grown

    def train(self) -> Result:
        """Train until all updates are done, a validation ends it or a signal arrives."""
        world, run = self.world, self.run
        with (
            deterministic(self.context.placement.device, enabled=run.deterministic),
            watched(world, run.parallel.patience, self.stop),
            enough_memory(self.context, self.state),
        ):
            try:
                return self._train()
            finally:
                self.history.close()

    def _train(self) -> Result:
        run, state = self.run, self.state
        work = prefetch(self._stream_micro_batches())
        started, before = time.monotonic(), state.seconds
        window, growth = LogWindow(), MemoryTrimmer()
        self.stop_reason = self._early_end() or self.stop_reason
        with self.stop.watching():
            if state.validation_due:  # a signal came before its end
                self._end_update(window, late=False)
            while state.update < run.updates and not self.stop_reason:
                micro_batches = self._next(work, window)
                self._tell_limit(state.update + 1)
                window.add(self._update(micro_batches), micro_batches)
                growth.look(state.update)
                state.epoch, state.chunk, state.position, cuts = micro_batches.at
                state.cuts = [[*cut] for cut in cuts]
                state.seconds = before + time.monotonic() - started
                report_due = state.update % REPORT_EVERY == 0 or state.update == run.updates
                late = self._synchronize(report_due=report_due)
                if report_due:
                    self._report(window)
                    window = LogWindow()
                self._end_update(window, late=late)
        work.close()  # type: ignore[attr-defined]
        return self._finish()

    def _end_update(self, window: LogWindow, *, late: bool) -> None:
        """Validate and save a checkpoint after an update, if they are due.

        A stop puts a validation off: the checkpoint says so, and the resumed run begins with it.

        Args:
            window: the current window of the log.
            late: whether a checkpoint is due by time.
        """
        run, state = self.run, self.state
        last = state.update == run.updates
        if last or state.update % run.evaluate.every == 0:
            started_at = time.monotonic()
            self._refuse_infinite()
            state.validation_due = True
            if not self.stop_reason:
                with enough_memory(self.context, state, "validation"):
                    self._validate()
                self._synchronize(report_due=True)
            window.since += time.monotonic() - started_at
        if late or last or state.update % run.checkpoint.every == 0 or self.stop_reason:
            self._refuse_infinite()
            self._save()

    def _next(self, work: Iterator[MicroBatches], window: LogWindow) -> MicroBatches:
        """Return the micro-batches of the next update."""
        started = time.monotonic()
        micro_batches = next(work)
        window.waited += time.monotonic() - started
        return micro_batches

    def _synchronize(self, *, report_due: bool) -> bool:
        """Stop if any process got a signal; return whether the main process needs a checkpoint."""
        late = time.monotonic() - self._last_save > self.run.checkpoint.seconds
        # On an accelerator this all-reduce waits for the device, so it runs only at reports.
        if self.world.size > 1 and self.context.placement.waits_for_values and not report_due:
            return False
        main_late = late and self.world.is_main_process
        stop_signal, checkpoint_due = self.world.largest(self.stop.signal, main_late)
        self.stop_reason = signal_name(stop_signal) or self.stop_reason
        return bool(checkpoint_due)

    def _kernels(self) -> Kernels | None:
        """Choose kernels on the main process, for all processes; None if the pass is left out."""
        if "kernels" in self.run.without:
            return None
        chosen = chosen_kernels(self.context, self.state) if self.world.is_main_process else None
        self.state.kernels = self.world.broadcast(self.state.kernels)
        return chosen or chosen_kernels(self.context, self.state)

    def _compile(self) -> CompileReport:
        """Compile the model in the mode of the run, or of its checkpoint if it was resumed.

        Only the main process measures; the others use its choice.
        """
        eager = "eager" if self.context.graph.segments else ""  # steps are not compiled
        mode = eager or self.state.compiled or self.run.compile
        gradual = changes_gradually(self.run.dropout)  # would compile layers at each update
        if mode == "auto" and (self.run.deterministic or gradual):  # a measurement may differ
            mode = "eager"
        measure, placement = None, self.context.placement
        self.model.train()
        measured = (
            mode == "auto" and placement.device.type == "cuda" and self.run.parallel.tensor == 1
        )
        if measured and self.world.is_main_process:
            first = next(self._stream_micro_batches()).to(placement.device)
            (_, moved), losses = first.batches[0], self.context.losses
            losses.total(self.model, first, World(), (self.run.seed, 1), placement.device)

            def measure() -> None:
                with placement.autocast():
                    losses.loss(self.model, moved).loss.backward()
                self.model.zero_grad(set_to_none=True)

        if self.world.is_main_process:
            with enough_memory(self.context, self.state):  # the measurement runs updates
                report = compile_model(self.model, mode, measure=measure)  # type: ignore[arg-type]
        chosen = self.world.broadcast(report.mode if self.world.is_main_process else "")
        if not self.world.is_main_process:
            report = compile_model(self.model, chosen)
        self.state.compiled = report.mode
        return report

    def _stream_micro_batches(self) -> Iterator[MicroBatches]:
        return stream_micro_batches(
            self.context.corpus,
            self.run.batch,
            self.run.seed,
            accumulate=map(self.run.batches_at, count(self.state.update + 1)),
            tokens=map(self.run.tokens_at, count(self.state.update + 1)),
            at=DataPosition(
                self.state.epoch,
                self.state.chunk,
                self.state.position,
                tuple((tokens, used) for tokens, used in self.state.cuts),
            ),
            share=(self.world.data_parallel_rank, self.world.data_parallel_size),
            pin=self.context.placement.device.type == "cuda",
            stages=stages_of(
                self.run.data.mixture,
                self.context.corpus.sources,
                self.run.updates,
                self.state.update,
            ),
        )

    def _update(self, micro_batches: MicroBatches) -> Tensor:
        """Run one update; return loss, nll and auxiliary loss per target token."""
        state, run, placement = self.state, self.run, self.context.placement
        number = state.update + 1
        self._dropouts.set(curve_at(run.dropout, number, run.updates))
        losses = self.context.losses
        micro_batches = micro_batches.to(placement.device)
        total = losses.total(
            self.model, micro_batches, self.world, (run.seed, number), placement.device
        )
        summed = torch.zeros(
            _OWN + len(losses.reported), dtype=torch.float64, device=placement.device
        )
        rounds = len(micro_batches.batches)
        if self.engine.in_step:  # noise may divide batches of one process only
            rounds = int(self.world.largest(micro_batches.rounds)[0])
        for turn in range(rounds):
            # FSDP needs equal rounds on all ranks: a rank without a batch left repeats its first
            # one with the loss scaled by 0.
            spare = turn >= len(micro_batches.batches)
            which, batch = micro_batches.batches[0 if spare else turn]
            seed_draws(seed_of(run.seed, number, which), placement.device)
            with self.engine.syncing(last=turn == rounds - 1):
                with placement.autocast():
                    sums = self.engine.loss(batch)
                # The all-reduce averages gradients over the ranks, but their sum is needed.
                scale = 0.0 if spare else self.world.data_parallel_size / total
                self.scaling.scaled(sums.loss * scale).backward()
            extra = torch.zeros_like(sums.nll) if sums.auxiliary is None else sums.auxiliary
            if not spare:
                parts = (sums.parts[name].double() for name in losses.reported)
                totals = (sums.loss.detach().double(), sums.nll.double(), extra.double())
                summed += torch.stack((*totals, *parts))
        self.world.summed(summed)
        self.scaling.unscale(self.optimizer)
        norm = self.scaling.counted(self.engine.clip(run.optimizer.clip))
        self._unchecked = self._unchecked.to(placement.device) + summed.sum() + norm
        # On an accelerator reading a value waits for the device, so it is done only before
        # values are reported, validated or saved.
        if not placement.waits_for_values:
            self._refuse_infinite()
        share = share_of_peak(run.schedule, number, run.updates)
        set_rates(self.optimizer, share, number, run.updates)
        self.scaling.step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        state.update = number
        return summed / total

    def _refuse_infinite(self) -> None:
        """Stop the run before non-finite weights are reported, validated or saved.

        Raises:
            InputError: a loss or a gradient since the last check was not finite, or gradients
                overflow at every scale.
        """
        self.scaling.refuse_too_small()
        if bool(torch.isfinite(self._unchecked)):
            self._unchecked = torch.zeros((), dtype=torch.float64)
            return
        raise _not_finite(self.context, self.state.update)

    def _tell_limit(self, update: int) -> None:
        """Log the limit of the tokens of a batch where it changes."""
        limit = self.run.tokens_at(update)
        if update > 1 and limit != self.run.tokens_at(update - 1):
            self.context.listener.log(f"update {update:,}: batches of {limit:,} tokens")

    def _report(self, window: LogWindow) -> None:
        """Report the averages over the updates since the last report."""
        state, seconds = self.state, time.monotonic() - window.since
        self._refuse_infinite()
        loss, nll, auxiliary, *parts = (window.sums / window.updates).tolist()
        full, losses = self.context.full_speed, self.context.losses
        progress = Progress(
            update=state.update,
            updates=self.run.updates,
            epoch=state.epoch,
            loss=loss,
            nll=nll if losses.has_nll else None,
            rate=self._peak * share_of_peak(self.run.schedule, state.update, self.run.updates),
            tokens_per_second=window.tokens / seconds,
            target_tokens_per_second=window.target_tokens / seconds,
            parts=dict(zip(losses.reported, parts, strict=True)),
        )
        self.history.write(
            type="train",
            update=progress.update,
            epoch=progress.epoch,
            loss=loss,
            **({"nll": nll} if losses.has_nll else {}),
            **progress.parts,
            **({"auxiliary": auxiliary} if losses.has_auxiliary else {}),
            rate=progress.rate,
            tokens_per_second=progress.tokens_per_second,
            **self.scaling.report(),
            **({"mfu": progress.tokens_per_second / full} if full else {}),
            target_tokens_per_update=window.target_tokens / window.updates,
            data_wait_share=window.waited / seconds,
            seconds=state.seconds,
        )
        self.context.listener.progress(progress)

    def _validate(self) -> None:
        """Validate; save the best model so far; stop when it ends the run.

        Nothing changes if there is a request to stop before the end.
        """
        run, state = self.run, self.state
        values: dict[str, Any] = {}
        pictures: list[Path] = []
        with self.engine.evaluated() as evaluated, self.context.placement.autocast():
            try:
                values = self.context.validate(evaluated, self.stop)
                pictures = self._pictures(evaluated, values.pop("answers", []))
            except Interrupted:
                values = {}
        values = self.world.broadcast(values)
        if not values:
            return
        samples = values.pop("samples", None)
        self.history.write(type="valid", update=state.update, seconds=state.seconds, **values)
        if (trackers := self.history.trackers) is not None:
            if samples:
                trackers.text("samples", samples, state.update)
            for number, picture in enumerate(pictures, 1):
                trackers.image(f"attention/{number}", picture, state.update)
        self.context.listener.validated(state.update, values)
        value = values[run.best_value]
        state.validation_due = False
        state.valid = {name: v for name, v in values.items() if isinstance(v, int | float)}
        score = value if run.best_is_higher else -value
        if state.best is None or score > state.best or math.isnan(state.best):
            state.best, state.best_update, state.stale = score, state.update, 0
            self._write(self.context.folder / "best", deployed(self._contents()))
        else:
            state.stale += 1
        self.stop_reason = self._early_end() or self.stop_reason

    def _pictures(
        self, evaluated: EvaluatedModel, answers: Sequence[tuple[Any, Any]]
    ) -> list[Path]:
        """Draw predictions for the trackers that take images, on the main process.

        Raises:
            Interrupted: there was a request to stop.
        """
        trackers, draw = self.history.trackers, self.context.pictures
        if draw is None:
            return []
        with evaluated.answering(self.stop) as model:
            if trackers is not None and trackers.take_images and answers:
                return draw(model, answers)
        return []

    def _early_end(self) -> str:
        """Return why the run ends before its last update, by its validations; `""` if it does not.

        It follows from the state, so that a run that has ended ends again when it is resumed.
        """
        state, patience = self.state, self.run.evaluate.patience
        if patience is not None and state.stale >= patience:
            return f"no improvement for {state.stale} validations"
        return self.run.reached(state.valid) if state.valid else ""

    def _contents(self, *, optimizer: bool = False, weights: bool = True) -> Contents:
        """Return checkpoint contents; call it on all ranks, only the main one gets tensors."""
        return Contents(
            graph=self.context.graph,
            weights=self.engine.weights() if weights else {},
            run=self.run.model_dump(mode="json", by_alias=True),
            state={**self.state.model_dump(), **self.scaling.state()},
            tokenizers=self.context.tokenizers,
            optimizer=self.engine.moments(self.optimizer) if optimizer else None,
            memory=self.context.losses.carried if optimizer else {},
            metrics=self.history.content(),
        )

    def _write(self, folder: Path, contents: Contents) -> None:
        if self.world.is_main_process:
            save(folder, contents)

    def _save(self) -> None:
        """Write a checkpoint and delete the older ones that are no longer needed."""
        folder = self.context.folder
        path = folder / "checkpoints" / f"{self.state.update:06d}"
        if self.run.checkpoint.sharded:
            self.engine.save(path, self._contents(weights=False), self.optimizer)
        else:
            self._write(path, self._contents(optimizer=True))
        self._last_save = time.monotonic()
        if self.world.is_main_process:
            thin(folder, self.run.checkpoint)

    def _finish(self) -> Result:
        """Return the result; write the mean of the last checkpoints if the run is complete."""
        state, run, folder = self.state, self.run, self.context.folder
        self.history.close()
        if skipped := self.scaling.summary():
            self.context.listener.log(skipped)
        contents = self._contents(weights=False)
        with self.world.main_process_first():
            newest = checkpoints(folder)
            result = Result(
                state=state,
                finished=not self.stop_reason.startswith("SIG"),
                reason=self.stop_reason or f"all {run.updates} updates done",
                folder=folder,
                checkpoint=newest[-1] if newest else None,
                best=folder / "best" if (folder / "best").is_dir() else None,
                report=self.report,
            )
            if result.finished and self.world.is_main_process:
                result.averaged = write_mean(folder, run.checkpoint, contents)
        return result


def write_mean(folder: Path, settings: CheckpointSettings, contents: Contents) -> Path | None:
    """Write the mean of the newest checkpoints, or the moving average, to `averaged`.

    Args:
        folder: folder of the run.
        settings: `average` is the number of checkpoints; 0 writes nothing, except with `ema`.
        contents: contents of the new checkpoint except its weights.

    Returns:
        The folder that was written, or None.
    """
    newest = regular(checkpoints(folder), settings)
    if not newest or (settings.ema is None and not settings.average):
        return None
    last = newest[-1:] if settings.ema is not None else newest[-settings.average :]
    state_dicts = [tensors_in(path, "weights") for path in last]
    if settings.ema is not None:
        moments = tensors_in(last[0], "optimizer")
        mean = averaged_weights(state_dicts[0], moments, contents.graph.ties)
    else:
        mean = average_weights(state_dicts)
    state = {**contents.state, "averaged": [path.name for path in last]}
    averaged = replace(contents, weights=mean, state=state, optimizer=None)
    return save(folder / "averaged", deployed(averaged))
