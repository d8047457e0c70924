"""Similarity of pairs: texts and words with human scores (STS), labelled pairs, and parallel sentences
(bitext mining).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress

import numpy as np
import torch
from jaxtyping import Bool, Float32

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.labelled import LabelledPairs, ParallelTexts, ScoredPairs
from adiabat.data.records import Side
from adiabat.evaluation.systems import ranking_notes, similarities_of
from adiabat.models.embedding_head import Similarity
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from adiabat.results.suite_result import Kind
from adiabat.stats.samples import CORRELATION, SHARE, Sample, TaskScores
from adiabat.stats.statistics import value_of
from adiabat.stats.unit_arrays import Values, Vectors
from adiabat.store.scoring import CPU, Block, FixedPoint, Queries, exact_pairs, row_scores
from adiabat.store.text_vectors import embed_texts, require_directions, zero_rows

_BLOCK_PAIRS = 4096
"""Pairs per block: bounds the vectors in 64 bits."""


def score_sts(model: DualEncoder, pairs: ScoredPairs, *, side: Side, name: str, watch: Watch) -> TaskScores:
    """Spearman correlation of the model's similarities with human scores (STS)."""
    samples = _correlations(_embedded(model, pairs, side=side, name=name, watch=watch), pairs, model)
    _require_two_similarities(samples, [""], name)
    return _pair_scores("sts", name, pairs, samples, notes=ranking_notes(model, similarities_of(model)))


def score_words(model: DualEncoder, pairs: ScoredPairs, *, side: Side, name: str, watch: Watch) -> TaskScores:
    """Spearman correlation on pairs of words, averaged over sets.

    A word with a zero vector has similarity 0 to every other. Words that the tokenizer does not know are
    scored like others, and counted.
    """
    vectors = _embedded(model, pairs, side=side, name=name, watch=watch, zeros=True)
    sets = list(dict.fromkeys(pairs.sets))
    groups = np.array(list(map(sets.index, pairs.sets)))
    samples = [replace(sample, groups=groups) for sample in _correlations(vectors, pairs, model)]
    _require_two_similarities(samples, sets, name)
    words = [*pairs.a, *pairs.b]
    unknown = set(unknown_words(model.tower(side), words))
    blank = set(compress(words, zero_rows(np.concatenate(vectors))))
    facts, notes = {}, ranking_notes(model, similarities_of(model))
    if len(sets) > 1:
        notes.append(f"the mean of the rank correlations of {len(sets)} sets: {', '.join(sets)}")
        for number, set_name in enumerate(sets):
            alone = replace(samples[0].take(np.flatnonzero(groups == number)), groups=None)
            facts[f"Spearman: {set_name}"] = float(value_of(alone)[0])
    for label, group, remark in (
        ("out-of-vocabulary words", unknown, "are unknown to the tokenizer, which cannot tell them apart"),
        ("words without a vector", blank, "have a zero vector: their similarity counts as 0"),
    ):
        concerned = sum(a in group or b in group for a, b in zip(pairs.a, pairs.b, strict=True))
        facts |= {label: float(len(group)), f"pairs with {label}": float(concerned)}
        if group:
            notes.append(f"{len(group):,} of {len(set(words)):,} words, in {concerned:,} pairs, {remark}")
    return _pair_scores("words", name, pairs, samples, facts=facts, notes=notes)


def score_pair_classification(
    model: DualEncoder, pairs: LabelledPairs, *, side: Side, name: str, watch: Watch
) -> TaskScores:
    """Average precision of the similarity at finding matching pairs, and its best thresholds."""
    vectors = _embedded(model, pairs, side=side, name=name, watch=watch)
    measure, together = "average precision", pairs.together.astype(np.float64)
    facts: dict[str, float] = {}
    samples = []
    for similarity in similarities_of(model):
        scores = pair_similarities(*vectors, similarity=similarity)
        samples.append(Sample(measure, scores, similarity, together, "average precision", bounds=SHARE))
        for fact, value in best_thresholds(scores, pairs.together).items():
            facts[f"{fact} by {similarity}"] = value
    notes = ranking_notes(model, similarities_of(model))
    return _pair_scores("pair_classification", name, pairs, samples, facts=facts, notes=notes)


