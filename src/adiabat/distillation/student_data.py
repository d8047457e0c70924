"""What a student is to learn, on disk: texts, each with the text whose vector by the teachers it is to come close to (Reimers 2021)."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from adiabat.config.distillation import HeldOutLessons
from adiabat.config.section import Section
from adiabat.core.checksums import require_seal
from adiabat.core.errors import DataError, JobError
from adiabat.core.files import read_json
from adiabat.core.progress import SILENT, Watch
from adiabat.data.parallel import Translation
from adiabat.data.records import text_id
from adiabat.data.text_hashes import held_out_queries
from adiabat.datasets.writer import RECORD, DatasetWriter, HashSet, create_dataset
from adiabat.dual_encoder.dataset_cache import contents_of

VALIDATION = "validation"
"""File of what is held out."""

WATCHED = 10_000


@dataclass(frozen=True, slots=True)
class Lessons:
    """What was written.

    Attributes:
        folder: With the teachers' texts as ``corpus.jsonl.gz``, a file of examples for each language, and one that is held out.
        counts: Name of each file that is trained on, without its ending, to its rows.
    """

    folder: Path
    counts: Mapping[str, int]

    def path(self, name: str) -> Path:
        """A file of examples."""
        return self.folder / f"{name}.jsonl.gz"


@dataclass(slots=True)
class _Neighbours:
    """Sentences of one language that follow one another, until there are enough for a passage of the length whose turn it is."""

    most: int
    waiting: deque[Translation] = field(default_factory=deque)
    length: int = 2

    def add(self, sentence: Translation) -> Translation | None:
        self.waiting.append(sentence)
        if len(self.waiting) < self.length:
            return None
        # Lengths take turns, so that a student learns all of them.
        self.length = 2 + (self.length - 1) % (self.most - 1)
        return self.end()

    def end(self) -> Translation | None:
        """The passage so far; the next sentence is no neighbour of it."""
        waiting = [self.waiting.popleft() for _ in range(len(self.waiting))]
        if len(waiting) < 2:
            return None
        source, text = (" ".join(getattr(sentence, name) for sentence in waiting) for name in ("source", "text"))
        return replace(waiting[-1], source=source, text=text)


class _Writer:
    """Puts each lesson into the file of its language, and what it teaches in the teacher's own language once into that of this one."""

    def __init__(self, output: DatasetWriter, own_language: str, held_out: set[int]) -> None:
        self.output, self.own, self.held_out = output, own_language, held_out
        self.counts: Counter[str] = Counter()
        self._known = HashSet()

    def write(self, lesson: Translation, *, held_out: bool = False) -> None:
        self.output.document(text_id(lesson.source), lesson.source)
        if self._known.add(lesson.source):
            self._put(self.own, lesson.source, lesson.source, held_out)
        if lesson.language != self.own:
            self._put(lesson.language, lesson.text, lesson.source, held_out)

    def write_passage(self, passage: Translation | None) -> None:
        if passage is not None:
            self.write(passage)

    def _put(self, language: str, text: str, source: str, held_out: bool) -> None:
        if not held_out:
            self.counts[language] += 1
        self.output.example(VALIDATION if held_out else language, {"query": text, "positive": text_id(source)})


def write_lessons(
    read: Callable[[], Iterable[Translation]],
    folder: Path,
    *,
    settings: HeldOutLessons,
    sources: Iterable[str],
    own: str,
    passages: int = 1,
    least: int = 1,
    watch: Watch = SILENT,
) -> Lessons:
    """Write texts and translations as examples, or find them written by an earlier call.

    What a text's vector by the teachers is does not depend on the language of the student's, so that a text is held out with all its
    translations, and with every passage that it would stand in.
    """
    inputs: dict[str, Any] = {"settings": settings.model_dump(mode="json"), "files": contents_of(sources)}
    if (folder / RECORD).exists():
        return _written(folder, inputs)
    held_out = _held_out(partial(_trimmed, read), settings, least, watch)
    with create_dataset(folder, maker="lessons", source=folder.parent, settings=_Told(**inputs), checksums=True) as output:
        counts = _write(_trimmed(read), _Writer(output, own, held_out), passages, watch)
    return Lessons(folder, counts)


class _Told(Section):
    """What lessons were made from, as ``made.json`` keeps it."""

    settings: dict[str, Any]
    files: dict[str, str]


def _written(folder: Path, inputs: Mapping[str, Any]) -> Lessons:
    remedy = "remove the folder, so that it is made again"
    require_seal(folder, remedy=remedy, error=JobError)
    record = read_json(folder / RECORD, remedy=remedy, error=JobError)
    if record["settings"] != inputs:
        others = ", ".join(_others(record["settings"], inputs))
        raise JobError(f"{folder} was made from other texts or settings ({others}); choose another --out, or remove it")
    counts = {name.removesuffix(".jsonl.gz"): rows for name, rows in record["examples"].items()}
    return Lessons(folder, {name: rows for name, rows in counts.items() if name != VALIDATION})


def _others(before: Mapping[str, Any], inputs: Mapping[str, Any]) -> Iterator[str]:
    """Settings and files that are not what they were."""
    for kind, prefix in (("settings", "lessons."), ("files", "")):
        was, now = before[kind], inputs[kind]
        yield from (f"{prefix}{name}" for name in sorted({*was, *now}) if was.get(name) != now.get(name))


def _trimmed(read: Callable[[], Iterable[Translation]]) -> Iterator[Translation]:
    """Texts without white space around them: as a corpus gives them back, so that their ids stay theirs."""
    for translation in read():
        yield replace(translation, source=translation.source.strip(), text=translation.text.strip())


def _held_out(read: Callable[[], Iterable[Translation]], settings: HeldOutLessons, least: int, watch: Watch) -> set[int]:
    """Hashes of the teachers' texts that are held out."""
    fraction, limit = settings.validation_fraction, settings.max_validation
    known, distinct = HashSet(), list[int]()

    def texts() -> Iterator[str]:
        for number, lesson in enumerate(read()):
            if number % WATCHED == 0:
                watch.progress("reading texts", number, number)
            if known.add(lesson.source):
                distinct.append(hash(lesson.source))
                yield lesson.source

    chosen = held_out_queries(texts(), fraction, limit)
    if not least <= len(chosen) < len(distinct):
        requirement = "texts on both sides" if least == 1 else f"{least} texts to tell apart on one side, and some on the other"
        raise DataError(
            f"lessons.validation_fraction = {fraction} and lessons.max_validation = {limit} must leave {requirement}, got "
            f"{len(chosen):,} of {len(distinct):,} held out; choose others, or add texts"
        )
    return {distinct[index] for index in chosen.tolist()}


def _write(read: Iterable[Translation], writer: _Writer, passages: int, watch: Watch) -> Mapping[str, int]:
    neighbours: dict[str, _Neighbours] = {}
    for number, lesson in enumerate(read):
        if number % WATCHED == 0:
            watch.progress("writing lessons", number, number)
        held_out = hash(lesson.source) in writer.held_out
        writer.write(lesson, held_out=held_out)
        if passages == 1:
            continue
        near = neighbours.setdefault(lesson.language, _Neighbours(passages))
        if held_out or lesson.begins:
            writer.write_passage(near.end())
        if not held_out:
            writer.write_passage(near.add(lesson))
    for near in neighbours.values():
        writer.write_passage(near.end())
    return dict(writer.counts)
