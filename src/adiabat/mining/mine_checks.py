"""Checks of mining by its settings and paths, before torch is loaded."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from adiabat.config.dataset_settings import LabelSettings, MineSettings
from adiabat.config.shared import RankingEncoderSection, require_device_name
from adiabat.core.disk import clear
from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.files import is_store
from adiabat.core.wording import call_of, option
from adiabat.data.examples import require_columns
from adiabat.data.sources import with_split
from adiabat.models.model_paths import require_names, require_reachable
from adiabat.runs.output_dir import require_outside
from adiabat.store.addressing import require_inputs
from adiabat.store.manifest import HASH_FILE, ID_FILE, INDEX_FILE, LEXICAL_FILES, TEXT_FILE
from adiabat.store.vector_store import Store, refuse_swapped, require_readable

CODECS: Mapping[str, Literal["gzip", "zstd"] | None] = {
    ".jsonl": None,
    ".jsonl.gz": "gzip",
    ".jsonl.zst": "zstd",
}


def working_folder(out: Path) -> Path:
    """The hidden folder of rows that are not finished, beside the mined file, from which a run goes on."""
    return out.with_name(f".{out.name}.mining")


def statistics_path(out: Path) -> Path:
    """The file of the statistics, beside a mined file."""
    return out.with_name(f"{out.name}.stats.json")


def require_minable(
    data: str,
    corpus: str,
    out: Path,
    *,
    model: str | None,
    store: str | Path | None,
    index: Path | None,
    settings: MineSettings,
) -> None:
    """Check everything that needs neither the data nor a model."""
    require_free(out, index)
    needed = require_source(settings, corpus, model, store)
    judge = settings.judge
    require_names(model, None if judge is None else judge.model)
    require_device_name(settings.run.device)
    stores = [needed, None if judge is None else judge.store]
    for path in (path for path in stores if path is not None):
        require_readable(path)
    require_inputs(
        [with_split(data, settings.data.split)], corpora=[] if is_store(Path(corpus)) else [corpus]
    )
    require_columns(data, settings.data.columns.given())
    require_reachable(model, None if judge is None else judge.model)


def require_labellable(
    data: str, store: str | Path, out: Path, *, model: str | None, reranker: str, settings: LabelSettings
) -> None:
    """Check everything that needs neither the data nor a model."""
    require_free(out, None)
    require_names(model, named_by=option("model"))
    require_names(reranker, named_by=option("reranker"))
    require_device_name(settings.run.device)
    refuse_swapped(store, data, order=("data", "store"))
    require_readable(store)
    require_inputs([with_split(data, settings.data.split)])
    require_columns(data, settings.data.columns.given())
    # The name that the store has may be that of a directory which has moved since.
    encoder = model or Store.open(store).manifest.encoder
    for name, named_by in ((encoder, option("model")), (reranker, option("reranker"))):
        require_names(name, named_by=named_by)
        require_reachable(name, named_by=named_by)


def require_free(out: Path, index: Path | None) -> None:
    """Refuse a place in which no file can be mined, or only until it is written, hours later."""
    ending_of(out)
    if not out.parent.is_dir():
        raise DataError(f"{option('out')} must be in a folder that exists, got {out}; make {out.parent}")
    require_outside(out)
    _require_short(out)
    if out.exists():
        # A run that was killed after its last file left its working folder.
        clear(working_folder(out))
    refuse_existing(out)
    # This check spares the user a run whose second file cannot be written.
    if not working_folder(out).exists():
        # An interrupted run may have left this file of its own.
        refuse_existing(bare_path(out))
    if index is not None:
        _require_own(index, out)


CORPUS_FILE = "corpus.json"
"""Record of the corpus in a folder for the index."""

_INDEX_FILES = frozenset((CORPUS_FILE, HASH_FILE, ID_FILE, INDEX_FILE, TEXT_FILE, *LEXICAL_FILES))


def _require_own(index: Path, out: Path) -> None:
    """Refuse a folder for the index that holds anything else, which could be overwritten."""
    require_outside(index, setting="index")
    if not index.exists():
        return
    if not index.is_dir() or is_store(index):
        what = "a store" if index.is_dir() else "a file"
        raise DataError(f"{option('index')} must be a folder of its own, {index} is {what}; choose another")
    names = sorted(entry.name for entry in index.iterdir())
    foreign = [name for name in names if name not in _INDEX_FILES and name[0] != "."]
    if foreign:
        held = several(foreign, of="other files", shown=3)
        raise DataError(
            f"{option('index')} must be a new or empty folder, or hold an earlier "
            f"index, {index} holds {held}; choose another"
        )
    # A second run would find the mined file among the foreign ones.
    if out.parent.resolve() == index.resolve():
        raise DataError(f"{option('index')} must be a folder of its own, {out} lies in it; choose another")


def require_source(
    settings: MineSettings, corpus: str, model: str | None, store: str | Path | None
) -> str | Path | None:
    """The store of the source's vectors, if it needs one; refuses missing and unused options."""
    if settings.mine.source == "bm25":
        encoder = None if settings.encoder == RankingEncoderSection() else "settings of a model"
        for name, value in ((option("model"), model), (option("store"), store), ("encoder", encoder)):
            if value is not None:
                advice = f"leave it out, or add {option('source', 'dense')}"
                raise ConfigError(f"{name} has no effect with mine.source = bm25, got {value}; {advice}")
        return None
    store = corpus if store is None and is_store(Path(corpus)) else store
    if model is None or store is None:
        missing = " and ".join(
            option(name) for name, value in (("model", model), ("store", store)) if value is None
        )
        raise ConfigError(
            f"mine.source = {settings.mine.source} must have {missing}, got none; "
            f"name the model, and the store that {call_of('embed')} made with it"
        )
    return store


def ending_of(out: Path) -> str:
    """The suffix of a mined file, which decides its compression."""
    for ending in CODECS:
        if out.name.lower().endswith(ending) and len(out.name) > len(ending):
            return ending
    advice = f"name a file in it, such as {out / 'mined.jsonl'}" if out.is_dir() else "rename it"
    raise DataError(f"{option('out')} must end in .jsonl, .jsonl.gz or .jsonl.zst, got {out}; {advice}")


def bare_path(out: Path) -> Path:
    """The file of the queries without negatives."""
    ending = len(ending_of(out))
    return out.with_name(f"{out.name[:-ending]}.without-negatives{out.name[-ending:]}")


LONGEST_NAME = 200
"""Bytes of a mined file's name: file systems allow 255, and names made from it are up to 40 bytes longer."""


def _require_short(out: Path) -> None:
    """Refuse a name that leaves no room for those of the files beside it."""
    length = len(os.fsencode(out.name))
    if length > LONGEST_NAME:
        raise DataError(
            f"{option('out')} must be a name of at most {LONGEST_NAME} bytes, "
            f"got {length} in {out}; shorten it"
        )


def refuse_existing(out: Path) -> None:
    """Refuse to overwrite a file."""
    if out.exists():
        raise DataError(f"{option('out')} must be a new file, {out} exists; remove it, or choose another")
