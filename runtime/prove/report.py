"""The outcome of a proof: one `Property` for each property, together a `Proof`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Name = Literal[
    "steps",
    "causality",
    "padding",
    "compiled",
    "unpadded",
    "saved",
    "gradients",
    "predictions",
]
PROPERTIES: Mapping[str, str] = {
    "steps": "decoding step by step gives the outputs of the parallel pass",
    "causality": "inputs at later positions of the step axis change no earlier output",
    "padding": "neither the values nor the amount of padding change an output elsewhere",
    "compiled": "the model compiled by weft.compile equals the eager model",
    "unpadded": "the model changed by weft.unpad equals the padded model",
    "saved": "a checkpoint of the model opens and computes the same",
    "gradients": "a finite gradient that is not zero reaches every parameter",
    "predictions": "the predictor of a run answers, and the reopened checkpoint answers the same",
}
"""Name of each property to what it says, in the order in which they are tested."""
FLOAT32 = 1e-4
"""Differences below this one may come from float32 arithmetic inside blocks."""
Outcome = Literal["passed", "failed", "does not apply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """The outcome for one property."""

    name: Name
    outcome: Outcome
    detail: str
    """What was compared; why it failed; or why the property does not apply."""
    difference: float | None = None
    """Largest difference, relative to the largest expected value, or absolute if that is below 1;
    None if no values were compared."""
    tolerance: float | None = None
    """Largest difference that passes."""
    location: str = ""
    """Output, input or parameter where it failed, with the position of the largest difference."""
    node: str = ""
    """First node, in the order of execution, whose values differ; empty if none was found."""
    notes: tuple[str, ...] = ()
    """What was not tested, and anything else worth knowing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The outcome of `weft.prove`."""

    spec: str
    """Name of the spec."""
    parameters: int
    """Number of parameters of the model."""
    sizes: Mapping[str, int]
    """Size of each axis of the inputs."""
    seed: int
    """Seed of the weights and the inputs."""
    properties: tuple[Property, ...]
    """The tested properties, in order."""
    skipped: tuple[str, ...] = ()
    """Names of the properties that were not requested."""

    @property
    def passed(self) -> bool:
        """Whether no property failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[Property, ...]:
        """The properties that failed."""
        return tuple(prop for prop in self.properties if prop.outcome == "failed")

    def __getitem__(self, name: str) -> Property:
        """Return the outcome for one property.

        Raises:
            KeyError: it was not tested.
        """
        for prop in self.properties:
            if prop.name == name:
                return prop
        raise KeyError(name)

    def render(self) -> str:
        """Return the report as text: one row for each property, then the failures and notes."""
        sizes = " ".join(f"{axis}={size}" for axis, size in self.sizes.items())
        head = f"{self.spec}: {self.parameters:,} parameters, float64 on the CPU, {sizes}"
        rows = [("property", "outcome", "difference", "tolerance", "")]
        rows += [
            (
                prop.name,
                prop.outcome,
                _number(prop.difference),
                _number(prop.tolerance),
                prop.detail,
            )
            for prop in self.properties
        ]
        lines = [f"{head}, seed {self.seed}", "", *_columns(rows)]
        if self.skipped:
            lines += ["", f"not requested: {', '.join(self.skipped)}"]
        for prop in self.properties:
            lines += [f"note ({prop.name}): {note}" for note in prop.notes]
        for failure in self.failed:
            lines += ["", f"failed: {PROPERTIES[failure.name]}", f"  {failure.detail}"]
            lines += [f"  place  {failure.location}"] if failure.location else []
            lines += (
                [f"  node   {failure.node}, the first whose values differ"] if failure.node else []
            )
            if failure.difference is not None and failure.difference < FLOAT32:
                lines.append(
                    f"  help: if blocks compute in float32 inside, use --tolerance {FLOAT32}"
                )
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "spec": self.spec,
            "passed": self.passed,
            "parameters": self.parameters,
            "sizes": dict(self.sizes),
            "seed": self.seed,
            "properties": [_plain(prop) for prop in self.properties],
            "skipped": list(self.skipped),
        }

    def __repr__(self) -> str:
        """Return the name of the spec and the outcome of each property."""
        outcomes = ", ".join(f"{prop.name} {prop.outcome}" for prop in self.properties)
        return f"<Proof {self.spec}: {outcomes}>"


def _plain(prop: Property) -> dict[str, Any]:
    """Return a property as JSON data, in which an infinite difference is a string."""
    record = asdict(prop) | {"notes": list(prop.notes)}
    if prop.difference in (float("inf"),):
        record["difference"] = "inf"
    return record


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}" if value else "0"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return aligned lines with a rule below the header; the last column is not padded."""
    width = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    lines = [
        "  ".join([*(c.ljust(w) for c, w in zip(row, width, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:]]
