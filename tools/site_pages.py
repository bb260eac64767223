"""Pages of the documentation site that are made when it is built; a hook of mkdocs.

The home page is the README.  Notebooks are run and shown with their outputs; without the
environment variable `WEFT_SITE_NOTEBOOKS=1` they are shown without.  The reference has one entry
for each public name, each block, and each JSON Schema, and the gallery one card for each shipped
system.  A link that leaves `docs/` goes to the repository.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import nbclient
import nbformat
import weft
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from weft.blocks.registry import registry
from weft.extensions.editor.language.hover import about_block
from weft.extensions.editor.language.schemas import schema_of
from weft.graphs.json_schema import as_text

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/weft-ml/weft/blob/main/"
NOTEBOOKS = ROOT / "examples" / "notebooks"
RUN = os.environ.get("WEFT_SITE_NOTEBOOKS") == "1"
RECORDS = ("decisions/", "studies/", "results.md", "reliability.md")
"""Pages that a search shows below those that say how something is done."""
SHIM = "https://unpkg.com/iframe-worker/shim"
"""Where the theme's pages load this script from."""
BADGE = re.compile(r"\[!\[([^]]*)\]\([^)]*\)\](\(\S*\))")
"""A link with a picture of another host, which a page would ask for."""
LINK = re.compile(r"(\]\(|<img src=\")(?![a-z]+:|#)([^)\s\"]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site."""
    pages: dict[str, str] = {"index.md": _home(), "decisions/index.md": _decisions()}
    pages["tutorials/index.md"] = _tutorials()
    pages |= {
        f"tutorials/{path.stem}.md": _notebook(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    }
    pages["reference/names.md"] = _names()
    pages["reference/blocks.md"] = _blocks()
    pages["reference/gallery.md"] = _gallery()
    schemas = dict(_schemas())
    pages["reference/schemas.md"] = _schema_page(schemas)
    pages |= {f"reference/{name}": text for name, text in schemas.items()}
    for name, text in pages.items():
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=text))
    return files


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Take the script that lets a page from the disk search from the site, not from a server."""
    del config
    return output.replace(SHIM, get_relative_url("search-worker.js", page.file.dest_uri))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files outside of the site to the repository, and rank records below pages."""
    del config
    if page.file.src_uri.startswith(RECORDS):
        page.meta["search"] = {"boost": 0.2}
    folder = PurePosixPath(page.file.src_uri).parent

    def moved(match: re.Match[str]) -> str:
        target, mark, anchor = match[2].partition("#")
        parts: list[str] = []
        for part in (folder / target).parts:
            if part == ".." and parts and parts[-1] != "..":
                parts.pop()
            elif part != ".":
                parts.append(part)
        if not target or files.get_file_from_path("/".join(parts)) is not None:
            return match[0]
        path = (ROOT / "docs" / folder / target).resolve()
        if target.endswith("README.md") and path == ROOT / "README.md":
            return f"{match[1]}{'../' * len(folder.parts)}index.md{mark}{anchor}"
        if not path.exists() or not path.is_relative_to(ROOT):
            return match[0]  # mkdocs reports it
        return f"{match[1]}{REPOSITORY}{path.relative_to(ROOT)}{mark}{anchor}"

    fences = re.sub(r"^```(\w+) .*$", r"```\1", markdown, flags=re.M)  # marks for our tests
    return LINK.sub(moved, fences)


def _home() -> str:
    """Return the README as a page of `docs/`."""

    def moved(match: re.Match[str]) -> str:
        target = match[2]
        inside = target.removeprefix("docs/")
        if inside == "decisions/":
            inside = "decisions/index.md"
        return match[1] + (inside if target.startswith("docs/") else f"../{target}")

    return LINK.sub(moved, (ROOT / "README.md").read_text("utf-8"))


