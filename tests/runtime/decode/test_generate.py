"""Generation from prompts equals the parallel forward pass; sampling follows the probabilities."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime import api
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.codegen.build import build
from weft.runtime.decode import stepper
from weft.runtime.decode.predictors.continuing import check_generates
from weft.runtime.decode.search.sampling import Sampler, filtered
from weft.runtime.decode.search.search import PromptTokens, sample
from weft.runtime.decode.settings import GenerateSettings, Hypothesis, Sampling
from weft.specs.findings import InputError, SpecError
from weft.specs.load import load

from .continued import continued

VOCAB = 23
SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 2, "vocab": VOCAB}
PROMPTS = [[3, 1, 4], [5], [9, 2, 6, 5, 3], [8, 9]]


def llama() -> tuple[Graph, nn.Module]:
    """Return a small Llama whose weights give clearly different logits."""
    graph = check(load("llama").form, registry(), {**SMALL, "kv_heads": 1})
    model = build(graph).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return graph, model


def by_the_parallel_pass(
    model: nn.Module, prompt: list[int], count: int
) -> tuple[list[int], float]:
    """Generate greedily, running the complete sequence again for every token."""
    ids, total = list(prompt), 0.0
    with torch.no_grad():
        for _ in range(count):
            log_p = model(tokens=torch.tensor([ids]))["logits"][0, -1].log_softmax(-1)
            ids.append(int(log_p.argmax()))
            total += log_p.max().item()
    return ids[len(prompt) :], total


def test_prompts_of_different_lengths_agree_with_the_parallel_pass() -> None:
    """In one batch; the log probability is that of the generated tokens."""
    _, model = llama()

    found = continued(model, PROMPTS, GenerateSettings(max_new=6))

    for prompt, [one] in zip(PROMPTS, found, strict=True):
        wanted, log_p = by_the_parallel_pass(model, prompt, 6)
        assert list(one.tokens) == wanted
        assert one.log_probability == pytest.approx(log_p, abs=1e-4)
        assert not one.finished


@pytest.mark.parametrize("at_once", [2, 512])
def test_the_common_prompt_length_is_read_in_one_step(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Up to the end of the shortest prompt; the result equals reading token by token."""
    _, model = llama()
    monkeypatch.setattr(stepper, "READ_AT_ONCE", at_once)
    steps: list[int] = []
    step = stepper.ModelStepper.step

    def counted(self: stepper.ModelStepper, tokens_R: Tensor, position: int) -> Tensor:
        steps.append(position)
        return step(self, tokens_R, position)

    monkeypatch.setattr(stepper.ModelStepper, "step", counted)
    prompts = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8, 9, 7], [9, 3, 2, 3, 8, 4]]

    found = continued(model, prompts, GenerateSettings(max_new=4))

    assert steps == list(range(5, 11))
    for prompt, [one] in zip(prompts, found, strict=True):
        wanted, log_p = by_the_parallel_pass(model, prompt, 4)
        assert list(one.tokens) == wanted
        assert one.log_probability == pytest.approx(log_p, abs=1e-4)


def test_an_output_ends_with_one_of_the_end_tokens() -> None:
    """The end token is excluded; the other rows are not affected."""
    _, model = llama()
    whole = [by_the_parallel_pass(model, prompt, 8)[0] for prompt in PROMPTS]
    ends = {whole[0][2], whole[2][5]}

    found = continued(model, PROMPTS, GenerateSettings(max_new=8), eos=ends)

    for tokens, [one] in zip(whole, found, strict=True):
        place = next((i for i, token in enumerate(tokens) if token in ends), None)
        assert list(one.tokens) == tokens[:place]
        assert one.finished == (place is not None)
    assert found[0][0].finished


@pytest.mark.integration
def test_drawing_is_decided_by_the_seed_and_bounded_by_top_k() -> None:
    """`top_k` 1 is greedy; other seeds draw other tokens."""
    _, model = llama()

    def drawn(**settings: float) -> list[tuple[int, ...]]:
        wanted = GenerateSettings(max_new=9, **settings)  # type: ignore[arg-type]
        return [one.tokens for [one] in continued(model, PROMPTS, wanted)]

    assert drawn(temperature=1.0, top_k=1) == drawn()
    assert drawn(temperature=1.5, seed=3) == drawn(temperature=1.5, seed=3)
    assert drawn(temperature=1.5, seed=3) != drawn(temperature=1.5, seed=4)


