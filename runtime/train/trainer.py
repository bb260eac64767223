"""Trainer: the loop, and what surrounds it: validation, checkpoints, stopping, resuming.

What a batch is and what the loss is comes from the task; who hears about progress is
an argument.  The order of the data and the dropout of each update are functions of the
seed, so a run that was killed and resumed ends with the same bits.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...specs.findings import InputError
from ..adapt import carry_over
from ..checkpoint import (
    Contents,
    open_checkpoint,
    read_tensors,
    recover,
    refuse_other_graph,
    save,
    set_weights,
    weights_of,
)
from ..compile.build import build
from ..compile.compile import CompileReport, compile_model
from ..compile.kernels import using
from ..data.batches import Batch, prefetch, stream
from .average import average_weights
from .history import History
from .kernels import chosen_kernels
from .optimize import (
    clip_gradient,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rate,
)
from .schedule import learning_rate
from .setting import Progress, Result, Setting, State
from .signals import asked_to_stop

REPORT_EVERY = 10
"""Updates between reports; between them nothing waits for the device."""


@dataclass(slots=True)
class _Window:
    """What was seen since the last report."""

    sums: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))
    """Loss, nll and the graph's own losses per target token, summed over updates; on the
    device of the first."""
    updates: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    since: float = field(default_factory=time.monotonic)

    def add(self, sums: Tensor, batches: list[tuple[int, int, Batch]]) -> None:
        """Count one update."""
        self.sums = self.sums.to(sums.device, non_blocking=True) + sums
        self.updates += 1
        self.source_tokens += sum(batch.source_tokens for _, _, batch in batches)
        self.target_tokens += sum(batch.target_tokens for _, _, batch in batches)


def checkpoints(folder: Path) -> list[Path]:
    """Return a run's checkpoints, oldest first."""
    found = (folder / "checkpoints").glob("[0-9]*")
    return sorted((path for path in found if path.is_dir()), key=lambda path: int(path.name))


