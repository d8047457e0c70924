"""`adiabat.search`: the nearest documents of a store."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adiabat.api.arguments import PathLike, SettingsLike, path_of, require_model, settings_of, wrong_type
from adiabat.api.call import called, one_line
from adiabat.config.shared import FusionSection, SearchSettings, require_device_name
from adiabat.core.errors import DataError
from adiabat.core.text import IN_WORDS, cut
from adiabat.core.wording import positional
from adiabat.models.backend_checks import require_openvino
from adiabat.models.model_paths import Model, name_of, require_names, require_reachable
from adiabat.results.evaluation_result import Hit
from adiabat.results.record import frame_of
from adiabat.store.analysers import analyser_of
from adiabat.store.vector_store import Store, refuse_swapped, require_count, require_readable

if TYPE_CHECKING:
    from pandas import DataFrame

    from adiabat.store.fusion import Fusion

SHOWN_CHARACTERS = 120
"""Maximum characters of a document in `SearchResult.summary`."""


@dataclass(frozen=True, slots=True)
class SearchResult(Sequence[Hit]):
    """Search results of a query, best first: a sequence of the first model's hits.

    Attributes:
        query: The query text.
        hits: Name of each model to its hits.

    Example:
        >>> store = adiabat.embed("demo", ["Nodes and edges."], out="store")
        >>> [hit.text for hit in adiabat.search(store, "graphs", model="demo")]
        ['Nodes and edges.']
    """

    query: str
    hits: Mapping[str, list[Hit]]

    def __getitem__(self, index: Any) -> Any:
        return self._first[index]

    def __len__(self) -> int:
        return len(self._first)

    @property
    def _first(self) -> list[Hit]:
        return next(iter(self.hits.values()))

    def summary(self) -> str:
        """Rank, score, id and the beginning of the text of each hit, by model."""
        return "\n".join(line for name, hits in self.hits.items() for line in _lines(name, hits))

    def to_frame(self) -> "DataFrame":
        """A row for each hit: model, rank, doc_id, score, text and similarity."""
        return frame_of(
            {"model": name, "rank": rank, **hit}
            for name, hits in self.to_json().items()
            for rank, hit in enumerate(hits, start=1)
        )

    def to_json(self) -> dict[str, list[dict[str, Any]]]:
        """The hits of each model as plain data."""
        return {
            name: [{key: value for key, value in asdict(hit).items() if key != "relevant"} for hit in hits]
            for name, hits in self.hits.items()
        }


def search(
    store: PathLike,
    query: str,
    *,
    model: Model,
    compare: Model | Sequence[Model] = (),
    k: int = 10,
    settings: SettingsLike = None,
    **options: Any,
) -> SearchResult:
    """Search a store with a text.

    Args:
        store: Document vectors.
        query: One text.
        model: Model whose query tower encodes the query.
        compare: Further models whose results are shown too.
        k: Number of hits for each model, > 0.
        settings: `SearchSettings`, a TOML file or nested dicts; ``adiabat settings search`` lists them.
        **options: Single settings, such as ``device="cuda"`` or ``similarity="dot"``.

    Returns:
        Hits, best first, by the model's similarity. A static model without any known token of the query has
        no hits.

    Raises:
        AdiabatError: If store, query, model or settings are unusable, or the store is of another model.

    Example:
        >>> store = adiabat.embed("demo", ["Graph neural networks", "Protein folding"], out="store")
        >>> found = adiabat.search(store, "Protein folding", model="demo", k=1)
        >>> found[0].text
        'Protein folding'
        >>> found.to_frame()["rank"].tolist()
        [1]
    """
    chosen = settings_of(SearchSettings, settings, options, section="encoder", function="search")
    folder = path_of(store, "store")
    models = [
        model,
        *([compare] if isinstance(compare, str | Path) or not isinstance(compare, Sequence) else compare),
    ]
    for entry in models:
        require_model(entry, "model")
    if not isinstance(query, str):
        raise wrong_type("query", "a text", query)
    if not hasattr(k, "__index__"):
        raise wrong_type("k", "a whole number", k)
    require_count(k)
    _require_text(query)
    refuse_swapped(folder, query, order=("store", "query"))
    require_device_name(chosen.run.device)
    if chosen.run.backend == "openvino":
        require_openvino(chosen.run.device, purpose="run.backend = openvino")
    require_readable(folder)
    analyser_of(chosen.fuse.stemmer)
    require_names(*models)
    require_reachable(*models)
    opened = Store.open(folder)
    # Before any model is loaded, which takes longer.
    fusion = _fusion(opened, chosen.fuse)
    hits: dict[str, list[Hit]] = {}
    # A model that is named twice is shown once; two models in memory may share a name.
    distinct = {str(entry) if isinstance(entry, str | Path) else id(entry): entry for entry in models}
    for entry in distinct.values():
        # In the order of the call; the first model's hits are those of the sequence.
        name = _free_name(chosen.fuse.named(name_of(entry)), hits)
        hits[name] = _hits(opened, query, entry, k, chosen, fusion)
    opened.require_unchanged()
    return SearchResult(query, hits)


def _free_name(name: str, names_in_use: Collection[str]) -> str:
    """The name, with a number from 2 on if it is taken."""
    names = chain([name], (f"{name} ({number})" for number in count(2)))
    return next(candidate for candidate in names if candidate not in names_in_use)


def _fusion(store: Store, section: FusionSection) -> "Fusion | None":
    if section.by is None:
        return None
    from adiabat.store.own_bm25 import own_fusion

    # The first search of a store builds its index, which takes a while.
    with called("search", None) as call:
        return own_fusion(store, section, call.watch)


def _hits(
    store: Store, query: str, model: Model, k: int, settings: SearchSettings, fusion: "Fusion | None"
) -> list[Hit]:
    # Imported after the checks: torch takes seconds to load.
    from adiabat.evaluation.systems import System
    from adiabat.models.backend_choice import load_for_queries
    from adiabat.store.search import hits_of

    towers = load_for_queries(model, settings.encoder, settings.run)
    store.require_encoder(towers.fingerprint("document"), who=towers.name)
    # In full precision, since one text costs little.
    vectors = towers.encode([query], side="query", precision="fp32")
    hits = System(towers, store, fusion).search([query], vectors, k, similarity=towers.ranks_by)
    # A fused score is no similarity.
    similarity = "" if fusion is not None else towers.ranks_by
    return hits_of(store, hits, 0, np.empty(0, dtype=np.int64), similarity=similarity)


def _lines(name: str, hits: Sequence[Hit]) -> Iterator[str]:
    ranking = [IN_WORDS[hit.similarity] for hit in hits[:1] if hit.similarity]
    yield ", by ".join([one_line(name), *ranking])
    if not hits:
        yield "no hits: the model knows no token of the query"
    for rank, hit in enumerate(hits, start=1):
        yield f"{rank:3d}  {hit.score:.4f}  {one_line(hit.doc_id)}  {cut(hit.text, limit=SHOWN_CHARACTERS)}"


def _require_text(query: str) -> None:
    """Refuse queries that a tokenizer cannot read: empty ones, or bytes of a command line that are not
    UTF-8.
    """
    if not query.strip():
        raise DataError(f"{positional('query')} must not be empty; give a text to search for")
    try:
        query.encode("utf-8")
    except UnicodeEncodeError as fault:
        place = f"character {fault.start + 1}"
        raise DataError(
            f"{positional('query')} must be UTF-8 text, got an invalid byte at {place}; correct it"
        ) from fault
