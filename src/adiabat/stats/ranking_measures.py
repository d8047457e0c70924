"""Retrieval measures: the positive-negative discrepancy, and the field's ranking measures through ir-measures.

Scores are always "higher is closer": cosine, or minus the Euclidean distance. Ties count against the positive everywhere.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float, Int

from adiabat.core.errors import ConfigError, several

if TYPE_CHECKING:
    from ir_measures import Measure, Metric, Provider

Ties = Literal["relevant_last", "trec_eval"]
"""Order of documents with equal scores."""

_OF_ALL_JUDGED = frozenset(("Bpref", "infAP", "Judged"))
"""Measures of ir-measures, by their own names, that count judged documents which are not relevant."""


def discordant_counts(positive: Float[np.ndarray, " p"], negative: Float[np.ndarray, " n"]) -> Int[np.ndarray, " p"]:
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
    _refuse_nan(positive, "positive")
    _refuse_nan(negative, "negative")
    ascending = np.sort(negative)
    return np.asarray(negative.size - np.searchsorted(ascending, positive, side="left"), dtype=np.int64)


def pnd_shares(errors: Int[np.ndarray, " q"], pairs: Int[np.ndarray, " q"]) -> Float[np.ndarray, " q"]:
    """Each query's discrepancy, ``errors / pairs``; 0 for a query that has no pairs (which no mean may count).

    Args:
        errors: Pairs whose positive is not strictly closer, per query.
        pairs: Pairs compared, per query.

    Returns:
        One share per query, in [0, 1].

    Raises:
        ValueError: If a query has fewer pairs than errors.
    """
    _check_counts(errors, pairs)
    return np.asarray(np.divide(errors, pairs, out=np.zeros(errors.shape), where=pairs > 0))


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Errors and pairs of every query.

    Counts add up: a query that is compared with the store part by part ends with the same counts.

    Attributes:
        errors: Pairs whose positive is not strictly closer, per query.
        pairs: Pairs compared, per query.
    """

    errors: Int[np.ndarray, " q"]
    pairs: Int[np.ndarray, " q"]

    @classmethod
    def zeros(cls, queries: int) -> "PairCounts":
        """Nothing compared yet.

        Args:
            queries: How many queries there will be.

        Returns:
            Counts to be filled with `add`.
        """
        return cls(errors=np.zeros(queries, dtype=np.int64), pairs=np.zeros(queries, dtype=np.int64))

    def add(self, queries: Int[np.ndarray, " r"], errors: Int[np.ndarray, " r"], pairs: Int[np.ndarray, " r"]) -> None:
        """Add counts made elsewhere.

        Args:
            queries: Rows, from 0; a row may come more than once.
            errors: To add to each of them.
            pairs: To add to each of them.

        Raises:
            ValueError: If a row has fewer pairs than errors.
        """
        _check_counts(errors, pairs)
        np.add.at(self.errors, queries, errors)
        np.add.at(self.pairs, queries, pairs)


def improvement(before: float, after: float, *, lower_is_better: bool) -> float | None:
    """Relative improvement in percent, ``100 s (after - before) / before`` with s = -1 where lower is better, else +1.

    Args:
        before: Value of the baseline.
        after: Value of the model under test.
        lower_is_better: True for the positive-negative discrepancy.

    Returns:
        Percent, above 0 where the model under test is better; None where `before` is not above 0: of nothing, or of a correlation below
        it, there are no per cent.

    Reference:
        Vasilyev et al. 2024.
    """
    if before <= 0:
        return None
    sign = -1 if lower_is_better else 1
    return 100 * sign * (after - before) / before


