"""Kinds of JSON files that `weft check`, `weft schema` and editors know.

Packages add kinds through the entry-point group `weft.documents`; `specs.form.kind_of` tells which
kind a file is of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from ....blocks.registry import registry
from ....graphs.advice import advise
from ....graphs.ir.canonical import fingerprint
from ....graphs.json_schema import schema
from ....graphs.passes.objective import deployed_graph, reported_losses
from ....specs.findings import Finding
from ....specs.json_tree import Source
from ....specs.load import FOLDERS, load_as
from ....specs.reader import RUN_FOLDER
from ...spec.check import analysed, warnings_of
from ...system.plugins import Plugins

if TYPE_CHECKING:
    from ...train.plan import RunPlan


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """What a check of a file found."""

    findings: list[Finding]
    summary: str = ""
    """The outcome as text, if there is no error."""
    fingerprint: str = ""
    """Digest of the graph, if the file has one and there is no error."""
    plan: RunPlan | None = None
    """The plan of a run, as far as it can be read."""


class FileKind(BaseModel):
    """Base class of a kind of file."""

    folders: ClassVar[tuple[str, ...]] = ()
    """Folders of `specs/` with the files that Weft ships."""

    @abstractmethod
    def check(
        self, value: Any, source: Source, overrides: Mapping[str, Any] | None = None
    ) -> CheckedDocument:
        """Check the JSON value of a file.

        Args:
            value: the value.
            source: name of the file with its text.
            overrides: values by dotted path.

        Raises:
            SpecError: the value has mistakes, after which nothing else can be checked.
            InputError: a file that it names cannot be read.
        """

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of files of this kind."""


class SpecDocument(FileKind):
    """A spec of a model or an objective, or one that extends another."""

    folders: ClassVar[tuple[str, ...]] = tuple(FOLDERS)

    def check(
        self, value: Any, source: Source, overrides: Mapping[str, Any] | None = None
    ) -> CheckedDocument:
        """Check a spec; no torch."""
        loaded = load_as(value, source, overrides)
        graph, findings = analysed(loaded)
        if graph is None:
            return CheckedDocument(findings)
        decodes = f", decodes along {graph.step_axis}" if graph.step_axis else ""
        summary = f"{graph.name}: valid; {graph.parameters():,} parameters{decodes}"
        return CheckedDocument(warnings_of(loaded, graph), summary, fingerprint(graph))

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema with the installed blocks."""
        return schema(registry())


class RunDocument(FileKind):
    """A run: an objective, its data, and how it trains."""

    folders: ClassVar[tuple[str, ...]] = (RUN_FOLDER,)

    def check(
        self, value: Any, source: Source, overrides: Mapping[str, Any] | None = None
    ) -> CheckedDocument:
        """Check a run."""
        from ...train.plan import plan_value

        plan = plan_value(value, source, overrides)
        run, graph = plan.run, plan.graph
        if run is None or graph is None or plan.errors:
            return CheckedDocument(plan.findings, plan=plan)
        losses = ", ".join(reported_losses(graph).values())
        summary = (
            f"{run.name}: valid; trains {deployed_graph(graph).name} with '{graph.name}' ({losses};"
            f" {graph.parameters():,} parameters) for {run.updates:,} updates"
        )
        return CheckedDocument([*plan.findings, *advise(graph)], summary, fingerprint(graph), plan)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema with the settings of installed packages."""
        from ...train.run import run_schema

        return run_schema()


DOCUMENTS: Plugins[FileKind] = Plugins(
    "kind of file",
    "weft.documents",
    FileKind,  # type: ignore[type-abstract]  # plug-ins are subclasses of it
    {"spec": ".documents:SpecDocument", "run": ".documents:RunDocument"},
    __package__,
)
"""All kinds by name, such as `DOCUMENTS.find("run")()`."""


def document_of(kind: str) -> FileKind:
    """Return a kind of file.

    Raises:
        InputError: it is unknown, or the package that adds it is broken.
    """
    return DOCUMENTS.find(kind)()
