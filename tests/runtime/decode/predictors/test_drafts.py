"""Drafts: a model writes one of its inputs before the answer, as a deliberation network does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from weft.runtime.cli.main import main
from weft.runtime.train.plan import load_run, plan_run
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

from ...conftest import SMALL

PUBLISHED = Path(__file__).parents[4] / "examples/published"
DRAFT = {"input": "draft", "output": "draft_logits"}
GREEDY = {"beam": 1, "max_length": 3}
LINES = ["sun moon tree", "bird", "snow fire river"]


def written(run: Run, folder: Path, predict: object) -> str:
    """Write the published model, its objective and a run with a predictor; return the run's file.

    Args:
        run: a run of translation.
        folder: where to write.
        predict: the predictor of the run.
    """
    for name in ("deliberation", "deliberation-translation"):
        shutil.copy(PUBLISHED / f"{name}.json", folder)
    value = {
        **run.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "objective": "deliberation-translation",
        "params": {"model": {"spec": "deliberation", "params": SMALL}},
        "tokenizers": {"tokenizer": {"type": "symbols"}},
        "updates": 2,
        "predict": predict,
        "evaluate": {"every": 2, "best": "chrf", "metrics": ["chrf"], "samples": 0},
        "checkpoint": {"every": 2, "average": 0},
    }
    file = folder / "run.json"
    file.write_text(json.dumps(value))
    return str(file)


@pytest.fixture(scope="module")
def folder(toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a run that drafts and answers greedily, with at most 3 words."""
    folder = tmp_path_factory.mktemp("drafts")
    predict = {"type": "beam", **GREEDY, "drafts": [{**DRAFT, **GREEDY}]}
    run = toy_run_module(schedule={"peak": 0.05})
    weft.train(written(run, folder, predict), out=folder / "out")
    return folder / "out/best"


@pytest.fixture(scope="module")
def model(folder: Path) -> weft.Model:
    """Return the reopened model."""
    return weft.open(folder)


class Passes:
    """The model by passes over complete sequences."""

    def __init__(self, model: weft.Model, line: str) -> None:
        """Encode a source."""
        self.module, self.words = model.module, model.answering.columns["source"].vocabulary
        self.source = torch.tensor([[*self.words.encode(line), self.words.eos]])

    def log_p(self, output: str, draft: Sequence[int], target: Sequence[int]) -> Tensor:
        """Return the log probabilities of the next token at each position, [T, V]."""
        draft_1R = torch.tensor([[self.words.bos, *draft]])
        with torch.no_grad():
            outputs = self.module(
                source=self.source,
                source_mask=torch.ones_like(self.source, dtype=torch.bool),
                draft=draft_1R,
                draft_mask=torch.ones_like(draft_1R, dtype=torch.bool),
                target=torch.tensor([[self.words.bos, *target]]),
            )
        log_p_TV: Tensor = outputs[output][0].log_softmax(-1)
        log_p_TV[:, [self.words.pad, self.words.bos, self.words.unk]] = -torch.inf
        return log_p_TV

    def greedy(self, next_p: Callable[[Sequence[int]], Tensor]) -> list[int]:
        """Return at most 3 tokens, each the most probable one."""
        ids: list[int] = []
        while len(ids) < GREEDY["max_length"]:
            best = int(next_p(ids)[-1].argmax())
            if best == self.words.eos:
                break
            ids.append(best)
        return ids

    def draft(self) -> list[int]:
        """Return the greedy draft."""
        return self.greedy(lambda ids: self.log_p("draft_logits", ids, []))

    def answer(self, draft: Sequence[int]) -> str:
        """Return the greedy answer to a draft."""
        ids = self.greedy(lambda ids: self.log_p("logits", draft, ids))
        text: str = self.words.decode(ids)
        return text


pytestmark = pytest.mark.integration


def test_the_answer_is_that_of_complete_passes_over_the_source_and_the_draft(
    model: weft.Model,
) -> None:
    """In a batch with padding of sources and drafts; the answer depends on the draft."""
    passes = [Passes(model, line) for line in LINES]

    answers = model.translate(LINES)

    assert answers == [one.answer(one.draft()) for one in passes]
    first = passes[0]
    logits = [first.log_p("logits", draft, [])[-1] for draft in ([5, 6], [])]
    assert not torch.allclose(*logits, atol=1e-3)


