"""Small training problems: tiny towers, and pairs that repeat themselves as real ones do."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from adiabat.config.dual_training import TrainSection, TrainSettings
from adiabat.config.reader import checked
from adiabat.config.section import overlaid
from adiabat.config.shared import EncoderSection
from adiabat.core.progress import Watch
from adiabat.data.pair_sets import PairBuilder, PairSet, TextList, Texts
from adiabat.data.records import Example, ExampleSet
from adiabat.dual_encoder.contrastive_objective import PairContrast
from adiabat.dual_encoder.tower_setup import build
from adiabat.dual_encoder.train import prepared, train
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Result
from adiabat.training.distributed import ALONE
from tests.settings_by_name import by_name
from tests.tiny import tiny_dual

WIDTH = 16
BLOCKS = 1
"""Two in tests with the fixture `two_blocks`."""
FROZEN = {"kind": "asymmetric", "frozen": "document"}
"""Towers of which the document tower stays."""
Row = tuple[str, Sequence[str], Sequence[str]]
"""A query, what answers it, and what does not."""

ROWS: tuple[Row, ...] = (
    ("what purrs", ["a cat", "a kitten that sleeps"], ["a stone", "the sea is wide and deep", "rust"]),
    ("what barks", ["a dog"], ["a cat"]),
    ("who sleeps", ["a kitten that sleeps"], []),
    ("what is wet", ["the sea is wide and deep", "rain"], ["a stone", "dust"]),
    ("what barks", ["a dog in the yard"], ["rain"]),
    ("what is hard", ["a stone"], ["rain", "a kitten that sleeps", "snow", "a dog"]),
    ("where do ships go", ["over the sea"], ["the yard"]),
    ("what falls", ["snow", "rain"], ["over the sea"]),
    ("what shines at night", ["the moon"], ["a dog", "dust"]),
)
HELD_OUT: tuple[Row, ...] = (
    ("what meows", ["a cat"], ["a dog"]),
    ("what is cold and white", ["snow", "ice"], []),
    ("what barks", ["a hound"], ["the moon", "dust"]),
    ("what is round", ["the moon"], ["a stone", "rain"]),
    ("what sinks", ["a stone"], ["snow"]),
)


def pair_sets(*sets: ExampleSet) -> tuple[PairSet, ...]:
    """One set of pairs for each data set, over common texts in memory."""
    columns = TextList(), TextList(), TextList()
    builder = PairBuilder(*columns)
    for number, given in enumerate(sets):
        builder.add(given.examples, of=number)
    return builder.built([given.name for given in sets], Texts(*columns))


def examples(rows: Sequence[Row], *, name: str = "set") -> ExampleSet:
    """A data set of rows."""
    made = []
    for number, (query, near, far) in enumerate(rows):
        texts, location = (query, tuple(near), tuple(far)), f"{name}.jsonl:{number + 1}"
        made.append(Example(f"{name} {number}", *texts, (1,) * len(near), location))
    return ExampleSet(name, made)


def both_sets() -> tuple[PairSet, PairSet]:
    """Training and validation, which share documents and a query."""
    train, validation = pair_sets(examples(ROWS), examples(HELD_OUT, name="held out"))
    return train, validation


def settings_of(**tables: dict[str, Any]) -> TrainSettings:
    """Settings with these tables; dropout is off unless it is asked for."""
    usual = {"train": {"dropout": False, "batch_size": 5}}
    given = by_name(TrainSettings, "train", tables.get("train", {}))
    return checked(TrainSettings, {**tables, **overlaid(TrainSettings, usual, given)})


def section(**settings: Any) -> TrainSection:
    """``[train]`` with these settings."""
    return settings_of(train=settings).train


def model(*, seed: int = 0, width: int = WIDTH, max_tokens: int = 48, normalize: bool = False) -> DualEncoder:
    """Where training starts: prompts differ, and vectors have unequal lengths."""
    settings = EncoderSettings(max_tokens=max_tokens, query_prompt="ask: ", normalize=normalize)
    return tiny_dual(width=width, layers=BLOCKS, seed=seed, settings=settings)


def from_memory(name: str, section: EncoderSection) -> DualEncoder:
    """A loader: ``tiny``, ``other``, ``wide``, ``short`` and ``unit`` are models."""
    del section
    width, most = 24 if name == "wide" else WIDTH, 12 if name == "short" else 48
    return model(seed=int(name == "other"), width=width, max_tokens=most, normalize=name == "unit")


def objective_of(*, sets: tuple[PairSet, PairSet] | None = None, **tables: dict[str, Any]) -> PairContrast:
    """The objective of settings over `ROWS`; the model is ``tiny`` where none is named."""
    settings = settings_of(**{**tables, "job": {"model": "tiny", **tables.get("job", {})}})
    built = build(settings, from_memory)
    train, validation = sets or both_sets()
    return PairContrast(built.towers, train, validation, settings, built.guide)


def is_triplet(train: dict[str, Any]) -> bool:
    return "triplet" in str(train.get("loss"))


def at_temperature(temperature: float, train: dict[str, Any] | None) -> dict[str, Any]:
    """Settings of training, at a temperature where they name none and their loss has one."""
    given = train or {}
    named = "temperature" in str(given) or is_triplet(given)
    return given if named else {"temperature": temperature, **given}


def plain(encoder: Encoder, texts: Sequence[str], side: Any) -> Tensor:
    """Every text in one padded pass, with its graph."""
    embeddings: Tensor = encoder(encoder.collate(encoder.tokenize(texts, side=side), side=side))
    return embeddings


# --- Whole jobs ---


@dataclass(frozen=True)
class Problem:
    """A file of pairs, and where jobs go."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "pairs.jsonl"


