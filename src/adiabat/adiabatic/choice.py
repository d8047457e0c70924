"""The choice of the result of a run that keeps by ranking.

Candidates are the tuned tower with shares of its change, ``w_0 + share (w - w_0)``, and linear maps of the
vectors of the untuned and of the tuned tower (`adiabat.adiabatic.linear_map`). Of those that lose nothing on
the retention sets, the one whose gain on the validation queries has the largest lower end is the result, if
that is above 0.

Reference:
    Wortsman et al. 2022 (weights between a model and its tuned form).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float

from adiabat.adiabatic.judged_queries import JudgedQueries
from adiabat.adiabatic.linear_map import (
    MOST_DOCUMENTS,
    PULLS,
    MapProblem,
    apply_map,
    fit_maps,
    map_problem,
)
from adiabat.adiabatic.regularization import Guard
from adiabat.core.margin import DEFAULT_MARGIN
from adiabat.core.progress import Watch
from adiabat.models.encoder import Encoder
from adiabat.models.towers import interpolated, with_projection
from adiabat.results.training_record import Candidate, CandidateFigure
from adiabat.stats.jackknife import lower_end
from adiabat.stats.student_t import CONFIDENCE
from adiabat.store.search import search
from adiabat.training.time_limit import seconds_of

SHARES = (1.0, 0.75, 0.5, 0.25)
"""Shares of the tuned change that are candidates."""

MOST_MAPPED = 1_500
"""Maximum training queries that the maps are fitted on."""

NEAREST = 100
"""Nearest documents of each query that enter the softmax of a map in a large store."""

LOOKS = 10
"""Looks at the problem that a map usually takes."""

RETAINED = 0.8
"""One-sided confidence with which a candidate must lose less than the margin on every retention set."""

Vectors = Float[np.ndarray, "q e"]
Scores = Float[np.ndarray, " q"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen tower.

    Attributes:
        tower: The start's, or that of a candidate.
        candidates: All of them with their figures, the start not among them.
        why: In words.
    """

    tower: Encoder
    candidates: tuple[Candidate, ...]
    why: str


@dataclass(frozen=True, slots=True)
class _Way:
    """A candidate before it is judged: how to make its tower, and its vectors of all judged queries."""

    candidate: Candidate
    tower: Callable[[], Encoder]
    vectors: list[Vectors]


@dataclass(frozen=True, slots=True)
class Judges:
    """The queries that choose, none of which a candidate was fitted on.

    Attributes:
        validation: Of the target.
        retained: The choosing half of each retention set.
        mapped: Training queries that linear maps are fitted on.
    """

    validation: JudgedQueries
    retained: Sequence[JudgedQueries]
    mapped: JudgedQueries


def choose(
    start: Encoder, tuned: Encoder | None, judges: Judges, *, guard: Guard | None, seed: int, watch: Watch
) -> Choice:
    """Judge all candidates; choose one of them, or the start.

    Args:
        start: The untuned query tower.
        tuned: The tuned one; None where no epoch was better than the start.
        judges: The queries that choose.
        guard: Measures the drift of the candidate that would be chosen, which must be within its limit; None
            sets none.
        seed: Of the draw of documents that maps are fitted on.
        watch: Receives progress.

    Returns:
        The choice with the figures of all candidates.
    """
    judged, device = [judges.validation, *judges.retained], start.device
    untuned = [queries.vectors(start) for queries in judged]
    before = [queries.scores(vectors, device) for queries, vectors in zip(judged, untuned, strict=True)]
    ways = _maps(start, 0.0, untuned, judges.mapped, seed, watch)
    if tuned is not None:
        shares = [_share(tuned, start, share, judged) for share in SHARES]
        ways = [*shares, *_maps(tuned, 1.0, shares[0].vectors, judges.mapped, seed, watch), *ways]
    found = []
    for number, way in enumerate(ways):
        watch.progress("judging candidates", number, len(ways))
        after = [
            queries.scores(vectors, device) for queries, vectors in zip(judged, way.vectors, strict=True)
        ]
        found.append(replace(way.candidate, figures=figures_of(judged, after, before)))
    # The largest lower end first: of similar gains the steadier one. Of equal ones, the larger share.
    for place in sorted(range(len(ways)), key=lambda place: -found[place].figures[0].lowest):
        if not found[place].is_sound:
            continue
        tower = ways[place].tower()
        outside = None if guard is None else guard.look(tower).outside
        found[place] = replace(found[place], outside=outside or "", kept=outside is None)
        if outside is None:
            return Choice(tower, tuple(found), f"of {len(found)} candidates, {found[place].name} was chosen")
    return Choice(start, tuple(found), "no candidate gained without a loss elsewhere: the start was kept")


