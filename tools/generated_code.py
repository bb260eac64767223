"""Write `docs/generated-code.md`: the code of Transformer base, with its kernels.

The texts are what `weft show` prints.  Each kernel has the generated line that calls it, and the
functions between the two; `tests/tools/test_generated_code.py` runs the code and follows the calls.
"""

from __future__ import annotations

import contextlib
import io
import itertools
from dataclasses import dataclass
from pathlib import Path

from pages import write_page
from weft.runtime.cli.main import main as weft

PAGE = "generated-code.md"
RUN = ("wmt14-en-de-base", "--set", "precision=bfloat16", "--set", "kernels.attention=plain")
MODEL = ("transformer-base",)

SUBLAYER = "blocks/residual/sublayer_module.py"
ATTENTION = "blocks/attention/multi_head_module.py"
DISPATCH = "blocks/kernels/attention.py"
BACKENDS = "blocks/kernels/attention_backends.py"
LINEAR = "blocks/kernels/linear.py"
SHAPES = "blocks/kernels/few_shapes.py"
LOSS = "blocks/kernels/losses/fused_linear_cross_entropy.py"
PREPACKED = "blocks/kernels/prepacked.py"


@dataclass(frozen=True)
class Call:
    """A generated line that leads to a kernel."""

    does: str
    """What is computed."""
    line: str
    """Beginning of the generated line, or of several equal ones."""
    chain: tuple[tuple[str, str], ...]
    """Functions that call one another, each with its file; the last one calls the kernel."""
    kernel: str
    """The call of the kernel, as it is written in the last function."""
    within: str = "forward"
    """Generated method of the line."""


