"""Pairs of texts, and of words: does the similarity of their vectors go with what people said?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from adiabat.core.errors import DataError
from adiabat.core.progress import Watch
from adiabat.data.labelled import LabelledPairs, ScoredPairs
from adiabat.data.records import Side
from adiabat.evaluation.systems import ranking_notes, similarities_of
from adiabat.models.embedding_head import Similarity
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from adiabat.stats.samples import CORRELATION, SHARE, Sample, TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.scoring import row_scores
from adiabat.store.text_vectors import embed_texts, require_directions, zero_rows

_BLOCK_PAIRS = 4096
"""Pairs scored at a time: bounds the vectors held in 64 bits."""

PairVectors = tuple[Float[np.ndarray, "n e"], Float[np.ndarray, "n e"]]


def score_sts(model: DualEncoder, pairs: ScoredPairs, *, side: Side, name: str, watch: Watch) -> TaskScores:
    """Rank correlation of the model's similarities with those that people gave (STS)."""
    vectors = _embedded(model, pairs, side=side, name=name, watch=watch)
    samples = _correlations(vectors, pairs, model, sets=None)
    _require_two_similarities(samples, [""], name)
    return TaskScores(
        name, "sts", "pair", _numbers(pairs), samples, texts=_texts(pairs), notes=tuple(ranking_notes(model, similarities_of(model)))
    )


def score_words(model: DualEncoder, pairs: ScoredPairs, *, side: Side, name: str, watch: Watch) -> TaskScores:
    """Rank correlation on pairs of words, averaged over sets.

    A word whose vector is zero has similarity 0 with every other. Words that the tokenizer does not know are scored like others, and told.
    """
    vectors = _embedded(model, pairs, side=side, name=name, watch=watch, zeros=True)
    sets = list(dict.fromkeys(pairs.sets))
    samples = _correlations(vectors, pairs, model, sets=sets)
    _require_two_similarities(samples, sets, name)
    unknown = set(unknown_words(model.tower(side), [*pairs.a, *pairs.b]))
    zero = np.concatenate([zero_rows(rows) for rows in vectors])
    blank = {word for word, is_zero in zip([*pairs.a, *pairs.b], zero, strict=True) if is_zero}
    facts = {
        **_by_set(samples[0], sets),
        **_share(pairs, unknown, "out-of-vocabulary words"),
        **_share(pairs, blank, "words without a vector"),
    }
    notes = (*ranking_notes(model, similarities_of(model)), *_set_notes(sets), *_word_notes(pairs, unknown, blank))
    return TaskScores(name, "words", "pair", _numbers(pairs), samples, texts=_texts(pairs), facts=facts, notes=notes)


def score_pair_classification(model: DualEncoder, pairs: LabelledPairs, *, side: Side, name: str, watch: Watch) -> TaskScores:
    """How well the similarity tells pairs that belong together from pairs that do not."""
    vectors = _embedded(model, pairs, side=side, name=name, watch=watch)
    together, facts, samples = pairs.together.astype(np.float64), dict[str, float](), []
    for similarity in similarities_of(model):
        scores = pair_similarities(*vectors, similarity=similarity)
        samples.append(Sample("average precision", scores, similarity, together, "average precision", bounds=SHARE))
        best = best_thresholds(scores, pairs.together)
        facts |= {
            f"best accuracy by {similarity}": best.accuracy,
            f"threshold of best accuracy by {similarity}": best.accuracy_threshold,
            f"best F1 by {similarity}": best.f1,
            f"threshold of best F1 by {similarity}": best.f1_threshold,
        }
    units, texts = _numbers(pairs), _texts(pairs)
    return TaskScores(
        name,
        "pair_classification",
        "pair",
        units,
        samples,
        texts=texts,
        facts=facts,
        notes=tuple(ranking_notes(model, similarities_of(model))),
    )


def pair_similarities(a: Float[np.ndarray, "n e"], b: Float[np.ndarray, "n e"], *, similarity: Similarity) -> Float[np.ndarray, " n"]:
    """Similarity of each pair of vectors, by `row_scores`, with few of them in 64 bits at a time.

    Args:
        similarity: ``cosine`` (0 where a vector is zero), ``dot``, or ``distance`` (minus the Euclidean distance).

    Returns:
        One number per pair, higher is closer.
    """
    scores = np.empty(len(a))
    for start in range(0, len(a), _BLOCK_PAIRS):
        rows = slice(start, start + _BLOCK_PAIRS)
        scores[rows] = row_scores(a[rows].astype(np.float64), b[rows].astype(np.float64), similarity)
    return scores


@dataclass(frozen=True, slots=True)
class BestThresholds:
    """The best that a threshold on the similarity can do, chosen on the very pairs it is tried on; of equally good ones, the highest.

    Attributes:
        accuracy: Share of pairs on their right side.
        accuracy_threshold: Pairs of at least this similarity are taken to belong together.
        f1: Harmonic mean of precision and recall of the pairs that belong together.
        f1_threshold: Likewise.
    """

    accuracy: float
    accuracy_threshold: float
    f1: float
    f1_threshold: float


