"""Tools for agents that write architectures, over the Model Context Protocol; no torch.

They answer with the same functions as editors, and write no file but the one that a call names.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, ParamSpec, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from ... import load
from ...graphs.draw.diagram import draw
from ...plugin import (
    DOCUMENTS,
    Finding,
    Graph,
    canonical,
    described_block,
    render,
    render_weights,
    shipped_lines,
    write_beside,
)
from ...runtime.codegen.module import lower
from ...runtime.spec.check import explanation
from ...runtime.spec.fixing import fixed
from ...specs.findings import SpecError, WeftError
from ...specs.reader import LARGEST, SHIPPED, find, read_text
from .language.document import document, forget

INSTRUCTIONS = """\
Weft composes sequence models out of typed blocks, wired by JSON specs. Write a spec or a variant,
`check` it, repair it by its findings (each has a place, both sides and a way out), `show` its
types, and `draw` it. `blocks` tells what can be used; shipped specs such as transformer-base can
be named wherever a file can. Axes are letters: f[B T 512] is a float of batch, time and 512."""

View = Literal["nodes", "weights", "code", "expanded"]
_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")


class Agents:
    """What the tools may do: read files of a folder and shipped ones, and write the named ones."""

    def __init__(self, folder: Path) -> None:
        """Serve a folder."""
        self.folder = folder.resolve()

    def check(self, spec: str, text: str = "") -> dict[str, Any]:
        """Check a spec, an objective, a variant, a run or a study; report every mistake.

        Args:
            spec: its file, or the name of a shipped one.
            text: what to check in place of the file, which need not exist; empty: the file.
        """
        path, text = self._read(spec, text)
        doc = document(text, path)
        findings = [finding.as_json() for finding in doc.explored.findings]
        return {"valid": doc.valid, "findings": findings}

    def fix(self, spec: str, text: str = "", *, write: bool = False) -> dict[str, Any]:
        """Correct what can only have been meant in one way, such as a misspelled name.

        Args:
            spec: its file, or the name of a shipped one.
            text: what to correct in place of the file.
            write: write the result into the file; otherwise only return it.
        """
        path, text = self._read(spec, text)
        target = self._writable(spec, replace=True) if write else None

        def findings_in(changed: str) -> list[Finding]:
            return document(changed, path).explored.findings

        correction = fixed(text, findings_in, path)
        if target is not None:
            write_beside(target, correction.text.encode(), "file")
            forget()
        return {
            "text": correction.text,
            "fixed": [finding.as_json() for finding in correction.applied],
            "findings": [finding.as_json() for finding in correction.remaining],
        }

    def show(self, spec: str, text: str = "", view: View = "nodes") -> str:
        """Print a valid spec: its nodes with types and sizes, weights, code, or all defaults.

        Args:
            spec: its file, or the name of a shipped one.
            text: what to show in place of the file.
            view: nodes; weights with their paths and shapes; the Python that computes it; or the
                spec with every default and inherited value.
        """
        graph = self._graph(spec, text)
        if view == "weights":
            return render_weights(graph)
        if view == "expanded":
            return json.dumps(canonical(graph), indent=2, ensure_ascii=False)
        if view == "code":
            return lower(graph).source
        return render(graph)

    def draw(self, spec: str, text: str = "", out: str = "") -> Image | str:
        """Draw a valid spec as a picture.

        Args:
            spec: its file, or the name of a shipped one.
            text: what to draw in place of the file.
            out: file to write: .svg, .png, .pdf, .dot, .tex or .html; without one, the answer is a
                picture.
        """
        graph = self._graph(spec, text)
        if out:
            return str(draw(graph, self._writable(out), "folded"))
        with TemporaryDirectory() as folder:
            path = Path(folder) / "picture.png"
            draw(graph, path, "folded")
            return Image(data=path.read_bytes(), format="png")

    def blocks(self, name: str = "") -> Any:
        """Describe a block: ports, params, slots, source, weights and an example of its use.

        Args:
            name: a block, such as attention@1; without one, every block with one line about it.
        """
        return described_block(name) if name else shipped_lines("blocks")

    def swap(
        self, spec: str, select: str, use: str, params: dict[str, Any] | None = None, out: str = ""
    ) -> dict[str, Any]:
        """Make a variant of a spec with some blocks replaced; an invalid one is an error.

        Args:
            spec: its file, or the name of a shipped one.
            select: nodes to replace: a path with * and **, and [key=value], such as
                decoder.**[use=attention@1].
            use: the replacement block, such as attention@1.
            params: params of the new block.
            out: new file to write; without one, the variant is only returned.
        """
        target = self._writable(out) if out else None
        variant = load(self._found(spec)).swap(select, use, **(params or {}))
        if target is not None:
            variant.save(target)
        return {"spec": variant.written, "parameters": variant.graph().parameters()}

    def explain(self, code: str) -> str:
        """Tell what the code of a finding, such as T03, means.

        Args:
            code: the code.
        """
        return explanation(code)

    def _graph(self, spec: str, text: str) -> Graph:
        """Return the graph of a valid spec.

        Raises:
            SpecError: it has mistakes.
            ToolError: it is a run or a study.
        """
        path, text = self._read(spec, text)
        doc = document(text, path)
        if errors := [finding for finding in doc.explored.findings if finding.level == "error"]:
            raise SpecError(errors)
        if doc.graph is None:
            raise ToolError(f"{spec} is not a spec of a model or an objective")
        return doc.graph

    def _found(self, spec: str) -> Path:
        """Return the path of a file in the folder, or of a shipped one.

        Raises:
            ToolError: there is none.
        """
        folders = [folder for kind in DOCUMENTS.forms().values() for folder in kind.folders]
        inside = self.folder / spec
        path = inside if inside.is_file() else find(spec, *folders)
        return self._inside(path)

    def _inside(self, path: Path) -> Path:
        """Return a path, if it lies in the folder or is shipped."""
        resolved = path.resolve()
        if not (resolved.is_relative_to(self.folder) or resolved.is_relative_to(SHIPPED)):
            raise ToolError(f"{path} is not in {self.folder}, and only files there can be named")
        return resolved

    def _read(self, spec: str, text: str) -> tuple[str, str]:
        """Return the path of a file, and its text or the one that stands for it."""
        if not text:
            path = self._found(spec)
            return str(path), read_text(path)
        if len(text) > LARGEST:
            raise ToolError(f"the text has {len(text):,} characters, and at most {LARGEST:,} fit")
        return str(self._inside(self.folder / spec)), text

    def _writable(self, name: str, *, replace: bool = False) -> Path:
        """Return the path of a file to write, which is new unless it is to be replaced.

        Raises:
            ToolError: it lies outside of the folder, exists, or does not exist.
        """
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder) or path.is_relative_to(SHIPPED):
            raise ToolError(f"{name} is not in {self.folder}, and only files there are written")
        if path.exists() and not replace:
            raise ToolError(f"{name} exists; name a new file")
        if replace and not path.is_file():
            raise ToolError(f"{name} does not exist in {self.folder}; write it first")
        return path


def _answering(tool: Callable[_Parameters, _Answer]) -> Callable[_Parameters, _Answer]:
    """Return a tool that answers a mistake of its caller with the place and the way out."""

    @functools.wraps(tool)
    def answer(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Answer:
        try:
            return tool(*args, **kwargs)
        except WeftError as error:
            raise ToolError(str(error)) from error

    return answer


def server(folder: Path) -> MCPServer:
    """Return a server of the tools, for the files of a folder."""
    agents, tools = Agents(folder), MCPServer("weft", instructions=INSTRUCTIONS)
    reading = ToolAnnotations(read_only_hint=True)
    writing = ToolAnnotations(destructive_hint=False)
    functions: dict[Callable[..., Any], ToolAnnotations] = {
        agents.check: reading,
        agents.show: reading,
        agents.blocks: reading,
        agents.explain: reading,
        agents.fix: writing,
        agents.draw: writing,
        agents.swap: writing,
    }
    for function, hints in functions.items():
        tools.tool(annotations=hints)(_answering(function))
    return tools