def _pair_scores(
    kind: Kind,
    name: str,
    pairs: ScoredPairs | LabelledPairs | ParallelTexts,
    samples: Sequence[Sample],
    *,
    facts: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    documents: int = 0,
) -> TaskScores:
    """Scores whose units are pairs of texts, numbered from 0."""
    units = list(map(str, range(len(pairs))))
    texts = [f"{a}\n{b}" for a, b in zip(pairs.a, pairs.b, strict=True)]
    return TaskScores(
        name, kind, "pair", units, samples, texts, documents, facts=facts or {}, notes=tuple(notes)
    )


def pair_similarities(a: Vectors, b: Vectors, *, similarity: Similarity) -> Values:
    """Similarity of each pair, in blocks: ``cosine`` (0 with a zero vector), ``dot``, or minus the
    ``distance``.
    """
    scores = np.empty(len(a))
    for start in range(0, len(a), _BLOCK_PAIRS):
        rows = slice(start, start + _BLOCK_PAIRS)
        scores[rows] = row_scores(a[rows].astype(np.float64), b[rows].astype(np.float64), similarity)
    return scores


def best_thresholds(scores: Values, together: Bool[np.ndarray, " n"]) -> dict[str, float]:
    """Best accuracy (share of correctly classified pairs) and best F1 of matching pairs, each with its
    threshold.

    Every observed similarity is tried as a threshold, and one above them all; pairs at or above it are
    classified as matching. The thresholds are chosen on the pairs that they are measured on; of equally good
    ones, the highest.
    """
    # Negated, so that levels ascend from the highest similarity.
    levels, level_of = np.unique(-scores, return_inverse=True)
    hits = np.cumsum(np.bincount(level_of, weights=together))
    accepted = np.cumsum(np.bincount(level_of))
    positives, negatives = int(together.sum()), int((~together).sum())
    rejected = negatives - (accepted - hits)
    # The first threshold accepts nothing; its F1 is 0.
    thresholds = np.concatenate([[np.nextafter(-levels[0], np.inf)], -levels])
    accuracy = np.concatenate([[negatives], hits + rejected]) / scores.size
    f1 = np.concatenate([[0.0], 2 * hits / (accepted + positives)])
    facts: dict[str, float] = {}
    for name, values in (("accuracy", accuracy), ("F1", f1)):
        best = int(values.argmax())
        facts |= {
            f"best {name}": float(values[best]),
            f"threshold of best {name}": float(thresholds[best]),
        }
    return facts


def unknown_words(encoder: Encoder, words: Sequence[str]) -> list[str]:
    """Words without known tokens: the tokenizer returns its unknown token, or no token."""
    distinct = list(dict.fromkeys(words))
    tokenizer = encoder.tokenizer
    token_lists = tokenizer(
        distinct, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False
    )["input_ids"]
    unknown = []
    for word, tokens in zip(distinct, token_lists, strict=True):
        known = [token for token in tokens if token != tokenizer.unk_token_id]
        # Some tokenizers put a mark of word start before the unknown token; it decodes to nothing.
        if len(known) < max(1, len(tokens)) and not str(tokenizer.decode(known)).strip():
            unknown.append(word)
    return unknown


def _embedded(
    model: DualEncoder,
    pairs: ScoredPairs | LabelledPairs | ParallelTexts,
    *,
    side: Side,
    name: str,
    watch: Watch,
    zeros: bool = False,
) -> tuple[Vectors, Vectors]:
    """Vectors of both texts of every pair; zero vectors are allowed with `zeros`."""
    texts = [*pairs.a, *pairs.b]
    vectors = embed_texts(model, texts, side=side, name=name, watch=watch)
    # A zero vector has no direction; words that a static model lacks are counted instead.
    if not zeros:
        require_directions(vectors, texts, name=name)
    return vectors[: len(pairs)], vectors[len(pairs) :]


def _correlations(vectors: tuple[Vectors, Vectors], pairs: ScoredPairs, model: DualEncoder) -> list[Sample]:
    """A sample for each similarity."""
    samples = []
    for by in similarities_of(model):
        values = pair_similarities(*vectors, similarity=by)
        samples.append(Sample("Spearman", values, by, pairs.scores, "spearman", bounds=CORRELATION))
    return samples


