"""Train a small GPT-2 in Weft and in Hugging Face from the same weights, and compare perplexities.

    python benchmarks/language_models.py --data MULTI30K                       # 3000 updates
    python benchmarks/language_models.py --data MULTI30K --updates 300 --tokens 500
    python benchmarks/language_models.py --data MULTI30K --others llama mamba gla

MULTI30K is a folder with train.en.gz and val.en.gz.  The run is `language-model-multi30k` without
dropout, since the two libraries draw other random numbers.  GPT2LMHeadModel gets Weft's initial
weights, and then the same batches, learning rates and optimizer, in a plain training loop.  Both
run on the same number of threads; the time is CPU time of the process, which other jobs affect less
than wall time.  `--others` trains other models by the same run with one param changed.

    python benchmarks/language_models.py --data MULTI30K --rounds 7 --precision bfloat16

compares speed alone: Weft as `weft train` runs it, GPT2LMHeadModel as shipped, and compiled with
fused Adam, take turns at the same batches.  Each round gives a ratio of their CPU times.  With
`--block 512`, rows are 512 tokens of captions one after the other.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from weft.runtime.train.context import TrainingContext, prepared_data, training_context
from weft.runtime.train.device import choose
from weft.runtime.train.distributed.sampler import stream_micro_batches
from weft.runtime.train.distributed.world import World
from weft.runtime.train.plan import load_run, plan_run
from weft.runtime.train.recipe.groups import WeightGroup
from weft.runtime.train.recipe.optimize import make_optimizer, set_rates
from weft.runtime.train.recipe.schedule import peak_of, share_of_peak
from weft.runtime.train.run import Run
from weft.runtime.train.trainer import Trainer

WIDTH, LAYERS, HEADS, POSITIONS = 256, 4, 4, 256
BEGIN, UNCOUNTED = 3, -100
GPT2 = {
    "d_model": WIDTH,
    "layers": LAYERS,
    "heads": HEADS,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "llama": {"d_model": WIDTH, "layers": LAYERS, "heads": HEADS, "d_ff": 683},
    "mamba": {"d_model": WIDTH, "layers": 2 * LAYERS, "heads": 8, "d_state": 64, "chunk": 16},
    "gla": {"d_model": WIDTH, "layers": LAYERS, "heads": HEADS, "d_ff": 683},
}
"""Params of models of about the same size."""
MAPS = {
    "self_attention.f.out": "attn.c_proj",
    "feed_forward.f.inner": "mlp.c_fc",
    "feed_forward.f.outer": "mlp.c_proj",
}
NORMS = {"self_attention.norm": "ln_1", "feed_forward.norm": "ln_2"}
UPDATES_OF_ROUND = 20


class Quiet:
    """A listener that prints only validations."""

    def log(self, text: str) -> None:
        """Ignore a line."""

    def progress(self, progress: Any) -> None:
        """Ignore the progress."""

    def validated(self, update: int, values: Any) -> None:
        """Print the perplexity."""
        print(f"  update {update}: validation perplexity {values['perplexity']:.4f}", flush=True)


def run_of(model: str, given: argparse.Namespace) -> tuple[Run, str]:
    """Return the shipped run with a model and the settings of the command line."""
    params = dict(MODELS[model])
    if model == "gpt2":  # Hugging Face also reads the begin token
        params["max_length"] = given.block + 1 if given.block else POSITIONS
    block = {"data.columns.text.block": given.block} if given.block else {}
    overrides = {
        "data.root": given.data,
        "params.model": {"spec": model, "params": params},
        "updates": given.updates,
        "batch.tokens": given.tokens,
        "schedule": {
            "peak": 0.001,
            "pieces": [{"to": 1, "over": given.updates // 30}, {"shape": "cosine", "to": 0}],
        },
        "evaluate.every": given.updates,
        "checkpoint": {"every": given.updates, "average": 0},
        "threads": given.threads,
        "precision": given.precision,
        # On unpadded rows the perplexities of the two libraries could differ in the last digits.
        "without": [] if given.rounds else ["unpad"],
        "trackers": [],
        **block,
    }
    return load_run("language-model-multi30k", overrides)


def in_weft(
    model: str, given: argparse.Namespace, folder: Path
) -> tuple[TrainingContext, Trainer, dict[str, Tensor]]:
    """Return the context and the trainer of a run, and copies of its initial weights."""
    run, source = run_of(model, given)
    context = training_context(plan_run(run, source), folder, choose(run), World(), Quiet())
    trainer = Trainer(context, resume=False)
    initial = trainer.model.get_submodule("model").state_dict()
    return context, trainer, {path: weight.clone() for path, weight in initial.items()}


def hugging_face(weights: dict[str, Tensor], vocab: int) -> nn.Module:
    """Return a GPT2LMHeadModel with given weights, which it stores as [inputs, outputs]."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocab,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        n_positions=weights["position.weight"].size(0),
        bos_token_id=None,
        eos_token_id=None,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    found = {
        "wte.weight": weights["embedding.weight"],
        "wpe.weight": weights["position.weight"],
        "ln_f.weight": weights["norm.weight"],
        "ln_f.bias": weights["norm.bias"],
    }
    for layer in range(LAYERS):
        ours, theirs = f"decoder.{layer}", f"h.{layer}"
        for end in ("weight", "bias"):
            parts = [
                weights[f"{ours}.self_attention.f.{name}.{end}"]
                for name in ("query", "key", "value")
            ]
            found[f"{theirs}.attn.c_attn.{end}"] = torch.cat(parts).t()
            for one, other in MAPS.items():
                found[f"{theirs}.{other}.{end}"] = weights[f"{ours}.{one}.{end}"].t()
            for one, other in NORMS.items():
                found[f"{theirs}.{other}.{end}"] = weights[f"{ours}.{one}.{end}"]
    model = GPT2LMHeadModel(config)
    copied = {path: tensor.contiguous().clone() for path, tensor in found.items()}
    model.transformer.load_state_dict(copied)
    return model


