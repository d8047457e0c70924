"""The HTTP interface: OpenAI's embeddings, search, towers, health, metrics and the page."""

import asyncio
import base64
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import resources
from typing import Any, Literal, TypeVar

import numpy as np
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from adiabat.config.serving import ServeSection
from adiabat.core.errors import AdiabatError
from adiabat.core.version import __version__
from adiabat.core.wording import option
from adiabat.data.records import Side
from adiabat.results.evaluation_result import Hit
from adiabat.serving.batching import Batcher, BusyError, Embedded
from adiabat.serving.gate import Gate
from adiabat.serving.metrics import Metrics
from adiabat.serving.preferences import Preference, Preferences
from adiabat.serving.searcher import Searcher
from adiabat.serving.served_towers import ServedTower, Towers, UnknownTowerError

T = TypeVar("T")

LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))

POLICY = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'"
"""What the page may load: itself, and nothing from any other address."""

SEARCHES = 256
"""Most searches that wait; one of a million documents takes a tenth of a second on two cores."""

RETRY_SECONDS = 1
"""What `Retry-After` says where too many texts wait: a batch takes less."""


class _Body(BaseModel):
    """A request; a key that is not known is an error, since an ignored option gives other results."""

    # Of their own types too: 0 is no switch.
    model_config = ConfigDict(extra="forbid", strict=True)


class EmbeddingsRequest(_Body):
    """A request for vectors, as OpenAI's interface has it."""

    input: str | list[str] = Field(description="A text, or several.")
    model: str = Field("", description="Name of the tower; may be left out where there is one.")
    encoding_format: Literal["float", "base64"] = "float"
    input_type: Side = Field(
        "query", description="Which tower's prompt and limit; documents need `document`."
    )
    dimensions: int | None = Field(None, ge=1, description="The width of the tower; no other is served.")
    user: str | None = Field(None, description="Ignored, as it changes no vector.")


class SearchRequest(_Body):
    """A request for the first documents of a query."""

    query: str = Field(min_length=1)
    tower: str = Field("", description="May be left out where there is one.")
    k: int = Field(10, ge=1, le=1_000)
    fuse: bool = Field(False, description="Rank by vectors and BM25 together.")
    exclude: list[str] = Field(default_factory=list, description="Ids of documents to leave out.")


class TowerRequest(_Body):
    """A tower to serve."""

    source: str = Field(min_length=1, description="A MODEL on the machine of the server.")


class Fault(BaseModel):
    """What is wrong with a request, as OpenAI's clients read it."""

    message: str
    type: str
    param: str | None
    code: int


class FaultBody(BaseModel):
    """The body of every answer that is no success."""

    error: Fault


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": FaultBody} for status in (400, 401, 403, 404, 413, 422, 500, 503, 504)
}
"""Statuses of every path, for its description."""


def create_app(
    towers: Towers,
    searcher: Searcher,
    section: ServeSection,
    *,
    token: str | None,
    threads: int | None = None,
) -> FastAPI:
    """The application over towers that are loaded already.

    Args:
        towers: At least one.
        searcher: Of their store.
        section: Limits, and the file of preferences.
        token: Requests must bear it; None asks for none.
        threads: Threads of torch that embed; None leaves their number.
    """
    batcher = Batcher(section.most_waiting, section.batch_texts, threads)
    metrics = Metrics(batcher)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        # After the last request.
        await asyncio.to_thread(batcher.close)

    # Its pages of documentation would load scripts from another address.
    app = FastAPI(title="adiabat", version=__version__, lifespan=running, docs_url=None, redoc_url=None)
    hosts = LOOPBACK if token is None and section.host in LOOPBACK else None
    app.add_middleware(Gate, token=token, hosts=hosts, most_bytes=section.most_bytes, metrics=metrics)
    may_change = token is not None or section.host in LOOPBACK
    requests = _Requests(
        towers, searcher, section, batcher, metrics, Preferences.at(section.preferences), may_change
    )
    app.include_router(_routes(requests))
    for kind, answer in FAULTS.items():
        app.add_exception_handler(kind, answer)
    return app


