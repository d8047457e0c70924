"""A client of any endpoint with OpenAI's interface for embeddings."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import numpy as np

from adiabat.config.checking import EndpointSection
from adiabat.core.errors import AdiabatError
from adiabat.core.text import cut
from adiabat.core.wording import option
from adiabat.serving.batching import Vectors

TEXTS = 32
"""Texts of a request: text-embeddings-inference takes no more as it comes."""

REFUSED = frozenset((400, 413, 422))
"""Statuses of servers for more or longer texts than they take, or for a field that they do not know."""


class EndpointError(AdiabatError):
    """The endpoint is not there, refuses, or answers something else than vectors."""


class RefusedError(EndpointError):
    """The endpoint takes fewer texts, shorter ones, or other fields."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint and its name of a model."""

    url: str
    served: str
    section: EndpointSection

    @classmethod
    def of(cls, url: str, section: EndpointSection) -> "Endpoint":
        """The endpoint at an address with or without ``/v1``.

        Raises:
            EndpointError: If it does not answer, or lists several models and none is named.
        """
        if not url.startswith(("http://", "https://")):
            raise EndpointError(
                f"endpoint must be an address with http:// or https://, got {cut(url, limit=80)!r}"
            )
        base = url.rstrip("/").removesuffix("/embeddings").removesuffix("/v1")
        if section.served is not None:
            return cls(base, section.served, section)
        listed = _answer(section, "GET", f"{base}/v1/models").get("data", [])
        names = [str(model.get("id")) for model in listed if isinstance(model, dict)]
        if len(names) != 1:
            raise EndpointError(
                f"{base} must serve one model, or be told which, got {', '.join(names) or 'none'}; "
                f"add {option('served', 'NAME')}"
            )
        return cls(base, names[0], section)

    def embed(self, texts: Sequence[str], **fields: str) -> Vectors:
        """Vectors of texts, asked for with further fields of the request."""
        rows: list[list[float]] = []
        for first in range(0, len(texts), TEXTS):
            rows += self._rows(list(texts[first : first + TEXTS]), fields)
        try:
            vectors = np.asarray(rows, dtype=np.float32)
        except (ValueError, TypeError) as fault:
            raise EndpointError(f"{self.url} must answer with vectors of one width, got {fault}") from fault
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise EndpointError(
                f"{self.url} must answer with a vector for each of {len(texts)} texts, got {vectors.shape}"
            )
        return vectors

    def _rows(self, texts: list[str], fields: Mapping[str, str]) -> list[list[float]]:
        """Vectors of one request, or of its halves where the endpoint takes fewer texts."""
        body = {"model": self.served, "input": texts, "encoding_format": "float", **fields}
        try:
            answer = _answer(self.section, "POST", f"{self.url}/v1/embeddings", body)
        except RefusedError:
            if len(texts) == 1:
                raise
            half = len(texts) // 2
            return self._rows(texts[:half], fields) + self._rows(texts[half:], fields)
        try:
            data = sorted(answer["data"], key=_index)
            return [each["embedding"] for each in data]
        except (KeyError, TypeError) as fault:
            raise EndpointError(
                f"{self.url} must answer with data, index and embedding, got "
                f"{cut(str(answer), limit=120)}; name an endpoint of OpenAI's interface"
            ) from fault


def _index(each: Any) -> int:
    number: int = each["index"]
    return number


def _answer(section: EndpointSection, method: str, url: str, body: object = None) -> dict[str, Any]:
    """The object that an endpoint answers."""
    token = os.environ.get(section.token_variable)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        response = httpx2.request(method, url, json=body, headers=headers, timeout=section.timeout_seconds)
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as fault:
        raise EndpointError(
            f"{url} must answer within {section.timeout_seconds:g} seconds, got "
            f"{fault or type(fault).__name__}; check the address"
        ) from fault
    if response.status_code in (401, 403):
        raise EndpointError(f"{url} asks for a token; set {section.token_variable} to it")
    if response.is_error:
        told = cut(" ".join(response.text.split()), limit=200)
        kind = RefusedError if response.status_code in REFUSED else EndpointError
        raise kind(f"{url} must answer with success, got {response.status_code}: {told}")
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise EndpointError(f"{url} must answer with a JSON object, got {cut(response.text, limit=80)!r}")
    return answer
