"""`Spec`, the loaded spec that `weft.load` returns; no torch."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...blocks.registry import registry
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.canonical import canonical
from ...graphs.ir.graph import Graph
from ...specs.files import write_beside
from ...specs.findings import InputError, SpecError
from ...specs.load import LoadedSpec
from ...specs.load import load as load_file
from .check import analysed, findings_html, graph_of, listed, note_html
from .variants import lora, swap


@dataclass(frozen=True, slots=True, repr=False)
class Spec(LoadedSpec):
    """A loaded spec with its overrides; notebooks show its picture, or its errors."""

    written: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The variant as file contents, if `swap` or `lora` made it; otherwise empty."""

    @property
    def name(self) -> str:
        """The name that the spec gives itself."""
        return self.form.name

    def graph(self) -> Graph:
        """Return the graph: the nodes of the checked spec with the types of all values.

        Raises:
            SpecError: the spec has errors; all of them are listed.
        """
        return graph_of(self)

    def save(self, path: str | Path) -> Path:
        """Write the spec as one file that needs no other, as `weft expand` prints it.

        Overrides are applied, and parents and patches are resolved.

        Args:
            path: the file, such as `model.json`; an older one is replaced.

        Raises:
            InputError: the file cannot be written.
            SpecError: the spec has errors; all of them are listed.
        """
        text = json.dumps(canonical(self.graph()), indent=2, ensure_ascii=False) + "\n"
        write_beside(Path(path), text.encode(), "spec")
        return Path(path)

    def __repr__(self) -> str:
        """Return name, file, overrides, and the number of parameters or of errors."""
        settings = [f"{name}={value!r:.40}" for name, value in self.overrides.items()]
        try:
            graph, findings = analysed(self)
        except InputError as error:
            state = error.problem
        else:
            count = f"{len(findings)} error{'s' * (len(findings) > 1)}"
            state = count if graph is None else f"{graph.parameters():,} parameters"
        head = " ".join([f"<Spec {self.name}", f"from {self.source!r}", *settings])
        return f"{head}: {state}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return the figure for notebooks; if there is none, the errors or the reason."""
        # Loading a spec does not need the code that draws it.
        from ...graphs.draw.diagram import figure, sketch  # noqa: PLC0415
        from ...graphs.draw.render import svg_of  # noqa: PLC0415

        bundle = {"text/plain": repr(self)}
        try:
            bundle["image/svg+xml"] = svg_of(figure(*sketch(graph_of(self), style="paper")))
        except SpecError as error:
            bundle["text/html"] = findings_html(error.findings)
        except InputError as error:
            bundle["text/html"] = note_html(f"{bundle['text/plain']}: {error.problem}")
        return bundle

    def swap(self, select: str, use: str, /, **params: Any) -> Spec:
        """Return a variant with the selected blocks replaced; this spec does not change.

        Args:
            select: blocks to replace: a path with `*` and `**`, and `[key=value]`.
            use: the replacement block, such as `linear_attention@1`.
            **params: params of the new block; params that both blocks have keep their values.

        Raises:
            InputError: the selection cannot be read, or selects other things than blocks.
            SpecError: the selection matches nothing, or the variant is invalid.

        >>> spec = load("transformer-base")
        >>> gqa = spec.swap("decoder.**[use=attention@1]", "attention@1", kv_heads=2)
        >>> len(gqa.written["patch"])
        1
        """
        swapped = swap(self, select, use, params)
        loaded = swapped.spec
        return _spec(loaded, loaded.blocks, swapped.child)

    def lora(
        self, select: str, /, *, rank: int, alpha: float = 16.0, maps: Collection[str] = ()
    ) -> Spec:
        """Return a variant with low-rank matrices in linear maps; this spec does not change.

        Args:
            select: blocks with linear maps: a path with `*` and `**`, and `[key=value]`.
            rank: rank of the matrices.
            alpha: scale; their product is multiplied by alpha / rank.
            maps: linear maps of these blocks; all by default.

        Raises:
            SpecError: the selection matches nothing, or a block has no such linear maps.

        Source: Hu et al. 2022, section 4.1.

        >>> spec = load("gpt2").lora("**[use=attention@1]", rank=8, maps=["query", "value"])
        >>> spec.graph().parameters() - load("gpt2").graph().parameters()
        294912
        """
        variant = lora(self, select, rank, alpha, maps)
        return _spec(variant.spec, variant.spec.blocks, variant.child)


def load(name: str | Path, /, *, blocks: Iterable[BlockType] = (), **params: Any) -> Spec:
    """Read a spec file or a shipped spec; imports no torch.

    Args:
        name: a path, or a shipped name such as `transformer-base`.
        blocks: block types that the spec may use besides the installed ones; the spec keeps
            them, so that later calls need not repeat them.
        **params: values that override the spec's own params.

    Raises:
        InputError: the file does not exist, or `blocks` cannot be used.
        SpecError: the file is not valid JSON or does not have the form of a spec; the error then
            contains all findings.
    """
    if not isinstance(name, str | Path):
        raise InputError(
            f"an object of type {type(name).__name__} is not the name of a spec",
            location="name",
            help="pass the path of a spec file, or a shipped name such as 'transformer-base'",
        )
    added = listed(blocks)
    registry(added)
    loaded = load_file(name, params)
    if loaded.mistakes:
        raise SpecError(analysed(loaded, added)[1])
    return _spec(loaded, added)


def _spec(loaded: LoadedSpec, blocks: tuple[BlockType, ...], written: Any = None) -> Spec:
    parts = loaded.form, loaded.source, loaded.overrides, loaded.origins
    return Spec(*parts, written or {}, blocks=blocks)
