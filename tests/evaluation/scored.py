"""Scores made by hand, for what is done with scores."""

from collections.abc import Mapping, Sequence

import numpy as np

from adiabat.evaluation.suite_findings import ModelScores
from adiabat.results.suite_result import SuiteModel
from adiabat.stats.samples import GridSample, Sample, TaskScores
from adiabat.stats.statistics import value_of


def sample_of(scores: TaskScores, measure: str, similarity: str | None = None) -> Sample:
    """The sample of a measure, by the first similarity where none is named."""
    return next(
        one for one in scores.samples if one.measure == measure and similarity in (None, one.similarity)
    )


def figure(scores: TaskScores, measure: str, similarity: str | None = None) -> float:
    return float(value_of(sample_of(scores, measure, similarity))[0])


def ranked(
    values: Sequence[float],
    *,
    task: str = "asked",
    similarity: str = "cosine",
    units: Sequence[str] | None = None,
) -> TaskScores:
    """A retrieval task with the values of one measure."""
    names = list(units or [f"q{number}" for number in range(len(values))])
    sample = Sample("nDCG@10", np.array(values, dtype=np.float64), similarity)
    texts = [f"text of {name}" for name in names]
    return TaskScores(task, "retrieval", "query", names, [sample], texts=texts, documents=50)


def gridded(values: np.ndarray, *, task: str = "grid") -> TaskScores:
    """A grid of questions in two languages: one value per query language, document language and question."""
    languages = ("de", "en")
    cells = GridSample("P@1", "cosine", languages, languages, values.astype(np.float32), False)
    sample = Sample("P@1", values.mean(axis=(0, 1)), "cosine")
    units = [str(number) for number in range(values.shape[2])]
    return TaskScores(task, "question_grid", "question", units, [sample], grids=[cells])


def model(name: str, *tasks: TaskScores, runs: Sequence[Sequence[TaskScores]] = ()) -> ModelScores:
    """A model with one run, or several."""
    every: list[Mapping[str, TaskScores]] = [{one.task: one for one in run} for run in (runs or [tasks])]
    return ModelScores(SuiteModel(name, f"models/{name}"), every)