def _decisions() -> str:
    pages = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    titles = ((page, page.read_text("utf-8").partition("\n")[0].lstrip("# ")) for page in pages)
    lines = [f"- [{title}]({page.name})" for page, title in titles]
    return (
        "# Decisions\n\nThe design decisions and their reasons, oldest first.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def _tutorials() -> str:
    lines = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        title, _, text = "".join(_cells(path)[0]["source"]).partition("\n")
        about = " ".join(BADGE.sub("", text).split())
        lines.append(f"- [{title.strip('# ')}]({path.stem}.md): {about}")
    head = "# Tutorials\n\nEach is a notebook of `examples/notebooks/`, which the tests run.\n\n"
    return head + "\n".join(lines) + "\n"


def _cells(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cells"]
    return cells


def _notebook(path: Path) -> str:
    """Return a notebook as Markdown, with the outputs of a run if they are wanted."""
    cells = _run(path) if RUN else _cells(path)
    parts = []
    for cell in cells:
        source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(BADGE.sub(r"[\1]\2", source))
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [text for output in cell["outputs"] for text in _output(output)]
    return "\n\n".join(parts) + "\n"


def _run(path: Path) -> list[dict[str, Any]]:
    """Run a notebook in an empty folder and return its cells."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    return list(notebook.cells)


def _output(output: dict[str, Any]) -> Iterator[str]:
    """Yield an output of a cell: a picture, a page in a frame, or text."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        picture = base64.b64encode(data["image/svg+xml"].encode()).decode()
        source = f"data:image/svg+xml;base64,{picture}"
        yield f'<img src="{source}" alt="output of the cell" style="max-height: 40rem">'
    elif data.get("text/html", "").startswith("<iframe"):
        yield f"<div>{data['text/html']}</div>"
    elif output.get("name") != "stderr":
        text = output.get("text") or data.get("text/plain", "")
        if text.strip():
            text_only = re.sub("\x1b[[][0-9;]*m", "", text).rstrip()
            yield f"```text\n{text_only}\n```"


def _names() -> str:
    """Return the reference of the public names, from their docstrings."""
    parts = ["# Public names", "[The Python API](../api.md) introduces them."]
    for name in sorted(vars(weft)["__all__"], key=str.lower):
        value = getattr(weft, name)
        if hasattr(value, "__qualname__"):
            parts.append(f"::: {value.__module__}.{value.__qualname__}")
    return "\n\n".join(parts) + "\n"


def _blocks() -> str:
    """Return the reference of the blocks: ports, params, an example and the source of each."""
    parts = ["# Blocks", "`weft blocks NAME` prints the same on the command line."]
    for block in sorted(registry(), key=lambda block_type: block_type.key):
        head, *lines = about_block(block)
        parts += [f"## {block.key}", head.partition("** ")[2], *lines]
        rows = [
            f"| `{name}` | {_default(field)} | {_cell(field.description or '')} |"
            for name, field in block.params.model_fields.items()
        ]
        if rows:
            parts.append("\n".join(["| param | default | meaning |", "|---|---|---|", *rows]))
        example = {"use": block.key, "params": dict(block.example)}
        parts.append(f"```json\n{json.dumps(example)}\n```")
    return "\n\n".join(parts) + "\n"


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    return f"`{json.dumps(field.get_default(call_default_factory=True))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _gallery() -> str:
    """Return one card for each shipped system that the catalogue draws, with a search field."""
    catalogue = (ROOT / "docs" / "catalogue.md").read_text("utf-8")
    rows = re.findall(
        r"^\| \[([^\]]+)\]\(#[^)]*\) \| ([^|]*) \| ([^|]*) \| [^|]* \| (.*) \|$", catalogue, re.M
    )
    cards = []
    for name, form, size, doc in rows:
        picture = ROOT / "docs" / "catalogue" / f"{name}.svg"
        if not picture.is_file():
            continue
        page = f"../catalogue.html#{name}"
        shown = html.escape(re.sub(r"\\(.)", r"\1", doc))
        cards.append(
            f'<div class="weft-card"><a class="weft-picture" href="{page}">'
            f'<img loading="lazy" src="../catalogue/{name}.svg" alt="diagram of {name}"></a>'
            f'<div><strong><a href="{page}">{name}</a></strong><br>{html.escape(form)}<br>'
            f"{size} parameters<br>{shown}</div></div>"
        )
    field = (
        '<input class="weft-filter" type="search" aria-label="Filter the systems" '
        'placeholder="Filter, such as: decoder attention 2023">'
    )
    head = f"# Gallery\n\nEvery system that ships; open one with `weft show NAME`.\n\n{field}\n\n"
    return f'{head}<div class="weft-gallery">\n' + "\n".join(cards) + "\n</div>\n"


def _schemas() -> Iterator[tuple[str, str]]:
    """Yield the JSON Schemas: name of the file, and text."""
    for kind in ("spec", "run", "study"):
        yield f"weft.{kind}.schema.json", as_text(schema_of(kind))


def _schema_page(schemas: dict[str, str]) -> str:
    lines = [f"- [{name}]({name})" for name in schemas]
    head = "# Schemas\n\nJSON Schemas of specs, runs and studies, as `weft schema` prints them.\n\n"
    return head + "\n".join(lines) + "\n"
