"""Retrieval measures: the positive-negative discrepancy, and the field's ranking measures through
ir-measures.

Scores are always "higher is closer": cosine, or minus the Euclidean distance. Ties count against the positive
everywhere.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float, Int

from adiabat.core.errors import ConfigError, several
from adiabat.core.ragged import Ragged
from adiabat.stats.samples import Sample, ranking_sample
from adiabat.stats.unit_arrays import Values

if TYPE_CHECKING:
    from ir_measures import Measure, Metric, Provider

Ties = Literal["relevant_last", "trec_eval"]
"""Order of documents with equal scores."""

_IRRELEVANT_COUNT = frozenset(("Bpref", "infAP"))
"""Measures of ir-measures that tell grades of documents that are not relevant apart."""


def discordant_counts(positive: Float[np.ndarray, " p"], negative: Values) -> Int[np.ndarray, " p"]:
    """For each positive, how many negatives are not strictly farther from the query.

    ``count_i = #{j : negative_j >= positive_i}``, by sorting, in ``O((p + n) ln n)``.

    Args:
        positive: Scores of the relevant documents, higher is closer.
        negative: Scores of the others, computed the same way, so that equal vectors tie exactly.

    Returns:
        One count per positive, in the order given; a tie is an error.

    Raises:
        ValueError: If a score is NaN.

    Reference:
        Vasilyev et al. 2024.
    """
    for side, scores in (("positive", positive), ("negative", negative)):
        # NaN sorts last and would pass for the closest document.
        if np.isnan(scores).any():
            raise ValueError(
                f"{side} scores must be numbers, got {int(np.isnan(scores).sum())} NaN of {scores.size}"
            )
    # Negatives before the first that is at least as high are strictly farther.
    ascending = np.sort(negative)
    return np.asarray(negative.size - np.searchsorted(ascending, positive, side="left"), dtype=np.int64)


def pnd_shares(errors: Int[np.ndarray, " q"], pairs: Int[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
    """Each query's discrepancy, ``errors / pairs``; 0 for a query that has no pairs (which no mean may
    count).

    A query with fewer pairs than errors is a `ValueError`.
    """
    impossible = np.flatnonzero((errors < 0) | (errors > pairs))
    if impossible.size:
        row = int(impossible[0])
        raise ValueError(
            f"errors must lie between 0 and pairs, got {int(errors[row])} of {int(pairs[row])} at query {row}"
        )
    return np.asarray(np.divide(errors, pairs, out=np.zeros(errors.shape), where=pairs > 0))


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Pairs of a positive and another document of every query, and those whose positive is not strictly
    closer (`errors`).
    """

    errors: Int[np.ndarray, " q"]
    pairs: Int[np.ndarray, " q"]


def improvement(before: float, after: float, *, lower_is_better: bool) -> float | None:
    """Relative improvement in percent, ``100 s (after - before) / before`` with s = -1 where lower is better,
    else +1.

    Args:
        before: Value of the baseline.
        after: Value of the model under test.
        lower_is_better: True for the positive-negative discrepancy.

    Returns:
        Percent, above 0 if the model under test is better; None if `before` is not above 0: of nothing, or of
        a correlation below it, there are no per cent.

    Reference:
        Vasilyev et al. 2024.
    """
    if before <= 0:
        return None
    sign = -1 if lower_is_better else 1
    return 100 * sign * (after - before) / before


def pessimistic_run(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, float]]:
    """Replace scores by ``n, n - 1, ..., 1`` that rank tied documents from the least to the most relevant; a
    NaN is a `ValueError`.

    Evaluation programs break ties by document id and compare 32-bit floats; such a run leaves them no tie. Of
    documents that tie, unjudged ones come first, then those judged not relevant.
    """
    ranked: dict[str, dict[str, float]] = {}
    for query_id, scores in run.items():
        if any(map(math.isnan, scores.values())):
            raise ValueError(f"scores of query {query_id!r} must be numbers, got NaN")
        grades = qrels.get(query_id, {})
        order = []
        for doc_id, score in scores.items():
            relevance = max(grades.get(doc_id, 0), 0)
            order.append((-score, relevance, doc_id in grades, doc_id))
        ranked[query_id] = _by_rank(doc_id for *_, doc_id in sorted(order))
    return ranked


def _by_rank(doc_ids: Iterable[str]) -> dict[str, float]:
    """Scores that rank documents in this order."""
    ordered = list(doc_ids)
    return dict(zip(ordered, np.arange(len(ordered), 0.0, -1.0).tolist(), strict=True))


