"""`adiabat.embed`, `import_vectors`, `delete` and `compact`: a store of document vectors."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from adiabat.api.arguments import (
    Data,
    PathLike,
    SettingsLike,
    data_of,
    path_of,
    place_of,
    require_model,
    settings_of,
)
from adiabat.api.call import Progress, called
from adiabat.api.import_arguments import digested, imported, some_of, source_of
from adiabat.api.repeated import Asked
from adiabat.config.shared import NEEDED_COSINE, EmbedDataSection, EmbedSettings
from adiabat.core.disk import real
from adiabat.core.errors import ConfigError
from adiabat.core.files import MANIFEST_FILE, is_store
from adiabat.core.text import shown
from adiabat.core.wording import option
from adiabat.models.model_paths import Model
from adiabat.runs.output_dir import require_outside
from adiabat.store.deletion import Deletion, Missing, compact_store, delete_documents
from adiabat.store.ingestion_checks import Into, refuse_idle, require_embeddable, require_importable
from adiabat.store.vector_sources import TABLE_COLUMNS, read_ids
from adiabat.store.vector_store import Store, require_store


def embed(
    model: Model,
    corpus: Data,
    out: PathLike,
    *,
    append: bool = False,
    update: bool = False,
    delete: PathLike | Sequence[str] | None = None,
    missing: Missing | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Store:
    """Encode a corpus into a store of document vectors.

    An interrupted call resumes when it is repeated; a finished store is opened.

    Args:
        model: Model whose document tower encodes.
        corpus: A BEIR folder, JSONL, CSV, TSV, Parquet, ``hf:NAME``, or examples whose documents are texts;
            or rows with ``_id`` and ``text``, a DataFrame, a `datasets.Dataset`, or a list of texts, which
            are named by their hash.
        out: Directory of the store.
        append: Add the corpus, whose ids are new, to the store at `out`.
        update: Encode the documents that are new to the store at `out` or whose text changed. They replace
            those with their ids; documents that the corpus lacks stay.
        delete: Ids of documents that an update also deletes, or a file of ids.
        missing: As in `delete`.
        exist_ok: True returns the result of the same call at once, as in `tune`. None opens a finished store
            of the same model and corpus, and resumes an unfinished one.
        settings: `EmbedSettings`, a TOML file or nested dicts; ``adiabat settings embed`` lists them.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``dtype="float32"`` or ``device="cuda"``.

    Returns:
        The finished store, which other functions take in place of its path.

    Example:
        >>> papers = [{"_id": "a", "text": "Graph neural networks"}, {"_id": "b", "text": "Protein folding"}]
        >>> store = adiabat.embed("demo", papers, out="papers")
        >>> store.count
        2
    """
    chosen = settings_of(EmbedSettings, settings, options, section="store", function="embed")
    require_model(model, "model")
    if append and update:
        raise ConfigError(
            f"{option('append')} adds a corpus of new ids, and {option('update')} "
            "also replaces documents; choose one"
        )
    deletion = _deletion_of(delete, missing, chosen, update=update)
    into: Into = "append" if append else "update" if update else "new"
    # Rows in memory are written only after everything that can be judged without them.
    folder, source = _folder_of(out, into, exist_ok), data_of(corpus, "corpus")
    asked = Asked.of(
        "embed", folder, exist_ok, settings=chosen, proof=MANIFEST_FILE, model=model, corpus=source
    )
    if asked.is_finished():
        return Store.open(folder)
    if into == "new" and not is_store(folder):
        require_outside(folder)
    require_embeddable(model, source, folder, chosen, into=into)
    if into == "new":
        asked.take_digests()
    # Imported after the checks: torch takes seconds to load.
    from adiabat.store.ingestion import embed_corpus

    with called("embed", progress) as call:
        store = embed_corpus(model, source, folder, chosen, call.watch, into=into, deletion=deletion)
    if into == "new":
        asked.remember()
    return store


def delete(
    store: PathLike,
    ids: PathLike | Sequence[str],
    *,
    missing: Missing | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
) -> Store:
    """Delete documents of a store.

    Nothing finds them any more. Their vectors stay in the store's file until `compact` removes them.

    Args:
        store: A store or its directory.
        ids: Ids of the documents; or a file of them (text with one per line, ``.json``, ``.npy``, ``.arrow``,
            ``.parquet``).
        missing: Treatment of ids that the store never had: "error" or None refuses them, all at once, and
            "drop" passes over them. A compacted store knows nothing of documents that were deleted before.
        settings: `EmbedSettings`, a TOML file or nested dicts, of which a deletion has ``data.ids`` alone:
            ``{"data": {"ids": "nfc"}}`` also finds ids that differ in their Unicode form.
        progress: As in `embed`.

    Returns:
        The store without the documents; stores that were opened before still have them.

    Raises:
        StoreError: If the store lacks an id, or would keep no document.

    Example:
        >>> papers = [{"_id": "a", "text": "Graph neural networks"}, {"_id": "b", "text": "Protein folding"}]
        >>> store = adiabat.embed("demo", papers, out="current")
        >>> adiabat.delete(store, ["a"]).rows(["a", "b"]).tolist()
        [-1, 0]
    """
    chosen = settings_of(EmbedSettings, settings, {}, section="data", function="delete")
    # A deletion reads no texts and encodes nothing, so other settings would have no effect.
    if chosen.model_dump() != EmbedSettings(data=EmbedDataSection(ids=chosen.data.ids)).model_dump():
        raise ConfigError("settings of a deletion must be data.ids alone, got others too; leave them out")
    folder, deletion = place_of(store, "store"), _deletion(ids, missing, chosen)
    require_store(folder)
    with called("delete", progress) as call:
        change = delete_documents(folder, deletion)
        call.watch.note(change.told)
    return change.store


def compact(store: PathLike, *, progress: Progress = None) -> Store:
    """Remove the vectors of deleted and replaced documents from the file of a store, whose documents stay as
    they are.

    An interrupted call resumes when it is repeated. The disk needs room for a second file of the vectors that
    remain.

    Args:
        store: A store or its directory.
        progress: As in `embed`.

    Returns:
        The store.

    Raises:
        StoreError: If the disk has too little room.

    Example:
        >>> papers = [{"_id": "a", "text": "Graph neural networks"}, {"_id": "b", "text": "Protein folding"}]
        >>> store = adiabat.delete(adiabat.embed("demo", papers, out="smaller"), ["a"])
        >>> adiabat.compact(store).count
        1
    """
    folder = place_of(store, "store")
    require_store(folder)
    with called("compact", progress) as call:
        change = compact_store(folder, on_progress=partial(call.watch.progress, "copying vectors"))
        call.watch.note(change.told)
    return change.store


def _folder_of(out: PathLike, into: Into, exist_ok: bool | None) -> Path:
    """The directory of a new store, or of the one that is changed."""
    if into != "new" and exist_ok is not None:
        raise ConfigError(
            f"{option('exist_ok')} is about new stores, and {option(into)} changes one; leave one of them out"
        )
    # A new store takes the place that a link leads to, also where nothing is there yet.
    return Path(path_of(out, "out")) if into == "new" else place_of(out)


def _deletion_of(
    ids: PathLike | Sequence[str] | None, missing: Missing | None, settings: EmbedSettings, *, update: bool
) -> Deletion | None:
    """The documents that an update deletes."""
    if ids is None:
        if missing is not None:
            raise ConfigError(
                f"{option('missing')} is about the ids in {option('delete')}, got none; give both, or neither"
            )
        return None
    if not update:
        raise ConfigError(
            f"documents are deleted with {option('update', True)}, or by "
            "adiabat.delete without a corpus; choose one"
        )
    return _deletion(ids, missing, settings)


def _deletion(ids: PathLike | Sequence[str], missing: Missing | None, settings: EmbedSettings) -> Deletion:
    if missing not in (None, "error", "drop"):
        raise ConfigError(f'{option("missing")} must be "error" or "drop", got {shown(missing)}; choose one')
    return Deletion(list(read_ids(ids)), missing or "error", settings.data.ids)


def import_vectors(
    vectors: Any,
    out: PathLike,
    *,
    ids: PathLike | Sequence[object] | np.ndarray | None = None,
    texts: Data | None = None,
    columns: Mapping[str, str] | None = None,
    model: Model | None = None,
    update: bool = False,
    delete: PathLike | Sequence[str] | None = None,
    missing: Missing | None = None,
    exist_ok: bool | None = None,
    settings: SettingsLike = None,
    progress: Progress = None,
    **options: Any,
) -> Store:
    """Make a store of document vectors that were computed elsewhere.

    With texts and a model, 16 random documents are encoded again: the store then belongs to that model, and
    other models are refused. Without, models are checked by their width alone.

    Args:
        vectors: An array [n, width] of floats; or a ``.npy``, Parquet or faiss file; or a DataFrame (of
            pandas or polars) or `datasets.Dataset` with a column ``vector`` and one of ids. A DataFrame of
            numbers alone is an array, whose index in pandas holds the ids.
        out: Directory of the store.
        ids: One id for each vector; or a file of them. None takes those in `vectors`.
        texts: One text for each id, in the same order; or a corpus with ids. None makes a store without
            texts, unless `columns` name a text of `vectors`.
        columns: Names in the tables of ``doc_id``, ``vector``, ``text`` and ``title``, such as ``{"doc_id":
            "nummer"}``.
        model: Model whose document tower made the vectors.
        update: Replace documents of the store at `out` by their ids, or add them. Documents that are equal,
            or have no vector here, stay.
        delete: Ids of documents that an update also deletes, or a file of ids.
        missing: As in `delete`.
        exist_ok: True returns the result of the same call at once, as in `tune`. None refuses an existing
            store.
        settings: `EmbedSettings`, a TOML file or nested dicts.
        progress: None is silent without a terminal or a notebook, and shows a bar on one. True prints a line
            every half minute without one. False is silent.
        **options: Single settings, such as ``dtype="float32"``.

    Returns:
        The store.

    Raises:
        AdiabatError: If vectors, ids and texts do not fit together, or the vectors are not the model's.

    Example:
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).normal(size=(2, 8))
        >>> texts = ["Graphs", "Proteins"]
        >>> store = adiabat.import_vectors(vectors, ids=["a", "b"], texts=texts, out="imported")
        >>> store.doc_ids([0, 1])
        ['a', 'b']
    """
    chosen = settings_of(EmbedSettings, settings, options, section="store", function="import_vectors")
    if model is not None:
        require_model(model, "model")
    named = dict(columns or {})
    if unknown := [name for name in named if name not in TABLE_COLUMNS]:
        raise ConfigError(
            f"columns must be named by {', '.join(TABLE_COLUMNS)}, got {', '.join(unknown)}; leave it out"
        )
    into: Into = "update" if update else "new"
    deletion = _deletion_of(delete, missing, chosen, update=update)
    target, ids_column = _folder_of(out, into, exist_ok), some_of(named, "doc_id")
    # Without texts and a model there is nothing to compare the vectors with.
    if (texts is None and "text" not in named) or model is None:
        refuse_idle(
            chosen.store,
            {"min_cosine": NEEDED_COSINE},
            "import without both model and texts, which checks no vector",
        )
    with called("import_vectors", progress) as call, TemporaryDirectory() as folder:
        files = imported(vectors, ids, texts, named, real(Path(folder)))
        inputs: dict[str, Any] = {
            "vectors": files.vectors,
            "ids": digested(files.ids),
            "texts": files.corpus,
            "columns": named,
        }
        asked = Asked.of(
            "import_vectors", target, exist_ok, settings=chosen, proof=MANIFEST_FILE, model=model, **inputs
        )
        if asked.is_finished():
            return Store.open(target)
        if into == "new":
            require_outside(target)
        require_importable(
            files.vectors,
            target,
            chosen,
            ids=files.ids,
            corpus=files.corpus,
            model=model,
            into=into,
            usual=ids_column,
        )
        if into == "new":
            asked.take_digests()
        # Imported after the checks: torch takes seconds to load.
        from adiabat.store.ingestion import store_vectors

        store = store_vectors(
            files.vectors,
            target,
            chosen,
            call.watch,
            ids=files.ids,
            corpus=files.corpus,
            model=model,
            source=source_of(texts, vectors),
            usual=ids_column,
            into=into,
            deletion=deletion,
        )
    if into == "new":
        asked.remember()
    return store
