"""`adiabat.watch`: the drift of a running endpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from adiabat.api.arguments import PathLike, SettingsLike, path_of, place_of, settings_of, wrong_type
from adiabat.api.call import Progress, called
from adiabat.config.checking import WatchSettings
from adiabat.core.progress import ignored
from adiabat.serving.serve_checks import require_client
from adiabat.store.vector_store import Store, require_readable


def watch(
    endpoint: str,
    store: PathLike,
    out: PathLike,
    *,
    settings: SettingsLike = None,
    progress: Progress = None,
    on_reading: Callable[[dict[str, Any]], None] = ignored,
    **options: Any,
) -> dict[str, Any]:
    """Measure how far what a running endpoint retrieves for probe texts has moved since the first reading.

    The first call keeps its reading; later ones are compared with it, by the measures of drift that tuning
    has. No labels are needed.

    Args:
        endpoint: Its address, such as ``http://127.0.0.1:8000``, of OpenAI's interface for embeddings.
        store: Document vectors that the endpoint's are for.
        out: Directory of the first reading and of ``readings.jsonl``, a line for each reading.
        settings: `WatchSettings`, a TOML file or nested dicts; ``adiabat settings watch`` lists them.
        progress: None shows notes on a terminal or in a notebook, True everywhere, False nowhere.
        on_reading: Called with each reading.
        **options: Single settings, such as ``probes="probes.txt"``, ``limit=0.05`` or ``every="10min"``,
            with which readings go on until one is an alarm.

    Returns:
        The last reading: measures of drift, ``limit`` and ``alarm``.

    Raises:
        AdiabatError: If endpoint, store or probes are unusable, or the store has changed since the first
            reading.

    Example:
        >>> store = adiabat.embed("demo", ["Nodes and edges."], out="store")
        >>> adiabat.watch("http://127.0.0.1:9", store, "watched", served="demo")
        Traceback (most recent call last):
        ...
        adiabat.serving.endpoint.EndpointError: http://127.0.0.1:9/v1/embeddings must answer ...
    """
    chosen = settings_of(WatchSettings, settings, options, section="watch", function="watch")
    if not isinstance(endpoint, str):
        raise wrong_type("endpoint", "an address", endpoint)
    folder, place = path_of(store, "store"), place_of(out)
    require_client()
    require_readable(folder)
    # Imported after the checks: torch takes seconds to load.
    from adiabat.adiabatic.probes import read_probes
    from adiabat.serving.endpoint import Endpoint
    from adiabat.serving.watching import EndpointWatch, watch_endpoint

    probes = read_probes(chosen.watch.probes)
    with called("watch", progress):
        reached = Endpoint.of(endpoint, chosen.watch)
        watched = EndpointWatch(reached, Store.open(Path(folder)), probes, chosen.watch, place)
        return watch_endpoint(watched, on_reading)