def _require_two_similarities(samples: Sequence[Sample], sets: Sequence[str], name: str) -> None:
    """Refuse similarities that are all the same in a set: they have no ranks to correlate."""
    for sample in samples:
        for number, set_name in enumerate(sets):
            values = sample.values if sample.groups is None else sample.values[sample.groups == number]
            if np.ptp(values) == 0:
                of = f" of {set_name}" if set_name else ""
                raise DataError(
                    f"{name}: the model must find some pairs{of} more similar than others, got a "
                    f"{sample.similarity} of {values[0]:g} for all {len(values):,}; check "
                    "whether its vectors are all the same"
                )


BLOCK_ROWS = 4096
TILE_ROWS = 256
"""Queries per tile; with `BLOCK_ROWS` documents, 4 MB of scores."""


def score_bitext(
    model: DualEncoder, sentences: ParallelTexts, *, side: Side, name: str, watch: Watch
) -> TaskScores:
    """Share of sentences whose translation is the nearest of all sentences of the other side, by the model's
    similarity, both ways.
    """
    a, b = _embedded(model, sentences, side=side, name=name, watch=watch)
    found = partial(
        finds_translation, similarity=model.ranks_by, device=model.tower(side).device, name=name, watch=watch
    )
    forward = found(a, b, sentences.b).astype(np.float64)
    backward = found(b, a, sentences.a).astype(np.float64)
    values = {"accuracy": (forward + backward) / 2, "accuracy a to b": forward, "accuracy b to a": backward}
    samples = [Sample(measure, value, model.ranks_by, bounds=SHARE) for measure, value in values.items()]
    notes = ['a is "{}", b is "{}"; a tie with another sentence is an error'.format(*sentences.columns)]
    for column, texts in zip(sentences.columns, (sentences.a, sentences.b), strict=True):
        if repeated := len(texts) - len(set(texts)):
            equal = "repeat another: equal sentences are one answer"
            notes.append(f'{repeated:,} of {len(texts):,} sentences of "{column}" {equal}')
    return _pair_scores("bitext", name, sentences, samples, notes=notes, documents=len(sentences))


def finds_translation(
    queries: Float32[np.ndarray, "n e"],
    answers: Float32[np.ndarray, "n e"],
    texts: Sequence[str],
    *,
    similarity: Similarity = "cosine",
    device: torch.device = CPU,
    name: str = "",
    watch: Watch = SILENT,
    block_rows: int = BLOCK_ROWS,
    tile_rows: int = TILE_ROWS,
) -> Bool[np.ndarray, " n"]:
    """Whether each query is closer to its own answer than to every other; equal `texts` are one answer."""
    row_of: dict[str, int] = {}
    right = np.array([row_of.setdefault(text, len(row_of)) for text in texts])
    # Equal answers have equal vectors, so the first stands for all.
    distinct = answers[np.unique(right, return_index=True)[1]]
    blocks = []
    for start in range(0, len(distinct), block_rows):
        vectors = torch.from_numpy(distinct[start : start + block_rows]).to(device)
        blocks.append(Block(start, vectors, torch.linalg.vector_norm(vectors, dim=1)))
    correct = np.empty(len(queries), dtype=np.bool_)
    for start in range(0, len(queries), tile_rows):
        tile = slice(start, min(start + tile_rows, len(queries)))
        tile_queries = Queries(queries[tile], similarity, device)
        # The similarity of each query to its own answer, which all others must stay below.
        levels = exact_pairs(tile_queries.exact, FixedPoint.of(answers[tile]), similarity).numpy()
        for block in blocks:
            beaten = block.at_least(tile_queries, levels)
            inside = np.flatnonzero((right[tile] >= block.start) & (right[tile] < block.start + len(block)))
            beaten[inside, right[tile][inside] - block.start] = False
            # A query that lost once needs no further comparison.
            levels[beaten.any(axis=1)] = np.nan
        correct[tile] = ~np.isnan(levels)
        watch.progress(f"matching {name}", tile.stop, len(queries))
    return correct
