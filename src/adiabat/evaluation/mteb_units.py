"""Scores of every unit of an mteb task, from the predictions that mteb stores, because its single score
allows no test.

Units are accepted only if their value reproduces mteb's score.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from adiabat.stats.ranking_measures import ranking_measures
from adiabat.stats.samples import CORRELATION, SHARE, Sample, TaskScores, ranking_sample
from adiabat.stats.statistics import value_of
from adiabat.stats.unit_arrays import Values

AGREEMENT = 2e-5
"""Tolerance between mteb's score and the value of the units: mteb rounds some scores to five digits."""

RANK_MEASURE = re.compile(r"(ndcg|map|recall|precision|mrr|hit_rate)_at_(\d+)")
RANK_NAMES = {
    "ndcg": "nDCG",
    "map": "AP",
    "recall": "R",
    "precision": "P",
    "mrr": "RR",
    "hit_rate": "Success",
}
"""mteb's names of measures, and those of ir-measures."""

SCORES: Mapping[str, tuple[str, str, int]] = {
    "similarity": ("similarity_scores", "", 1),
    "cosine": ("cosine_scores", "cosine", 1),
    "manhattan": ("manhattan_distances", "manhattan", -1),
    "euclidean": ("euclidean_distances", "distance", -1),
    "dot": ("dot_scores", "dot", 1),
}
"""mteb's similarities of pairs: key of its scores, our name ("": the model's own), and the sign with which
higher is closer."""


@dataclass(frozen=True, slots=True)
class Subset:
    """One data set of a task, a split of a subset such as a language (``default`` where there is one); mteb
    averages them.

    `scores` are mteb's; `predicted` are the stored answers of the model, None if mteb stored none.
    """

    task: Any
    split: str
    subset: str
    scores: Mapping[str, Any]
    predicted: Any
    similarity: str

    @property
    def score(self) -> float:
        """Main score, by mteb."""
        return float(self.scores["main_score"])

    @property
    def measure(self) -> str:
        """Mteb's name of the main score."""
        return str(self.task.metadata.main_score)

    @property
    def data(self) -> Any:
        """Data of the subset and split."""
        data = self.task.dataset
        has_subsets = self.subset != "default" or "default" in data
        return data[self.subset][self.split] if has_subsets else data[self.split]


def unit_scores(subsets: Sequence[Subset]) -> TaskScores | None:
    """Scores of every unit, the data sets of a task one after the other, as groups.

    None if mteb stores too little, or if the units do not reproduce its score.
    """
    scores = []
    for subset in subsets:
        units = _units_of(subset)
        if units is None or abs(value_of(units.samples[0])[0] - subset.score) > AGREEMENT:
            return None
        scores.append(units)
    return scores[0] if len(scores) == 1 else _joined(subsets, scores)


def _joined(subsets: Sequence[Subset], scores: Sequence[TaskScores]) -> TaskScores:
    """One task whose groups are the data sets."""
    samples = [each.samples[0] for each in scores]
    references = [sample.reference for sample in samples if sample.reference is not None]
    # mteb averages its data sets, as groups are averaged.
    sample = replace(
        samples[0],
        values=np.concatenate([sample.values for sample in samples]),
        reference=np.concatenate(references) if references else None,
        groups=np.repeat(np.arange(len(scores)), [len(each.units) for each in scores]),
    )
    ids: list[str] = []
    texts: list[str] = []
    for subset, each in zip(subsets, scores, strict=True):
        ids += [f"{subset.subset}/{subset.split}/{unit}" for unit in each.units]
        texts += each.texts
    return scored(scores[0].unit, ids, sample, texts, max(each.documents for each in scores))


def scored(
    unit: str, ids: Sequence[str], sample: Sample, texts: Sequence[str] = (), documents: int = 0
) -> TaskScores:
    """Scores of units without the name of their task."""
    return TaskScores("", "mteb", unit, ids, [sample], texts, documents)


def _units_of(subset: Subset) -> TaskScores | None:
    """Units by the kind of task; mteb stores too little of some kinds."""
    from mteb import abstasks
    from mteb.abstasks.clustering_legacy import AbsTaskClusteringLegacy

    # The first kind that fits: kinds are classes, and some inherit from others.
    kinds: Mapping[Any, Callable[[Subset], TaskScores | None]] = {
        abstasks.AbsTaskRetrieval: _queries,
        abstasks.AbsTaskSTS: _graded_pairs,
        abstasks.AbsTaskPairClassification: _labelled_pairs,
        abstasks.AbsTaskClassification: _labelled_texts,
        abstasks.AbsTaskBitextMining: _sentences,
        AbsTaskClusteringLegacy: _sets,
    }
    for kind, read in kinds.items():
        if isinstance(subset.task, kind) and subset.predicted is not None:
            return read(subset)
    return None


def _queries(subset: Subset) -> TaskScores | None:
    """Retrieval and reranking: the value of each query."""
    match = RANK_MEASURE.fullmatch(subset.measure)
    if match is None:
        return None
    data = subset.data
    qrels = data["relevant_docs"]
    measure = f"{RANK_NAMES[match[1]]}@{match[2]}"
    run = {query: _mteb_ranking(subset.task, query, scores) for query, scores in subset.predicted.items()}
    values = ranking_measures(run, qrels, [measure])[measure]
    text_of = dict(zip(data["queries"]["id"], data["queries"]["text"], strict=True))
    texts = [str(text_of[query]) for query in qrels]
    sample = ranking_sample(measure, values, subset.similarity)
    return scored("query", list(qrels), sample, texts, len(data["corpus"]))


