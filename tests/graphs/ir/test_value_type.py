"""Tests of value types: a port takes a value exactly if its names can be bound to the axes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.graphs.ir.value_type import (
    KINDS,
    SIZED,
    Axis,
    Misfit,
    TypeTextError,
    ValueType,
    fit,
    free_names,
    parse_type,
    substitute,
)

NAMES = ["a", "b", "c"]
RIGID = st.one_of(st.sampled_from(["B", "S", "T"]), st.integers(1, 5))
KIND = st.sampled_from(["f", "mask", "ids", "logits"])


@st.composite
def types(draw: st.DrawFn, *, ports: bool) -> ValueType:
    """Draw a value's type, or a port's with names and possibly leading dots."""
    axis: st.SearchStrategy[Axis] = RIGID | st.sampled_from(NAMES) if ports else RIGID
    kind = draw(KIND)
    axes = tuple(draw(st.lists(axis, max_size=4)))
    dots = ("...",) if ports and draw(st.booleans()) else ()
    return ValueType(kind, dots + axes, draw(axis) if kind in SIZED else None)


@given(types(ports=True), types(ports=False))
def test_matching_binds_the_names_of_the_port(wanted: ValueType, given_: ValueType) -> None:
    """Substituting the bindings into the port gives the value's type."""
    learnt = fit(wanted, given_, {}, {})
    if isinstance(learnt, Misfit):
        return

    assert substitute(wanted, learnt) == given_
    assert learnt.keys() == free_names(wanted)


@given(types(ports=False), types(ports=False))
def test_without_names_only_equal_types_fit(wanted: ValueType, given_: ValueType) -> None:
    """A graph axis equals only itself, and never a number."""
    assert isinstance(fit(wanted, given_, {}, {}), Misfit) == (wanted != given_)


@given(types(ports=True), types(ports=False))
def test_matching_again_adds_no_bindings(wanted: ValueType, given_: ValueType) -> None:
    """A second match adds no bindings."""
    learnt = fit(wanted, given_, {}, {})
    if isinstance(learnt, Misfit):
        return

    assert fit(wanted, given_, learnt, {}) == learnt


@given(types(ports=True), types(ports=True), st.data())
def test_fitting_only_adds(a: ValueType, b: ValueType, data: st.DataObject) -> None:
    """A second wire changes no earlier binding, even if it fails."""
    bound = {name: data.draw(RIGID) for name in NAMES} | {"...": ()}
    first = fit(a, substitute(a, bound), {}, {})
    assert not isinstance(first, Misfit)
    before = dict(first)

    second = fit(b, substitute(b, bound), first, {})
    failed = fit(b, ValueType("len", ("B",)), first, {})

    assert first == before
    assert not isinstance(second, Misfit)
    assert second.items() >= before.items()
    assert isinstance(failed, Misfit)


@given(types(ports=True), st.data())
def test_every_filling_of_a_port_fits(wanted: ValueType, data: st.DataObject) -> None:
    """A value built from chosen bindings fits, and the bindings are found."""
    bound = {name: data.draw(RIGID) for name in NAMES}
    bound["..."] = tuple(data.draw(st.lists(RIGID, max_size=3)))

    learnt = fit(wanted, substitute(wanted, bound), {}, {})

    assert learnt == {name: bound[name] for name in free_names(wanted)}


@given(types(ports=True), types(ports=False))
def test_swapping_the_names_of_axes_has_no_effect(wanted: ValueType, given_: ValueType) -> None:
    """Swapping two graph axes on both sides changes no result."""
    swap = {"S": "T", "T": "S"}

    def swapped(type_: ValueType) -> ValueType:
        return substitute(type_, swap)

    one, other = fit(wanted, given_, {}, {}), fit(swapped(wanted), swapped(given_), {}, {})

    assert isinstance(one, Misfit) == isinstance(other, Misfit)


@pytest.mark.parametrize(
    ("wanted", "given_", "code", "problem"),
    [
        ("f[b t 8]", "mask[B T]", "T02", "kind is mask, not f"),
        ("f[b t]", "f[B T 8]", "T04", "3 axes, not 2"),
        ("f[... a b]", "f[B]", "T04", "1 axes, not 3"),
        ("f[b 8]", "f[B 9]", "T03", "axis is 8 but 9"),
        ("f[b T]", "f[B S]", "T03", "axis is T but S"),
        ("f[a a]", "f[B T]", "T03", "axis 'a' is B but T"),
        ("ids:100[b]", "ids:101[B]", "T03", "size is 100 but 101"),
    ],
)
def test_a_misfit_names_both_sides(wanted: str, given_: str, code: str, problem: str) -> None:
    """Code and message for each way in which a value does not fit."""
    misfit = fit(parse_type(wanted, {})[0], parse_type(given_, {})[0], {}, {})

    assert isinstance(misfit, Misfit)
    assert (misfit.code, misfit.problem) == (code, problem)


