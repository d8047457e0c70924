"""adiabat from Python: the verbs of the command line as functions.

A MODEL is a hub name, a directory, the directory of a tuning job, ``demo`` (the embedded model), or a `DualEncoder` already loaded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from adiabat.config import EmbedSettings, EncoderSection, EvaluateSettings, SearchSettings, StoreSection, TrainSettings, TuneSettings
from adiabat.contrastive.estimate import Estimate
from adiabat.contrastive.estimate import estimate as estimate_run
from adiabat.contrastive.training import train as run_training
from adiabat.data.corpora import read_corpus
from adiabat.data.records import Side
from adiabat.demo.model import demo_model_folder
from adiabat.errors import ConfigError, DataError, JobError, ModelError
from adiabat.jobs.claims import claimed
from adiabat.jobs.directory import Job, is_job
from adiabat.measure.evaluation import evaluate_datasets, hits_of, read_dataset
from adiabat.measure.metrics import ranking_measures
from adiabat.measure.results import Hit, Result, TrainingRecord
from adiabat.model.backbone import Trust
from adiabat.model.device import device_of
from adiabat.model.directory import load as load_directory
from adiabat.model.directory import override
from adiabat.model.encoder import Progress
from adiabat.model.fingerprint import Fingerprint
from adiabat.model.precision import Precision
from adiabat.model.towers import DualEncoder
from adiabat.report.files import read_result, write_result
from adiabat.report.page import write_page
from adiabat.store.append import append_documents, finish_append
from adiabat.store.build import build_store, refuse_swapped
from adiabat.store.embeddings import Store
from adiabat.store.imports import import_vectors
from adiabat.store.search import search as search_store
from adiabat.tune.adiabatic import tune as run_tuning
from adiabat.watch import SILENT, Watch

Model = str | Path | DualEncoder


def load(model: Model, *, settings: EncoderSection | None = None, device: str = "cpu") -> DualEncoder:
    """Load a model.

    Args:
        model: See the module's first lines.
        settings: Overrides of pooling, prompts and the like; None takes the model's own. Where `trust_remote_code` names another
            model, such as the other one of a comparison, this one runs no code.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Returns:
        Query tower and document tower.

    Raises:
        ModelError: If it cannot be loaded.
        ConfigError: If the model cannot have a setting that was given.
        JobError: If it is a job that is not finished.
    """
    place = device_of(device)
    section = settings or EncoderSection()
    if isinstance(model, DualEncoder):
        if section.blocks is not None:
            raise ConfigError(f"encoder.blocks must be left out for a model already loaded, got {section.blocks}; load it with them")
        return override(model, section.overrides(), pad_token=section.pad_token).to(place)
    name = _directory(model)
    trusted = (section.trust_remote_code or "").rstrip("/") == str(model).rstrip("/")
    trust = Trust(remote_code=str(name) if trusted else None, pickles=section.allow_pickles)
    loaded = load_directory(name, settings=section.overrides(), trust=trust, blocks=section.blocks, pad_token=section.pad_token)
    return replace(loaded, name=str(model)).to(place)


def _directory(model: str | Path) -> str | Path:
    """What the loader is to open: the embedded model's folder, a job's model, or the name as it is."""
    if not str(model):
        raise ModelError("MODEL must be a directory, a job, `demo` or a hub name, got nothing; name one")
    if str(model) == "demo":
        return demo_model_folder()
    if not is_job(Path(model)):
        return model
    folder = Job(Path(model)).model
    if not folder.is_dir():
        raise JobError(f"{model} is a job that is not finished; run its command again with --resume")
    return folder


@dataclass(slots=True)
class _Documents:
    """The document side of a model in the precision asked for, as the store's builders want it; counts what it is given."""

    model: DualEncoder
    precision: Precision
    encoded: int = 0
    full: int = 0

    @property
    def width(self) -> int:
        return self.model.width

    def fingerprint(self, side: Side) -> Fingerprint:
        return self.model.fingerprint(side)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        counts: list[Progress] = []
        vectors = self.model.encode(texts, side=side, precision=self.precision, on_progress=counts.append)
        self.encoded += len(texts)
        self.full += counts[-1].full if counts else 0
        return vectors

    def say_what_was_cut(self, watch: Watch) -> None:
        """Documents that fill the token limit are counted: their ends may be missing from their vectors."""
        if self.full:
            limit = self.model.document.settings.max_tokens
            watch.note(
                f"{self.full:,} of {self.encoded:,} documents fill the limit of {limit} tokens: what goes beyond it is not in their vectors"
            )