def best_thresholds(scores: Float[np.ndarray, " n"], together: Bool[np.ndarray, " n"]) -> BestThresholds:
    """Try every observed similarity as the threshold, and one above them all."""
    levels, level_of = np.unique(-scores, return_inverse=True)
    hits = np.cumsum(np.bincount(level_of, weights=together))
    accepted = np.cumsum(np.bincount(level_of))
    positives, negatives = int(together.sum()), int((~together).sum())
    accuracy = np.concatenate([[negatives], hits + negatives - (accepted - hits)]) / scores.size
    f1 = 2 * hits / (accepted + positives)
    thresholds = np.concatenate([[np.nextafter(-levels[0], np.inf)], -levels])
    best, best_f1 = int(accuracy.argmax()), int(f1.argmax())
    return BestThresholds(float(accuracy[best]), float(thresholds[best]), float(f1[best_f1]), float(thresholds[best_f1 + 1]))


def unknown_words(encoder: Encoder, words: Sequence[str]) -> list[str]:
    """Words of which the tokenizer keeps nothing: it has its unknown token for them, or no token at all."""
    distinct = list(dict.fromkeys(words))
    tokenizer = encoder.tokenizer
    token_lists = tokenizer(distinct, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False)["input_ids"]
    unknown = []
    for word, tokens in zip(distinct, token_lists, strict=True):
        known = [token for token in tokens if token != tokenizer.unk_token_id]
        # Some put a mark of the word's beginning before the unknown token; it decodes to nothing.
        if len(known) < max(1, len(tokens)) and not str(tokenizer.decode(known)).strip():
            unknown.append(word)
    return unknown


def _embedded(
    model: DualEncoder, pairs: ScoredPairs | LabelledPairs, *, side: Side, name: str, watch: Watch, zeros: bool = False
) -> PairVectors:
    """Vectors of both texts of every pair; zero vectors only where `zeros` allows them."""
    texts = [*pairs.a, *pairs.b]
    vectors = embed_texts(model, texts, side=side, name=name, watch=watch)
    if not zeros:
        require_directions(vectors, texts, name=name)
    return vectors[: len(pairs)], vectors[len(pairs) :]


def _correlations(vectors: PairVectors, pairs: ScoredPairs, model: DualEncoder, *, sets: Sequence[str] | None) -> list[Sample]:
    """One sample for each similarity; groups are the sets, where they are told apart."""
    groups = None if sets is None else np.array([sets.index(similarity) for similarity in pairs.sets])
    return [
        Sample(
            "Spearman",
            pair_similarities(*vectors, similarity=similarity),
            similarity,
            pairs.scores,
            "spearman",
            groups=groups,
            bounds=CORRELATION,
        )
        for similarity in similarities_of(model)
    ]


def _require_two_similarities(samples: Sequence[Sample], sets: Sequence[str], name: str) -> None:
    for sample in samples:
        for number, set_name in enumerate(sets):
            values = sample.values if sample.groups is None else sample.values[sample.groups == number]
            if np.ptp(values) == 0:
                of = f" of {set_name}" if set_name else ""
                raise DataError(
                    f"{name}: the model must find some pairs{of} more similar than others, or there is nothing to rank, got a "
                    f"{sample.similarity} of {values[0]:g} for all {len(values):,}; look whether its vectors are all the same"
                )


def _by_set(sample: Sample, sets: Sequence[str]) -> dict[str, float]:
    """Rank correlation of each set by itself; nothing where there is one."""
    if len(sets) < 2 or sample.groups is None or sample.reference is None:
        return {}
    alone = {}
    for number, name in enumerate(sets):
        rows = sample.groups == number
        set_sample = Sample(sample.measure, sample.values[rows], sample.similarity, sample.reference[rows], sample.statistic)
        alone[f"Spearman: {name}"] = float(value_of(set_sample)[0])
    return alone


def _set_notes(sets: Sequence[str]) -> list[str]:
    """What the one number is, where there are several."""
    return [f"the mean of the rank correlations of {len(sets)} sets: {', '.join(sets)}"] if len(sets) > 1 else []


def _pairs_with(pairs: ScoredPairs, words: set[str]) -> int:
    return sum(a in words or b in words for a, b in zip(pairs.a, pairs.b, strict=True))


def _share(pairs: ScoredPairs, words: set[str], label: str) -> dict[str, float]:
    return {label: float(len(words)), f"pairs with {label}": float(_pairs_with(pairs, words))}


def _word_notes(pairs: ScoredPairs, unknown: set[str], blank: set[str]) -> list[str]:
    distinct = len({*pairs.a, *pairs.b})
    remarks = (
        (unknown, "are unknown to the tokenizer, which cannot tell them apart"),
        (blank, "have a zero vector: their similarity counts as 0"),
    )
    return [f"{len(words):,} of {distinct:,} words, in {_pairs_with(pairs, words):,} pairs, {remark}" for words, remark in remarks if words]


def _numbers(pairs: ScoredPairs | LabelledPairs) -> list[str]:
    return [str(number) for number in range(len(pairs))]


def _texts(pairs: ScoredPairs | LabelledPairs) -> list[str]:
    return [f"{a}\n{b}" for a, b in zip(pairs.a, pairs.b, strict=True)]