def test_a_settled_name_says_where_it_comes_from() -> None:
    """The message names the port that bound the name."""
    misfit = fit(
        ValueType("mask", ("b", "s")),
        ValueType("mask", ("B", "S")),
        {"b": "B", "s": "T"},
        {"s": "x"},
    )

    assert misfit == Misfit(
        "T03", "axis 's' is T (from 'x') but S", "mask[b s] where b is B, s is T here"
    )


def test_leading_axes_agree_between_ports() -> None:
    """Two ports with dots must have the same leading axes."""
    wanted = parse_type("f[... d]", {})[0]
    bound = fit(wanted, parse_type("f[B T 8]", {})[0], {}, {})
    assert not isinstance(bound, Misfit)

    misfit = fit(wanted, parse_type("f[B S 8]", {})[0], bound, {"...": "x"})

    assert isinstance(misfit, Misfit)
    assert misfit.problem == "leading axes are [B S], not [B T] (from 'x')"
    assert misfit.detail == "f[... d] where ... is [B T], d is 8 here"


PARAMS = {"d_model": 512, "heads": 8, "half": 0.5, "word": "pre"}
AXES = {"B": "batch", "T": "time"}


@pytest.mark.parametrize(
    ("text", "type_", "optional"),
    [
        ("f[B T d_model]", ValueType("f", ("B", "T", 512)), False),
        ("f[B 4*d_model]", ValueType("f", ("B", 2048)), False),
        ("f[d_model/heads]", ValueType("f", (64,)), False),
        ("f[B min(d_model,64)]", ValueType("f", ("B", 64)), False),
        ("f[ceil(d_model/100)]", ValueType("f", (6,)), False),
        ("ids:heads[B]", ValueType("ids", ("B",), 8), False),
        ("logits: heads*2 [B]", ValueType("logits", ("B",), 16), False),
        ("mask[b s]?", ValueType("mask", ("b", "s")), True),
        (" score[] ", ValueType("score", ()), False),
        ("f[... d]", ValueType("f", ("...", "d")), False),
    ],
)
def test_a_type_is_read(text: str, type_: ValueType, optional: bool) -> None:
    """Params and expressions are evaluated, other lower-case words are free."""
    assert parse_type(text, PARAMS, AXES) == (type_, optional)


@given(types(ports=True), st.booleans())
def test_a_type_that_is_written_is_read_back(type_: ValueType, optional: bool) -> None:
    """The text of a type parses to the same type."""
    assert parse_type(f"{type_}{'?' * optional}", {}) == (type_, optional)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "T01"),
        ("f", "T01"),
        ("f[B", "T01"),
        ("f[B]]", "T01"),
        ("f[[B]]", "T01"),
        ("g[B]", "T01"),
        ("f:8[B]", "T01"),
        ("ids[B]", "T01"),
        ("ids:[B]", "T01"),
        ("f[0]", "T01"),
        ("f[-1]", "T01"),
        ("f[half]", "T01"),
        ("f[word]", "T01"),
        ("f[1/0]", "T01"),
        ("f[T+]", "T01"),
        ("f[B ... d]", "T01"),
        ("f[... ...]", "T01"),
        ("f[B]??", "T01"),
        ("f[B Q]", "N05"),
        ("ids:Q[B]", "N05"),
    ],
)
def test_an_invalid_type_is_refused(text: str, code: str) -> None:
    """With the code of its finding."""
    with pytest.raises(TypeTextError) as error:
        parse_type(text, PARAMS, AXES)

    assert error.value.code == code


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_written(kind: str) -> None:
    """With its size, if it has one."""
    text = f"{kind}:7[B]" if kind in SIZED else f"{kind}[B]"

    assert str(parse_type(text, {})[0]) == text


@pytest.mark.integration
@given(st.text(max_size=20))
def test_any_text_is_a_type_or_a_type_error(text: str) -> None:
    """The parser of types raises no other exception."""
    with contextlib.suppress(TypeTextError):
        parse_type(text, PARAMS, AXES)
