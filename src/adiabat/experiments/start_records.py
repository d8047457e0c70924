"""The models that the runs of a sweep start from: their sizes, and how fast they encode documents."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from pydantic import TypeAdapter, ValidationError

from adiabat.config.tasks import TaskSection
from adiabat.core.errors import DataError
from adiabat.core.files import read_json, write_json
from adiabat.data.records import Document
from adiabat.evaluation.measured_models import Corpus, without_skip_warnings
from adiabat.models.towers import DualEncoder
from adiabat.results.ranking_result import Speed

STARTS = "starts.json"
"""In the directory of a sweep."""


@dataclass(frozen=True, slots=True)
class StartRecord:
    """A model that runs start from.

    Attributes:
        model: Its name.
        parameters: Of both towers, each once.
        speed: Of encoding documents; None where it was not measured.
        key: Digest of the settings that decide the model.
        state: Digest of the model, as recorded in its score files.
    """

    model: str
    parameters: int
    speed: Speed | None = None
    key: str = ""
    state: str = ""


def read_starts(folder: Path) -> dict[str, StartRecord]:
    """The records of an earlier call by name; empty where the file is missing or damaged."""
    try:
        return TypeAdapter(dict[str, StartRecord]).validate_python(read_json(folder / STARTS, remedy="it is made again"))
    except (DataError, ValidationError):
        return {}


def write_starts(records: Mapping[str, StartRecord], folder: Path) -> None:
    """Write the records."""
    write_json({name: asdict(record) for name, record in records.items()}, folder / STARTS)


def drawn_texts(tasks: Iterable[object], count: int) -> list[str]:
    """Documents of retrieval tasks, drawn at random, equally many of each corpus as far as it goes."""
    corpora = list(dict.fromkeys(Corpus.of(task) for task in tasks if isinstance(task, TaskSection)))
    drawn: list[str] = []
    with without_skip_warnings():
        for corpus in corpora:
            drawn += _sample(corpus.documents(), -(-count // len(corpora)))
    return drawn[:count]


def _sample(documents: Iterator[Document], count: int) -> list[str]:
    """So many of a stream, each as likely as any other (Vitter 1985, algorithm R)."""
    random = Random(0)
    sample: list[str] = []
    for number, document in enumerate(documents):
        position = number if number < count else random.randint(0, number)
        if number < count:
            sample.append(document.text)
        elif position < count:
            sample[position] = document.text
    return sample


WARM_UP = 64
"""Texts encoded before the clock starts: the first batches set things up, and may try which precision the model supports."""


def encoding_speeds(
    models: Mapping[str, Callable[[], DualEncoder]],
    texts: Sequence[str],
    *,
    rounds: int,
    on_progress: Callable[[int, int], None],
) -> dict[str, Speed]:
    """Time the encoding of documents by several models, in the precision that a store is built in.

    Models take turns, so that other load on the machine falls on all of them alike. Each is loaded again at its turn: one at a time is in
    memory.
    """
    speeds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(rounds):
        for position, (name, load) in enumerate(models.items()):
            on_progress(number * len(models) + position, rounds * len(models))
            speeds[name].append(len(texts) / _seconds(load(), texts))
    on_progress(rounds * len(models), rounds * len(models))
    return {name: Speed(median(one), min(one), max(one), len(texts), rounds) for name, one in speeds.items()}


def _seconds(model: DualEncoder, texts: Sequence[str]) -> float:
    model.encode(texts[:WARM_UP], side="document")
    begun = perf_counter()
    model.encode(texts, side="document")
    return perf_counter() - begun


def step_seconds(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Median time of an optimiser step, from the log of a run; None where no two rows lie a step apart.

    A row behind a validation counts from the validation's end, which leaves validations out.
    """
    steps, before = list[float](), None
    for row in rows:
        if "loss" in row and before is not None and row["step"] > before["step"]:
            steps.append((row["seconds"] - before["seconds"]) / (row["step"] - before["step"]))
        before = row
    return median(steps) if steps else None
