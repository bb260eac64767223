"""A language server over standard input and output, by the package pygls.

It translates between the Language Server Protocol and the engine of this folder.  Findings are
computed in a thread, one text at a time, because those of a run load PyTorch.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from ....plugin import InputError
from ....specs.layout import laid_out
from ....specs.text_edits import TextEdit, smallest_edit
from .completion import complete
from .definitions import FileRange, definition, references
from .document import document, forget
from .hover import hover
from .ours import is_ours
from .positions import Lines
from .problems import Problem, findings, fix_all
from .rename import Renaming, renamable, rename
from .schemas import schema_of
from .symbols import OutlineSymbol, symbols

_KINDS = {
    "key": lsp.CompletionItemKind.Property,
    "block": lsp.CompletionItemKind.Class,
    "template": lsp.CompletionItemKind.Interface,
    "param": lsp.CompletionItemKind.Variable,
    "value": lsp.CompletionItemKind.Value,
    "wire": lsp.CompletionItemKind.Field,
    "node": lsp.CompletionItemKind.Module,
    "axis": lsp.CompletionItemKind.Unit,
    "file": lsp.CompletionItemKind.File,
}
_SYMBOLS = {
    "section": lsp.SymbolKind.Namespace,
    "param": lsp.SymbolKind.Variable,
    "input": lsp.SymbolKind.Field,
    "output": lsp.SymbolKind.Field,
    "template": lsp.SymbolKind.Class,
    "node": lsp.SymbolKind.Object,
    "patch": lsp.SymbolKind.Event,
    "key": lsp.SymbolKind.Property,
}
_FIX_ALL = "source.fixAll"


class SpecServer(LanguageServer):
    """The server; its documents are those that the editor has open."""

    def __init__(self) -> None:
        """Create a server without documents."""
        super().__init__("weft", version("weft"))
        self.checking = ThreadPoolExecutor(1, "findings")
        self.files: tuple[str, ...] = ()
        """Patterns of the files that the settings of the editor name as Weft's."""

    def at(self, uri: str) -> Open:
        """Return an open document."""
        file = self.workspace.get_text_document(uri)
        encoding: Any = self.workspace.position_encoding
        path = file.path or "untitled.json"
        return Open(file.source, path, Lines(file.source, encoding or "utf-16"), file.version)

    def texts(self) -> dict[Path, str]:
        """Return the open documents, by the resolved paths of their files."""
        opened = self.workspace.text_documents.values()
        return {Path(file.path).resolve(): file.source for file in opened if file.path}

    def folders(self) -> list[Path]:
        """Return the folders that the editor has open."""
        inside = [to_fs_path(uri) for uri in self.workspace.folders]
        return [Path(path) for path in inside or [self.workspace.root_path] if path]

    def check(self, uri: str) -> None:
        """Publish the findings of a document when they are known, if it has not changed since."""
        opened, loop = self.at(uri), asyncio.get_running_loop()

        def publish(problems: list[Problem]) -> None:
            if self.at(uri).version == opened.version:
                diagnostics = [opened.diagnostic(problem) for problem in problems]
                params = lsp.PublishDiagnosticsParams(uri, diagnostics, version=opened.version)
                self.text_document_publish_diagnostics(params)

        def work() -> None:
            if self.at(uri).version == opened.version:
                value = document(opened.text, opened.path).root.json()
                ours = is_ours(value, opened.path, self.files)
                problems = findings(opened.text, opened.path) if ours else []
                loop.call_soon_threadsafe(publish, problems)

        self.checking.submit(work)


class Open:
    """The text of an open document, with its lines."""

    def __init__(self, text: str, path: str, lines: Lines, version_: int | None) -> None:
        """Store the text, the path of its file, its lines and its version."""
        self.text, self.path, self.lines, self.version = text, path, lines, version_

    def offset(self, position: lsp.Position) -> int:
        """Return the offset of a position."""
        return self.lines.offset(position.line, position.character)

    def range(self, start: int, end: int) -> lsp.Range:
        """Return a range of offsets as positions."""
        return range_of(self.lines, start, end)

    def diagnostic(self, problem: Problem) -> lsp.Diagnostic:
        """Return a finding as the protocol has it."""
        error = problem.severity == "error"
        return lsp.Diagnostic(
            self.range(problem.start, problem.end),
            problem.message,
            lsp.DiagnosticSeverity.Error if error else lsp.DiagnosticSeverity.Warning,
            code=problem.code or None,
            source="weft",
        )

    def edits(self, edits: Iterable[TextEdit]) -> list[lsp.TextEdit]:
        """Return edits as the protocol has them."""
        return [lsp.TextEdit(self.range(edit.start, edit.end), edit.new) for edit in edits]


