"""A drawing as one HTML file, which needs no server and loads nothing.

Its content security policy allows the script and the style by their hashes, and nothing else.
Texts of the spec are data: the script writes them as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..ir.graph import Graph
from .scene import page_states, scene

ASSETS = Path(__file__).parent / "page"
"""The built scripts and the style sheet; `studio/` in the repository has their source."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Drawing</title>
<style>{style}</style>
</head>
<body>
<div id="root"><noscript>This page draws a model with JavaScript.</noscript></div>
<script type="application/json" id="scene">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(graph: Graph, origins: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Return a page with the drawing of a graph: it folds, searches, and shows costs.

    Args:
        graph: the graph to draw.
        origins: path of a node to the `file` and the `pointer` where it is written.

    Raises:
        InputError: the graph has too many nodes.
    """
    drawn = scene(graph, page_states(graph))
    add_origins(drawn, origins or {})
    script, style = asset("page.js"), asset("style.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(policy=policy, style=style, data=embedded(drawn), script=script)


def asset(name: str) -> str:
    """Return the text of a built file, safe inside an HTML element."""
    text = (ASSETS / name).read_text(encoding="utf-8").rstrip()
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def add_origins(drawn: Mapping[str, Any], origins: Mapping[str, Mapping[str, str]]) -> None:
    """Add to a scene where its nodes are written."""
    for path, location in origins.items():
        if path in drawn["facts"]:
            drawn["facts"][path]["written"] = dict(location)


def embedded(value: Any) -> str:
    """Return JSON that can stand inside an HTML element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