def _share(tuned: Encoder, start: Encoder, share: float, judged: Sequence[JudgedQueries]) -> _Way:
    """A share of what tuning changed."""
    tower = interpolated(tuned, start, share).eval()
    vectors = [queries.vectors(tower) for queries in judged]
    # Made anew if it is chosen: copies of the weights of all candidates would fill a small machine.
    return _Way(Candidate(share), partial(interpolated, tuned, start, share), vectors)


def _maps(
    base: Encoder, share: float, vectors: Sequence[Vectors], queries: JudgedQueries, seed: int, watch: Watch
) -> list[_Way]:
    """A tower under linear maps of all pulls, fitted on some queries.

    Args:
        base: The tower, of which `vectors` are those of the judged queries.
        share: Share of the tuned change that it has.
        vectors: Of each set of judged queries.
        queries: Training queries.
        seed: Of the draw of documents.
        watch: Receives progress.
    """
    # No layer can follow a cut.
    if base.width < base.full_width:
        return []
    store, similarity = queries.store, queries.similarity
    asked = queries.vectors(base)
    nearest = np.empty((len(asked), 0), dtype=np.int64)
    # A store whose documents all enter the softmax needs no nearest ones.
    if store.count > MOST_DOCUMENTS:
        nearest = search(store, asked, NEAREST, similarity=similarity, device=base.device).rows
    positives = queries.examples.positives
    problem = map_problem(store, asked, positives, nearest, similarity=similarity, seed=seed)
    watch.progress("fitting linear maps", 0, len(PULLS))
    ways = []
    for pull, change in zip(PULLS, fit_maps(problem.to(base.device), PULLS), strict=True):
        # A projection multiplies rows from the right.
        weights = torch.eye(len(change)) + torch.from_numpy(change).T
        mapped = [apply_map(rows, change) for rows in vectors]
        ways.append(_Way(Candidate(share, pull), partial(with_projection, base, weights), mapped))
    return ways


def seconds_to_choose(judges: Judges, each: float, device: torch.device) -> float:
    """Time of `choose`, from that of encoding a query and of one look at the problem of a map."""
    judged = sum(len(queries.examples) for queries in (judges.validation, *judges.retained))
    fitted, store = len(judges.mapped.examples), judges.mapped.store
    documents = min(store.count, MOST_DOCUMENTS)
    queries, stored = torch.zeros(fitted, store.width), torch.zeros(documents, store.width)
    problem = MapProblem(queries, queries, torch.zeros(fitted), stored, torch.zeros(documents)).to(device)
    change = np.zeros(store.width**2)
    look = seconds_of(lambda: problem.objective(change, 1.0), device)
    # The untuned tower and each share encode the judged queries, and maps lie over two towers.
    encoded = (1 + len(SHARES)) * judged + 2 * fitted
    return each * encoded + 2 * len(PULLS) * LOOKS * look


def figures_of(
    judged: Sequence[JudgedQueries], after: Sequence[Scores], before: Sequence[Scores]
) -> tuple[CandidateFigure, ...]:
    """The changes of a candidate on the validation queries, which come first, and on each retention set."""
    figures = []
    for place, queries in enumerate(judged):
        confidence = CONFIDENCE if place == 0 else RETAINED
        figures.append(_figure(queries, after[place], before[place], confidence))
    return tuple(figures)


def _figure(queries: JudgedQueries, after: Scores, before: Scores, confidence: float) -> CandidateFigure:
    """The change on some queries, and the lower ends that decide."""
    change, margin = after - before, DEFAULT_MARGIN.moving
    shifted = queries.sample(change + margin * before)
    return CandidateFigure(
        name=queries.examples.name,
        queries=len(change),
        before=float(before.mean()),
        change=float(change.mean()),
        # Too few queries bound nothing, but no change can lose more than all.
        lowest=max(lower_end(queries.sample(change), confidence), -float(before.mean())),
        is_retained=lower_end(shifted, confidence) > 0,
    )
