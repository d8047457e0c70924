"""The language grid of questions: each should find its paragraph among all paragraphs of a language, in every pair of languages.

Scores are those that search over a store goes by (`adiabat.store.scoring`): exact, and free of the order of computing; ties are errors.

Letters in shapes: a languages of questions, b languages of paragraphs, n questions, d different paragraphs, e embedding width; an
underscore before a letter: it differs by language, or is checked in the function.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from adiabat.errors import DataError, several
from adiabat.measure.samples import SHARE, Cells, Sample
from adiabat.store.scoring import FixedPoint, Similarity, exact_table

Vectors = Mapping[str, Float[np.ndarray, "_n _e"]]
Answers = Mapping[str, Int[np.ndarray, " _n"]]

MEASURES = ("P@1", "RR", "PND")
"""The first carries the verdict."""

CELLS = ("P@1", "PND")
"""Those that are also told cell by cell."""


def measure_question_grid(
    questions: Vectors, paragraphs: Vectors, answers: Answers, *, similarities: Sequence[Similarity]
) -> tuple[list[Sample], list[Cells]]:
    """Rank the paragraph that answers each question among the different paragraphs of each language.

    ``P@1 = [lost = 0]``, ``RR = 1 / (1 + lost)``, ``PND = lost / (d - 1)``, where ``lost`` of the other paragraphs score at least as high.

    Args:
        questions: Query vectors per language, row i for question i.
        paragraphs: Document vectors per language, one for each different text, at least two.
        answers: Per language of `paragraphs`, the row there that answers each question.
        similarities: To rank by.

    Returns:
        Per similarity ``P@1``, ``RR`` and ``PND`` of each question, averaged over all cells; and P@1 and PND of each question in each cell.

    Raises:
        DataError: If a vector is not finite; language and row of the first ten are listed.
        ValueError: If a language has fewer than two paragraphs.

    Reference:
        Missions A6, A9.
    """
    _check(questions, paragraphs)
    asked, told = ([FixedPoint.of(vectors) for vectors in side.values()] for side in (questions, paragraphs))
    others = np.array([len(vectors) - 1 for vectors in paragraphs.values()])[:, None]
    samples, cells = [], []
    for similarity in similarities:
        lost = np.array([[_lost(one, other, answers[b], similarity) for b, other in zip(paragraphs, told, strict=True)] for one in asked])
        values = {"P@1": (lost == 0).astype(np.float64), "RR": 1 / (1 + lost), "PND": lost / others}
        means = {name: values[name].mean(axis=(0, 1)) for name in MEASURES}
        samples += [Sample(name, mean, similarity, lower_is_better=_lower_is_better(name), bounds=SHARE) for name, mean in means.items()]
        cells += [
            Cells(name, similarity, tuple(questions), tuple(paragraphs), values[name].astype(np.float32), _lower_is_better(name))
            for name in CELLS
        ]
    return samples, cells


def _lower_is_better(measure: str) -> bool:
    return measure == "PND"


def _lost(questions: FixedPoint, paragraphs: FixedPoint, answers: Int[np.ndarray, " n"], similarity: Similarity) -> Int[np.ndarray, " n"]:
    """How many other paragraphs score at least as high as the one that answers."""
    scores = exact_table(questions, paragraphs, similarity)
    own = np.take_along_axis(scores, answers[:, None], axis=1)
    return np.asarray(np.count_nonzero(scores >= own, axis=1) - 1)


def _check(questions: Vectors, paragraphs: Vectors) -> None:
    if few := [language for language, vectors in paragraphs.items() if len(vectors) < 2]:
        raise ValueError(f"paragraphs must be at least two in every language, got fewer in {', '.join(few)}")
    faults = [
        f"{side} vector {row} in {language} must be finite, got NaN or infinity; encode it again"
        for side, every in (("question", questions), ("paragraph", paragraphs))
        for language, vectors in every.items()
        for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
    ]
    if faults:
        raise DataError(several(faults))