def pessimistic_run(run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """Replace scores by strictly decreasing ones in which tied documents stand from the least to the most relevant.

    Evaluation programs break ties by document id and compare in 32-bit floats; after this they have nothing left to decide.

    Args:
        run: Score of each retrieved document, per query id; higher is closer.
        qrels: Grade of each judged document, per query id; an unjudged document has grade 0.

    Returns:
        For each query of `run`, the same documents, best first, scored ``n, n - 1, ..., 1``.

    Raises:
        ValueError: If a score is NaN.

    Reference:
        Vasilyev et al. 2024; ties count as errors.
    """
    ranked: dict[str, dict[str, float]] = {}
    for query_id, scores in run.items():
        if any(map(math.isnan, scores.values())):
            raise ValueError(f"scores of query {query_id!r} must be numbers, got NaN")
        grades = qrels.get(query_id, {})
        order = sorted((-score, grades.get(doc_id, 0), doc_id) for doc_id, score in scores.items())
        ranked[query_id] = {doc_id: float(len(order) - rank) for rank, (_, _, doc_id) in enumerate(order)}
    return ranked


def trec_eval_run(run: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Replace scores by strictly decreasing ones in the order of trec_eval: by score in 32 bits, of equal ones the later id first.

    Args:
        run: Score of each retrieved document, per query id; higher is closer, none NaN.

    Returns:
        As `pessimistic_run`.

    Reference:
        ``comp_sim_docno`` in ``form_res_rels.c`` of trec_eval 9.
    """
    ranked: dict[str, dict[str, float]] = {}
    for query_id, scores in run.items():
        order = sorted(zip(_in_32_bits(scores), scores, strict=True), reverse=True)
        ranked[query_id] = {doc_id: float(len(order) - rank) for rank, (_, doc_id) in enumerate(order)}
    return ranked


def tied_documents(scores: Mapping[str, float], *, single: bool = False) -> int:
    """How many documents of a query share their score with another.

    Args:
        scores: Score of each retrieved document.
        single: Whether scores are compared in 32 bits.

    Returns:
        The count.
    """
    values = _in_32_bits(scores) if single else scores.values()
    return sum(count for count in Counter(values).values() if count > 1)


def _in_32_bits(scores: Mapping[str, float]) -> list[float]:
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
        run: Score of each retrieved document, per query id; higher is closer. Queries that `qrels` lacks are ignored.
        qrels: Grade of each judged document, per query id; above 0 is relevant.
        measures: Names of the ir-measures grammar, such as ``nDCG@10``, ``RR``, ``AP``, ``P@1``, ``R@100``.
        ties: Which of documents with equal scores comes first: the least relevant, or as trec_eval has it (`trec_eval_run`).

    Returns:
        For each name, one value per query in the order of `qrels`; 0 for a query that retrieved nothing.

    Raises:
        ConfigError: If a name is unknown or incomplete; all such names are listed.
        ValueError: If a score is NaN.

    Reference:
        MacAvaney et al. 2022 (ir-measures).
    """
    judged = {query_id: {doc_id: int(grade) for doc_id, grade in grades.items()} for query_id, grades in qrels.items()}
    judged_run = {query_id: run[query_id] for query_id in judged if query_id in run}
    return untied_measures(trec_eval_run(judged_run) if ties == "trec_eval" else pessimistic_run(judged_run, judged), judged, measures)


def untied_measures(
    run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]], measures: Sequence[str]
) -> dict[str, Float[np.ndarray, " q"]]:
    """Ranking measures of every query of a run in which no tie is left to break.

    Args:
        run: As `pessimistic_run` gives it, of queries that `qrels` has.
        qrels: As for `ranking_measures`.
        measures: As for `ranking_measures`.

    Returns:
        As `ranking_measures`.

    Raises:
        ConfigError: If a name is unknown or incomplete; all such names are listed.
    """
    parsed = _parsed(measures)
    row_of = {query_id: row for row, query_id in enumerate(qrels)}
    retrieved = {query_id: scores for query_id, scores in run.items() if scores}
    values = {measure: np.zeros(len(row_of)) for measure in parsed.values()}
    # A measure's hash is made of its text anew each time, which costs more than to judge a query: each object is looked up once.
    columns: dict[int, tuple[Measure, Float[np.ndarray, " q"]]] = {}
    for metric in _judged(list(values), retrieved, qrels) if retrieved else ():
        if id(metric.measure) not in columns:
            columns[id(metric.measure)] = metric.measure, values[metric.measure]
        # Queries without results are left at 0 here, so that a provider's own default never stands in for them.
        if metric.query_id in retrieved:
            columns[id(metric.measure)][1][row_of[metric.query_id]] = metric.value
    return {name: values[measure].copy() for name, measure in parsed.items()}


def _judged(measures: "Sequence[Measure]", run: dict[str, dict[str, float]], qrels: dict[str, dict[str, int]]) -> "Iterator[Metric]":
    """What ir-measures says, each measure by the first of its programs that knows it: its own way of choosing takes twice as long."""
    remaining = list(measures)
    for provider in _providers():
        known, remaining = (
            [measure for measure in remaining if provider.supports(measure)],
            [measure for measure in remaining if not provider.supports(measure)],
        )
        if known:
            yield from provider.iter_calc(known, qrels, run)


