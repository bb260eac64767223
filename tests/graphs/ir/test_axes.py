"""Tests of axes: linear arithmetic in a normal form, solved for one unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse, check
from weft.graphs.ir.value_type import (
    AxisError,
    Misfit,
    TypeTextError,
    axis_of,
    evaluate,
    fit,
    names_of,
    parse_type,
    replaced,
    solve,
    substitute,
    terms_of,
)
from weft.specs.load import loaded

TERMS = st.dictionaries(st.sampled_from(["", "S", "T", "U2"]), st.integers(-50, 50), max_size=4)
SIZES = {"S": 7, "T": 11, "U2": 13}


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("T", "T"),
        ("1+T", "T+1"),
        ("T+1+1", "T+2"),
        ("2*S", "2*S"),
        ("S+S", "2*S"),
        ("T-1+S", "S+T-1"),
        ("T-T+3", 3),
        ("-T+10", "-T+10"),
        ("T+2*3", "T+6"),
        ("2*3*T-2*5", "6*T-10"),
    ],
)
def test_one_axis_has_one_text(text: str, normal: str | int) -> None:
    """However it is written."""
    assert axis_of(terms_of(text)) == normal


@pytest.mark.parametrize(
    "text", ["", "+", "T+", "2T", "T*2", "T//2", "T T", "T**2", "T+2*", "T+(1)", "é"]
)
def test_a_nonlinear_axis_is_refused(text: str) -> None:
    """A quotient or power of an axis is not an axis."""
    with pytest.raises(AxisError):
        terms_of(text)


def test_too_large_expressions_are_refused() -> None:
    """Too many terms and too large factors are rejected."""
    with pytest.raises(AxisError):
        terms_of("+".join(f"A{i}" for i in range(9)))
    with pytest.raises(AxisError):
        terms_of("T+" + "9" * 90)
    with pytest.raises(AxisError):
        terms_of("T" + "+1" * 1000)


@given(TERMS)
def test_the_normal_form_reads_back(terms: dict[str, int]) -> None:
    """Text and terms are equivalent."""
    kept = {name: factor for name, factor in terms.items() if factor}
    axis = axis_of(terms)

    assert terms_of(axis) == kept
    assert names_of(axis) == kept.keys() - {""}
    assert evaluate(axis, SIZES) == sum(f * SIZES.get(n, 1) for n, f in terms.items())


@given(TERMS, TERMS, st.integers(1, 5))
def test_a_solved_size_fits(value: dict[str, int], rest: dict[str, int], factor: int) -> None:
    """If t is `value`, t is found again from the axis factor*t + rest."""
    wanted = axis_of({**rest, "t": factor})
    given_ = replaced(wanted, lambda name: axis_of(value) if name == "t" else None)

    assert solve(wanted, given_, "t") == axis_of(value)


def test_an_indivisible_axis_has_no_solution() -> None:
    """An axis has an integer number of positions."""
    assert solve("2*t", "2*T+1", "t") is None
    assert solve("T", "T", "t") is None


def fitted(wanted: str, given_: str) -> dict[str, object] | str:
    """Return the bindings of a port's names, or the reason why a value does not fit."""
    found = fit(parse_type(wanted, {})[0], parse_type(given_, {})[0], {}, {})
    return found.problem if isinstance(found, Misfit) else found


def test_a_port_with_arithmetic_is_solved() -> None:
    """`t+1` takes `T+1`, `T`, `2*S` and 5, but no axis that may be too short."""
    assert fitted("f[b t+1]", "f[B T+1]") == {"b": "B", "t": "T"}
    assert fitted("f[b t+1]", "f[B 2*S]") == {"b": "B", "t": "2*S-1"}
    assert fitted("f[t 2*t]", "f[S 2*S]") == {"t": "S"}
    assert fitted("f[2*t t]", "f[2*S S]") == {"t": "S"}
    assert fitted("f[t t+1]", "f[S T+1]") == "axis 't+1' is S+1 but T+1"
    assert fitted("f[2*t]", "f[T]") == "axis is '2*t' but T"
    assert fitted("f[T+1]", "f[T]") == "axis is T+1 but T"


