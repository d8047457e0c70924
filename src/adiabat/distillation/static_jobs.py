"""Students without training: a static model of a teacher, and the towers of two models as one."""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError

from adiabat.config.distillation import DistillStaticSettings, StaticSection
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import JobError, ModelError
from adiabat.core.files import sole_writer
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.data.corpora import training_texts
from adiabat.distillation.static_model import distill, is_distilled, list_modules, rows_and_dims, save_static
from adiabat.distillation.vocabulary import Word, read_words
from adiabat.dual_encoder.dataset_cache import contents_of
from adiabat.models.device import device_name, device_of
from adiabat.models.encoder import Encoder
from adiabat.models.model_names import Model, load, name_of
from adiabat.models.saving import save
from adiabat.models.static import WEIGHTS, require_saveable
from adiabat.models.towers import DualEncoder
from adiabat.results.distillation_result import DistillResult
from adiabat.results.record import write_result
from adiabat.runs.output_dir import require_free

PASSED = ".passed"
"""Folder of a teacher's vectors, beside the model while it is made."""


def distill_static(
    teacher: Model,
    out: str | Path,
    *,
    settings: DistillStaticSettings | None = None,
    passed: Path | None = None,
    command: str = "adiabat.distill_static(...)",
    watch: Watch = SILENT,
) -> DistillResult:
    """Make a static model of a teacher; an interrupted call resumes when it is repeated."""
    settings, folder, started = settings or DistillStaticSettings(), Path(out), time.monotonic()
    section, notes = settings.static, list[str]()
    _require_place(folder)
    words = _words(section)
    if section.corpus is not None:
        # Looks at the first row, so that its faults come before the model is loaded.
        training_texts(section.corpus)

    def note(sentence: str) -> None:
        notes.append(sentence)
        watch.note(sentence)

    with _directory(folder), sole_writer(folder):
        tower = load(teacher, settings=settings.encoder, device=settings.run.device).document
        corpus = section.corpus
        distilled = distill(
            tower,
            section,
            words=words,
            texts=None if corpus is None else lambda: (document.text for document in training_texts(corpus)),
            folder=folder / PASSED if passed is None else passed,
            seed=settings.run.seed,
            watch=Watch(note, watch.progress),
        )
        save_static(distilled, section, folder, teacher=name_of(teacher))
        result = DistillResult(
            title=f"A static model of {name_of(teacher)}",
            command=command,
            created=now(),
            seconds=time.monotonic() - started,
            seed=settings.run.seed,
            versions=versions(device_name(device_of(settings.run.device))),
            teacher=name_of(teacher),
            tokens=len(distilled.vocabulary.tokens),
            added=distilled.vocabulary.added,
            dims=distilled.vectors.shape[1],
            kept=distilled.kept,
            counted=distilled.counted,
            size=(folder / WEIGHTS).stat().st_size,
            settings=settings.model_dump(mode="json", exclude_none=True),
            inputs=_inputs(tower, section, words),
            notes=notes,
        )
        write_result(result, folder)
        list_modules(section, folder)
        shutil.rmtree(folder / PASSED, ignore_errors=True)
    return result


@contextmanager
def _directory(folder: Path) -> Iterator[None]:
    """A directory that is there meanwhile, and afterwards if anything lies in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise JobError(f"--out {folder} could not be made: {fault.strerror}; choose another directory") from fault
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()


def distill_pair(query: Model, document: Model, out: str | Path, *, settings: EncoderSection | None = None) -> DualEncoder:
    """Save the query tower of one model and the document tower of another as one model."""
    folder = Path(out)
    require_free(folder, resume=False)
    query_model, document_model = load(query, settings=settings), load(document, settings=settings)
    if query_model.query.width != document_model.document.width:
        raise ModelError(
            f"the query tower of {name_of(query)} must be as wide as the documents of {name_of(document)}, "
            f"{document_model.document.width}, got {query_model.query.width}; fit it with --set distill.width=projection"
        )
    pair = DualEncoder(query_model.query, document_model.document, f"{name_of(query)} beside {name_of(document)}", document_model.root)
    for tower in (pair.query, pair.document):
        require_saveable(tower)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            saved = Path(temporary) / "model"
            save(pair, saved)
            saved.replace(folder)
    except (OSError, SafetensorError) as fault:
        raise JobError(f"--out {folder} could not be written: {fault}; free some space, or choose another directory") from fault
    return pair


def _require_place(folder: Path) -> None:
    """A new or empty directory, or one where the same was cut short."""
    if is_distilled(folder):
        raise JobError(f"--out {folder} holds a model already; choose another directory")
    if not (folder / PASSED).is_dir():
        require_free(folder, resume=False)


def inputs_of(teacher: str, settings: DistillStaticSettings) -> dict[str, dict[str, str]]:
    """Digests of the teacher, vocabulary and corpus that a static model would be made of."""
    section = settings.static
    words = _words(section)
    tower = load(teacher, settings=settings.encoder, device=settings.run.device).document
    rows_and_dims(tower, section, words)
    return _inputs(tower, section, words)


def _words(section: StaticSection) -> list[Word]:
    return [] if section.vocabulary is None else read_words(Path(section.vocabulary))


def _inputs(tower: Encoder, section: StaticSection, words: Sequence[Word]) -> dict[str, dict[str, str]]:
    inputs = {"teacher": {"weights_sha256": tower.weights_digest()}}
    if section.corpus is not None:
        files = json.dumps(contents_of([section.corpus]))
        inputs["corpus"] = {"path": section.corpus, "files_sha256": hashlib.sha256(files.encode()).hexdigest()}
    if section.vocabulary is not None:
        text = "\n".join(word.text for word in words)
        inputs["vocabulary"] = {"path": section.vocabulary, "words_sha256": hashlib.sha256(text.encode()).hexdigest()}
    return inputs