def test_samples_depend_only_on_their_prompt() -> None:
    """Samples depend on the prompt and the seed only; several samples of a prompt differ."""
    _, model = llama()
    settings = GenerateSettings(max_new=6, temperature=1.5, samples=3, seed=5)

    together = continued(model, PROMPTS, settings)
    backwards = continued(model, PROMPTS[::-1], settings)

    rows = [[one.tokens for one in samples] for samples in together]
    for number, prompt in enumerate(PROMPTS):
        [samples] = continued(model, [prompt], settings)
        alone = [one.tokens for one in samples]
        assert alone == rows[number]
        assert len(set(alone)) > 1
    assert [one.tokens for one in backwards[0]] == rows[-1]


def test_translations_and_continuations_are_filtered_by_one_function() -> None:
    """Exactly `top_k` tokens remain, and ties go to the lowest index; see `filtered`."""
    log_p = torch.tensor([[0.1, 0.3, 0.3, 0.3]]).log()
    settings = GenerateSettings(temperature=1.0, top_k=2, samples=200).search()
    assert isinstance(settings, Sampling)

    likely = filtered(log_p, settings)[0].isfinite().tolist()
    drawn = draw(Fixed(1, log_p[0].tolist(), 200), settings)

    assert likely == [False, True, True, False]
    assert {token for one in drawn for token in one.tokens} == {1, 2}


def draw(stepper: Fixed, settings: Sampling) -> list[Hypothesis]:
    """Return all samples of one prompt, which nothing ends."""
    [drawn] = sample(
        stepper,
        sampler=Sampler(settings, [[0]], settings.samples),
        settings=settings,
        bos=PromptTokens.of([[0]], torch.device("cpu")),
        eos=(),
        pad=0,
        max_lengths_N=torch.tensor([settings.max_extra]),
        ranked=False,
    )
    return drawn


class Fixed:
    """A stepper that always returns the same logits."""

    def __init__(self, rows: int, logits: list[float], samples: int) -> None:
        """Store the logits."""
        self.rows, self.samples, self.logits = rows, samples, torch.tensor(logits)

    def step(self, tokens_R: Tensor, position: int, /) -> Tensor:  # noqa: ARG002
        """Return the logits."""
        return self.logits.expand(self.rows * self.samples, -1)

    def reorder(self, rows_R: Tensor, /) -> None:
        """Not called."""
        raise AssertionError(rows_R)

    def narrow(self, sentences_N: Tensor, /) -> None:
        """Not called: all rows end together."""
        raise AssertionError(sentences_N)


def test_tokens_are_drawn_as_often_as_their_probabilities_say() -> None:
    """4,000 samples at temperature 2 from the 3 best tokens, within three standard deviations."""
    logits, rows = [2.0, 0.0, 1.0, -1.0], 400
    settings = GenerateSettings(max_new=10, temperature=2.0, top_k=3, seed=7, samples=rows).search()
    assert isinstance(settings, Sampling)

    found = draw(Fixed(1, logits, rows), settings)

    drawn = torch.tensor([one.tokens for one in found]).flatten()
    share = drawn.bincount(minlength=4) / len(drawn)
    wanted = torch.tensor([1.0, 0.0, 0.5]).softmax(0)
    assert share[3] == 0
    assert (share[:3] - wanted).abs().max() < 3 * (0.25 / len(drawn)) ** 0.5


def log_p_of(model: nn.Module, prompt: list[int], tokens: tuple[int, ...]) -> float:
    """Return the log probability of tokens after a prompt, by the parallel pass."""
    with torch.no_grad():
        log_p = model(tokens=torch.tensor([[*prompt, *tokens]]))["logits"][0].log_softmax(-1)
    return sum(log_p[len(prompt) - 1 + at, token].item() for at, token in enumerate(tokens))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_beams_of_every_hypothesis_are_exhaustive_search(prompt: list[int]) -> None:
    """All continuations of two tokens, and those that one of two end tokens ends before."""
    _, model = llama()
    ends, wide = (4, 7), VOCAB * VOCAB
    settings = GenerateSettings(max_new=2, beam=wide, nbest=5, penalty="length", alpha=1.0)
    scores = {}
    for first in range(VOCAB):
        if first in ends:
            scores[first,] = log_p_of(model, prompt, (first,))
            continue
        for end in ends:
            scores[first, end] = log_p_of(model, prompt, (first, end)) / 2
    best = sorted(scores, key=lambda tokens: -scores[tokens])
    outputs = list(dict.fromkeys(tokens[:-1] for tokens in best))[:5]

    [found] = continued(model, [prompt], settings, eos=ends)

    assert [one.tokens for one in found] == outputs
    by_output = {tokens[:-1]: scores[tokens] for tokens in reversed(best)}
    assert [one.score for one in found] == pytest.approx([by_output[t] for t in outputs], abs=1e-4)