class Trainer:
    """One training, from its first or its last checkpoint to its end."""

    def __init__(self, setting: Setting, *, resume: bool) -> None:
        """Build the model and the optimizer, or take them from the newest checkpoint.

        Raises:
            InputError: the folder holds a run already and `resume` is false, or its
                checkpoint is damaged or of another graph.
        """
        self.setting, self.run = setting, setting.run
        for name in ("best", "averaged"):
            recover(setting.folder / name)
        self.state, self.stop_reason = State(), ""
        run, folder = setting.run, setting.folder
        existing = checkpoints(folder)
        if existing and not resume:
            raise InputError(
                "the folder already holds a run",
                place=str(folder),
                help="go on with --resume, or name another folder with --out",
            )
        self.model = build(setting.graph, seed=run.seed, device=setting.place.device)
        self.optimizer = make_optimizer(self.model, run.optimizer)
        # What drops numbers, and with which probability.
        self._dropping: list[tuple[Any, float]] = [
            (module, share)
            for module in self.model.modules()
            if isinstance(share := getattr(module, "dropout", None), float)
        ]
        if existing:
            self._take(existing[-1])
        elif run.start is not None:
            self._start(Path(run.start))
        self.history = History(folder, update=self.state.update)
        self._last_save = time.monotonic()

    def _take(self, folder: Path) -> None:
        """Go on from a checkpoint."""
        held = open_checkpoint(folder)
        graph, hears = self.setting.graph, self.setting.listener
        if held.tokenizers != dict(self.setting.tokenizers):
            raise InputError(
                "the run was begun with another tokenizer",
                place=str(folder),
                help="put the data of the first run back, or begin anew with --out",
            )
        refuse_other_graph(
            held.graph,
            graph,
            problem="the run was begun with another graph",
            place=str(folder),
            help_="put its spec and params back, or begin anew with --out; a run's 'start'"
            " takes the weights that fit",
        )
        written = self.run.model_dump(mode="json")
        changed = [key for key, value in written.items() if _differs({key: value}, held.run)]
        if changed:
            hears.say(f"warning: not as the run was begun: {', '.join(changed)}")
        set_weights(self.model, held.weights, graph, str(folder))
        moments = read_tensors(folder / "optimizer.safetensors")
        load_optimizer_tensors(self.optimizer, self.model, moments)
        names = State.__slots__
        self.state = State(**{k: v for k, v in held.state.items() if k in names})
        hears.say(f"resuming after update {self.state.update} from {folder}")

    def _start(self, folder: Path) -> None:
        """Begin with the weights of a checkpoint, as far as they fit."""
        held = open_checkpoint(folder)
        if held.tokenizers != dict(self.setting.tokenizers):
            raise InputError(
                "the checkpoint to start from has another tokenizer",
                place=str(folder),
                help="prepare the run with the data and tokenizer settings of that checkpoint",
            )
        found = carry_over(self.model, held.weights, held.graph, self.setting.graph)
        carried = found.render().splitlines()[0].split(maxsplit=1)[1]
        self.setting.listener.say(f"starting from {folder}: {carried} carried over")

    def train(self) -> Result:
        """Train until the updates, the patience or the person's patience run out."""
        run, state = self.run, self.state
        kernels = chosen_kernels(self.setting, state)
        self.report = self._compile()
        say = self.setting.listener.say
        say(str(self.report))
        batches = prefetch(self._batches())
        started, before = time.monotonic(), state.seconds
        window = _Window()
        if self._patience_is_out():
            self.stop_reason = f"no better for {state.stale} validations"
        with asked_to_stop(self._stop), using(kernels):
            while state.update < run.updates and not self.stop_reason:
                micro = [next(batches) for _ in range(run.accumulate)]
                window.add(self._update([batch for _, _, batch in micro]), micro)
                state.epoch, state.position = micro[-1][0], micro[-1][1]
                state.seconds = before + time.monotonic() - started
                if state.update % REPORT_EVERY == 0 or state.update == run.updates:
                    self._tell(window)
                    window = _Window()
                if state.update % run.evaluate.every == 0 or state.update == run.updates:
                    started_at = time.monotonic()
                    self._validate()
                    window.since += time.monotonic() - started_at
                due = state.update % run.checkpoint.every == 0
                late = time.monotonic() - self._last_save > run.checkpoint.seconds
                if due or late or state.update == run.updates or self.stop_reason:
                    self._refuse_infinite(window.sums)
                    self._save()
        batches.close()  # type: ignore[attr-defined]
        return self._finish()

    def _compile(self) -> CompileReport:
        """Compile as the run says, or as it did before it was resumed."""
        mode = self.state.compiled or self.run.compile
        measure = None
        if mode == "auto" and self.setting.place.device.type == "cuda":
            _, _, batch = next(self._batches())
            moved = batch.to(self.setting.place.device)

            def measure() -> None:
                with self.setting.place.autocast():
                    self.setting.task.loss(self.model, moved).loss.backward()
                self.optimizer.zero_grad(set_to_none=True)

        self.model.train()
        report = compile_model(self.model, mode, measure=measure)  # type: ignore[arg-type]
        self.state.compiled = report.mode
        return report

    def _batches(self) -> Iterator[tuple[int, int, Batch]]:
        return stream(
            self.setting.corpus,
            self.run.batch,
            self.run.seed,
            epoch=self.state.epoch,
            position=self.state.position,
            pad=self.setting.pad,
            eos=self.setting.eos,
        )

    def _update(self, batches: list[Batch]) -> Tensor:
        """Make one update; return loss, nll and the graph's own losses per target token."""
        state, run, place = self.state, self.run, self.setting.place
        number = state.update + 1
        torch.manual_seed(run.seed * 1_000_003 + number)
        for module, share in self._dropping:
            module.dropout = share if number >= run.dropout_from else 0.0
        total = sum(batch.target_tokens for batch in batches)
        summed = torch.zeros(3, dtype=torch.float64, device=place.device)
        for batch in batches:
            with place.autocast():
                sums = self.setting.task.loss(self.model, batch.to(place.device, non_blocking=True))
            (sums.loss / total).backward()
            own = torch.zeros_like(sums.nll) if sums.auxiliary is None else sums.auxiliary
            summed += torch.stack((sums.loss.detach(), sums.nll, own)).double()
        norm = clip_gradient(self.model.parameters(), run.optimizer.clip)
        # On an accelerator looking at the norm would wait for it, so it is looked at in `_tell`.
        if place.device.type == "cpu":
            self._refuse_infinite(summed + norm)
        set_rate(self.optimizer, self._rate(number))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        state.update = number
        return summed / total

    def _rate(self, update: int) -> float:
        d_model = self.setting.graph.params.get("d_model")
        return learning_rate(update, self.run.schedule, d_model)

    def _refuse_infinite(self, sums: Tensor) -> None:
        """Stop before weights are spoilt, or before spoilt ones are saved.

        Raises:
            InputError: the loss or its gradient is not finite.
        """
        if bool(torch.isfinite(sums).all()):
            return
        self.history.close()
        newest = checkpoints(self.setting.folder)
        kept = f"; the last good checkpoint is {newest[-1]}" if newest else ""
        raise InputError(
            f"the loss or its gradient is not finite at update {self.state.update + 1}{kept}",
            place=str(self.setting.folder),
            help="lower the learning rate, raise the warmup, or set optimizer.clip",
        )

    def _tell(self, window: _Window) -> None:
        """Report the updates since the last report."""
        state, seconds = self.state, time.monotonic() - window.since
        self._refuse_infinite(window.sums)
        loss, nll, auxiliary = (window.sums / window.updates).tolist()
        full = self.setting.full_speed
        has_own = any(type_.kind == "loss" for type_ in self.setting.graph.outputs.values())
        seen = Progress(
            update=state.update,
            updates=self.run.updates,
            epoch=state.epoch,
            loss=loss,
            nll=nll,
            rate=self._rate(state.update),
            tokens_per_second=(window.source_tokens + window.target_tokens) / seconds,
            target_tokens_per_second=window.target_tokens / seconds,
        )
        self.history.write(
            type="train",
            update=seen.update,
            epoch=seen.epoch,
            loss=loss,
            nll=nll,
            **({"auxiliary": auxiliary} if has_own else {}),
            rate=seen.rate,
            tokens_per_second=seen.tokens_per_second,
            **({"share_of_ceiling": seen.tokens_per_second / full} if full else {}),
            seconds=state.seconds,
        )
        self.setting.listener.progress(seen)

    def _validate(self) -> None:
        """Measure the model, keep it when it is the best, stop when it no longer gets better."""
        run, state = self.run, self.state
        self.model.eval()
        with self.setting.place.autocast():
            values = self.setting.validate(self.model)
        self.model.train()
        self.history.write(type="valid", update=state.update, seconds=state.seconds, **values)
        self.setting.listener.validated(state.update, values)
        value = values[run.best]
        worth = -value if run.best == "nll" else value
        if state.best is None or worth > state.best:
            state.best, state.best_update, state.stale = worth, state.update, 0
            save(self.setting.folder / "best", self._contents(optimizer=False))
        else:
            state.stale += 1
        if self._patience_is_out():
            self.stop_reason = f"no better for {state.stale} validations"

    def _patience_is_out(self) -> bool:
        patience = self.run.evaluate.patience
        return patience is not None and self.state.stale >= patience

    def _contents(self, *, optimizer: bool) -> Contents:
        moments = optimizer_tensors(self.optimizer, self.model) if optimizer else None
        return Contents(
            graph=self.setting.graph,
            weights=weights_of(self.model, self.setting.graph),
            run=self.run.model_dump(mode="json"),
            state=self.state.as_json(),
            tokenizers=self.setting.tokenizers,
            optimizer=moments,
            metrics=self.history.path,
        )

    def _save(self) -> None:
        """Write a checkpoint, and drop what older ones no longer need."""
        folder = self.setting.folder / "checkpoints"
        save(folder / f"{self.state.update:06d}", self._contents(optimizer=True))
        self._last_save = time.monotonic()
        all_ = checkpoints(self.setting.folder)
        every = self.run.checkpoint.every
        regular = [path for path in all_ if int(path.name) % every == 0 or path == all_[-1]]
        kept = regular[-max(self.run.checkpoint.keep, self.run.checkpoint.average) :]
        for path in all_:
            if path not in kept:
                _remove(path)
            elif path != all_[-1]:
                (path / "optimizer.safetensors").unlink(missing_ok=True)

    def _finish(self) -> Result:
        """Write the mean of the last checkpoints when the run is done."""
        state, run, folder = self.state, self.run, self.setting.folder
        self.history.close()
        signalled = self.stop_reason.startswith("SIG")
        finished = not signalled
        newest = checkpoints(folder)
        result = Result(
            state=state,
            finished=finished,
            reason=self.stop_reason or f"all {run.updates} updates done",
            checkpoint=newest[-1] if newest else None,
            best=folder / "best" if (folder / "best").is_dir() else None,
            report=self.report,
        )
        if finished and run.checkpoint.average and newest:
            last = newest[-run.checkpoint.average :]
            mean = average_weights([read_tensors(path / "weights.safetensors") for path in last])
            contents = self._contents(optimizer=False)
            state_ = {**contents.state, "averaged": [path.name for path in last]}
            result.averaged = save(
                folder / "averaged",
                Contents(
                    graph=contents.graph,
                    weights=mean,
                    run=contents.run,
                    state=state_,
                    tokenizers=contents.tokenizers,
                    metrics=contents.metrics,
                ),
            )
        return result

    def _stop(self, number: int) -> None:
        self.stop_reason = signal.Signals(number).name


def _differs(now: Any, before: Any) -> bool:
    """Say whether settings differ; one that an older version did not have yet does not."""
    if isinstance(now, dict) and isinstance(before, Mapping):
        return any(key in before and _differs(value, before[key]) for key, value in now.items())
    return bool(now != before)


def _remove(folder: Path) -> None:
    """Remove a checkpoint so that it never looks like a whole one on the way."""
    hidden = folder.with_name(f".{folder.name}.old")
    folder.rename(hidden)
    for path in hidden.iterdir():
        path.unlink()
    hidden.rmdir()
