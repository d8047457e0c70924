"""From what mteb keeps of a task to scores of every text: mteb reports one number, and a number alone cannot be tested.

Units are believed only where their value is mteb's own score again.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.stats.ranking_measures import ranking_measures
from adiabat.stats.samples import CORRELATION, SHARE, Sample
from adiabat.stats.statistics import value_of

AGREEMENT = 2e-5
"""Between mteb's score and the units' value: it rounds some to five digits."""

RANK_MEASURE = re.compile(r"(ndcg|map|recall|precision|mrr|hit_rate)_at_(\d+)")
RANK_NAMES = {"ndcg": "nDCG", "map": "AP", "recall": "R", "precision": "P", "mrr": "RR", "hit_rate": "Success"}
"""mteb's names, and those of ir-measures."""

SCORES: Mapping[str, tuple[str, str, int]] = {
    "similarity": ("similarity_scores", "", 1),
    "cosine": ("cosine_scores", "cosine", 1),
    "manhattan": ("manhattan_distances", "manhattan", -1),
    "euclidean": ("euclidean_distances", "distance", -1),
    "dot": ("dot_scores", "dot", 1),
}
"""What mteb compares pairs by: where it keeps the scores, our name for it ("": the model's own), and 1 where more is closer."""


@dataclass(frozen=True, slots=True)
class Part:
    """One data set of a task, of which mteb takes the plain mean: a split of a subset, such as a language.

    Attributes:
        task: mteb's, with its data.
        split: Such as ``test``.
        subset: Such as a language; ``default`` where there is one.
        scores: What mteb computed.
        predicted: What it kept of the model's answers; None where it kept nothing.
        similarity: That the model is compared by.
    """

    task: Any
    split: str
    subset: str
    scores: Mapping[str, Any]
    predicted: Any
    similarity: str

    @property
    def score(self) -> float:
        """The main score, by mteb."""
        return float(self.scores["main_score"])

    @property
    def measure(self) -> str:
        """Its name, mteb's own."""
        return str(self.task.metadata.main_score)

    @property
    def data(self) -> Any:
        """What the model was asked."""
        data = self.task.dataset
        return data[self.split] if self.subset == "default" and "default" not in data else data[self.subset][self.split]


@dataclass(frozen=True, slots=True)
class Units:
    """Scores of every text of a task.

    Attributes:
        unit: What they are, in the singular.
        ids: One for each.
        sample: Their scores.
        texts: For people; empty where a unit is no text.
        documents: That queries were compared with; 0 where there is no corpus.
    """

    unit: str
    ids: Sequence[str]
    sample: Sample
    texts: Sequence[str] = ()
    documents: int = 0


def units_of(parts: Sequence[Part]) -> Units | None:
    """Scores of every text, the data sets of a task one after the other.

    Returns:
        The units, in groups where there are several parts; None where mteb keeps too little, or they do not give its score again.
    """
    found = [_units_of(part) for part in parts]
    pairs = zip(parts, found, strict=True)
    whole = [units for part, units in pairs if units and abs(value_of(units.sample)[0] - part.score) <= AGREEMENT]
    if len(whole) < len(parts):
        return None
    return whole[0] if len(parts) == 1 else _joined(parts, whole)


def _joined(parts: Sequence[Part], found: Sequence[Units]) -> Units:
    groups = np.repeat(np.arange(len(found)), [len(units.ids) for units in found])
    samples = [units.sample for units in found]
    references = [sample.reference for sample in samples if sample.reference is not None]
    sample = replace(
        samples[0],
        values=np.concatenate([one.values for one in samples]),
        reference=np.concatenate(references) if references else None,
        groups=groups,
    )
    ids = [f"{part.subset}/{part.split}/{unit}" for part, units in zip(parts, found, strict=True) for unit in units.ids]
    texts = [text for units in found for text in units.texts]
    return Units(found[0].unit, ids, sample, texts, max(units.documents for units in found))


def _units_of(part: Part) -> Units | None:
    """By the kind of task; mteb knows more kinds than it keeps enough of."""
    from mteb import abstasks
    from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy

    kinds = {
        abstasks.AbsTaskRetrieval: _queries,
        abstasks.AbsTaskSTS: _graded_pairs,
        abstasks.AbsTaskPairClassification: _labelled_pairs,
        abstasks.AbsTaskClassification: _labelled_texts,
        abstasks.AbsTaskBitextMining: _sentences,
        AbsTaskClusteringLegacy: _sets,
    }
    read = next((read for kind, read in kinds.items() if isinstance(part.task, kind)), None)
    return None if read is None or part.predicted is None else read(part)


def _queries(part: Part) -> Units | None:
    """Retrieval and reranking: each query's own value of the rank measure."""
    named = RANK_MEASURE.fullmatch(part.measure)
    if named is None:
        return None
    data = part.data
    qrels = data["relevant_docs"]
    measure = f"{RANK_NAMES[named[1]]}@{named[2]}"
    run = {query: _decided(part.task, query, scores) for query, scores in part.predicted.items()}
    values = ranking_measures(run, qrels, [measure])[measure]
    text_of = dict(zip(data["queries"]["id"], data["queries"]["text"], strict=True))
    texts = [str(text_of[query]) for query in qrels]
    return Units("query", list(qrels), Sample(measure, values, part.similarity, bounds=SHARE), texts, len(data["corpus"]))