def test_beams_of_a_prompt_do_not_depend_on_the_others() -> None:
    """Prompts of several lengths in one call, some of them equally long."""
    _, model = llama()
    settings = GenerateSettings(max_new=5, beam=3, nbest=3, no_repeat=2)
    prompts = [*PROMPTS, [6, 2, 9]]

    together = continued(model, prompts, settings, eos=(4,))

    for prompt, found in zip(prompts, together, strict=True):
        [alone] = continued(model, [prompt], settings, eos=(4,))
        assert [one.tokens for one in found] == [one.tokens for one in alone]
        for one in found:
            written = (*one.tokens, 4) if one.finished else one.tokens
            assert one.log_probability == pytest.approx(log_p_of(model, prompt, written), abs=1e-4)


@pytest.mark.parametrize("settings", [{"beam": 4}, {"temperature": 1.5}, {}])
def test_a_continuation_contains_the_required_phrases(settings: dict[str, float]) -> None:
    """Each prompt has its own; one without phrases is continued as it is alone."""
    _, model = llama()
    chosen = GenerateSettings(max_new=6, **settings)  # type: ignore[arg-type]
    include = [[[3, 3, 8]], [[2], [11, 5]], [], [[22]]]

    found = continued(model, PROMPTS, chosen, eos=(4,), include=include)

    for [one], phrases in zip(found, include, strict=True):
        text = " ".join(map(str, one.tokens)).join("  ")
        assert all(f" {' '.join(map(str, phrase))} " in text for phrase in phrases)
    assert found[2] == continued(model, [PROMPTS[2]], chosen, eos=(4,))[0]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"samples": 2}, "'samples' has no effect at temperature 0"),
        ({"beam": 2, "temperature": 1.0}, "'beam' has no effect above temperature 0"),
        ({"nbest": 2}, "'nbest' 2 is greater than 'beam' 1"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, float], problem: str) -> None:
    """Beams search, samples are drawn, and one strategy does one of the two."""
    with pytest.raises(ValueError, match=problem):
        GenerateSettings(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompts", "problem"), [([[1], []], "prompt 2 is empty"), ([[1, VOCAB]], "has the id 23")]
)
def test_invalid_prompts_are_refused(prompts: list[list[int]], problem: str) -> None:
    """The message names the prompt and the valid ids."""
    _, model = llama()

    with pytest.raises(InputError, match=problem) as caught:
        continued(model, prompts, GenerateSettings())

    assert "from 0 to 22" in caught.value.help
    assert continued(model, [], GenerateSettings()) == []


def test_a_translator_does_not_generate() -> None:
    """A translation model needs a source."""
    graph = check(load("transformer-tiny").form, registry(), {"vocab": 9})

    with pytest.raises(InputError, match="whose only input is ids"):
        check_generates(graph)


def test_a_checkpoint_generates(tmp_path: Path) -> None:
    """It opens without a tokenizer, uses its end token, and raises if asked to translate."""
    graph, model = llama()
    wanted = by_the_parallel_pass(model, PROMPTS[0], 5)[0]
    end = wanted[3]
    state = {"imported": {"tokens": {"end": end}}}
    save(tmp_path / "llama", Contents(graph=graph, weights=weights_of(model, graph), state=state))

    opened = weft.open(tmp_path / "llama")
    [[one]] = opened.generate(PROMPTS[:1], max_new=5)
    [[longer]] = opened.generate(PROMPTS[:1], max_new=5, eos=())

    assert list(one.tokens) == wanted[: wanted.index(end)]
    assert one.finished
    assert list(longer.tokens) == wanted
    with pytest.raises(InputError, match="cannot translate text"):
        opened.translate(["a"])
    with pytest.raises(SpecError, match="temperature"):
        opened.generate(PROMPTS, temperature=-1)
    assert isinstance(opened, api.Model)