def embed(
    model: Model,
    corpus: str | Path,
    out: str | Path,
    *,
    settings: EmbedSettings | None = None,
    append: bool = False,
    vectors: str | Path | None = None,
    ids: str | Path | None = None,
    watch: Watch = SILENT,
) -> Store:
    """Build a store of document vectors, resumably; or add to one; or take vectors that were computed elsewhere.

    Args:
        model: Its document tower encodes.
        corpus: BEIR folder, JSONL, CSV, Parquet, ``hf:NAME``, or a file of examples whose documents are texts.
        out: The store's directory.
        settings: None takes the defaults.
        append: Add the corpus to the store that stands at `out`.
        vectors: Vectors of the corpus (``.npy``, Parquet or a faiss index), imported instead of encoded; some documents are encoded all
            the same, to see that the vectors come from this model.
        ids: Document ids of `vectors`, one per line, where the file itself holds none.
        watch: Whom to tell.

    Returns:
        The finished store.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or EmbedSettings()
    if _is_model(corpus):
        raise DataError(f"CORPUS must be a corpus, {corpus} is a model; the order is MODEL CORPUS")
    _require_one_way(settings.store, append=append, vectors=vectors, ids=ids)
    # Looks at the first row, so that a fault of the corpus comes before the model is loaded.
    documents = read_corpus(corpus, columns=settings.data.columns.given(), split=settings.data.split, blank=settings.data.blank)
    if append:
        finish_append(out)
        kept = Store.open(out)
        _refuse_idle(settings.store, {"dtype": kept.dtype, "keep_texts": kept.has_texts}, "append, which keeps to the store")
    encoder = _Documents(load(model, settings=settings.encoder, device=settings.run.device), settings.store.precision)
    _say_if_not_by_cosine(encoder.model, watch)
    name, maker, progress = str(corpus), encoder.model.name, _on("encoding documents", watch)
    dtype, texts, seed = settings.store.dtype, settings.store.keep_texts, settings.run.seed
    if vectors is not None:
        return import_vectors(
            vectors, out, ids=ids, documents=documents, encoder=encoder, dtype=dtype, seed=seed, source=name, encoder_name=maker
        )
    if append:
        store, note = append_documents(encoder, lambda: documents, out, on_progress=progress, source=name).store, ""
    else:
        built = build_store(
            encoder, lambda: documents, out, dtype=dtype, keep_texts=texts, on_progress=progress, source=name, encoder_name=maker
        )
        store, note = built.store, built.note
    if note:
        watch.note(note)
    encoder.say_what_was_cut(watch)
    return store


def _say_if_not_by_cosine(model: DualEncoder, watch: Watch) -> None:
    similarity = model.root.get("similarity_fn_name") or "cosine"
    if similarity != "cosine" and not model.document.settings.normalize:
        watch.note(f"{model.name} was made for similarity by {similarity}; adiabat searches and measures by cosine")


def _require_one_way(section: StoreSection, *, append: bool, vectors: str | Path | None, ids: str | Path | None) -> None:
    """Refuse to encode, append and import at once, and what would be ignored."""
    if append and vectors is not None:
        raise DataError("append must add a corpus that is encoded, got vectors too; import them into a store of their own")
    if ids is not None and vectors is None:
        raise DataError("ids must name the rows of vectors, got no vectors; give both, or neither")
    if vectors is not None:
        _refuse_idle(section, {"keep_texts": True}, "import, which keeps the texts that it checks the vectors by")


def _refuse_idle(section: StoreSection, kept: dict[str, object], purpose: str) -> None:
    """Refuse settings of a store that would have no effect: those that differ from their default and from what holds anyway."""
    default = StoreSection()
    idle = [name for name, value in kept.items() if getattr(section, name) not in (value, getattr(default, name))]
    if idle:
        names = " and ".join(f"store.{name}" for name in idle)
        raise ConfigError(f"{names} must be left out of an {purpose}, got {', '.join(str(getattr(section, name)) for name in idle)}")


def _on(label: str, watch: Watch) -> Callable[[int, int], None]:
    return lambda done, total: watch.progress(label, done, total)


def tune(
    model: Model,
    store: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    settings: TuneSettings | None = None,
    resume: bool = False,
    command: str = "adiabat.tune(...)",
    watch: Watch = SILENT,
) -> Result:
    """Tune a query tower against the stored vectors of the document tower; see `adiabat.tune.adiabatic.tune`.

    Args:
        model: Where tuning starts.
        store: Document vectors of that model.
        data: (query, positives, negatives).
        out: Directory of the job, afterwards a MODEL.
        settings: None takes the default regime.
        resume: Go on with a job that was cut short.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What the run did, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or TuneSettings()
    refuse_swapped(store, model, data, order="MODEL STORE DATA")
    name = model.name if isinstance(model, DualEncoder) else str(model)
    return run_tuning(
        lambda: load(model, settings=settings.encoder),
        Path(store),
        str(data),
        Path(out),
        settings=settings,
        model_name=name,
        resume=resume,
        command=command,
        watch=watch,
    )


