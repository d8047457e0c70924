"""The server from start to end: loaded, listening, ended gracefully."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
import uvicorn

from adiabat.config.serving import ServeSettings
from adiabat.core.errors import ConfigError
from adiabat.core.progress import Watch
from adiabat.serving.http_app import create_app
from adiabat.serving.searcher import Searcher
from adiabat.serving.served_towers import Towers
from adiabat.store.vector_store import Store

GRACE_SECONDS = 30
"""Seconds that requests under way have after SIGTERM."""


def serve(
    store: Store,
    named: Mapping[str, str],
    settings: ServeSettings,
    watch: Watch,
    on_listening: Callable[[str], None],
) -> None:
    """Load towers, listen, and answer until the process is told to end.

    Args:
        store: Documents that all towers search.
        named: Name to model.
        settings: All others.
        watch: Receives notes.
        on_listening: Called with the address once requests are taken.
    """
    section = settings.serve
    # Before models are loaded, which takes longer.
    listener = _listener(section.host, section.port)
    with listener, _one_thread_here() as threads:
        searcher = Searcher.of(store, settings.fuse, watch)
        towers = Towers(store, settings.encoder, settings.run.device)
        for name, source in named.items():
            watch.note(f"loading {name}")
            towers.put(name, source)
        if section.approximate:
            models = [tower.model for tower in towers.listed()]
            searcher = searcher.approximated(models, section.min_recall, watch)
        else:
            searcher = searcher.exact(watch)
        token = os.environ.get(section.token_variable) or None
        app = create_app(towers, searcher, section, token=token, threads=threads)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS
        )
        listening = _Listening(config, lambda: on_listening(f"http://{shown}:{port}"))
        listening.run(sockets=[listener])


@contextmanager
def _one_thread_here() -> Iterator[int]:
    """Within the context, torch computes with one thread here, and with the former number, which is given, in
    threads that set it.

    OpenMP stops spinning once the teams of all threads are more than the processors, and each operation of a
    short text then waits for a thread to wake: 15 ms for a query in place of 8 on two cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


class _Listening(uvicorn.Server):
    """A server that says when it takes requests."""

    def __init__(self, config: uvicorn.Config, said: Callable[[], None]) -> None:
        super().__init__(config)
        self._said = said

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._said()


def _listener(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that a port in use is known at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        with ExitStack() as unless_bound:
            unless_bound.enter_context(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            unless_bound.pop_all()
    except (OSError, UnicodeError) as fault:
        raise ConfigError(
            f"serve.host and serve.port must be a free address of this machine, got {host}:{port}: "
            f"{getattr(fault, 'strerror', None) or fault}; choose another"
        ) from fault
    return listener