def with_labels(text: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ids that Hugging Face reads, and its labels, which it shifts itself."""
    begun = torch.cat([torch.full((len(text), 1), BEGIN), text], 1)
    return begun, begun.masked_fill(begun == 0, UNCOUNTED)


def train_theirs(model: nn.Module, context: TrainingContext) -> float:
    """Train a Hugging Face model on the batches of a run; return its validation perplexity."""
    run: Any = context.run
    corpus: Any = context.corpus
    weights = WeightGroup(run.optimizer, tuple(name for name, _ in model.named_parameters()))
    optimizer = make_optimizer(model, [weights], peak_of(run.schedule, {"d_model": WIDTH}))
    updates = stream_micro_batches(corpus, run.batch, run.seed, accumulate=run.accumulate)
    model.train()
    for number, micro_batches in enumerate(islice(updates, run.updates), start=1):
        [(_, batch)] = micro_batches.batches
        ids, labels = with_labels(batch.inputs["text"])
        model(ids, labels=labels).loss.backward()
        share = share_of_peak(run.schedule, number, run.updates)
        set_rates(optimizer, share, number, run.updates)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return perplexity(model, context)


@torch.no_grad()
def perplexity(model: nn.Module, context: TrainingContext) -> float:
    """Return the perplexity of a Hugging Face model on the validation data of a run."""
    run: Any = context.run
    model.eval()
    total = count = 0.0
    for batch in prepared_data(run, context.folder).valid.in_order(run.batch):
        ids, labels = with_labels(batch.inputs["text"])
        tokens = int((labels != UNCOUNTED).sum()) - len(ids)
        total += float(model(ids, labels=labels).loss) * tokens
        count += tokens
    return math.exp(total / count)


def ours(trainer: Trainer, folder: Path) -> tuple[float, float]:
    """Train in Weft; return the validation perplexity and the CPU time in seconds."""
    started = time.process_time()
    trainer.train()
    seconds = time.process_time() - started
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return next(line["perplexity"] for line in lines if line["type"] == "valid"), seconds


def theirs_at_speed(
    weights: dict[str, Tensor], context: TrainingContext, *, best: bool
) -> Callable[[Any], object]:
    """Return an update of a Hugging Face model on micro-batches, as shipped or compiled."""
    run: Any = context.run
    model = hugging_face(weights, int(context.model.params["vocab"]))
    model.train()
    called: Any = torch.compile(model, dynamic=True) if best else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True if best else None)

    def update(micro_batches: Any) -> None:
        for _, batch in micro_batches.batches:
            ids, labels = with_labels(batch.inputs["text"])
            with torch.autocast("cpu", torch.bfloat16, enabled=run.precision == "bfloat16"):
                loss = called(ids, labels=labels).loss
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def compare_speed(given: argparse.Namespace, folder: Path) -> None:
    """Print the CPU time of an update of each contestant, and the median ratio over the rounds."""
    context, trainer, weights = in_weft("gpt2", given, folder)
    run: Any = context.run
    corpus: Any = context.corpus
    trainer.model.train()
    updates: dict[str, Callable[[Any], object]] = {
        "Weft": trainer._update,  # noqa: SLF001 - one update without reports and checkpoints
        "Hugging Face, as shipped": theirs_at_speed(weights, context, best=False),
        "Hugging Face, compiled": theirs_at_speed(weights, context, best=True),
    }
    stream = stream_micro_batches(corpus, run.batch, run.seed, accumulate=run.accumulate)
    batches = list(islice(stream, UPDATES_OF_ROUND))
    seconds: dict[str, list[float]] = {name: [] for name in updates}
    for turn in range(given.rounds + 1):
        for name, update in updates.items():
            started = time.process_time()
            for batch in batches:
                update(batch)
            if turn:  # the first round compiles and warms up
                seconds[name].append((time.process_time() - started) / len(batches))
    for name, found in seconds.items():
        ratio = [other / own for own, other in zip(seconds["Weft"], found, strict=True)]
        print(
            f"{name}: {1000 * statistics.median(found):.1f} ms an update "
            f"({1000 * min(found):.1f} to {1000 * max(found):.1f}), "
            f"{statistics.median(ratio):.2f} times Weft's ({min(ratio):.2f} to {max(ratio):.2f})"
        )


def main() -> None:
    """Train the models and print their perplexities, or compare their speed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--block", type=int, help="tokens of a row (default: captions)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--others", nargs="*", default=[], choices=[*MODELS])
    parser.add_argument("--rounds", type=int, default=0, help="rounds of a comparison of speed")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    given = parser.parse_args()
    if given.rounds:
        with tempfile.TemporaryDirectory() as folder:
            compare_speed(given, Path(folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        context, trainer, weights = in_weft("gpt2", given, Path(folder))
        theirs = hugging_face(weights, int(context.model.params["vocab"]))
        print(f"{context.model.parameters():,} parameters, {given.updates:,} updates", flush=True)
        mine, seconds = ours(trainer, Path(folder))
        print(f"Weft: perplexity {mine:.4f}, {seconds:.1f} s of CPU time", flush=True)
        started = time.process_time()
        other = train_theirs(theirs, context)
        seconds = time.process_time() - started
        print(f"Hugging Face: perplexity {other:.4f}, {seconds:.1f} s of CPU time", flush=True)
        print(f"difference {100 * abs(mine / other - 1):.4f} %", flush=True)
    for name in given.others:
        with tempfile.TemporaryDirectory() as folder:
            context, trainer, _ = in_weft(name, given, Path(folder))
            found, seconds = ours(trainer, Path(folder))
            size = f"{context.model.parameters():,} parameters"
            print(f"{name}: {size}, perplexity {found:.4f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