def train(settings: TrainSettings, *, resume: bool = False, command: str = "adiabat.train(...)", watch: Watch = SILENT) -> Result | None:
    """Train both towers of a dual encoder; see `adiabat.contrastive.training.train`.

    Args:
        settings: Everything, `JobSection.model`, `JobSection.data` and `JobSection.out` among it.
        resume: Go on with a job that was cut short.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What the run did, as in ``result.json``; None in a process that is not the main one.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return run_training(lambda name, section: load(name, settings=section), settings, resume=resume, command=command, watch=watch)


def estimate(settings: TrainSettings, *, watch: Watch = SILENT) -> Estimate:
    """What a training run will take: `train` without its steps, and without writing anything.

    Args:
        settings: As for `train`; `JobSection.out` need not be given.
        watch: Whom to tell.

    Returns:
        Parameters, tokens, floating-point operations, memory and time.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return estimate_run(lambda name, section: load(name, settings=section), settings, watch=watch)


def evaluate(
    model: Model,
    store: str | Path,
    data: str | Path,
    *,
    baseline: Model | None = None,
    retain: Sequence[tuple[str | Path, str | Path]] = (),
    split: str | None = None,
    out: str | Path | None = None,
    settings: EvaluateSettings | None = None,
    command: str = "adiabat.evaluate(...)",
    watch: Watch = SILENT,
) -> Result:
    """Measure a model on a data set, against a baseline, and on retention sets that must not get worse.

    Args:
        model: Under test.
        store: Document vectors of its document tower.
        data: The target data set.
        baseline: What it is compared with.
        retain: (store, data) of each retention set.
        split: Of the target; None takes ``data.split`` of the settings, or the usual one.
        out: Directory for ``result.json`` and ``report.html``; None writes nothing.
        settings: None takes the defaults.
        command: For the report.
        watch: Whom to tell.

    Returns:
        The result; where `model` is a job, with the record of its tuning.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or EvaluateSettings()
    # An unknown measure is refused before anything is read.
    ranking_measures({}, {}, settings.measure.measures)
    # So is a damaged record of the job.
    tuning = _training_record(model)
    refuse_swapped(store, model, data, order="MODEL STORE DATA")
    # Data sets of one store share it, and with it the one check of the encoder.
    stores = {str(place): Store.open(place) for place in dict.fromkeys([str(store), *(str(place) for place, _ in retain)])}
    target = read_dataset(stores[str(store)], str(data), role="target", settings=settings, split=split or settings.data.split)
    rest = [read_dataset(stores[str(place)], str(what), role="retain", settings=settings, split=None) for place, what in retain]
    datasets = [target, *rest]
    with claimed(None if out is None else Path(out)) as folder:
        tested = load(model, settings=settings.encoder, device=settings.run.device)
        before = None if baseline is None else load(baseline, settings=settings.encoder, device=settings.run.device)
        title = f"{tested.name} on {datasets[0].examples.name}"
        result = evaluate_datasets(tested, before, datasets, settings=settings, title=title, command=command, watch=watch)
        result = replace(result, training=tuning)
        if folder:
            if (folder / "result.json").exists():
                watch.note(f"the evaluation that stood in {folder} is replaced")
            write_result(result, folder / "result.json")
            write_page(result, folder / "report.html")
    return result


def _training_record(model: Model) -> TrainingRecord | None:
    """What the job did that a model came from; None where nothing of it is left but the model."""
    if isinstance(model, DualEncoder) or not is_job(Path(model)):
        return None
    written = Job(Path(model)).result
    return read_result(written).training if written.exists() else None


def search(store: str | Path, query: str, *, model: Model, k: int = 10, settings: SearchSettings | None = None) -> list[Hit]:
    """Ask a store.

    Args:
        store: Document vectors.
        query: One text.
        model: Whose query tower encodes it.
        k: Results wanted, > 0.
        settings: None takes the defaults.

    Returns:
        Best first, by cosine.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or SearchSettings()
    _require_text(query)
    refuse_swapped(store, query, order="STORE QUERY")
    opened = Store.open(store)
    towers = load(model, settings=settings.encoder, device=settings.run.device)
    opened.require_encoder(towers.fingerprint("document"))
    hits = search_store(opened, towers.encode([query], side="query", precision="fp32"), k, similarity="cosine")
    return hits_of(opened, hits, 0, np.empty(0, dtype=np.int64))


def _is_model(place: str | Path) -> bool:
    """Whether a path that is to be something else is a model: the embedded one, a directory of one, or a job."""
    folder = Path(place)
    return is_job(folder) or (folder / "modules.json").exists() or (str(place) == "demo" and not folder.exists())


def _require_text(query: str) -> None:
    """Refuse what a tokenizer could not read: nothing, or bytes of a command line that are no UTF-8."""
    if not query.strip():
        raise DataError("QUERY must hold text, got an empty one; ask something")
    try:
        query.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise DataError(f"QUERY must be UTF-8 text, got another byte at character {fault.start + 1}; correct it") from fault
