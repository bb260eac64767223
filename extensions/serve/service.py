"""Service: the model, batcher and metrics behind the HTTP routes, independent of HTTP.

A `Service` has one opened checkpoint, the worker thread that uses it, and its metrics.  It
checks each request against the limits and returns a job to wait for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from ... import Model
from ...plugin import Beam, InputError, MaskPredict, PredictorSettings, Writing, build_sharing
from ...runtime.analysis.alignment import reading_source
from ...runtime.codegen.generated import program_of
from ...runtime.compile.decode_compile import Steps
from ...runtime.compile.decoder import passes_of, steps_of, use_passes, use_steps
from ...runtime.decode.predictors.text import TextPredictor, row_of_line
from ...runtime.model.records import Details, text_records
from .answers import LOG
from .batcher import Batcher, Cancelled, ClosedError, PendingSentences
from .forms import Ask, RequestProblem, merged, too_much
from .libre import Languages, languages_of
from .limits import Limits
from .metrics import Metrics
from .work import batch_work, client_of, work_of

_WARM = 12
"""Words of the sentence for measuring compiled steps, and minimum tokens of its output."""
_PREDICTORS = 16
"""Number of search settings whose predictors, with their compiled banned phrases, are cached."""
MEMORY = "start the server with a smaller --batch, --max-tokens, --max-output or --max-beam"
"""What to do if the memory of the device is too small."""


@dataclass(frozen=True, slots=True)
class Work:
    """Settings that the sentences of a batch must have in common."""

    search: PredictorSettings
    alignment: bool = False


Made = dict[str, Any]
"""Result of one sentence: an item of `results` in a response."""


def _languages(model: Model) -> Languages | None:
    """Return the languages of the data that trained a model; None if they are not known."""
    if model.trained is None:
        return None
    data = model.trained.run.data
    source, target = (data.columns[side].from_ or side for side in model.trained.sides())
    return languages_of(data.train, (source, target))


class RefusedError(Exception):
    """A rejected request, with the status of the response."""

    def __init__(self, status: int, problems: Sequence[RequestProblem]) -> None:
        """Store the status and all problems."""
        super().__init__(status, *problems)
        self.status, self.problems = status, list(problems)


class Service:
    """One model, ready to serve."""

    def __init__(self, model: Model, limits: Limits) -> None:
        """Create the service of a model that translates.

        Raises:
            InputError: the model does not translate.
        """
        self.predictor = model.line_predictor()
        """The predictor of the server's own settings."""
        searches = isinstance(model.strategy, Writing | MaskPredict)
        self.default_strategy = model.strategy if searches and model.strategy else Beam()
        self.model, self.limits = model, limits
        self.languages = _languages(model)
        self.began = time.monotonic()
        self.stopping = False
        self.accepted = 0
        """Requests whose head had arrived before the service was told to stop, and that are not
        answered; only the event loop changes the number."""
        self._tuned: Model | None = None
        self._predictor = lru_cache(_PREDICTORS)(self._predictor_of)
        self.metrics = Metrics(lambda: self.batcher.waiting)
        self.batcher = Batcher[Work, Mapping[str, Any], Made](
            self._translated,
            size=limits.batch,
            wait=limits.wait,
            capacity=limits.queue,
            batch_work=batch_work(limits.work),
            client_work=limits.client,
            callback=self.metrics.batch,
        )

    @contextmanager
    def running(self) -> Iterator[Service]:
        """Run the worker thread; on exit it finishes the accepted sentences."""
        with self.batcher.running():
            yield self

    def warm(self) -> None:
        """Translate a word, so that the first request does not wait for one-time work.

        Where steps may be compiled, requests are served uncompiled until `tune` has ended.
        """
        self._tuned = self._sharing()
        self._translated(Work(self.default_strategy), [row_of_line("a")])

    def tune(self) -> None:
        """Measure whether compiled steps are faster, and if so, use them from then on.

        This may take minutes and is done in a thread of its own, on a copy of the model that shares
        its weights; the model itself serves requests meanwhile.  A full batch is translated first,
        on which compilation is measured, and then a single sentence, because a batch of one is
        compiled separately.
        """
        if self._tuned is None:
            return
        tuned, self._tuned = self._tuned, None
        search = self.default_strategy.model_copy(
            update={"min_length": _WARM, "max_length": 2 * _WARM}
        )
        predictor = replace(tuned, strategy=search).line_predictor()
        for count in (self.limits.batch, 1):
            list(predictor.stream([row_of_line("a " * _WARM)] * count, buffer=count))
        if any(steps_of(module).mode == "compiled" for module in (tuned.module, *tuned.others)):
            self.model = tuned
            self._predictor.cache_clear()

    def _sharing(self) -> Model | None:
        """Return a model with the same weights whose steps may be compiled; None if they may not.

        The steps of the service's own model are plain from now on.
        """
        modules = self.model.module, *self.model.others
        if not self.model.graph.step_axis or all(
            steps_of(module).mode in {"plain", "recorded"} for module in modules
        ):
            return None
        sharing = [build_sharing(program_of(module).graph, module) for module in modules]
        for module, other in zip(modules, sharing, strict=True):
            use_steps(other, steps_of(module))
            use_passes(other, passes_of(module))
            use_steps(module, Steps("off"))
        return replace(self.model, module=sharing[0], others=tuple(sharing[1:]))

    def _predictor_of(self, search: PredictorSettings) -> TextPredictor:
        return replace(self.model, strategy=search).line_predictor()

    def _translated(
        self, work: Work, rows: Sequence[Mapping[str, Any]], cancelled: Cancelled | None = None
    ) -> list[Made]:
        """Decode a batch; only the batcher's thread calls it."""
        predictor, count = self._predictor(work.search), len(rows)
        try:
            answers = list(predictor.stream(rows, buffer=count, cancelled=cancelled))
        except torch.OutOfMemoryError:
            LOG.error("the memory of the device is too small for %d sentences; %s", count, MEMORY)
            raise
        hypotheses = [answer.hypothesis for outputs in answers for answer in outputs]
        written = sum(len(hypothesis.tokens) for hypothesis in hypotheses if hypothesis)
        self.metrics.tokens.labels("target").inc(written)
        texts = [row["source"] for row in rows]
        details = Details(alignment=work.alignment)
        return text_records(self.model, predictor, texts, answers, details)

    def submit(
        self,
        ask: Ask,
        listener: Callable[[int, Made], None] | None = None,
        *,
        client: str = "",
        accepted: bool = False,
    ) -> PendingSentences[Work, Mapping[str, Any], Made]:
        """Check a request and queue its sentences.

        Args:
            ask: the request.
            listener: called with the index and result of each sentence as soon as it is done.
            client: address of the client, for the fairness of the queue.
            accepted: whether the request began before the service was told to stop.

        Raises:
            RefusedError: the request is invalid or exceeds a limit.
            FullError: the queue does not have enough capacity, or the client has its share of it.
            ClosedError: the service is stopping.
        """
        if self.stopping and not accepted:
            raise ClosedError
        search = self._search(ask)
        problems, read = too_much(ask, search, self.default_strategy, self.limits), 0
        works: list[int] = []
        if not problems:
            problems, works, read = self._too_long(ask, search)
        if problems:
            raise RefusedError(422, problems)
        if ask.alignment:
            self._can_align()
        work = Work(search, ask.alignment)
        rows = [text.row for text in ask.source]
        job = self.batcher.submit(work, rows, listener, client=client_of(client), works=works)
        self.metrics.tokens.labels("source").inc(read)
        return job

    def cancel(self, job: PendingSentences[Work, Mapping[str, Any], Made]) -> None:
        """Drop the sentences of a job that is not done, and count them."""
        if not job.future.done():
            self.metrics.dropped.inc(self.batcher.cancel(job))

    def _can_align(self) -> None:
        try:
            reading_source(self.model.graph, self.model.module)
        except InputError as error:
            problem = RequestProblem(
                place="/alignment", problem=error.problem, help="set it to false"
            )
            raise RefusedError(422, [problem]) from None

    def _search(self, ask: Ask) -> PredictorSettings:
        try:
            return merged(self.default_strategy, ask.search, self.limits)
        except InputError as error:
            help_ = error.help or "see SearchOptions in /openapi.json"
            problem = RequestProblem(place=str(error.location), problem=error.problem, help=help_)
            raise RefusedError(422, [problem]) from None

    def _too_long(
        self, ask: Ask, search: PredictorSettings
    ) -> tuple[list[RequestProblem], list[int], int]:
        """Return what is too much in tokens or work, the work of each text, and all tokens read."""
        predictor, most, problems = self.predictor, self.limits.tokens, []
        works: list[int] = []
        sources = predictor.source.encode_many([text.text for text in ask.source])
        for index, (ids, text) in enumerate(zip(sources, ask.source, strict=True)):
            required = [phrase for phrase in (text.begin, *text.include) if phrase]
            size = sum(map(len, predictor.target.encode_many(required)))
            longest = self.limits.output
            works.append(work_of(search, read=len(ids), required=size, longest=longest))
            for name, count in (("text", len(ids)), ("begin", size)):
                if count > most:
                    location = f"/source/{index}/{name}"
                    problem = f"{count:,} tokens is more than the limit of {most:,}"
                    help_ = "send its sentences separately" if name == "text" else "use less text"
                    problems.append(RequestProblem(place=location, problem=problem, help=help_))
        if (work := sum(works)) > self.limits.work and not problems:
            problems.append(
                RequestProblem(
                    place="/source",
                    problem=f"the request needs an estimated work of {work:,}, more than the limit"
                    f" of {self.limits.work:,}",
                    help="send fewer or shorter texts or phrases, or search with a smaller 'beam'",
                )
            )
        return problems, works, sum(map(len, sources))

    def retry_after(self) -> int:
        """Return the estimated number of seconds until the queue has capacity, from 1 to 60."""
        pace = self.metrics.pace()
        return max(1, min(60, math.ceil(self.batcher.waiting / pace))) if pace else 1
