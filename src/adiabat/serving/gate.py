"""What every request passes first: the token, the size, the count of what was answered."""

import hmac
import json
import time
from collections.abc import Awaitable, Callable, Container, MutableMapping
from typing import Any

from starlette.exceptions import HTTPException

from adiabat.serving.metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset(("/", "/healthz", "/page.js"))
"""Paths without a token: the page asks its user for one."""


class Gate:
    """Middleware around the application; it looks at bytes as they come, before anything is parsed."""

    def __init__(
        self,
        app: App,
        *,
        token: str | None,
        hosts: Container[str] | None,
        most_bytes: int,
        metrics: Metrics,
    ) -> None:
        """Take the application and its limits.

        Args:
            app: The application.
            token: Requests must bear it; None asks for none.
            hosts: Names that requests must use for the server; None allows all. Without a token, a page of
                another site could reach this machine under a name of its own (DNS rebinding).
            most_bytes: Of the body of a request.
            metrics: Counts what is answered.
        """
        self.app, self.token, self.hosts, self.most_bytes = app, token, hosts, most_bytes
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse, one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, size = time.perf_counter(), 500, 0

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        async def counted() -> MutableMapping[str, Any]:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.most_bytes:
                # Answered by the application, like all that it refuses.
                raise HTTPException(413, f"a request must have at most {self.most_bytes:,} bytes")
            return message

        try:
            if not self._bears_token(scope):
                await _refuse(sent, 401, "a bearer token is needed")
            elif self.hosts is not None and _host(scope) not in self.hosts:
                await _refuse(
                    sent, 403, "a server without a token answers to the names of this machine alone"
                )
            else:
                await self.app(scope, counted, sent)
        finally:
            self.metrics.observe(scope, status, time.perf_counter() - began)

    def _bears_token(self, scope: Scope) -> bool:
        if self.token is None or scope["path"] in OPEN:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, f"Bearer {self.token}".encode())


def _host(scope: Scope) -> str:
    """The name that a request uses for the server, without its port."""
    given = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    host = given.rpartition(":")[0] if not given.endswith("]") and ":" in given else given
    return host.strip("[]").lower()


async def _refuse(send: Send, status: int, told: str) -> None:
    """An error in the form of all others, before the application is asked."""
    error = {"message": told, "type": "invalid_request_error", "param": None, "code": status}
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