def range_of(lines: Lines, start: int, end: int) -> lsp.Range:
    """Return a range of offsets in a text as positions."""
    first, last = lines.position(start), lines.position(end)
    return lsp.Range(lsp.Position(*first), lsp.Position(*last))


def serve() -> None:
    """Answer an editor until it says `exit` or closes the standard input."""
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # only messages of the protocol go to the standard output
    make_server().start_io(stdin, stdout)


def make_server() -> SpecServer:
    """Return a server with everything that it answers."""
    server = SpecServer()
    _texts(server)
    _looking(server)
    _changing(server)
    return server


def _texts(server: SpecServer) -> None:
    """Register what happens when texts and files change."""

    @server.feature(lsp.INITIALIZE)
    def settings(params: lsp.InitializeParams) -> None:
        options = params.initialization_options
        patterns = options.get("files") if isinstance(options, dict) else None
        if isinstance(patterns, list) and all(isinstance(pattern, str) for pattern in patterns):
            server.files = tuple(patterns)

    @server.feature(lsp.INITIALIZED)
    def ready(_: lsp.InitializedParams) -> None:
        server.checking.submit(schema_of, "spec")  # loads all blocks, before the first keystroke

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.check(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.check(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    async def saved(_: lsp.DidSaveTextDocumentParams) -> None:
        forget()  # another text may extend this one
        for uri in list(server.workspace.text_documents):
            server.check(uri)

    @server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def outside(_: lsp.DidChangeWatchedFilesParams) -> None:
        forget()
        for uri in list(server.workspace.text_documents):
            server.check(uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        none = lsp.PublishDiagnosticsParams(params.text_document.uri, [])
        server.text_document_publish_diagnostics(none)


def _looking(server: SpecServer) -> None:
    """Register the questions that change nothing."""

    @server.feature(
        lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=['"', ".", "=", " "])
    )
    def completion(params: lsp.CompletionParams) -> lsp.CompletionList:
        opened = server.at(params.text_document.uri)
        candidates, quote = complete(opened.text, opened.offset(params.position), opened.path), '"'
        items = [
            lsp.CompletionItem(
                label=item.label,
                kind=_KINDS[item.kind],
                detail=item.detail or None,
                documentation=lsp.MarkupContent(lsp.MarkupKind.Markdown, item.doc)
                if item.doc
                else None,
                sort_text=f"{item.rank}{index:04}",
                filter_text=quote * (opened.text[item.start : item.start + 1] == quote)
                + item.label.strip(quote),
                text_edit=lsp.TextEdit(opened.range(item.start, item.end), item.new),
            )
            for index, item in enumerate(candidates)
        ]
        return lsp.CompletionList(is_incomplete=False, items=items)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hovered(params: lsp.HoverParams) -> lsp.Hover | None:
        opened = server.at(params.text_document.uri)
        hovering = hover(opened.text, opened.offset(params.position), opened.path)
        if hovering is None:
            return None
        text = lsp.MarkupContent(lsp.MarkupKind.Markdown, hovering.markdown)
        return lsp.Hover(text, opened.range(hovering.start, hovering.end))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def defined(params: lsp.DefinitionParams) -> lsp.Location | None:
        opened = server.at(params.text_document.uri)
        target = definition(opened.text, opened.offset(params.position), opened.path)
        return None if target is None else _location(target, params.text_document.uri, opened)

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def used(params: lsp.ReferenceParams) -> list[lsp.Location]:
        opened = server.at(params.text_document.uri)
        targets = references(opened.text, opened.offset(params.position), opened.path)
        return [_location(target, params.text_document.uri, opened) for target in targets]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outline(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        opened = server.at(params.text_document.uri)
        return [_symbol(opened, symbol) for symbol in symbols(opened.text, opened.path)]


def _changing(server: SpecServer) -> None:
    """Register the questions whose answers are edits."""

    @server.feature(lsp.TEXT_DOCUMENT_PREPARE_RENAME)
    def may_rename(params: lsp.PrepareRenameParams) -> lsp.Range | None:
        opened = server.at(params.text_document.uri)
        target = renamable(opened.text, opened.offset(params.position), opened.path, server.texts())
        return opened.range(target.start, target.end) if target else None

    @server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))
    def renamed(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        opened = server.at(params.text_document.uri)
        offset, texts = opened.offset(params.position), server.texts()
        try:
            renaming = rename(
                opened.text,
                offset,
                params.new_name,
                opened.path,
                texts=texts,
                folders=server.folders(),
            )
        except InputError as error:
            raise JsonRpcInvalidParams(f"{error.problem}; {error.help}") from error
        if renaming.notes:
            shown = lsp.ShowMessageParams(lsp.MessageType.Warning, "; ".join(renaming.notes))
            server.window_show_message(shown)
        return _renamed(params.text_document.uri, opened, renaming)

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION,
        lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix, _FIX_ALL]),
    )
    def actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        opened = server.at(params.text_document.uri)
        return [*_quick_fixes(opened, params), *_all_fixes(opened, params)]

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatted(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        opened = server.at(params.text_document.uri)
        try:
            text = laid_out(opened.text, opened.path)
        except InputError:
            return []  # the findings say why
        return opened.edits([smallest_edit(opened.text, text)] if text != opened.text else [])


def _renamed(uri: str, opened: Open, renaming: Renaming) -> lsp.WorkspaceEdit:
    """Return the edits of all files that a renaming changes."""
    changes = {}
    for file, edits in renaming.edits.items():
        is_open = file.resolve() == Path(opened.path).resolve()
        lines = Lines(renaming.texts[file], opened.lines.encoding)
        changes[uri if is_open else from_fs_path(str(file)) or uri] = [
            lsp.TextEdit(range_of(lines, edit.start, edit.end), edit.new) for edit in edits
        ]
    return lsp.WorkspaceEdit(changes=changes)


def _quick_fixes(opened: Open, params: lsp.CodeActionParams) -> Iterable[lsp.CodeAction]:
    """Yield the fixes of the findings that touch a range."""
    if not _wants(params, lsp.CodeActionKind.QuickFix):
        return
    start, end = opened.offset(params.range.start), opened.offset(params.range.end)
    for problem in findings(opened.text, opened.path):
        if problem.start <= end and start <= problem.end:
            for fix in problem.fixes:
                yield lsp.CodeAction(
                    fix.title,
                    lsp.CodeActionKind.QuickFix,
                    diagnostics=[opened.diagnostic(problem)],
                    is_preferred=fix.certain,
                    edit=_edit(params, opened, fix.edits),
                )


def _all_fixes(opened: Open, params: lsp.CodeActionParams) -> Iterable[lsp.CodeAction]:
    """Yield the action that makes all certain fixes, if the editor asks for it."""
    if params.context.only and _wants(params, _FIX_ALL):
        edits = fix_all(opened.text, opened.path)
        if edits:
            yield lsp.CodeAction(
                "make all certain fixes", _FIX_ALL, edit=_edit(params, opened, edits)
            )


def _wants(params: lsp.CodeActionParams, kind: str) -> bool:
    only = params.context.only
    return not only or any(kind == prefix or kind.startswith(f"{prefix}.") for prefix in only)


def _edit(
    params: lsp.CodeActionParams, opened: Open, edits: Iterable[TextEdit]
) -> lsp.WorkspaceEdit:
    return lsp.WorkspaceEdit(changes={params.text_document.uri: opened.edits(edits)})


def _location(target: FileRange, uri: str, opened: Open) -> lsp.Location:
    if target.path == opened.path:
        return lsp.Location(uri, opened.range(target.start, target.end))
    lines = Lines(target.text, opened.lines.encoding)
    file = from_fs_path(str(Path(target.path).resolve())) or uri
    return lsp.Location(file, range_of(lines, target.start, target.end))


def _symbol(opened: Open, symbol: OutlineSymbol) -> lsp.DocumentSymbol:
    return lsp.DocumentSymbol(
        symbol.name,
        _SYMBOLS[symbol.kind],
        opened.range(symbol.start, symbol.end),
        opened.range(symbol.name_start, symbol.name_end),
        detail=symbol.detail or None,
        children=[_symbol(opened, child) for child in symbol.children],
    )