def test_scores_of_beams_are_those_of_complete_passes(model: weft.Model) -> None:
    """Of all drafts with at most two words the best one is read; the beam is wide enough for all.

    A draft of two words needs no end.
    """
    draft = {**DRAFT, "beam": 256, "penalty": "none", "max_length": 2}
    search = {"beam": 2, "nbest": 2, "penalty": "none", "max_length": 1, "drafts": [draft]}
    passes = Passes(model, LINES[0])
    end, size = passes.words.eos, passes.words.vocab_size
    tokens = [i for i in range(size) if i not in (passes.words.pad, passes.words.bos, end)]
    drafts = [(end,), *product(tokens, [end]), *product(tokens, tokens)]
    log_p_3V = [passes.log_p("draft_logits", [token], []) for token in range(size)]
    first_V = log_p_3V[0][0]
    total = [float(first_V[a] + (log_p_3V[a][1][rest[0]] if rest else 0)) for a, *rest in drafts]
    best = [token for token in drafts[total.index(max(total))] if token != end]

    [found] = model.predictor(search).answers([{"source": LINES[0]}])

    expected_V = passes.log_p("logits", best, [])[0]
    for answer in (found, *found.others):
        ids = passes.words.encode(answer.value) or [end]
        assert answer.score == pytest.approx(float(expected_V[ids[0]]), abs=1e-4)


def test_rows_lines_scores_and_the_command_have_the_same_drafts(
    folder: Path, model: weft.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each way to the model writes the draft first."""
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{line}\n" for line in LINES))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"source": line}) + "\n" for line in LINES))
    answers = model.translate(LINES)
    passes = Passes(model, LINES[0])
    target = passes.words.encode("moon sun")

    assert main(["translate", str(folder), str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == answers
    assert main(["predict", str(folder), str(rows)]) == 0
    assert list(map(json.loads, capsys.readouterr().out.splitlines())) == answers
    [scored] = model.score([(LINES[0], "moon sun")])
    log_p_TV = passes.log_p("logits", passes.draft(), target)
    expected = log_p_TV[range(3), [*target, passes.words.eos]].sum()
    assert scored.log_probability == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize("changes", [{"beam": 2}, {"temperature": 0.5}])
def test_changed_settings_keep_the_drafts(model: weft.Model, changes: dict[str, Any]) -> None:
    """A beam search that has other settings, or becomes sampling, still writes the draft."""
    settings: Any = model.predictor_settings(changes)

    assert [draft.input for draft in settings.drafts] == ["draft"]
    assert len(model.predict([{"source": "sun"}], changes)) == 1


def test_without_its_draft_the_model_is_refused_before_training(
    toy_run: Callable[..., Run], tmp_path: Path
) -> None:
    """The finding names the input and the setting that fills it."""
    run, source = load_run(written(toy_run(), tmp_path, {"type": "beam"}))

    [finding] = [f for f in plan_run(run, source).findings if "'draft'" in f.problem]

    assert (finding.code, finding.at) == ("R04", "/predict")
    assert "cannot feed the input 'draft' of 'deliberation'" in finding.problem
    assert "'drafts' of the predictor" in finding.help


def test_a_predictor_without_drafts_is_refused_by_the_name_of_the_input(model: weft.Model) -> None:
    """As when a checkpoint is opened with another predictor."""
    with pytest.raises(InputError, match="cannot feed the input 'draft'") as raised:
        model.predict([{"source": "sun"}], {"type": "greedy"})

    assert "'drafts'" in raised.value.help


WRONG = {
    "no input": ([{**DRAFT, "input": "drafts"}], "no input 'drafts' for a draft"),
    "a mask": ([{**DRAFT, "input": "draft_mask"}], "is no text that can be written"),
    "the answer": ([{**DRAFT, "input": "target"}], "is written by the predictor itself"),
    "no output": ([{**DRAFT, "output": "logit"}], "no output 'logit' for the draft 'draft'"),
    "other logits": ([{**DRAFT, "output": "logits"}], "does not give the logits of 'draft'"),
    "twice": ([DRAFT, DRAFT], "two drafts write the input 'draft'"),
}
"""Drafts, and what is wrong."""


@pytest.mark.parametrize("case", WRONG)
def test_a_draft_that_cannot_be_written_is_refused_before_training(
    toy_run: Callable[..., Run], tmp_path: Path, case: str
) -> None:
    """The finding is at the drafts of the run, and names the input or the output."""
    drafts, problem = WRONG[case]

    run, source = load_run(written(toy_run(), tmp_path, {"type": "beam", "drafts": drafts}))

    [finding] = [f for f in plan_run(run, source).findings if f.at == "/predict/drafts"]
    assert finding.code == "R04"
    assert problem in finding.problem
    assert finding.help