def trec_eval_run(run: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Replace scores by ``n, n - 1, ..., 1`` in trec_eval's order: by score in 32 bits, of equal scores the
    later id first.

    Reference: ``comp_sim_docno`` in ``form_res_rels.c`` of trec_eval 9.
    """
    ranked: dict[str, dict[str, float]] = {}
    for query_id, scores in run.items():
        order = sorted(zip(_in_32_bits(scores), scores, strict=True), reverse=True)
        ranked[query_id] = _by_rank(doc_id for _, doc_id in order)
    return ranked


def tied_documents(scores: Mapping[str, float], *, single: bool = False) -> int:
    """How many documents of a query share their score with another; with `single`, scores are compared in 32
    bits.
    """
    values = _in_32_bits(scores) if single else scores.values()
    return sum(count for count in Counter(values).values() if count > 1)


def _in_32_bits(scores: Mapping[str, float]) -> list[float]:
    """Scores as trec_eval compares them; too large ones become infinite."""
    with np.errstate(over="ignore"):
        values: list[float] = np.array(list(scores.values()), dtype=np.float64).astype(np.float32).tolist()
    return values


def ranking_measures(
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, int]],
    measures: Sequence[str],
    *,
    ties: Ties = "relevant_last",
) -> dict[str, Float[np.ndarray, " q"]]:
    """Ranking measures of every query.

    Args:
        run: Score of each retrieved document, per query id; higher is closer. Queries that `qrels` lacks are
            ignored.
        qrels: Grade of each judged document, per query id; above 0 is relevant.
        measures: Names of the ir-measures grammar, such as ``nDCG@10``, ``RR``, ``AP``, ``P@1``, ``R@100``.
        ties: Which of documents with equal scores comes first: the least relevant, or as trec_eval has it
            (`trec_eval_run`).

    Returns:
        For each name, one value per query in the order of `qrels`; 0 for a query that retrieved nothing.

    Raises:
        ConfigError: If a name is unknown or incomplete; all such names are listed.
        ValueError: If a score is NaN.

    Reference:
        MacAvaney et al. 2022 (ir-measures).
    """
    judged = {}
    for query_id, grades in qrels.items():
        # Grades of other types than int abort trec_eval.
        judged[query_id] = {doc_id: int(grade) for doc_id, grade in grades.items()}
    judged_run = {query_id: run[query_id] for query_id in judged if query_id in run}
    untied = trec_eval_run(judged_run) if ties == "trec_eval" else pessimistic_run(judged_run, judged)
    return _untied_measures(untied, judged, measures)


def _untied_measures(
    run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]], measures: Sequence[str]
) -> dict[str, Float[np.ndarray, " q"]]:
    """Ranking measures of every query of `qrels`, for a run without ties."""
    parsed = _parsed(measures)
    row_of = {query_id: row for row, query_id in enumerate(qrels)}
    retrieved = {query_id: scores for query_id, scores in run.items() if scores}
    values = {measure: np.zeros(len(row_of)) for measure in parsed.values()}
    # Hashing a measure formats its text each time, which costs more than judging a query: look up each object
    # once.
    columns: dict[int, tuple[Measure, Float[np.ndarray, " q"]]] = {}
    for metric in _judged(list(values), retrieved, qrels) if retrieved else ():
        if id(metric.measure) not in columns:
            columns[id(metric.measure)] = metric.measure, values[metric.measure]
        # Queries without results stay at 0, whatever a provider's default is.
        if metric.query_id in retrieved:
            columns[id(metric.measure)][1][row_of[metric.query_id]] = metric.value
    return {name: values[measure].copy() for name, measure in parsed.items()}


def _judged(
    measures: "Sequence[Measure]", run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]]
) -> "Iterator[Metric]":
    """Metrics by ir-measures, each from the first provider that supports it: ir-measures' own choice of
    provider takes twice as long.
    """
    remaining = list(measures)
    for provider in _providers():
        known = list(filter(provider.supports, remaining))
        remaining = [measure for measure in remaining if measure not in known]
        if known:
            yield from provider.iter_calc(known, qrels, run)


def name_and_cutoff(measure: str) -> tuple[str, int | None]:
    """Name and cutoff of a measure of ir-measures: ``nDCG`` and 10 of ``nDCG@10``, None of ``RR``."""
    parsed = _parsed([measure])[measure]
    return str(parsed.NAME), parsed.params.get("cutoff")


def largest_cutoff(measures: Sequence[str]) -> int:
    """The largest cutoff of the measures: 1,000 for ``nDCG@10`` and ``R@1000``, 0 if none has a cutoff."""
    cutoffs = [int(measure.params.get("cutoff", 0)) for measure in _parsed(measures).values()]
    return max(cutoffs, default=0)


def require_report(measures: Sequence[str], *, key: str = "measure.report") -> None:
    """Refuse, all in one `ConfigError`, unknown measures and those that need more than ranks of judged
    documents and grades above 0.

    ``Bpref``, ``infAP`` and measures with ``judged_only=True`` or a gain for a grade below 1 tell grades that
    are not relevant apart.
    """
    known, faults = _told_apart(measures, key)
    faults += [
        f"{key} must not tell grades below 1 apart, got {name!r}; take nDCG@10, or compare on the runs"
        for name, measure in known.items()
        if _grades_irrelevant(measure)
    ]
    if faults:
        raise ConfigError(several(faults))


def _grades_irrelevant(measure: "Measure") -> bool:
    """Whether the grades of documents judged not relevant count."""
    gains = measure.params.get("gains", {})
    graded = any(gain != 0 for grade, gain in gains.items() if grade < 1)
    return measure.NAME in _IRRELEVANT_COUNT or bool(measure.params.get("judged_only")) or graded


def need_judged_ranks(measures: Sequence[str]) -> bool:
    """Whether a measure depends on the ranks of documents judged not relevant: ``Judged``."""
    return any(measure.NAME == "Judged" for measure in _parsed(measures).values())


def same_in_any_order(measures: Sequence[str], longest: int) -> list[str]:
    """The measures that cannot differ between rankings of at most `longest` documents, all of them judged:
    ``R@k`` from that k on.
    """
    constant = []
    for name, measure in _parsed(measures).items():
        is_complete = measure.params.get("cutoff", longest) >= longest
        if measure.NAME == "Judged" or (measure.NAME in ("R", "P", "Success") and is_complete):
            constant.append(name)
    return constant


def _providers() -> "list[Provider]":
    """The programs of ir-measures that compute in this process, in a fixed order, whatever else is
    installed.
    """
    import ir_measures

    return [ir_measures.pytrec_eval, ir_measures.msmarco, ir_measures.judged]


def _parsed(names: Sequence[str]) -> "dict[str, Measure]":
    """Every name with its ir-measures object, or one `ConfigError` for all that have none."""
    known, faults = _told_apart(names, "measure.report")
    if faults:
        raise ConfigError(several(faults))
    return known


def _told_apart(names: Sequence[str], key: str) -> "tuple[dict[str, Measure], list[str]]":
    """The ir-measures object of each name that has one, and a phrase for each that has none."""
    import ir_measures

    parsed: dict[str, Measure] = {}
    faults: list[str] = []
    for name in dict.fromkeys(names):
        try:
            with warnings.catch_warnings():
                # Its parser uses names that Python 3.12 deprecates.
                warnings.simplefilter("ignore", DeprecationWarning)
                measure = ir_measures.parse_measure(name)
            # Asked first: trec_eval aborts the process over other parameters.
            is_computed = _has_valid_parameters(measure) and any(
                provider.supports(measure) for provider in _providers()
            )
        except (ValueError, NameError, TypeError, KeyError, AssertionError):
            is_computed = False
        if is_computed:
            parsed[name] = measure
        else:
            faults.append(
                f"{key} must hold complete names that ir-measures can compute, got "
                f"{name!r}; write one like nDCG@10, RR or P@1"
            )
    return parsed, faults


def _has_valid_parameters(measure: "Measure") -> bool:
    """Whether cutoff and least relevant grade are integers from 1, and gains integers: trec_eval aborts the
    process over any other.
    """
    bounds = [measure.params.get(name, 1) for name in ("cutoff", "rel")]
    gains = chain.from_iterable(measure.params.get("gains", {}).items())
    return all(type(number) is int for number in chain(bounds, gains)) and min(bounds) >= 1


Pattern = tuple[int, tuple[tuple[int, int], ...]]
"""Length of a ranking, and rank and grade of each relevant document in order; the rank of an absent one is
the length."""


def measures_of_ranks(
    ranks: Ragged, grades: Ragged, retrieved: Int[np.ndarray, " q"], measures: Sequence[str]
) -> dict[str, Float[np.ndarray, " q"]]:
    """Ranking measures of every query, from the ranks of its judged documents.

    Rankings whose relevant documents have equal ranks and grades have equal measures, and such patterns are
    few: with one relevant document and a depth of 100, at most 101. ir-measures judges each pattern once.

    Args:
        ranks: Of each query's judged documents, distinct, from 0; a rank from `retrieved` on is not in the
            ranking. Documents judged not relevant may be left out unless `need_judged_ranks`.
        grades: Of each of them; 0 is not relevant.
        retrieved: Length of each query's ranking.
        measures: Names as for `ranking_measures`.

    Returns:
        For each name, one value per query; 0 for an empty ranking.

    Raises:
        ConfigError: As for `require_report`.
        ValueError: If ranks, grades and lengths are not of equally many queries.
    """
    require_report(measures)
    if not len(ranks) == len(grades) == len(retrieved):
        raise ValueError(
            f"ranks, grades and retrieved must be of the same queries, got {len(ranks)}, "
            f"{len(grades)} and {len(retrieved)}"
        )
    patterns, pattern_of = _distinct_patterns(ranks, grades, retrieved)
    values = _judged_patterns(patterns, measures)
    return {name: each[pattern_of] for name, each in values.items()}


def _distinct_patterns(
    ranks: Ragged, grades: Ragged, retrieved: Int[np.ndarray, " q"]
) -> tuple[list[Pattern], Int[np.ndarray, " q"]]:
    """The distinct patterns, and the number of each query's."""
    patterns: list[Pattern] = []
    pattern_of = np.zeros(len(retrieved), dtype=np.int64)
    # All absent documents have one rank, or rankings would differ by where they are absent.
    capped = np.minimum(ranks.values, np.repeat(retrieved, ranks.lengths))
    for length in np.unique(ranks.lengths).tolist():
        queries = np.flatnonzero(ranks.lengths == length)
        entries = ranks.offsets[queries][:, None] + np.arange(length)
        order = np.lexsort((grades.values[entries], capped[entries]), axis=1)
        entries = np.take_along_axis(entries, order, axis=1)
        # A row is the length of the ranking, then all ranks, then all grades.
        rows = np.concatenate([retrieved[queries][:, None], capped[entries], grades.values[entries]], axis=1)
        distinct, number = np.unique(rows, axis=0, return_inverse=True)
        pattern_of[queries] = len(patterns) + number.ravel()
        for retrieved_count, *judged in distinct.tolist():
            patterns.append((retrieved_count, tuple(zip(judged[:length], judged[length:], strict=True))))
    return patterns, pattern_of


def _judged_patterns(
    patterns: Sequence[Pattern], measures: Sequence[str]
) -> dict[str, Float[np.ndarray, " p"]]:
    """Measures of each pattern: documents are named by their rank, and patterns of one length share one
    ranking.
    """
    rankings = {length: _by_rank(map(str, range(length))) for length, _ in patterns}
    run, qrels = {}, {}
    for number, (length, judged) in enumerate(patterns):
        run[str(number)] = rankings[length]
        grades = {}
        for which, (rank, grade) in enumerate(judged):
            # Absent documents share a rank, but not a name.
            grades[str(rank) if rank < length else f"beyond {which}"] = grade
        qrels[str(number)] = grades
    return _untied_measures(run, qrels, measures)


def pnd_samples(counts: PairCounts, *, similarity: str) -> list[Sample]:
    """The two forms of the positive-negative discrepancy, ``PND`` (mean over queries) and ``PND pooled``.

    Only the pooled form weighs pairs as the two-proportion test does. The mean over queries may even change
    the other way.

    Args:
        counts: Of every query.
        similarity: What ranked the documents.

    Returns:
        The mean first; a query without pairs weighs nothing in either.

    Raises:
        ValueError: If a query has fewer pairs than errors.

    Reference:
        Vasilyev et al. 2024.
    """
    compared = (counts.pairs > 0).astype(np.float64)
    shares = pnd_shares(counts.errors, counts.pairs)
    errors, pairs = counts.errors.astype(np.float64), counts.pairs.astype(np.float64)
    return [
        ranking_sample("PND", shares, similarity, weights=compared),
        ranking_sample("PND pooled", errors, similarity, weights=pairs, proportion=True),
    ]
