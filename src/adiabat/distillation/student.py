"""Training of a student towards its teachers: from texts or translations to training data, targets and a
training job (Reimers 2021).
"""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from heapq import nsmallest
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import RidgeCV

from adiabat.config.distillation import STATIC_RATE, FitSettings, MultilingualSettings, TeachSettings, Width
from adiabat.core.errors import ConfigError, ModelError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.corpora import read_corpus, training_texts
from adiabat.data.examples import stream_examples
from adiabat.data.language_grids import chosen_languages
from adiabat.data.parallel import ParallelSource, Translation, read_parallel
from adiabat.data.records import Side
from adiabat.distillation.distill_checks import translations_of
from adiabat.distillation.student_data import (
    VALIDATION,
    Lessons,
    Read,
    build_targets,
    cached_matrix,
    require_texts,
    unit,
    write_lessons,
)
from adiabat.dual_encoder.tower_setup import require_numbers
from adiabat.dual_encoder.train import check, check_batch_size, train
from adiabat.models.bulk import Progress
from adiabat.models.device import device_of
from adiabat.models.model_names import load_with
from adiabat.models.static import StaticBackbone
from adiabat.models.towers import DualEncoder, side_of
from adiabat.results.evaluation_result import Result
from adiabat.runs.run_config import Job
from adiabat.store.vector_store import Store

SAMPLE = 8_192
"""Number of texts to fit a layer to: four times as many brought a student no nearer."""

STRENGTHS = tuple(np.logspace(-4, 4, 17).tolist())
"""Ridge penalties to try, from almost none to almost total."""


def fitted_layer(
    rows: Float[np.ndarray, "n d"], towards: Float[np.ndarray, "n e"]
) -> Float[np.ndarray, "d e"]:
    """The linear map from a student's vectors to its teachers' that best predicts texts left out.

    A ridge regression without intercept, in closed form. It shrinks towards zero, or for equal widths towards
    the identity: a student that starts in its teachers' space should stay there, and few texts determine few
    directions.

    ``W`` minimises ``|X W - T|^2 + a |W - O|^2``. Of the penalties ``a`` (`STRENGTHS`) and the origins ``O``,
    those are taken that predict each text best when it alone is left out.

    Args:
        rows: The student's vectors of some texts, ``X``.
        towards: The teachers' vectors of the same texts, ``T``.

    Returns:
        The map ``W``, by which vectors are multiplied from the right.
    """
    (count, width), wide = rows.shape, towards.shape[1]
    origins = [np.eye(width)] if width == wide else []
    if count > width or not origins:
        origins.append(np.zeros((width, wide)))
    exact, targets = rows.astype(np.float64), towards.astype(np.float64)
    # Penalties are relative to rows with a mean squared length of 1.
    mean_length = np.sqrt(np.square(exact).sum(axis=1).mean()) or 1.0
    best_score, weights = -np.inf, np.zeros((width, wide))
    for origin in origins:
        # The ridge shrinks what is fitted to the rest beyond the origin: x W = x origin + x V, V small.
        ridge = RidgeCV(alphas=STRENGTHS, fit_intercept=False)
        ridge.fit(exact / mean_length, targets - exact @ origin)
        if ridge.best_score_ > best_score:
            best_score, weights = ridge.best_score_, origin + ridge.coef_.T / mean_length
    return weights.astype(np.float32)


def write_layer(
    student: DualEncoder, targets: Store, lessons: Lessons, folder: Path, *, watch: Watch = SILENT
) -> Path:
    """Fit a layer to texts of the teachers that are not held out; a finished layer is reused."""
    made_of = targets.manifest.sha256 + json.dumps(student.fingerprint("query").to_json())
    digest = hashlib.sha256(made_of.encode()).hexdigest()
    path = folder / f"layer-{digest[:16]}.npy"
    cached_matrix(path, partial(_layer, student, targets, lessons, watch))
    return path


