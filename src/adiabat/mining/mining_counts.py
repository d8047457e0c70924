"""What mining did, counted exactly: candidates by what became of them, their scores, and a few of each kind spelled out."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32

from adiabat.core.text import counted, cut
from adiabat.mining.filters import KEPT, MEANING, REASONS, code_of
from adiabat.mining.miner import Mined, query_number

EXAMPLES = 10
"""Of each kind, at most one of a query, drawn evenly by a hash."""
CHARACTERS = 400
SHARES = tuple(round(0.1 * step, 1) for step in range(16))
"""Edges between the bins of a candidate's score as a share of the lowest positive's; one bin lies below them, one above."""
COUNTS = ("queries", "written", "too_few", "without", "negatives", "listed", "judged")
GROUPS = ("positive", "candidate", "passed", "chosen", *REASONS)


@dataclass(slots=True)
class Scores:
    """Scores of one kind of document.

    Attributes:
        count: How many.
        total: Their sum.
        least: The lowest; None of none.
        greatest: The highest.
        shares: How many lie in each bin of `SHARES`, over queries whose lowest positive scores above zero.
    """

    count: int = 0
    total: float = 0.0
    least: float | None = None
    greatest: float | None = None
    shares: list[int] = field(default_factory=lambda: [0] * (len(SHARES) + 1))

    def take(self, scores: Float32[np.ndarray, " n"], lowest: float) -> None:
        """Count some in."""
        if not len(scores):
            return
        self.count += len(scores)
        self.total += float(scores.sum(dtype=np.float64))
        self.least = min(float(scores.min()), np.inf if self.least is None else self.least)
        self.greatest = max(float(scores.max()), -np.inf if self.greatest is None else self.greatest)
        if lowest > 0:
            bins = np.searchsorted(np.array(SHARES), scores.astype(np.float64) / lowest, side="right")
            self.shares = (np.array(self.shares) + np.bincount(bins, minlength=len(self.shares))).tolist()

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the mean."""
        mean = self.total / self.count if self.count else None
        return {
            "count": self.count,
            "mean": mean,
            "total": self.total,
            "least": self.least,
            "greatest": self.greatest,
            "shares": self.shares,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Scores":
        """Read what `to_json` wrote."""
        return cls(record["count"], record["total"], record["least"], record["greatest"], list(record["shares"]))


@dataclass(slots=True)
class Tally:
    """Sums over queries; may be written down and gone on with.

    Attributes:
        counts: Of queries; of rows ``written``; of queries with ``too_few`` negatives and ``without`` any; of ``negatives`` written, and
            those ``listed`` by the data among them; of candidates ``judged``; of queries ``affected`` by a reason.
        scores: By kind.
        examples: By kind: a key to order by, and what is shown.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    scores: dict[str, Scores] = field(default_factory=lambda: {name: Scores() for name in GROUPS})
    examples: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)

    def add(self, name: str, count: int = 1) -> None:
        """Raise a count."""
        self.counts[name] = self.counts.get(name, 0) + count

    def take(self, one: Mined, *, wanted: int, written: bool) -> None:
        """Count one query in.

        Args:
            wanted: Negatives per query.
        """
        self.add("queries")
        self.add("judged", one.judged)
        self.add("too_few", int(one.negatives < wanted))
        self.add("without", int(not one.negatives))
        if written:
            self.add("written")
            self.add("negatives", one.negatives)
            self.add("listed", len(one.listed_texts))
        chosen = np.isin(np.arange(len(one.rows)), one.chosen)
        groups = {"candidate": np.ones(len(chosen), dtype=bool), "passed": one.codes == KEPT, "chosen": chosen}
        groups |= {reason: one.codes == code_of(reason) for reason in REASONS}
        lowest = float(one.positive_scores.min())
        self.scores["positive"].take(one.positive_scores, lowest)
        for name, mask in groups.items():
            self.scores[name].take(one.scores[mask], lowest)
            if name in REASONS:
                self.add(f"affected.{name}", int(mask.any()))
        for name in ("chosen", *REASONS):
            self._show(name, one, groups[name])

    def _show(self, name: str, one: Mined, mask: Bool[np.ndarray, " c"]) -> None:
        """Keep an example of a kind if its key is among the lowest: an even draw that does not depend on the order of queries."""
        places = np.flatnonzero(mask)
        if not len(places):
            return
        key = query_number(f"{name}\0{one.example.query_id}", one.example.query)
        shown = self.examples.setdefault(name, [])
        if len(shown) == EXAMPLES and key >= shown[-1][0]:
            return
        place = int(places[key % len(places)])
        nearest = int(one.positive_scores.argmin())
        content = {
            "query_id": one.example.query_id,
            "query": cut(one.example.query, limit=CHARACTERS),
            "positive": cut(one.positive_texts[nearest], limit=CHARACTERS),
            "positive_score": float(one.positive_scores[nearest]),
            "candidate": cut(one.texts[place], limit=CHARACTERS),
            "score": float(one.scores[place]),
            "rank": place + 1,
        }
        self.examples[name] = heapq.nsmallest(EXAMPLES, [*shown, (key, content)], key=lambda entry: entry[0])

    def to_json(self) -> dict[str, Any]:
        """Plain data to go on from."""
        examples = {name: [[key, content] for key, content in shown] for name, shown in self.examples.items()}
        return {"counts": self.counts, "scores": {name: scores.to_json() for name, scores in self.scores.items()}, "examples": examples}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Tally":
        """Read what `to_json` wrote."""
        scores = {name: Scores.from_json(one) for name, one in record["scores"].items()}
        return cls(dict(record["counts"]), scores, {name: [(key, one) for key, one in shown] for name, shown in record["examples"].items()})

    def report(self) -> dict[str, Any]:
        """What people and programs read."""
        plain = {name: count for name, count in self.counts.items() if "." not in name}
        dropped = {
            reason: {"candidates": self.scores[reason].count, "queries": self.counts.get(f"affected.{reason}", 0), "why": MEANING[reason]}
            for reason in REASONS
        }
        fates = {name: self.scores[name].count for name in ("candidate", "passed", "chosen")}
        scores = {name: _without_total(scores.to_json()) for name, scores in self.scores.items() if scores.count}
        examples = {name: [content for _, content in shown] for name, shown in self.examples.items()}
        return {**plain, "candidates": fates, "dropped": dropped, "share_edges": list(SHARES), "scores": scores, "examples": examples}


def _without_total(scores: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in scores.items() if name != "total"}


def told(report: Mapping[str, Any], *, wanted: int) -> Sequence[str]:
    """The report in a few lines for people.

    Args:
        wanted: Negatives per query.
    """
    fates = report["candidates"]
    lines = [
        f"{report['written']:,} of {counted(report['queries'], 'query')} written, {counted(report['negatives'], 'negative')} "
        f"({report['listed']:,} of them listed by the data)",
        f"{counted(fates['candidate'], 'candidate')}, {fates['passed']:,} passed the filters",
    ]
    lines += [
        f"  {entry['candidates']:,} dropped of {counted(entry['queries'], 'query')}: {entry['why']}"
        for entry in report["dropped"].values()
        if entry["candidates"]
    ]
    if report["judged"]:
        lines.append(f"the judge was asked about {counted(report['judged'], 'candidate')}")
    if report["too_few"]:
        where = f": {report['apart']} keeps them apart" if report.get("apart") else ""
        lines.append(
            f"{counted(report['too_few'], 'query')} with fewer than {counted(wanted, 'negative')}, {report['without']:,} with none{where}"
        )
    lines.append(_scores_told(report["scores"]))
    return lines


def _scores_told(scores: Mapping[str, Mapping[str, Any]]) -> str:
    names: Iterable[tuple[str, str]] = (("positive", "positives"), ("candidate", "candidates"), ("chosen", "mined negatives"))
    means = [f"{shown} {scores[name]['mean']:.4g}" for name, shown in names if name in scores]
    return f"mean scores: {', '.join(means)}"
