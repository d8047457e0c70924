"""Statistics of a mining run: candidates by outcome, their scores, and examples of each outcome."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32

from adiabat.core.text import counted, cut
from adiabat.mining.filters import MEANING, PASSED, REASONS, code_of
from adiabat.mining.miner import MinedQuery, query_number

EXAMPLES = 10
"""Examples of each outcome, at most one of a query, drawn evenly by a hash."""
CHARACTERS = 400
SHARE_EDGES = tuple(round(0.1 * step, 1) for step in range(16))
"""Edges between the bins of a candidate's score as a share of the lowest positive's; one bin lies below them, one above."""
COUNTS = ("queries", "written", "too_few", "without", "negatives", "listed", "judged")
OUTCOMES = ("positive", "candidate", "passed", "chosen", *REASONS)


@dataclass(slots=True)
class ScoreCounts:
    """Scores of one outcome; `shares` counts the bins of `SHARE_EDGES`, over queries whose lowest positive scores above zero."""

    count: int = 0
    total: float = 0.0
    least: float | None = None
    greatest: float | None = None
    shares: list[int] = field(default_factory=lambda: [0] * (len(SHARE_EDGES) + 1))

    def add(self, scores: Float32[np.ndarray, " n"], lowest_positive: float) -> None:
        """Count the scores of one query."""
        if not len(scores):
            return
        self.count += len(scores)
        self.total += float(scores.sum(dtype=np.float64))
        self.least = min(float(scores.min()), np.inf if self.least is None else self.least)
        self.greatest = max(float(scores.max()), -np.inf if self.greatest is None else self.greatest)
        if lowest_positive > 0:
            bins = np.searchsorted(np.array(SHARE_EDGES), scores.astype(np.float64) / lowest_positive, side="right")
            self.shares = (np.array(self.shares) + np.bincount(bins, minlength=len(self.shares))).tolist()

    def to_json(self) -> dict[str, Any]:
        """Fields by name."""
        return {name: getattr(self, name) for name in ("count", "total", "least", "greatest", "shares")}

    def report(self) -> dict[str, Any]:
        """Count, mean, range and shares."""
        shown = {"least": self.least, "greatest": self.greatest, "shares": self.shares}
        return {"count": self.count, "mean": self.total / self.count if self.count else None, **shown}


@dataclass(slots=True)
class MiningCounts:
    """Sums over queries, which can be saved and continued.

    Attributes:
        counts: Queries; rows ``written``; queries with ``too_few`` negatives and ``without`` any; ``negatives`` written, and those
            ``listed`` by the data among them; candidates ``judged``; queries ``affected`` by a reason.
        examples: By outcome: a key to sort by, and the example.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    scores: dict[str, ScoreCounts] = field(default_factory=lambda: {name: ScoreCounts() for name in OUTCOMES})
    examples: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)

    def _count(self, name: str, count: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + count

    def add(self, mined: MinedQuery, *, wanted: int, written: bool) -> None:
        """Count one query; `wanted` is the number of negatives per query, `written` whether its row has negatives and is kept."""
        self._count("queries")
        self._count("judged", mined.judged)
        self._count("too_few", int(mined.negatives < wanted))
        self._count("without", int(not mined.negatives))
        if written:
            self._count("written")
            self._count("negatives", mined.negatives)
            self._count("listed", len(mined.listed_texts))
        chosen = np.isin(np.arange(len(mined.rows)), mined.chosen)
        masks = {"candidate": np.ones(len(chosen), dtype=bool), "passed": mined.codes == PASSED, "chosen": chosen}
        masks |= {reason: mined.codes == code_of(reason) for reason in REASONS}
        lowest = float(mined.positive_scores.min())
        self.scores["positive"].add(mined.positive_scores, lowest)
        for name, mask in masks.items():
            self.scores[name].add(mined.scores[mask], lowest)
            if name in REASONS:
                self._count(f"affected.{name}", int(mask.any()))
        for name in ("chosen", *REASONS):
            self._add_example(name, mined, masks[name])

    def _add_example(self, name: str, mined: MinedQuery, mask: Bool[np.ndarray, " c"]) -> None:
        """Keep an example if its key is among the lowest: an even draw that does not depend on the order of queries."""
        positions = np.flatnonzero(mask)
        if not len(positions):
            return
        key = query_number(f"{name}\0{mined.example.query_id}", mined.example.query)
        examples = self.examples.setdefault(name, [])
        if len(examples) == EXAMPLES and key >= examples[-1][0]:
            return
        position = int(positions[key % len(positions)])
        lowest = int(mined.positive_scores.argmin())
        example = {
            "query_id": mined.example.query_id,
            "query": cut(mined.example.query, limit=CHARACTERS),
            "positive": cut(mined.positive_texts[lowest], limit=CHARACTERS),
            "positive_score": float(mined.positive_scores[lowest]),
            "candidate": cut(mined.texts[position], limit=CHARACTERS),
            "score": float(mined.scores[position]),
            "rank": position + 1,
        }
        self.examples[name] = heapq.nsmallest(EXAMPLES, [*examples, (key, example)], key=lambda entry: entry[0])

    def to_json(self) -> dict[str, Any]:
        """Plain data to continue from."""
        examples = {name: [list(entry) for entry in entries] for name, entries in self.examples.items()}
        return {"counts": self.counts, "scores": {name: scores.to_json() for name, scores in self.scores.items()}, "examples": examples}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "MiningCounts":
        """Continue from `to_json`."""
        scores = {name: ScoreCounts(**fields) for name, fields in record["scores"].items()}
        examples = {name: [(key, example) for key, example in entries] for name, entries in record["examples"].items()}
        return cls(dict(record["counts"]), scores, examples)

    def report(self) -> dict[str, Any]:
        """The statistics file."""
        dropped = {
            reason: {"candidates": self.scores[reason].count, "queries": self.counts.get(f"affected.{reason}", 0), "why": MEANING[reason]}
            for reason in REASONS
        }
        return {
            **{name: count for name, count in self.counts.items() if "." not in name},
            "candidates": {name: self.scores[name].count for name in ("candidate", "passed", "chosen")},
            "dropped": dropped,
            "share_edges": list(SHARE_EDGES),
            "scores": {name: scores.report() for name, scores in self.scores.items() if scores.count},
            "examples": {name: [example for _, example in entries] for name, entries in self.examples.items()},
        }


def summary_lines(report: Mapping[str, Any], *, wanted: int) -> Sequence[str]:
    """The statistics file in a few lines; `wanted` is the number of negatives per query."""
    candidates = report["candidates"]
    lines = [
        f"{report['written']:,} of {counted(report['queries'], 'query')} written, {counted(report['negatives'], 'negative')} "
        f"({report['listed']:,} of them listed by the data)",
        f"{counted(candidates['candidate'], 'candidate')}, {candidates['passed']:,} passed the filters",
    ]
    lines += [
        f"  {entry['candidates']:,} dropped of {counted(entry['queries'], 'query')}: {entry['why']}"
        for entry in report["dropped"].values()
        if entry["candidates"]
    ]
    if report["judged"]:
        lines.append(f"the judge scored {counted(report['judged'], 'candidate')}")
    if report["too_few"]:
        bare = f" (in {report['without_negatives']})" if report.get("without_negatives") else ""
        shortage = f"{counted(report['too_few'], 'query')} with fewer than {counted(wanted, 'negative')}"
        lines.append(f"{shortage}, {report['without']:,} with none{bare}")
    labels = {"positive": "positives", "candidate": "candidates", "chosen": "mined negatives"}
    means = [f"{label} {report['scores'][name]['mean']:.4g}" for name, label in labels.items() if name in report["scores"]]
    return [*lines, f"mean scores: {', '.join(means)}"]