def _decided(task: Any, query: str, scores: Mapping[str, float]) -> dict[str, float]:
    """The ranking as mteb judges it: of equal scores the later id comes first, and what a task leaves out is gone."""
    kept = {doc_id: score for doc_id, score in scores.items() if not (task.ignore_identical_ids and doc_id == query)}
    if task.skip_first_result and kept:
        kept.pop(max(kept, key=lambda doc_id: kept[doc_id]))
    order = sorted(kept, key=lambda doc_id: (kept[doc_id], doc_id))
    return {doc_id: float(place) for place, doc_id in enumerate(order)}


def _graded_pairs(part: Part) -> Units | None:
    """Similarity of texts: the rank correlation of the model's similarities and people's."""
    by = part.measure.removesuffix("spearman").removesuffix("_") or "similarity"
    if not part.measure.endswith("spearman") or by not in SCORES:
        return None
    kept, similarity, _ = SCORES[by]
    # Here mteb keeps distances with their sign turned.
    values, reference = np.asarray(part.predicted[kept], dtype=np.float64), np.asarray(part.data["score"], dtype=np.float64)
    sample = Sample("Spearman", values, similarity or part.similarity, reference, "spearman", bounds=CORRELATION)
    return Units("pair", _numbers(len(values)), sample, _pairs(part.data, *part.task.column_names))


def _labelled_pairs(part: Part) -> Units | None:
    """Pairs that belong together or do not: average precision by one similarity, or by the best of all."""
    by = part.measure.removesuffix("_ap")
    data = part.data[0] if len(part.data) == 1 else part.data
    labels = np.asarray(data[part.task.label_column_name], dtype=np.float64)
    if not part.measure.endswith("_ap") or by not in (*SCORES, "max"):
        return None
    every = {name: _average_precision(part, name, labels) for name in SCORES}
    # Which one is best may differ between models, so it must not be what tells measures apart.
    every["max"] = replace(max(every.values(), key=lambda one: value_of(one)[0]), similarity="best of all")
    texts = _pairs(data, part.task.input1_column_name, part.task.input2_column_name)
    return Units("pair", _numbers(len(labels)), every[by], texts)


def _average_precision(part: Part, by: str, labels: Float[np.ndarray, " n"]) -> Sample:
    kept, similarity, sign = SCORES[by]
    values = sign * np.asarray(part.predicted[kept], dtype=np.float64)
    return Sample("average precision", values, similarity or part.similarity, labels, "average precision", bounds=SHARE)


def _labelled_texts(part: Part) -> Units | None:
    """Classification: the share of mteb's experiments, each trained on a draw of its own, in which a text got its label."""
    task, data = part.task, part.data
    if part.measure != "accuracy" or task.is_cross_validation:
        return None
    labels = np.asarray(data[task.label_column_name])
    values = np.mean([np.asarray(predicted) == labels for predicted in part.predicted], axis=0)
    texts = [str(text) for text in data[task.input_column_name]] if isinstance(task.input_column_name, str) else ()
    return Units("text", _numbers(len(labels)), Sample("accuracy", values, bounds=SHARE), texts)


def _sentences(part: Part) -> Units | None:
    """Parallel sentences: whether each found its translation, or the F1 of its translation as a class of its own.

    That F1 is ``2 TP / (2 TP + FP + FN)``: TP whether the sentence found it, FN whether not, and FP how many others took it for theirs.
    """
    if part.measure not in ("accuracy", "f1") or "gold" in part.data:
        return None
    chosen = np.array([one["corpus_id"] for one in next(iter(part.predicted.values()))], dtype=np.int64)
    values = (chosen == np.arange(len(chosen))).astype(np.float64)
    if part.measure == "f1":
        values *= 2 / (1 + np.bincount(chosen, minlength=len(chosen)))
    texts = _pairs(part.data, *next(iter(part.predicted)).split("-"))
    sample = Sample(part.measure.replace("f1", "F1"), values, part.similarity, bounds=SHARE)
    return Units("sentence", _numbers(len(chosen)), sample, texts)


def _sets(part: Part) -> Units | None:
    """Clustering of several sets of texts: the V-measure of each."""
    if part.measure != "v_measure" or not isinstance(part.scores.get("v_measures"), list):
        return None
    values = np.asarray(part.scores["v_measures"], dtype=np.float64)
    return Units("set", _numbers(len(values)), Sample("V-measure", values, bounds=SHARE))


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _pairs(data: Any, one: Any, other: Any) -> list[str]:
    """Both texts of each pair, with a line end between; none where a column is not of texts."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return []
    return [f"{first}\n{second}" for first, second in zip(data[one], data[other], strict=True)]