def test_an_output_axis_is_written_in_names_of_the_graph() -> None:
    """The port's names are replaced by those of the graph."""
    type_ = parse_type("f[b t+2 d]", {})[0]

    assert str(substitute(type_, {"b": "B", "t": "S+T", "d": 8})) == "f[B S+T+2 8]"


def test_sizes_may_read_params_and_axes() -> None:
    """In a spec's own types; a size below one is rejected."""
    params, axes = {"frames": 2, "pad": 3}, {"B": "batch", "S": "time"}

    assert str(parse_type("f[B frames*S+pad 8]", {"frames": 1, "pad": 3}, axes)[0]) == "f[B S+3 8]"
    assert str(parse_type("f[B S+pad 8]", params, axes)[0]) == "f[B S+3 8]"
    assert str(parse_type("f[B S+frames*pad 8]", params, axes)[0]) == "f[B S+6 8]"
    with pytest.raises(TypeTextError, match="unknown axis 'U'"):
        parse_type("f[B U+1]", params, axes)
    with pytest.raises(TypeTextError, match="is 0, not a positive"):
        parse_type("f[B S-S]", params, axes)


SPEC = {
    "format": 1,
    "name": "classifier",
    "params": {"d": 8},
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T d]", "mask": "mask[B T]"},
    "outputs": {"y": "read.y"},
    "blocks": {
        "reader": {
            "inputs": {"x": "f[B T+1 d]", "mask": "mask[B T+1]"},
            "outputs": {"y": "read.y"},
            "nodes": {
                "read": {
                    "use": "attention@1",
                    "in": {"x": "x", "mask": "mask"},
                    "params": {"heads": 2},
                }
            },
        }
    },
    "nodes": {
        "start": {"use": "prepend@1", "in": {"x": "x", "mask": "mask"}},
        "read": {"use": "reader", "in": {"x": "start.y", "mask": "start.mask"}},
    },
}


def test_a_longer_axis_goes_through_a_graph() -> None:
    """A class token extends T to T+1, for the sequence and for its mask."""
    graph = check(loaded(SPEC).form, registry())

    assert str(graph.outputs["y"]) == "f[B T+1 8]"


def test_the_old_mask_does_not_fit_the_longer_sequence() -> None:
    """The finding names both axes."""
    nodes = {**SPEC["nodes"], "read": {"use": "reader", "in": {"x": "start.y", "mask": "mask"}}}
    graph, findings = analyse(loaded({**SPEC, "nodes": nodes}).form, registry())

    assert graph is None
    assert [(f.code, f.at) for f in findings] == [("T03", "/nodes/read/in/mask")]
    assert findings[0].problem == "axis is T+1 but T at port 'mask'"


def test_an_axis_takes_precedence_over_a_param_of_the_same_name() -> None:
    """`T+1` is not a number if `T` is an axis, even if a param is called T."""
    axes = {"B": "batch", "T": "time"}
    params = {"T": 5, "d": 8}

    assert parse_type("f[B T T+1 d+1]", params, axes)[0].axes == ("B", "T", "T+1", 9)


@pytest.mark.parametrize(
    ("given_", "fits"), [("f[6 8]", True), ("f[5 8]", False), ("f[3 8]", False)]
)
def test_an_axis_has_at_least_one_position(given_: str, fits: bool) -> None:
    """`t+5` of 6 is a `t` of 1; a `t` of 0 or -2 is not valid."""
    wanted, value = parse_type("f[t+5 8]", {})[0], parse_type(given_, {})[0]

    found = fit(wanted, value, {}, {})

    assert found == ({"t": 1} if fits else found)
    assert isinstance(found, Misfit) is not fits