def _mteb_ranking(task: Any, query: str, scores: Mapping[str, float]) -> dict[str, float]:
    """The ranking as mteb judges it: of equal scores the later id comes first, and documents that the task
    leaves out are gone.
    """
    ranked = dict(scores)
    if task.ignore_identical_ids:
        ranked.pop(query, None)
    if task.skip_first_result and ranked:
        ranked.pop(max(ranked, key=ranked.__getitem__))
    order = sorted((score, doc_id) for doc_id, score in ranked.items())
    return {doc_id: float(position) for position, (_, doc_id) in enumerate(order)}


def _graded_pairs(subset: Subset) -> TaskScores | None:
    """STS: Spearman correlation of the model's similarities with human scores."""
    by = subset.measure.removesuffix("spearman").removesuffix("_") or "similarity"
    if not subset.measure.endswith("spearman") or by not in SCORES:
        return None
    key, similarity, _ = SCORES[by]
    # mteb stores negated distances for STS.
    values = np.asarray(subset.predicted[key], dtype=np.float64)
    reference = np.asarray(subset.data["score"], dtype=np.float64)
    similarity = similarity or subset.similarity
    sample = Sample("Spearman", values, similarity, reference, "spearman", bounds=CORRELATION)
    return scored("pair", _numbers(len(values)), sample, _pairs(subset.data, *subset.task.column_names))


def _labelled_pairs(subset: Subset) -> TaskScores | None:
    """Pair classification: average precision by one similarity, or by the best of all."""
    by = subset.measure.removesuffix("_ap")
    data = subset.data[0] if len(subset.data) == 1 else subset.data
    labels = np.asarray(data[subset.task.label_column_name], dtype=np.float64)
    if not subset.measure.endswith("_ap") or by not in (*SCORES, "max"):
        return None
    samples = {name: _average_precision(subset, name, labels) for name in SCORES}
    best = max(samples.values(), key=lambda sample: value_of(sample)[0])
    # The best similarity may differ between models, so it must not be part of the key.
    samples["max"] = replace(best, similarity="best of all")
    texts = _pairs(data, subset.task.input1_column_name, subset.task.input2_column_name)
    return scored("pair", _numbers(len(labels)), samples[by], texts)


def _average_precision(subset: Subset, by: str, labels: Values) -> Sample:
    """The sample by one of the similarities that mteb stores."""
    key, similarity, sign = SCORES[by]
    values = sign * np.asarray(subset.predicted[key], dtype=np.float64)
    name, similarity = "average precision", similarity or subset.similarity
    return Sample(name, values, similarity, labels, "average precision", bounds=SHARE)


def _labelled_texts(subset: Subset) -> TaskScores | None:
    """Classification: share of mteb's experiments, each trained on its own draw, that predict a text's
    label.
    """
    task, data = subset.task, subset.data
    if subset.measure != "accuracy" or task.is_cross_validation:
        return None
    labels = np.asarray(data[task.label_column_name])
    values = np.mean([np.asarray(predicted) == labels for predicted in subset.predicted], axis=0)
    # Some tasks name several columns, or one of other things than texts.
    column = task.input_column_name
    texts = list(map(str, data[column])) if isinstance(column, str) else ()
    return scored("text", _numbers(len(labels)), Sample("accuracy", values, bounds=SHARE), texts)


def _sentences(subset: Subset) -> TaskScores | None:
    """Bitext mining: whether each sentence found its translation, or the F1 of its translation as a class.

    That F1 is ``2 TP / (2 TP + FP + FN)``: TP if the sentence found it, FN if not, FP the number of other
    sentences that chose it.
    """
    if subset.measure not in ("accuracy", "f1") or "gold" in subset.data:
        return None
    columns, answers = next(iter(subset.predicted.items()))
    chosen = np.array([answer["corpus_id"] for answer in answers], dtype=np.int64)
    values = (chosen == np.arange(len(chosen))).astype(np.float64)
    if subset.measure == "f1":
        values *= 2 / (1 + np.bincount(chosen, minlength=len(chosen)))
    texts = _pairs(subset.data, *columns.split("-"))
    sample = Sample(subset.measure.replace("f1", "F1"), values, subset.similarity, bounds=SHARE)
    return scored("sentence", _numbers(len(chosen)), sample, texts)


def _sets(subset: Subset) -> TaskScores | None:
    """Clustering of several sets of texts: the V-measure of each."""
    if subset.measure != "v_measure" or not isinstance(subset.scores.get("v_measures"), list):
        return None
    values = np.asarray(subset.scores["v_measures"], dtype=np.float64)
    return scored("set", _numbers(len(values)), Sample("V-measure", values, bounds=SHARE))


def _numbers(count: int) -> list[str]:
    """Ids of units that have none."""
    return list(map(str, range(count)))


def _pairs(data: Any, first_column: Any, second_column: Any) -> list[str]:
    """Both texts of each pair on two lines; empty if a column does not hold texts."""
    if not (isinstance(first_column, str) and isinstance(second_column, str)):
        return []
    pairs = zip(data[first_column], data[second_column], strict=True)
    return [f"{first}\n{second}" for first, second in pairs]