def _layer(student: DualEncoder, targets: Store, lessons: Lessons, watch: Watch) -> Float[np.ndarray, "d e"]:
    """The layer of a student that has not been trained, fitted to a sample of the training texts.

    Where the student gives unit length, its targets are scaled to it, so that the layer need not.
    """
    held_out: set[str] = set()
    for example in stream_examples(lessons.path(VALIDATION)).examples:
        held_out.update(example.positives)
    documents = (document for document in read_corpus(lessons.folder) if document.doc_id not in held_out)
    # Ids are digests of texts: the smallest ids are a random sample of all files, the same in every run.
    sample = nsmallest(SAMPLE, documents, key=attrgetter("doc_id"))
    if student.width != targets.width:
        require_texts(len(sample), student.width, left_out=" beside those held out")

    def show(now: Progress) -> None:
        """Report how many texts the student has embedded."""
        watch.progress("embedding texts by the student", now.done, now.total)

    texts = [document.text for document in sample]
    rows = student.encode(texts, side="query", on_progress=show)
    doc_ids = [document.doc_id for document in sample]
    towards = targets.gather(targets.rows(doc_ids)).astype(np.float32)
    watch.note(f"the student starts with a layer fitted to its teachers' vectors of {len(sample):,} texts")
    if student.query.settings.unit_length:
        towards = unit(towards)
    return fitted_layer(rows, towards)


OWN_TEXTS = "texts"
"""Name of the user's texts in the training data."""


def teach(
    settings: FitSettings | MultilingualSettings,
    *,
    resume: bool = False,
    command: str = "",
    watch: Watch = SILENT,
    started: float | None = None,
) -> Result:
    """Train a student's vectors towards those of its teachers: of texts, or also of their translations, whose
    targets are the vectors of the texts.

    Training data, the teachers' vectors, the layer and the training itself are made one after another, and
    each is kept: a call that resumes goes on with the first that is not whole.

    A time limit counts from `started`, a value of the monotonic clock, by default from now.
    """
    started = time.monotonic() if started is None else started
    section = settings.distill
    job = Job(Path(str(section.out)))
    folder, device = job.prepared / "lessons", device_of(settings.run.device)
    # Check the settings with the maximum number of files before anything is read.
    files = {OWN_TEXTS: 1} if isinstance(settings, FitSettings) else {settings.data.source: 1, "others": 1}
    check(settings.training(**_tables(settings, Lessons(folder, files), job.prepared)))
    # All errors in the texts must appear before a model is loaded.
    lessons = _lessons(settings, folder, watch)
    if len(lessons.counts) > 1:
        counts = [f"{name} {count:,}" for name, count in sorted(lessons.counts.items())]
        watch.note(f"training texts: {', '.join(counts)}")
    check_batch_size("the texts", sum(lessons.counts.values()), settings.train.batch_size)
    # All models are in memory together only until the targets and the layer are made.
    teachers = [load_with(name, settings.teacher).to(device) for name in section.teachers]
    student = load_with(str(section.student), settings.encoder).to(device)
    require_numbers(student)
    how = _how(teachers, student, section.width)
    # The side of each is checked; all have the same, that of the last.
    for teacher in teachers:
        side = side_of(teacher, section.tower, usual="query", setting="distill.tower")
    if settings.train.loss.kind == "mse" and len(teachers) == 1 and how != "pca":
        _require_reachable(teachers[0], student, side)
    width = student.width if how == "pca" else None
    targets = build_targets(teachers, lessons.folder, job.prepared, side=side, width=width, watch=watch)
    layer = None if how == "none" else write_layer(student, targets, lessons, job.prepared, watch=watch)
    static = isinstance(student.query.backbone, StaticBackbone)
    # Training loads the student again.
    del teachers, student
    run = settings.training(**_tables(settings, lessons, targets.path, layer, static=static))
    result = train(load_with, run, resume=resume, command=command, watch=watch, started=started)
    assert result is not None
    return result


def _lessons(settings: FitSettings | MultilingualSettings, folder: Path, watch: Watch) -> Lessons:
    """The training data of a student, made of the texts and translations that the settings name."""
    read: Read
    if isinstance(settings, FitSettings):
        texts, queries = settings.data.texts, settings.data.queries
        read, sources = partial(_own_texts, texts, queries), [*texts, *queries]
        own, passages = OWN_TEXTS, 1
    else:
        data, parallel = settings.data, translations_of(settings)
        read, sources = partial(_translations, parallel, data.languages), []
        for source in parallel:
            sources += filter(None, [source.path, source.translation])
        own, passages = data.source, data.passages
    return write_lessons(
        read,
        folder,
        settings=settings.data,
        sources=sources,
        own=own,
        passages=passages,
        # The best of several validations cannot be told by one text.
        least=2 if settings.train.keep == "best" else 1,
        watch=watch,
    )