def _routes(requests: "_Requests") -> APIRouter:
    """Paths and what answers them."""
    router = APIRouter(responses=REFUSALS)
    router.add_api_route("/v1/embeddings", requests.embeddings, methods=["POST"])
    router.add_api_route("/v1/models", requests.models)
    router.add_api_route("/search", requests.search, methods=["POST"])
    router.add_api_route("/towers", requests.listed)
    router.add_api_route("/towers/{name}", requests.put, methods=["PUT"])
    router.add_api_route("/towers/{name}", requests.remove, methods=["DELETE"], status_code=204)
    router.add_api_route("/preferences", requests.prefer, methods=["POST"], status_code=204)
    router.add_api_route("/healthz", requests.health)
    router.add_api_route("/metrics", requests.measured, response_class=PlainTextResponse)
    router.add_api_route("/", page, include_in_schema=False)
    router.add_api_route("/page.js", script, include_in_schema=False)
    return router


def one_at_a_time() -> asyncio.Semaphore:
    """A turn that one request has."""
    return asyncio.Semaphore(1)


@dataclass(frozen=True)
class _Requests:
    """What answers each path.

    Attributes:
        may_change: Whether requests may change the towers: not where others reach a server without a token.
    """

    towers: Towers
    searcher: Searcher
    section: ServeSection
    batcher: Batcher
    metrics: Metrics
    preferences: Preferences
    may_change: bool
    search_turn: asyncio.Semaphore = field(default_factory=one_at_a_time)
    change_turn: asyncio.Semaphore = field(default_factory=one_at_a_time)
    searching: set[object] = field(default_factory=set)

    async def embeddings(self, body: EmbeddingsRequest) -> Response:
        """Vectors of texts by a tower."""
        tower = self.towers[body.model]
        if body.dimensions not in (None, tower.model.width):
            raise HTTPException(422, f"dimensions must be {tower.model.width}, got {body.dimensions}")
        texts = [body.input] if isinstance(body.input, str) else body.input
        if not texts:
            raise HTTPException(422, "input must hold at least one text, got none")
        answer = await self._in_time(self._embedded(tower, texts, body.input_type))
        # Numbers of many vectors take a second to write, in which other requests are answered.
        return await asyncio.to_thread(_embeddings, tower.name, answer, body.encoding_format)

    async def models(self) -> dict[str, Any]:
        """The towers, as OpenAI's interface lists models."""
        listed = [
            {"id": tower.name, "object": "model", "created": int(tower.since), "owned_by": "adiabat"}
            for tower in self.towers.listed()
        ]
        return {"object": "list", "data": listed}

    async def search(self, body: SearchRequest) -> dict[str, Any]:
        """The first documents of a query."""
        tower = self.towers[body.tower]
        if body.fuse and self.searcher.fusion is None:
            raise HTTPException(422, f"fuse needs a server that was started with {option('fuse', 'bm25')}")
        _require_unicode(body.exclude)
        hits = await self._in_time(self._found(tower, body))
        return {"tower": tower.name, "hits": [asdict(hit) for hit in hits]}

    async def listed(self) -> dict[str, Any]:
        """All towers."""
        return {"towers": [tower.to_json() for tower in self.towers.listed()]}

    async def put(self, name: str, body: TowerRequest) -> dict[str, Any]:
        """Serve a tower, in the place of one of the same name; requests under way keep the former one."""
        self._require_change()
        _require_unicode([name, body.source])
        if self.change_turn.locked():
            raise BusyError("another tower is being loaded; ask again later")
        async with self.change_turn:
            replaced = await asyncio.to_thread(self.towers.put, name, body.source)
        return {"replaced": replaced, **self.towers[name].to_json()}

    async def remove(self, name: str) -> None:
        """Serve a tower no longer."""
        self._require_change()
        self.towers.remove(name)

    def prefer(self, body: Preference) -> None:
        """Keep a judgement of a result."""
        self._require_change()
        self.preferences.append(body)

    async def health(self) -> dict[str, Any]:
        """Whether towers and store are there, and which share of an exact search is found."""
        counts = {"towers": len(self.towers.listed()), "documents": self.towers.store.count}
        return {"status": "ok", **counts, "recall": self.searcher.recall}

    async def measured(self) -> PlainTextResponse:
        """Counters for Prometheus."""
        return PlainTextResponse(self.metrics.text(), media_type=self.metrics.media_type)

    async def _embedded(self, tower: ServedTower, texts: Sequence[str], side: Side) -> Embedded:
        """The vectors of texts, once their turn has come."""
        most = self.section.most_texts
        if len(texts) > most:
            raise HTTPException(413, f"a request must have at most {most:,} texts, got {len(texts):,}")
        _require_unicode(texts)
        answer = self.batcher.submit(tower.model.tower(side), texts, side=side)
        self.metrics.texts.labels(tower.name).inc(len(texts))
        # A request that is given up cancels its texts, if they still wait.
        return await asyncio.wrap_future(answer)

    async def _found(self, tower: ServedTower, body: SearchRequest) -> list[Hit]:
        """The hits of a query, once its turn has come: each search takes all threads of the processor."""
        if len(self.searching) >= SEARCHES:
            raise BusyError(f"{SEARCHES} searches wait already; ask again later")
        waiting = object()
        self.searching.add(waiting)
        try:
            answer = await self._embedded(tower, [body.query], "query")
            search = partial(self.searcher.search, fuse=body.fuse, exclude=body.exclude)
            async with self.search_turn:
                return await asyncio.to_thread(search, tower.model, body.query, answer.vectors, body.k)
        finally:
            self.searching.discard(waiting)

    async def _in_time(self, answering: Coroutine[Any, Any, T]) -> T:
        """An answer, or the refusal of one that takes too long."""
        seconds = self.section.timeout_seconds
        try:
            return await asyncio.wait_for(answering, seconds)
        except TimeoutError:
            raise HTTPException(504, f"no answer within {seconds:g} seconds") from None

    def _require_change(self) -> None:
        """Refuse to change towers or preferences for whoever reaches the machine."""
        if not self.may_change:
            told = f"changes need a token, which {self.section.token_variable} gives the server"
            raise HTTPException(403, told)


