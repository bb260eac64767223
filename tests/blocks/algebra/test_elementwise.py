"""Formulas, against the expressions of params and against loops over indices."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.specs.expressions import evaluate

from .. import single_node
from ..single_node import computed, findings_of, type_of

SIZES = {"B": 2, "T": 3, "S": 4}


def spec_of(formula: str, inputs: dict[str, str], **params: Any) -> dict[str, Any]:
    """Return a spec with one formula over inputs of some types."""
    return single_node.spec_of("elementwise@1", inputs, y=formula, **params)


@pytest.mark.parametrize(
    "formula",
    [
        "exp(x) - log(abs(x) + 1)",
        "sqrt(abs(x)) + sin(x) * cos(z)",
        "tanh(x) + erf(z)",
        "sigmoid(x) * z + (1 - sigmoid(x)) * x",
        "softplus(3 * x) - relu(z)",
        "gelu(x) + gelu_tanh(z)",
        "silu(x) / (abs(z) + 0.5)",
        "elu(x) - elu(z)",
        "ceil(x) + floor(z)",
        "x // 0.5 + x % 0.75",
        "x ** 2 - 2 ** z",
        "-x ** 2 + -z",
        "min(x, z) + max(x, z, 0.25)",
        "min(0.5, x) - max(x, -0.5, -0.25)",
        "where(x > z, x, 2)",
        "where(x > 0 and not z <= 0 or x == z, x - z, z * x)",
        "detach(x) * by + pi * exp(1 - 1)",
    ],
)
def test_a_formula_is_that_of_params_for_each_element(formula: str) -> None:
    """The evaluator of params, which knows numbers alone, gives each element."""
    x = torch.tensor([[-1.5, -0.25, 0.0, 0.75, 2.0]], dtype=torch.float64)
    z = torch.tensor([[0.5, -2.25, 0.0, 1.25, -1.0]], dtype=torch.float64)
    numbers = {"values": {"by": 1.5}} if "by" in formula else {}
    inputs = {name: "f[B 5]" for name in ("x", "z") if name in formula.replace("exp", "")}
    spec = spec_of(formula, inputs, **numbers)

    y = computed(
        spec, **{name: value for name, value in {"x": x, "z": z}.items() if name in inputs}
    )

    wanted = [
        evaluate(formula, {"x": a, "z": b, "by": 1.5, "pi": math.pi})
        for a, b in zip(x[0].tolist(), z[0].tolist(), strict=True)
    ]
    torch.testing.assert_close(y[0], torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.parametrize(
    ("types", "result", "axes"),
    [
        ({"x": "f[B T 5]", "z": "f[B T]"}, "f[B T 5]", {}),
        ({"x": "f[B T]", "z": "f[B T 5]"}, "f[B T 5]", {}),
        ({"x": "f[B T 5]", "z": "f[5]"}, "f[B T 5]", {}),
        ({"x": "f[B T 5]", "z": "f[T]"}, "f[B T 5]", {}),
        ({"x": "f[B T 5]", "z": "f[]"}, "f[B T 5]", {}),
        ({"x": "f[B T 5]", "z": "f[B 5]"}, "f[B T 5]", {}),
        ({"x": "f[B T 5]", "z": "f[B S 5]"}, "f[B T S 5]", {}),
        ({"x": "f[B T]", "z": "f[B S]"}, "f[B T S]", {}),
        ({"x": "f[B T 5]", "z": "f[B T 1]"}, "f[B T 5]", {}),
        ({"x": "f[B T 1]", "z": "f[B T 5]"}, "f[B T 5]", {}),
        ({"x": "f[B 1 5]", "z": "f[B T 1]"}, "f[B T 5]", {}),
        ({"x": "f[B T+1 5]", "z": "f[T+1]"}, "f[B T+1 5]", {}),
        ({"x": "f[B T T]", "z": "f[B T]"}, "f[B T T]", {"x": "b t s", "z": "b s"}),
        ({"x": "f[B T T]", "z": "f[B T]"}, "f[B T T]", {"x": "b t s", "z": "b t"}),
    ],
)
def test_axes_match_by_name(types: dict[str, str], result: str, axes: dict[str, str]) -> None:
    """A loop over all indices of the result looks up each value by its names."""
    torch.manual_seed(0)
    spec = spec_of("x - 2 * z", types, **({"axes": axes} if axes else {}))
    sizes = {**SIZES, "T+1": 4, "5": 5, "1": 1}
    shapes = {name: text[2:-1].split() for name, text in types.items()}
    values = {name: torch.randn([sizes[axis] for axis in shape]) for name, shape in shapes.items()}

    y = computed(spec, **values)

    assert type_of(spec) == result
    names = axes["x"].split() if axes else result[2:-1].split()
    labels = {name: axes[name].split() if axes else shape for name, shape in shapes.items()}
    for index in itertools.product(*map(range, y.shape)):
        at = dict(zip(names, index, strict=True))

        def element(name: str, at: dict[str, int] = at) -> Tensor:
            """Return the element of a value; an axis of size 1 has the index 0."""
            return values[name][tuple(at.get(label, 0) for label in labels[name])]

        if "1" not in [*types["x"], *types["z"]]:
            torch.testing.assert_close(y[index], element("x") - 2 * element("z"))
    if "1" in [*types["x"], *types["z"]] and "T+1" not in result:
        torch.testing.assert_close(y, values["x"] - 2 * values["z"])


@pytest.mark.parametrize(
    ("formula", "inputs", "result"),
    [
        ("x == 3", {"x": "ids:9[B T]"}, "mask[B T]"),
        ("m and x != 0", {"m": "mask[B T]", "x": "ids:9[B T]"}, "mask[B T]"),
        ("x * 0 + 4", {"x": "ids:9[B T]"}, "ids:5[B T]"),
        ("x + 2 * z", {"x": "ids:9[B T]", "z": "ids:4[B T]"}, "ids:15[B T]"),
        ("(x * 7919 + z) % 97", {"x": "ids:9[B T]", "z": "ids:4[B T]"}, "ids:97[B T]"),
        ("x % 20", {"x": "ids:9[B T]"}, "ids:9[B T]"),
        ("x // 4", {"x": "ids:9[B T]"}, "ids:3[B T]"),
        ("max(x - 3, 0)", {"x": "ids:9[B T]"}, "ids:6[B T]"),
        ("abs(x - 3)", {"x": "ids:9[B T]"}, "ids:6[B T]"),
        ("min(x, 3) ** 2", {"x": "ids:9[B T]"}, "ids:10[B T]"),
        ("where(x == 8, 20, x)", {"x": "ids:9[B T]"}, "ids:21[B T]"),
        ("relu(3 - x)", {"x": "ids:9[B T]"}, "ids:4[B T]"),
        ("-(0 - x)", {"x": "ids:9[B T]"}, "ids:9[B T]"),
        ("x / 2", {"x": "ids:9[B T]"}, "f[B T]"),
        ("x + 0.5", {"x": "ids:9[B T]"}, "f[B T]"),
        ("x + z", {"x": "bias[B T]", "z": "bias[B T]"}, "bias[B T]"),
        ("x + z", {"x": "f[B T T]", "z": "f[B T T]"}, "f[B T T]"),
        ("x * z", {"x": "f[B T T]", "z": "f[]"}, "f[B T T]"),
        ("where(m, 0, -inf)", {"m": "mask[B T]"}, "f[B T]"),
        ("x + z", {"x": "len[B]", "z": "len[B]"}, "len[B]"),
    ],
)
def test_the_kind_and_the_size_follow_from_the_formula(
    formula: str, inputs: dict[str, str], result: str
) -> None:
    """Sizes are worked out by hand: one more than the largest value."""
    assert type_of(spec_of(formula, inputs)) == result


@pytest.mark.parametrize(
    ("formula", "size"), [("(x * 7 + 3) % 11", 9), ("abs(x - 5) // 2", 9), ("max(3, x) * 2", 9)]
)
def test_ids_stay_below_the_size_of_their_type(formula: str, size: int) -> None:
    """Every value of the input gives a value below the size; the largest gives the bound."""
    spec = spec_of(formula, {"x": f"ids:{size}[B T]"})

    y = computed(spec, x=torch.arange(size)[None])

    bound = int(type_of(spec).partition(":")[2].partition("[")[0])
    assert 0 <= int(y.min()) <= int(y.max()) < bound


@pytest.mark.parametrize(
    ("formula", "inputs", "params", "code", "text"),
    [
        ("x +", {"x": "f[B T]"}, {}, "P01", "ends too early"),
        ("square(x)", {"x": "f[B T]"}, {}, "P01", "the only functions are"),
        ("x.real", {"x": "f[B T]"}, {}, "P01", "'.' is not allowed"),
        ("x + 2 / (1 - 1)", {"x": "f[B T]"}, {}, "P01", "divides by zero"),
        ("2 + 3", {"x": "f[B T]"}, {}, "P01", "reads no port"),
        ("x + 1", {"x": "f[B T]"}, {"values": {"by": 2}}, "P01", "does not read"),
        ("x + 1", {"x": "f[B T]"}, {"axes": {"z": "b t"}}, "P01", "does not read"),
        ("x + z", {"x": "f[B T]", "z": "f[B T]"}, {"axes": {"x": "b t"}}, "P01", "lacks 'z'"),
        ("x + z", {"x": "f[B T]"}, {}, "W01", "port 'z'"),
        ("x", {"x": "f[B T]", "z": "f[B T]"}, {}, "N03", "no port 'z'"),
        ("x + z", {"x": "f[B T 5]", "z": "f[B T 6]"}, {}, "T03", "an axis of 'z' is 6"),
        ("x + m", {"x": "f[B T]", "m": "mask[B T]"}, {}, "T02", "'+' needs a number"),
        ("where(x, x, 0)", {"x": "f[B T]"}, {}, "T02", "'where' needs a condition"),
        ("not x", {"x": "ids:5[B T]"}, {}, "T02", "'not' needs a condition"),
        ("x - 1", {"x": "ids:5[B T]"}, {}, "T03", "may be negative"),
        ("x + z", {"x": "ids:5[B]", "z": "len[B]"}, {}, "T03", "no largest value"),
        ("x > 0", {"x": "f[B T]"}, {"kind": "bias"}, "T02", "is a condition"),
        ("x * 0.5", {"x": "f[B T]"}, {"kind": "label"}, "T02", "is not an integer"),
        ("x + z", {"x": "f[B T T]", "z": "f[B T]"}, {}, "T03", "T occurs 2 times"),
        ("x + z", {"x": "f[B T S]", "z": "f[B S T]"}, {}, "T03", "contradictory orders"),
        ("x + z", {"x": "f[B T 5]", "z": "f[B 1]"}, {}, "T04", "fits no axis"),
        (
            "x + z",
            {"x": "f[B T]", "z": "f[B T]"},
            {"axes": {"x": "b t", "z": "b"}},
            "T04",
            "names 1 axes",
        ),
        (
            "x + z",
            {"x": "f[B T]", "z": "f[B S]"},
            {"axes": {"x": "b t", "z": "b t"}},
            "T03",
            "'t' is T in 'x' but S in 'z'",
        ),
    ],
)
def test_a_wrong_formula_is_found_at_its_place(
    formula: str, inputs: dict[str, str], params: dict[str, Any], code: str, text: str
) -> None:
    """Each mistake has its code, names what is wrong, and says a way out."""
    findings = findings_of(spec_of(formula, inputs, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence])
    assert "/nodes/node" in finding.at
