"""The HTTP interface: OpenAI's embeddings, search, towers, health, metrics and the page."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import resources
from typing import Any, Literal

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
from adiabat.serving.batching import Batcher, BusyError, Embedded
from adiabat.serving.gate import Gate
from adiabat.serving.metrics import Metrics
from adiabat.serving.preferences import Preference, Preferences
from adiabat.serving.searcher import Searcher
from adiabat.serving.served_towers import ServedTower, Towers, UnknownTowerError

LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))

POLICY = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self'"
"""What the page may load: itself, and nothing from any other address."""

RETRY_SECONDS = 1
"""What `Retry-After` says where too many texts wait: a batch takes less."""


class _Body(BaseModel):
    """A request; a key that is not known is an error, since an ignored option gives other results."""

    model_config = ConfigDict(extra="forbid")


class EmbeddingsRequest(_Body):
    """A request for vectors, as OpenAI's interface has it."""

    input: str | list[str] = Field(description="A text, or several.")
    model: str = Field("", description="Name of the tower; may be left out where there is one.")
    encoding_format: Literal["float", "base64"] = "float"
    input_type: Side = Field(
        "query", description="Which tower's prompt and limit; documents need `document`."
    )
    dimensions: int | None = Field(None, description="The width of the tower; no other is served.")
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


def create_app(towers: Towers, searcher: Searcher, section: ServeSection, *, token: str | None) -> FastAPI:
    """The application over towers that are loaded already.

    Args:
        towers: At least one.
        searcher: Of their store.
        section: Limits, and the file of preferences.
        token: Requests must bear it; None asks for none.
    """
    batcher = Batcher(section.most_waiting, section.batch_texts)
    metrics = Metrics(batcher)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        # After the last request.
        await asyncio.to_thread(batcher.close)

    app = FastAPI(title="adiabat", version=__version__, lifespan=running)
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
    router = APIRouter()
    router.add_api_route("/v1/embeddings", requests.embeddings, methods=["POST"])
    router.add_api_route("/v1/models", requests.models)
    router.add_api_route("/search", requests.search, methods=["POST"])
    router.add_api_route("/towers", requests.listed)
    router.add_api_route("/towers/{name}", requests.put, methods=["PUT"])
    router.add_api_route("/towers/{name}", requests.remove, methods=["DELETE"], status_code=204)
    router.add_api_route("/preferences", requests.prefer, methods=["POST"], status_code=204)
    router.add_api_route("/healthz", requests.health)
    router.add_api_route("/metrics", requests.measured)
    router.add_api_route("/", page, include_in_schema=False)
    router.add_api_route("/page.js", script, include_in_schema=False)
    return router


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

    async def embeddings(self, body: EmbeddingsRequest) -> dict[str, Any]:
        """Vectors of texts by a tower."""
        tower = self.towers[body.model]
        if body.dimensions not in (None, tower.model.width):
            raise HTTPException(422, f"dimensions must be {tower.model.width}, got {body.dimensions}")
        texts = [body.input] if isinstance(body.input, str) else body.input
        if not texts:
            raise HTTPException(422, "input must hold at least one text, got none")
        answer = await self._embedded(tower, texts, body.input_type)
        return {
            "object": "list",
            "model": tower.name,
            "data": [
                {"object": "embedding", "index": number, "embedding": _encoded(vector, body.encoding_format)}
                for number, vector in enumerate(answer.vectors)
            ],
            "usage": {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens},
        }

    def models(self) -> dict[str, Any]:
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
        answer = await self._embedded(tower, [body.query], "query")
        search = partial(self.searcher.search, fuse=body.fuse, exclude=body.exclude)
        hits = await asyncio.to_thread(search, tower.model, body.query, answer.vectors, body.k)
        return {"tower": tower.name, "hits": [asdict(hit) for hit in hits]}

    def listed(self) -> dict[str, Any]:
        """All towers."""
        return {"towers": [tower.to_json() for tower in self.towers.listed()]}

    def put(self, name: str, body: TowerRequest) -> dict[str, Any]:
        """Serve a tower, in the place of one of the same name; requests under way keep the former one."""
        self._require_change()
        replaced = self.towers.put(name, body.source)
        return {"replaced": replaced, **self.towers[name].to_json()}

    def remove(self, name: str) -> None:
        """Serve a tower no longer."""
        self._require_change()
        self.towers.remove(name)

    def prefer(self, body: Preference) -> None:
        """Keep a judgement of a result."""
        self.preferences.append(body)

    def health(self) -> dict[str, Any]:
        """Whether towers and store are there."""
        return {"status": "ok", "towers": len(self.towers.listed()), "documents": self.towers.store.count}

    def measured(self) -> PlainTextResponse:
        """Counters for Prometheus."""
        return PlainTextResponse(self.metrics.text(), media_type=self.metrics.media_type)

    async def _embedded(self, tower: ServedTower, texts: Sequence[str], side: Side) -> Embedded:
        """The vectors of texts, once their turn has come."""
        most, seconds = self.section.most_texts, self.section.timeout_seconds
        if len(texts) > most:
            raise HTTPException(413, f"a request must have at most {most:,} texts, got {len(texts):,}")
        _require_unicode(texts)
        answer = self.batcher.submit(tower.model.tower(side), texts, side=side)
        self.metrics.texts.labels(tower.name).inc(len(texts))
        try:
            # A request that is given up cancels its texts, if they still wait.
            return await asyncio.wait_for(asyncio.wrap_future(answer), seconds)
        except TimeoutError:
            raise HTTPException(504, f"no answer within {seconds:g} seconds") from None

    def _require_change(self) -> None:
        """Refuse to change towers for whoever reaches the machine."""
        if not self.may_change:
            told = f"towers change only with a token, which {self.section.token_variable} gives the server"
            raise HTTPException(403, told)


def page() -> HTMLResponse:
    """The page that compares towers."""
    return HTMLResponse(_resource("page.html"), headers={"Content-Security-Policy": POLICY})


def script() -> Response:
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
    error = {"message": message, "type": kind, "param": param, "code": status}
    return JSONResponse({"error": error}, status, headers=headers)


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
