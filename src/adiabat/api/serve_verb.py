"""`adiabat.serve`: query towers of one store behind HTTP."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adiabat.api.arguments import PathLike, SettingsLike, path_of, settings_of
from adiabat.api.call import Progress, called
from adiabat.config.serving import ServeSettings
from adiabat.core.progress import ignored
from adiabat.serving.serve_checks import require_server
from adiabat.store.vector_store import Store


def serve(
    store: PathLike,
    towers: Mapping[str, PathLike] | Sequence[PathLike] = (),
    *,
    settings: SettingsLike = None,
    progress: Progress = None,
    on_listening: Callable[[str], None] = ignored,
    **options: Any,
) -> None:
    """Serve query towers of one store by HTTP, until the process is told to end (SIGTERM, Ctrl-C).

    ``/v1/embeddings`` is that of OpenAI's interface, ``/search`` ranks the store, ``/towers`` lists, adds and
    replaces towers while requests run, ``/`` is a page that compares them, ``/openapi.json`` describes all of
    it.

    Args:
        store: Document vectors that all towers search.
        towers: Models by name, or models whose directories name them: jobs, directories or deltas, whose
            base is loaded once for all.
        settings: `ServeSettings`, a TOML file or nested dicts; ``adiabat settings serve`` lists them.
        progress: None shows notes on a terminal or in a notebook, True everywhere, False nowhere.
        on_listening: Called with the address once requests are taken.
        **options: Single settings, such as ``port=8080`` or ``fuse="bm25"``.

    Raises:
        AdiabatError: If the store, a tower or the address is unusable.

    Example:
        >>> store = adiabat.embed("demo", ["Nodes and edges."], out="store")
        >>> adiabat.serve(store, {"none": "nothing"})
        Traceback (most recent call last):
        ...
        adiabat.core.errors.ModelError: serve.towers must be a directory, a job, `demo` or a hub name, ...
    """
    if isinstance(towers, Mapping):
        texts = [f"{name}={path_of(model, 'towers')}" for name, model in towers.items()]
    else:
        texts = [path_of(model, "towers") for model in towers]
    if texts:
        options["towers"] = texts
    chosen = settings_of(ServeSettings, settings, options, section="serve", function="serve")
    folder = path_of(store, "store")
    named = require_server(folder, chosen)
    opened = Store.open(folder)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.serving.server import serve as run

    with called("serve", progress) as call:
        run(opened, named, chosen, call.watch, on_listening)