def _own_texts(texts: Iterable[str], queries: Iterable[str]) -> Iterator[Translation]:
    """Texts and queries as translations of themselves: each is its own target."""
    for source in texts:
        for document in training_texts(source):
            yield Translation(document.text, document.text, OWN_TEXTS, source)
    for source in queries:
        for example in stream_examples(source).examples:
            yield Translation(example.query, example.query, OWN_TEXTS, example.location)


def _translations(sources: Iterable[ParallelSource], languages: tuple[str, ...]) -> Iterator[Translation]:
    """The translations of all sources; a wanted language that none of them has is refused at the end."""
    read = set[str]()
    for source in sources:
        for translation in read_parallel(source):
            read.add(translation.language)
            yield translation
    if set(languages) <= read:
        return
    # Only now are all languages needed, for the message.
    for source in sources:
        for translation in read_parallel(replace(source, languages=())):
            read.add(translation.language)
    chosen_languages(languages, read, source="the parallel texts")


def _how(teachers: Sequence[DualEncoder], student: DualEncoder, setting: Width) -> Width:
    """How the widths of student and teachers are matched, with ``auto`` resolved.

    ``pca`` reduces the targets to the student's width, ``projection`` adds a layer to the student, and
    ``none`` needs equal widths. Vectors of several teachers are concatenated, so that their widths add up.
    """
    if not student.shared:
        raise ModelError(
            f"{student.name}: a student must have one tower for both sides, got two; take another model"
        )
    teacher_width, student_width = sum(teacher.width for teacher in teachers), student.width
    # What `auto` takes comes first.
    fitting: tuple[Width, ...] = ("projection",)
    if teacher_width > student_width:
        fitting = ("pca", "projection")
    elif teacher_width == student_width:
        fitting = ("projection", "none")
    allowed = (*fitting, "auto")
    if setting not in allowed:
        raise ConfigError(
            f"distill.width must be {' or '.join(allowed)} where the student has {student_width} "
            f"dimensions and its teachers have {teacher_width}, got {setting}; change it"
        )
    return fitting[0] if setting == "auto" else setting


def _require_reachable(teacher: DualEncoder, student: DualEncoder, side: Side) -> None:
    """Refuse a student with unit-length vectors if its targets have other lengths."""
    if student.query.settings.unit_length and not teacher.tower(side).settings.unit_length:
        raise ConfigError(
            "train.loss = mse needs a student that can reach its teacher's vectors, "
            f"but {student.name} gives unit length and "
            f"{teacher.name} does not; set teacher.normalize = true, encoder.normalize "
            "= false, or take train.loss = cosine_distance"
        )


def _tables(
    settings: TeachSettings,
    lessons: Lessons,
    targets: Path,
    layer: Path | None = None,
    *,
    static: bool = False,
) -> dict[str, Any]:
    """Settings of the training job beyond those that it shares with a distillation.

    One file of texts is the data of the job; several are sources of a mixture, by the rule of the settings.
    """
    section = settings.distill
    files = [str(lessons.path(name)) for name in sorted(lessons.counts)]
    tables: dict[str, dict[str, Any]] = {
        "job": {"model": section.student, "out": section.out},
        "data": {"validation": str(lessons.path(VALIDATION))},
        "towers": {"targets": str(targets)},
        "mixture": {},
        "train": {},
    }
    if len(files) == 1:
        tables["job"]["data"] = files[0]
    else:
        tables["data"]["sources"] = [{"path": path} for path in files]
        tables["mixture"] = settings.mixture.model_dump(include={"rule", "exhausted"})
    if layer is not None:
        tables["towers"]["projection_start"] = str(layer)
    # A table of token vectors learns at a rate that would ruin a transformer.
    if static and "learning_rate" not in settings.train.model_fields_set:
        tables["train"] = {"learning_rate": STATIC_RATE}
    return tables