async def page() -> HTMLResponse:
    """The page that compares towers."""
    return HTMLResponse(_resource("page.html"), headers={"Content-Security-Policy": POLICY})


async def script() -> Response:
    """The script of the page."""
    return Response(_resource("page.js"), media_type="text/javascript")


def _require_unicode(texts: Sequence[str]) -> None:
    """Refuse half of a surrogate pair, which JSON can hold and no tokenizer reads: the batch would fail."""
    for number, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise HTTPException(422, f"text {number} must be Unicode, got half of a surrogate pair") from None


def _resource(name: str) -> str:
    return (resources.files("adiabat.serving") / name).read_text(encoding="utf-8")


def _fault(status: int, message: str, param: str | None = None, headers: Any = None) -> JSONResponse:
    """An error as OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    # A message may hold what a request gave, and no JSON holds half of a surrogate pair.
    message = message.encode("utf-8", "replace").decode()
    error = Fault(message=message, type=kind, param=param, code=status)
    return JSONResponse(FaultBody(error=error).model_dump(), status, headers=headers)


def _embeddings(name: str, answer: Embedded, form: Literal["float", "base64"]) -> Response:
    """The answer of OpenAI's interface, written already."""
    data = [
        {"object": "embedding", "index": number, "embedding": _encoded(vector, form)}
        for number, vector in enumerate(answer.vectors)
    ]
    usage = {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens}
    return JSONResponse({"object": "list", "model": name, "data": data, "usage": usage})


def _encoded(vector: np.ndarray, form: str) -> list[float] | str:
    """Numbers, or the bytes of little-endian float32."""
    if form == "float":
        return vector.tolist()  # type: ignore[no-any-return]
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


async def _refused(_: Request, fault: Any) -> JSONResponse:
    return _fault(fault.status_code, str(fault.detail), headers=fault.headers)


async def _invalid(_: Request, fault: Any) -> JSONResponse:
    first = fault.errors()[0]
    # The first part of the place is always the body or the path.
    place = ".".join(str(part) for part in first["loc"][1:])
    return _fault(422, f"{place or 'the body'}: {first['msg']}", place or None)


async def _busy(_: Request, fault: Any) -> JSONResponse:
    return _fault(503, str(fault), headers={"Retry-After": str(RETRY_SECONDS)})


async def _unknown(_: Request, fault: Any) -> JSONResponse:
    return _fault(404, str(fault), "model")


async def _unusable(_: Request, fault: Any) -> JSONResponse:
    return _fault(422, str(fault))


async def _defect(_: Request, fault: Any) -> JSONResponse:
    # The server logs the traceback; a request learns the class alone.
    return _fault(500, f"defect: {type(fault).__name__}")


FAULTS: Mapping[type[Exception], Any] = {
    HTTPException: _refused,
    RequestValidationError: _invalid,
    BusyError: _busy,
    UnknownTowerError: _unknown,
    AdiabatError: _unusable,
    Exception: _defect,
}
"""What answers a request that ended in an exception; the nearest class decides."""
