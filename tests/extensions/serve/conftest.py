"""A trained toy model behind an application, without any socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from weft.extensions.serve.app import make_app
from weft.extensions.serve.limits import Limits
from weft.extensions.serve.service import Service
from weft.runtime import api

SECONDS = 20


@pytest.fixture(scope="module")
def model(toy_checkpoint: Path) -> api.Model:
    """Return a model trained just enough to give different outputs for different inputs."""
    return api.open_model(toy_checkpoint)


class Client:
    """Sends any number of concurrent requests to a served model."""

    def __init__(self, service: Service) -> None:
        """Create the application of a service."""
        self.service, self.app = service, make_app(service)
        self.go, self.began = threading.Event(), threading.Event()

    def hold(self) -> None:
        """Make the model wait for `go` before each batch."""
        batcher: Any = self.service.batcher
        work = batcher._work

        def waiting_work(key: Any, given: Sequence[Any], cancelled: Any) -> Any:
            self.began.set()
            assert self.go.wait(SECONDS)
            return work(key, given, cancelled)

        batcher._work = waiting_work

    def together(self, *calls: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> list[Any]:
        """Return the responses to several concurrent requests."""

        async def all_of_them() -> list[Any]:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://weft") as client:
                return list(await asyncio.gather(*(call(client) for call in calls)))

        return asyncio.run(all_of_them())

    def post(self, body: Any = None, **more: Any) -> httpx.Response:
        """Return the response to one translation request."""
        given = more or {"json": body}
        [answer] = self.together(lambda client: client.post("/translate", **given))
        assert isinstance(answer, httpx.Response)
        return answer

    def get(self, path: str) -> httpx.Response:
        """Return the response to a GET request."""
        [answer] = self.together(lambda client: client.get(path))
        assert isinstance(answer, httpx.Response)
        return answer

    def counted(self, name: str) -> float:
        """Return the value of a metric, given its name with labels."""
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


Served = Callable[..., AbstractContextManager[Client]]


@pytest.fixture
def served(model: api.Model) -> Served:
    """Return a function that starts servers; its keyword arguments are limits."""

    @contextmanager
    def make(**limits: Any) -> Iterator[Client]:
        service = Service(model, Limits(**limits))
        client = Client(service)
        with service.running():
            try:
                yield client
            finally:
                client.go.set()

    return make
