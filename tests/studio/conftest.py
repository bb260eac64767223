"""A browser, and studios for it; every test is skipped if there is no chromium."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from weft.specs.reader import SHIPPED

from ..runtime.conftest import toy_checkpoint, toy_trained

__all__ = ["toy_checkpoint", "toy_trained"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TOKEN = "secret-of-the-tests"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of this folder; pytest calls this for no others."""
    item.add_marker(pytest.mark.studio)
    item.add_marker(pytest.mark.timeout(120))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of a user."""
    path = tmp_path / "mine.json"
    path.write_text((SHIPPED / "models" / "transformer-base.json").read_text())
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return a browser."""
    api = pytest.importorskip("playwright.sync_api", reason="needs the extra 'studio-tests'")
    path = os.environ.get("WEFT_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}, or WEFT_CHROMIUM")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Return a page that fails the test on an error of a script or of its policy."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, accept_downloads=True)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "console",
        lambda said: problems.append(said.text) if "Content Security" in said.text else None,
    )
    yield opened
    context.close()
    assert problems == []


@pytest.fixture
def studio(page: Any) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a file in a studio, and returns the page."""
    from weft.extensions.editor.studio.files import opened  # noqa: PLC0415
    from weft.extensions.editor.studio.server import make_app  # noqa: PLC0415
    from weft.extensions.editor.studio.session import Session  # noqa: PLC0415
    from weft.runtime.system.http import bound  # noqa: PLC0415 - slow

    running = []

    def open_studio(file: str | Path) -> Any:
        made = bound("127.0.0.1", 0)
        port = made.getsockname()[1]
        app = make_app(Session(opened(str(file))), TOKEN, port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [made]})
        thread.start()
        running.append((server, thread, made))
        page.goto(f"http://127.0.0.1:{port}/#{TOKEN}")
        page.wait_for_selector("svg .box")
        page.wait_for_selector(".findings")
        page.wait_for_function("() => 'weftEditor' in window")
        return page

    yield open_studio
    page.close()
    for server, thread, made in running:
        server.should_exit = True
        thread.join()
        made.close()