def largest_cutoff(measures: Sequence[str]) -> int:
    """How far down a ranking the measures look that say so.

    Args:
        measures: Names as for `ranking_measures`.

    Returns:
        1,000 for ``nDCG@10`` and ``R@1000``; 0 where none has a cutoff.

    Raises:
        ConfigError: If a name is unknown or incomplete; all such names are listed.
    """
    return max((int(measure.params.get("cutoff", 0)) for measure in _parsed(measures).values()), default=0)


def require_relevant_only(measures: Sequence[str]) -> None:
    """Refuse measures for which it is not enough to know where the relevant documents stand, and unknown ones.

    ``Bpref``, ``infAP``, ``Judged`` and whatever has ``judged_only=True`` or a gain for grade 0 also depend on the documents that were
    judged and found not relevant.

    Args:
        measures: Names as for `ranking_measures`.

    Raises:
        ConfigError: If there are any; all of them are listed.
    """
    known, faults = _told_apart(measures)
    faults += [
        f"measure must depend on relevant documents alone, got {name!r}; take nDCG@10, or compare-runs on the runs"
        for name, measure in known.items()
        if _asks_for_others(measure)
    ]
    if faults:
        raise ConfigError(several(faults))


def _asks_for_others(measure: "Measure") -> bool:
    """Whether judged documents that are not relevant count, unlike those that nobody judged."""
    gains = measure.params.get("gains", {})
    graded = any(gain != 0 for grade, gain in gains.items() if grade < 1)
    return measure.NAME in _OF_ALL_JUDGED or bool(measure.params.get("judged_only")) or graded


def _providers() -> "list[Provider]":
    """The programs of ir-measures that compute in this process, in a fixed order, whatever else is installed."""
    import ir_measures

    return [ir_measures.pytrec_eval, ir_measures.msmarco, ir_measures.judged]


def _parsed(names: Sequence[str]) -> "dict[str, Measure]":
    """Every name with its ir-measures object, or one `ConfigError` for all that have none."""
    known, faults = _told_apart(names)
    if faults:
        raise ConfigError(several(faults))
    return known


def _told_apart(names: Sequence[str]) -> "tuple[dict[str, Measure], list[str]]":
    """The ir-measures object of each name that has one, and a phrase for each that has none."""
    import ir_measures

    parsed: dict[str, Measure] = {}
    faults: list[str] = []
    for name in dict.fromkeys(names):
        try:
            with warnings.catch_warnings():
                # Its parser uses names that Python's ast module deprecated in 3.12.
                warnings.simplefilter("ignore", DeprecationWarning)
                measure = ir_measures.parse_measure(name)
            supported = _has_whole_numbers(measure) and any(provider.supports(measure) for provider in _providers())
        except (ValueError, NameError, TypeError, KeyError, AssertionError):
            supported = False
        if supported:
            parsed[name] = measure
        else:
            faults.append(f"measure must be a complete name that ir-measures can compute, got {name!r}; write one like nDCG@10, RR or P@1")
    return parsed, faults


def _has_whole_numbers(measure: "Measure") -> bool:
    """Whether cutoff and least relevant grade, if given, are from 1 on, and gains whole; trec_eval aborts the process over any other."""
    bounds = [measure.params.get(name, 1) for name in ("cutoff", "rel")]
    gains = chain.from_iterable(measure.params.get("gains", {}).items())
    return all(type(number) is int for number in chain(bounds, gains)) and min(bounds) >= 1


def _refuse_nan(scores: Float[np.ndarray, " n"], side: str) -> None:
    """NaN sorts last and would pass for the closest document."""
    if np.isnan(scores).any():
        raise ValueError(f"{side} scores must be numbers, got {int(np.isnan(scores).sum())} NaN of {scores.size}")


def _check_counts(errors: Int[np.ndarray, " q"], pairs: Int[np.ndarray, " q"]) -> None:
    """A share outside [0, 1] means that the two arrays do not belong together."""
    wrong = np.flatnonzero((errors < 0) | (errors > pairs))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(f"errors must lie between 0 and pairs, got {int(errors[row])} of {int(pairs[row])} at query {row}")
