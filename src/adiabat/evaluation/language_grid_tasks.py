"""Scores of a model on a language grid: sentence pairs with labels, or questions with paragraphs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from jaxtyping import Float, Int

from adiabat.core.errors import DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.data.language_grids import QuestionGridSet
from adiabat.data.records import POSITIVE, LanguageGridSet, Side, grid_id
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.language_grid_measures import (
    MEASURE,
    cluster_ids,
    grid_scores,
    measure_grid,
    measure_grid_retrieval,
)
from adiabat.evaluation.systems import ranking_notes, similarities_of
from adiabat.models.embedding_head import Similarity
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import (
    GridSample,
    Sample,
    TaskScores,
    TrainingOverlap,
    is_discrepancy,
    ranking_sample,
)
from adiabat.stats.unit_arrays import Numbers
from adiabat.store.scoring import FixedPoint, exact_table
from adiabat.store.text_vectors import embed_texts, zero_rows
from adiabat.store.vector_store import Store

Vectors = Mapping[str, Float[np.ndarray, "_n _e"]]


def measure_question_grid(
    questions: Vectors,
    paragraphs: Vectors,
    answers: Mapping[str, Int[np.ndarray, " _n"]],
    *,
    similarities: Sequence[Similarity],
) -> tuple[list[Sample], list[GridSample]]:
    """Rank the paragraph that answers each question among the different paragraphs of each language.

    ``P@1 = [lost = 0]``, ``RR = 1 / (1 + lost)``, ``PND = lost / (d - 1)``, where ``lost`` of the other
    paragraphs score at least as high (Vasilyev et al. 2024).

    Args:
        questions: Query vectors per language, row i for question i.
        paragraphs: Document vectors per language, one for each different text, at least two.
        answers: Per language of `paragraphs`, the row there that answers each question.
        similarities: To rank by.

    Returns:
        Per similarity ``P@1``, ``RR`` and ``PND`` of each question, averaged over all cells; and P@1 and PND
        of each question in each cell.
    """
    question_sides = [FixedPoint.of(vectors) for vectors in questions.values()]
    paragraph_sides = {language: FixedPoint.of(vectors) for language, vectors in paragraphs.items()}
    # Paragraphs that each answer is ranked against, by language of the paragraphs.
    others = np.array([len(vectors) - 1 for vectors in paragraphs.values()])[:, None]
    samples, cells = [], []
    for similarity in similarities:
        rows = []
        for question_side in question_sides:
            row = [_lost(question_side, paragraph_sides[b], answers[b], similarity) for b in paragraphs]
            rows.append(np.stack(row))
        lost = np.stack(rows)
        values = {"P@1": (lost == 0).astype(np.float64), "RR": 1 / (1 + lost), "PND": lost / others}
        for name, value in values.items():
            samples.append(ranking_sample(name, value.mean(axis=(0, 1)), similarity))
            if name != "RR":
                languages = tuple(questions), tuple(paragraphs)
                is_lower_better = is_discrepancy(name)
                cells.append(
                    GridSample(name, similarity, *languages, value.astype(np.float32), is_lower_better)
                )
    return samples, cells


def _lost(questions: FixedPoint, paragraphs: FixedPoint, answers: Numbers, similarity: Similarity) -> Numbers:
    """Number of other paragraphs that score at least as high as the answer."""
    scores = exact_table(questions, paragraphs, similarity)
    own_scores = np.take_along_axis(scores, answers[:, None], axis=1)
    # The answer reaches its own score: it is no competitor.
    return np.asarray(np.count_nonzero(scores >= own_scores, axis=1) - 1)


_RETRIEVAL = (
    f"{MEASURE}: each premise ranks what it entails among the neutral, and the "
    "contradicted, hypotheses of other premises",
)


def score_nli_grid(
    model: DualEncoder,
    grid: LanguageGridSet,
    *,
    hypotheses: Store | None = None,
    similarities: Sequence[Similarity] | None = None,
    trained: TrainedTexts | None = None,
    watch: Watch = SILENT,
) -> TaskScores:
    """Score a grid of sentence pairs: premises through the query tower, hypotheses through the document
    tower.

    Args:
        hypotheses: Store of the model's document tower with every hypothesis by its `grid_id`; None embeds
            them here.
        similarities: To rank by, the main one first; None takes `similarities_of` the model.
        trained: Training data of the model's job, if it has one.
    """
    premises = _embedded(model, grid.premises, grid.languages, side="query", name=grid.name, watch=watch)
    if hypotheses is None:
        hypothesis_vectors = _embedded(
            model, grid.hypotheses, grid.languages, side="document", name=grid.name, watch=watch
        )
    else:
        hypothesis_vectors = {
            language: hypotheses.gather(_hypothesis_rows(hypotheses, grid, language))
            for language in grid.languages
        }
    chosen = similarities or similarities_of(model)
    scores = grid_scores(premises, hypothesis_vectors, similarities=chosen)
    in_languages = [_texts(grid.premises, language) for language in grid.languages]
    clusters = cluster_ids(list(zip(*in_languages, strict=True)))
    samples, cells = measure_grid(
        scores, grid.labels, rows=grid.languages, columns=grid.languages, clusters=clusters
    )
    retrieval_samples, retrieval_grids = measure_grid_retrieval(
        premises, hypothesis_vectors, grid.labels, similarities=chosen, clusters=clusters
    )
    # Units are premises, named by the first sentence pair of each.
    first = np.unique(clusters, return_index=True)[1].tolist()
    facts, notes = _zeros({"premise": premises, "hypothesis": hypothesis_vectors})
    return TaskScores(
        task=grid.name,
        kind="nli_grid",
        unit="premise",
        units=[str(pair) for pair in first],
        samples=[*samples, *retrieval_samples],
        texts=[_shown(grid.premises[pair]) for pair in first],
        documents=len(grid) * len(grid.languages) if hypotheses is None else hypotheses.count,
        grids=[*cells, *retrieval_grids],
        facts=facts,
        notes=(
            "PND: entailment pairs are compared with neutral and with contradiction "
            "pairs; premises are the units of the statistics",
            *(_RETRIEVAL if retrieval_samples else ()),
            *grid.notes,
            *notes,
            *ranking_notes(model, chosen),
        ),
        trained=_premise_overlap(trained, grid, clusters),
    )


def score_question_grid(model: DualEncoder, grid: QuestionGridSet, *, watch: Watch = SILENT) -> TaskScores:
    """Score a grid of questions (Vasilyev et al. 2024): each is asked in every language of the paragraphs of
    every language.

    Paragraphs of equal text in a language count as one: each of them answers the questions of all.
    """
    question_vectors = _embedded(
        model, grid.questions, grid.languages, side="query", name=grid.name, watch=watch
    )
    all_vectors = _embedded(
        model, grid.paragraphs, grid.languages, side="document", name=grid.name, watch=watch
    )
    paragraph_vectors, answers = {}, {}
    for language in grid.languages:
        # Equal paragraphs are one document, which answers the questions of all of them.
        numbers = cluster_ids(_texts(grid.paragraphs, language))
        paragraph_vectors[language] = all_vectors[language][np.unique(numbers, return_index=True)[1]]
        answers[language] = numbers[grid.answers]
    chosen = similarities_of(model)
    samples, cells = measure_question_grid(question_vectors, paragraph_vectors, answers, similarities=chosen)
    facts, notes = _zeros({"question": question_vectors, "paragraph": paragraph_vectors})
    return TaskScores(
        task=grid.name,
        kind="question_grid",
        unit="question",
        units=list(grid.ids),
        samples=samples,
        texts=[_shown(question) for question in grid.questions],
        documents=len(grid.paragraphs),
        grids=cells,
        facts=facts,
        notes=(
            *grid.notes,
            *_merged(len(grid.paragraphs), paragraph_vectors),
            *notes,
            *ranking_notes(model, chosen),
        ),
    )


def _premise_overlap(
    record: TrainedTexts | None, grid: LanguageGridSet, clusters: Numbers
) -> TrainingOverlap | None:
    """Training data of a job among the premises and entailed hypotheses, in any language; None without a
    job.
    """
    if record is None:
        return None
    count, languages = int(clusters.max()) + 1, len(grid.languages)
    premises = list(chain.from_iterable(premise.values() for premise in grid.premises))
    premise_known = record.holds_queries(premises).reshape(-1, languages).any(axis=1)
    entailed = np.flatnonzero(np.array(grid.labels) == POSITIVE)
    hypotheses = list(chain.from_iterable(grid.hypotheses[pair].values() for pair in entailed.tolist()))
    known = record.holds_documents(hypotheses, are_texts=True)
    owners = np.repeat(clusters[entailed], languages)
    counts = None if known is None else np.bincount(owners, weights=known, minlength=count).astype(np.int64)
    return TrainingOverlap(
        np.bincount(clusters, weights=premise_known, minlength=count) > 0,
        np.bincount(owners, minlength=count),
        counts,
        record.unknown,
    )


def _embedded(
    model: DualEncoder,
    translations: Sequence[Mapping[str, str]],
    languages: Sequence[str],
    *,
    side: Side,
    name: str,
    watch: Watch,
) -> Vectors:
    """Vectors per language, row i for translation i."""
    texts = list(chain.from_iterable(_texts(translations, language) for language in languages))
    vectors = embed_texts(model, texts, side=side, name=name, watch=watch)
    return dict(zip(languages, np.split(vectors, len(languages)), strict=True))


def _texts(translations: Sequence[Mapping[str, str]], language: str) -> list[str]:
    """The texts in one language, in their order."""
    return [texts[language] for texts in translations]


def _shown(texts: Mapping[str, str]) -> str:
    """A text to show: the English one, or the first."""
    return texts.get("en") or next(iter(texts.values()))


def _hypothesis_rows(store: Store, grid: LanguageGridSet, language: str) -> Numbers:
    """Rows of the hypotheses in a store, by their `grid_id`; a missing one is a `DataError`."""
    ids = [grid_id(pair, language) for pair in range(len(grid))]
    rows = store.rows(ids)
    if (rows < 0).any():
        absent = [ids[index] for index in np.flatnonzero(rows < 0)]
        raise DataError(
            f"{grid.name}: every hypothesis must be in the store {store.path}, "
            f"it lacks {several(absent, of='hypotheses')}; embed the grid file first"
        )
    return rows


def _merged(paragraphs: int, distinct: Vectors) -> Iterator[str]:
    """A note on equal paragraphs in a language."""
    counts = ", ".join(
        f"{paragraphs - len(vectors)} in {language}"
        for language, vectors in distinct.items()
        if len(vectors) < paragraphs
    )
    if counts:
        yield f"paragraphs with equal texts count as the same answer: {counts}"


def _zeros(sides: Mapping[str, Vectors]) -> tuple[dict[str, float], list[str]]:
    """Notes on texts with a zero vector, which have no known word and tie with all other texts."""
    total, listed = 0, []
    for side, vectors_of in sides.items():
        for language, vectors in vectors_of.items():
            if count := int(np.count_nonzero(zero_rows(vectors))):
                total += count
                listed.append(f"{side} in {language}: {count}")
    if not total:
        return {}, []
    places = several(listed, of="sets of texts")
    note = f"{total:,} texts have a zero vector, equally near to every text ({places})"
    return {"zero vectors": float(total)}, [note]