TRAINING = (
    Call(
        "weights are cast to bfloat16, if they have changed",
        "self.casts.refresh()",
        (("Casts.refresh", "blocks/kernels/precision.py"),),
        "torch._foreach_copy_",
    ),
    Call(
        "queries, keys and values of self-attention, in one product",
        "self_attention = self.self_attention(x",
        (
            ("Sublayer.forward", SUBLAYER),
            ("Attention.forward", ATTENTION),
            ("Attention._projected", ATTENTION),
            ("linear_maps", LINEAR),
            ("linear", LINEAR),
            ("_Linear.forward", LINEAR),
            ("times_in_parts", SHAPES),
        ),
        "torch.addmm",
    ),
    Call(
        "self-attention",
        "self_attention = self.self_attention(x",
        (
            ("Sublayer.forward", SUBLAYER),
            ("Attention.forward", ATTENTION),
            ("attend", DISPATCH),
            ("attend_in_few_shapes", SHAPES),
            ("plain_attend", BACKENDS),
            ("plain_weights", BACKENDS),
        ),
        "query_BHTK @ key_BHSK.transpose(-2, -1)",
    ),
    Call(
        "attention to the source",
        "cross_attention = self.cross_attention(",
        (
            ("Sublayer.forward", SUBLAYER),
            ("Attention.forward", ATTENTION),
            ("attend", DISPATCH),
            ("attend_in_few_shapes", SHAPES),
            ("plain_attend", BACKENDS),
        ),
        "@ call.value",
    ),
    Call(
        "feed-forward sub-layer",
        "feed_forward = self.feed_forward(",
        (
            ("Sublayer.forward", SUBLAYER),
            ("FeedForward.forward", "blocks/feed_forward/feed_forward_module.py"),
            ("LinearMap.forward", LINEAR),
            ("linear", LINEAR),
            ("_Linear.forward", LINEAR),
            ("times_in_parts", SHAPES),
        ),
        "torch.addmm",
    ),
    Call(
        "fused linear cross-entropy: logits of a chunk",
        "cross_entropy_loss, cross_entropy_nll = self.cross_entropy(",
        (
            ("CrossEntropy.forward", "blocks/losses/cross_entropy_module.py"),
            ("fused_linear_cross_entropy", LOSS),
            ("_FusedLinearCrossEntropy.forward", LOSS),
            ("times_transposed", LINEAR),
            ("times_in_parts", SHAPES),
        ),
        "torch.mm(",
    ),
    Call(
        "fused linear cross-entropy: softmax and gradients of these logits, in place",
        "cross_entropy_loss, cross_entropy_nll = self.cross_entropy(",
        (
            ("CrossEntropy.forward", "blocks/losses/cross_entropy_module.py"),
            ("fused_linear_cross_entropy", LOSS),
            ("_FusedLinearCrossEntropy.forward", LOSS),
            ("_normalize", LOSS),
        ),
        "p_rV.sub_(top_r1).exp_()",
    ),
)
DECODING = (
    Call(
        "linear maps are exchanged for prepacked ones, when the module is built",
        "prepack(self, torch.float32)",
        (("prepack", PREPACKED), ("exchange_linear", PREPACKED)),
        "setattr(model.get_submodule(holder)",
        within="__init__",
    ),
    Call(
        "prepacked product, here of the output projection",
        "head = self.head(x=decoder)",
        (
            ("InferenceLinear.forward", PREPACKED),
            ("PackedLinear.multiply", PREPACKED),
            ("InferenceLinear.multiply", PREPACKED),
            ("PackedLinear.product", PREPACKED),
        ),
        "_ops()._linear_pointwise",
        within="step",
    ),
    Call(
        "prepacked products of queries, keys and values",
        "self_attention = self.self_attention.step(",
        (
            ("Sublayer.step", SUBLAYER),
            ("Attention.step", ATTENTION),
            ("Attention._projected", ATTENTION),
            ("linear_maps", LINEAR),
            ("InferenceLinear.joined", PREPACKED),
            ("PackedLinear.product", PREPACKED),
        ),
        "_ops()._linear_pointwise",
        within="step",
    ),
    Call(
        "self-attention of a step",
        "self_attention = self.self_attention.step(",
        (
            ("Sublayer.step", SUBLAYER),
            ("Attention.step", ATTENTION),
            ("attend", DISPATCH),
            ("attend_in_few_shapes", SHAPES),
            ("fused_attend", BACKENDS),
        ),
        "F.scaled_dot_product_attention",
        within="step",
    ),
    Call(
        "attention to the source in a step",
        "cross_attention = self.cross_attention.step(",
        (
            ("Sublayer.step", SUBLAYER),
            ("Attention.step", ATTENTION),
            ("Attention._attend_fixed", ATTENTION),
            ("attend", DISPATCH),
            ("attend_in_few_shapes", SHAPES),
            ("fused_attend", BACKENDS),
        ),
        "F.scaled_dot_product_attention",
        within="step",
    ),
    Call(
        "step of a layer, compiled once that is switched on",
        "return self._compiled_steps.run(",
        (("CompiledSteps.run", "blocks/kernels/compiled_steps.py"),),
        "self._compiled(step)",
        within="step",
    ),
)

HEAD = """# Generated code of Transformer base

`make catalogue` writes this page; `tests/tools/test_generated_code.py` fails when it is out of
date. It has the passes ([passes.md](passes.md)) and the complete code that trains and decodes
Transformer base. Each table lists lines of the code below it, the functions through which they
reach a kernel, and the call of the kernel as it is written in the last of these functions. The test
runs the code of a small model and follows these calls.
"""
ABOUT_TRAINING = """The run is that of the paper, in bfloat16 on a CPU. Without
`kernels.attention=plain`, Weft measures the kernels of attention when training begins; on a GPU it
chooses others ([training.md](training.md#automatic-choices)). `use_kernels`
([kernel_choice.py](../blocks/kernels/kernel_choice.py)) sets the kernels of all modules, and
`attend` reads them.
"""
AFTER_TRAINING = """In products of fewer than 256 rows, and on a GPU, `linear` calls `F.linear`, and
queries, keys and values are three products. `_Linear.backward` in the same file computes the
gradients. The loss computes its gradients in the forward pass; its backward pass multiplies them by
a number.
"""
ABOUT_DECODING = """On a CPU, in float32. Weft builds this module when a model first decodes.
`_ops()` is `torch.ops.mkldnn`.
"""
AFTER_DECODING = """`attend` calls `plain_attend` instead of `fused_attend` in bfloat16, and in
float32 for few queries and many keys (`_suits_plain` in
[attention.py](../blocks/kernels/attention.py)).
"""


