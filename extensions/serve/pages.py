"""Pages about the server: GET /docs for people, and GET /v1/model for programs.

FastAPI's own page of documentation loads scripts from another server.  The page here is one file of
HTML without scripts, made from the OpenAPI description, and its Content-Security-Policy allows
nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from ...plugin import fingerprint
from ...specs.escaping import html_text
from .service import Service

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff }
h2 { margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #f4f4f4 }
code { padding: 0 .2rem }
pre { padding: .7rem; overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid #e4e4e4 }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1b }
  code, pre { background: #2a2a2a }
  h2, th, td { border-color: #444 }
  a { color: #8ab4f8 }
}
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of the page."""


def described(service: Service) -> dict[str, Any]:
    """Return what GET /v1/model answers."""
    model, predictor = service.model, service.predictor
    return {
        "name": model.graph.name,
        "parameters": model.graph.parameters(),
        "fingerprint": fingerprint(model.graph),
        "languages": service.languages and service.languages._asdict(),
        "vocabulary": {
            "source": predictor.source.vocab_size,
            "target": predictor.target.vocab_size,
        },
        "precision": "bfloat16" if model.half else "float32",
        "limits": service.limits.model_dump(),
        "search": service.default_strategy.model_dump(),
        "weft": version("weft"),
    }


def page(description: Mapping[str, Any]) -> str:
    """Return the OpenAPI description of the server as a page of HTML."""
    schemas = description.get("components", {}).get("schemas", {})
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{html_text(description['info']['title'])}</title>\n<style>{_STYLE}</style>\n</head>",
        f"<body>\n<h1>{html_text(description['info']['title'])}</h1>",
        f"<p>{html_text(description['info'].get('description', ''))}</p>",
        '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
    ]
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            parts += _route(path, method, route)
    parts.append("<h2>Objects</h2>")
    for name, schema in schemas.items():
        parts += _schema(name, schema)
    return "\n".join([*parts, "</body>\n</html>\n"])


def _route(path: str, method: str, route: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{html_text(method.upper())} {html_text(path)}</code></h2>"
    yield f"<p>{html_text(route.get('description', ''))}</p>"
    for content in route.get("requestBody", {}).get("content", {}).values():
        yield f"<p>Body: {_kind(content['schema'])}</p>"
    yield "<table><tr><th>status</th><th>body</th><th></th></tr>"
    for status, response in route["responses"].items():
        bodies = [_kind(media.get("schema", {})) for media in response.get("content", {}).values()]
        yield (
            f"<tr><td>{html_text(status)}</td><td>{', '.join(bodies)}</td>"
            f"<td>{html_text(response.get('description', ''))}</td></tr>"
        )
    yield "</table>"


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h3 id="{html_text(name)}">{html_text(name)}</h3>'
    yield f"<p>{html_text(schema.get('description', ''))}</p>"
    required = schema.get("required", ())
    if schema.get("properties"):
        yield "<table><tr><th>key</th><th>value</th><th>default</th><th></th></tr>"
        for key, field in schema["properties"].items():
            default = json.dumps(field["default"]) if "default" in field else ""
            default = "required" if key in required else default
            yield (
                f"<tr><td><code>{html_text(key)}</code></td><td>{_kind(field)}</td>"
                f"<td>{html_text(default)}</td>"
                f"<td>{html_text(field.get('description', ''))}</td></tr>"
            )
        yield "</table>"
    for example in schema.get("examples", ()):
        yield f"<pre>{html_text(json.dumps(example, indent=2, ensure_ascii=False))}</pre>"


def _kind(schema: Mapping[str, Any]) -> str:
    """Return what values a schema allows, as HTML."""
    if "$ref" in schema:
        name = html_text(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(_kind(option) for option in schema[key])
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return ", ".join(f"<code>{html_text(json.dumps(value))}</code>" for value in values)
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}" if "items" in schema else "list"
    bounds = [
        f"{sign} {schema[key]}"
        for key, sign in (
            ("minimum", "\u2265"),
            ("exclusiveMinimum", ">"),
            ("maximum", "\u2264"),
            ("exclusiveMaximum", "<"),
        )
        if key in schema
    ]
    return html_text(" ".join([str(schema.get("type", "")), ", ".join(bounds)]).strip())