def write_problem(folder: Path, *, queries: int = 40) -> Problem:
    """Queries that share words with their answers, each with two negatives."""
    folder.mkdir(exist_ok=True)
    kinds = ["paper", "note", "memo", "letter", "book"]
    texts = [f"{kinds[number % 5]} {number * number}" for number in range(queries)]
    rows = []
    for n, text in enumerate(texts):
        negatives = [texts[(n + further) % queries] for further in (7, 13)]
        rows.append({"query": f"about {text}", "positive": text, "negative": negatives})
    write_rows(folder / "pairs.jsonl", rows)
    return Problem(folder)


def numbered_rows(count: int, **more: Any) -> list[dict[str, Any]]:
    """Queries and positives that are their numbers."""
    return [{"query": f"q {n}", "positive": f"p {n}", **more} for n in range(count)]


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def job_settings(problem: Problem, out: Path, **tables: dict[str, Any]) -> TrainSettings:
    """A short job that learns."""
    regime: dict[str, Any] = {"learning_rate": 3e-3, "batch_size": 6, "validate_every": 4, "dropout": True}
    if not tables.get("train", {}).get("epochs"):
        regime["steps"] = 12
    given = by_name(TrainSettings, "train", tables.get("train", {}))
    share = {} if "validation" in tables.get("data", {}) else {"validation_fraction": 0.3}
    usual = {
        "job": {"model": "tiny", "data": str(problem.data), "out": str(out)},
        "data": share,
        "run": {"log_every": 3},
    }
    own = {name: {**table, **tables.get(name, {})} for name, table in usual.items()}
    return checked(TrainSettings, {**tables, **own, **overlaid(TrainSettings, {"train": regime}, given)})


def prepared_objective(settings: TrainSettings) -> PairContrast:
    """The objective of a job before its first step."""
    return prepared(from_memory, settings, ALONE)[0]


def run(settings: TrainSettings, *, resume: bool = False, notes: list[str] | None = None) -> Result:
    """Train on a problem."""
    said = [] if notes is None else notes
    return train(from_memory, settings, resume=resume, watch=Watch(note=said.append))