def printed(*words: str) -> str:
    """Return what a `weft` command prints.

    Raises:
        RuntimeError: the command failed.
    """
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = weft([*words])
    if code:
        msg = f"weft {' '.join(words)}: exit code {code}"
        raise RuntimeError(msg)
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())


def lines_of(call: Call, code: str) -> list[int]:
    """Return the numbers of the lines of a call, from 1.

    Raises:
        ValueError: the code has no such line.
    """
    numbers, method = [], ""
    for number, line in enumerate(code.splitlines(), 1):
        word, _, signature = line.strip().partition(" ")
        method = signature.partition("(")[0] if word == "def" else method
        if method == call.within and line.strip().startswith(call.line):
            numbers.append(number)
    if not numbers:
        msg = f"the generated code has no line '{call.line}' in a method '{call.within}'"
        raise ValueError(msg)
    return numbers


def page() -> str:
    """Return the text of the page."""
    train, decode = ("--train", *RUN[1:]), ("--decode",)
    parts = [
        HEAD,
        "## Training\n",
        ABOUT_TRAINING,
        _console(RUN[0], "--passes", *RUN[1:]),
        "### Kernels of training\n",
        _table(TRAINING, printed("show", RUN[0], "--code", *train)),
        AFTER_TRAINING,
        "### Code of training\n",
        _code(RUN[0], "--code", *train),
        "## Decoding\n",
        ABOUT_DECODING,
        _console(*MODEL, "--passes", *decode),
        "### Kernels of decoding\n",
        _table(DECODING, printed("show", *MODEL, "--code", *decode)),
        AFTER_DECODING,
        "### Code of decoding\n",
        _code(*MODEL, "--code", *decode),
    ]
    return "\n".join(parts)


def _console(*words: str) -> str:
    """Return a command with its output."""
    text = printed("show", *words)
    return f"```console\n$ weft show {' '.join(words)}\n{text}\n```\n"


def _code(*words: str) -> str:
    """Return a command, and the code that it prints."""
    text = printed("show", *words)
    return f"```console\n$ weft show {' '.join(words)}\n```\n\n```python\n{text}\n```\n"


def _table(calls: tuple[Call, ...], code: str) -> str:
    """Return the table of the kernels of a module."""
    head = "| | line | generated code | functions, each called by the one before | kernel |"
    rows = [head, "|---|---|---|---|---|"]
    written = code.splitlines()
    for call in calls:
        numbers = lines_of(call, code)
        lines = dict.fromkeys(written[number - 1].strip() for number in numbers)
        shown = "<br>".join(f"`{line}`" for line in lines)
        rows.append(
            f"| {call.does} | {', '.join(map(str, numbers))} | {shown} | {_chain(call)}"
            f" | `{call.kernel}` |"
        )
    return "\n".join(rows) + "\n"


def _chain(call: Call) -> str:
    """Return the functions of a call, with a link to each file."""
    parts = []
    for file, group in itertools.groupby(call.chain, lambda pair: pair[1]):
        names = ", ".join(f"`{name}`" for name, _ in group)
        parts.append(f"{names} ([{Path(file).name}](../{file}))")
    return ", ".join(parts)


def main() -> None:
    """Write the page into a folder."""
    write_page(PAGE, page, __doc__.splitlines()[0])


if __name__ == "__main__":
    main()
