"""Which examples share a batch: examples of one source, topic or tag, without duplicate texts, within a token
budget (Reimers 2021).

A whole pass is planned from the order of its examples. The batch of a step follows from the seed and the step
number, so no state is saved, and the numbers of processes and workers do not matter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.core.errors import DataError
from adiabat.data.batch_sampler import ARRANGEMENT

Keys = Int[np.ndarray, "n k"]
"""Numbers of the texts of each example, equal for equal texts."""

Numbers = Int[np.ndarray, " n"]
"""One number for each example."""

Order = Int[np.ndarray, " o"]
"""Examples of a pass, in the order in which they are drawn."""

Mask = Bool[np.ndarray, " n"]
"""Whether each example is chosen."""

WINDOW = 256
"""Number of batches that are filled together, and tried for an example with repeated texts before it
waits."""

PROBES = 64
"""Number of batches tried per example; if all refuse it, it waits."""

TRIED = 4
"""Examples tried per free place; the rest waits untried, since otherwise very frequent texts would dominate
the cost."""

Places = Int[np.ndarray, " _"]
"""Positions in the order of a pass."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules for the examples of a batch.

    Attributes:
        levels: A number for each example at each level, finest first, such as tag, topic, source. Batches are
            cut from one tag while it has enough examples, then from the rest of a topic, finally from the
            rest of a source. Different numbers of a coarser level never share a number of a finer one.
        random_share: Share of the batches drawn directly at the last level, in [0, 1].
        curriculum_steps: Steps over which that share falls from 1 to `random_share`; 0 starts at
            `random_share`.
        keys: Numbers of the texts of each example, equal for equal texts; a batch holds each number at most
            once. None allows duplicates.
        tokens: Tokens of each example; None without a budget.
        token_budget: Maximum tokens of a batch; a larger batch is split by length. None sets no limit.
    """

    batch_size: int
    levels: Sequence[Numbers]
    random_share: float = 0.0
    curriculum_steps: int = 0
    keys: Keys | None = None
    tokens: Numbers | None = None
    token_budget: int | None = None

    def random_shares(self, steps: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Share of random batches at some steps: ``1 - (1 - r) min(1, t / T)``."""
        reached = np.ones(len(steps))
        if self.curriculum_steps:
            reached = np.minimum(reached, steps / self.curriculum_steps)
        shares: Float[np.ndarray, " m"] = 1.0 - (1.0 - self.random_share) * reached
        return shares


def arranged(
    order: Order, rules: Rules, random: np.random.Generator, *, first_step: int = 0
) -> tuple[list[Places], Int[np.ndarray, " left"]]:
    """Cut the examples of a pass into batches; returns these and the examples that are left."""
    steps = first_step + np.arange(max(1, len(order) // rules.batch_size))
    is_mixed = np.ones(len(order), dtype=np.bool_)
    if len(rules.levels) > 1:
        is_mixed = random.random(len(order)) < rules.random_shares(steps).mean()
    rest, grouped = np.flatnonzero(~is_mixed), list[Places]()
    for level in rules.levels[:-1]:
        batches, rest = _cut_each(rest, level, order, rules)
        grouped += batches
    # What no finer level could use joins the examples that were drawn for the last one.
    rest = np.sort(np.concatenate([rest, np.flatnonzero(is_mixed)]))
    mixed, rest = _cut_each(rest, rules.levels[-1], order, rules)
    batches = _in_sequence(grouped, mixed, rules, random, first_step)
    # Splitting comes last: a batch that is split stays of one group.
    if rules.token_budget is not None:
        batches, longest = _within_budget(batches, order, rules)
        rest = np.concatenate([rest, longest])
    return [order[places] for places in batches], order[rest]


def _cut_each(positions: Places, level: Numbers, order: Order, rules: Rules) -> tuple[list[Places], Places]:
    """Batches from the examples of each number of a level, and the leftover examples."""
    numbers = level[order[positions]]
    # Stable, so that the examples of a number stay in the order of the pass.
    sorting = np.argsort(numbers, kind="stable")
    borders = np.flatnonzero(np.diff(numbers[sorting])) + 1
    batches, leftovers = list[Places](), list[Places]()
    for run in np.split(positions[sorting], borders):
        full, leftover = _cut(run, order, rules)
        batches += full
        leftovers.append(leftover)
    return batches, np.sort(np.concatenate(leftovers))


def _cut(run: Places, order: Order, rules: Rules) -> tuple[list[Places], Places]:
    """Whole batches from a run of examples, and the leftover ones."""
    if rules.keys is not None:
        return _cut_apart(run, order, rules.keys, rules.batch_size)
    end = len(run) // rules.batch_size * rules.batch_size
    return list(run[:end].reshape(-1, rules.batch_size)), run[end:]


def _cut_apart(run: Places, order: Order, keys: Keys, size: int) -> tuple[list[Places], Places]:
    """Like `_cut`, without duplicate texts in a batch.

    A fixed number of batches is filled at a time, in the order of the run; refused examples are first in line
    for the next batches. Memory grows with that number, not with the run.
    """
    batches, waiting, start = list[Places](), run[:0], 0
    while count := min(WINDOW, (len(waiting) + len(run) - start) // size):
        window = _Window(count, size, lambda positions: keys[order[positions]].astype(np.int64))
        waiting = window.fill(waiting)
        while window.wanted and start < len(run):
            more = run[start : start + max(window.wanted, size)]
            start += len(more)
            waiting = np.concatenate([waiting, window.fill(more)])
        waiting = window.settle(waiting)
        full = window.full()
        batches += list(full)
        # Texts that are too frequent fill no batch, however often it is tried.
        if not len(full):
            break
    return batches, np.sort(np.concatenate([waiting, run[start:]]))


class _Window:
    """Batches filled together without duplicate texts.

    All examples try one batch each at a time, as array operations; refused ones try the next one with room.
    Examples that fit nowhere wait for other batches.
    """

    def __init__(self, count: int, size: int, keys_of: Callable[[Places], Keys]) -> None:
        """Begin with empty batches; `keys_of` gives the numbers of the texts of some examples."""
        self._count, self._size, self._keys_of = count, size, keys_of
        self._room = np.full(count, size)
        self._places = self._batch = self._taken = np.empty(0, dtype=np.int64)
        # `_taken` has ``key * count + batch`` of each text in each batch, ascending.

    @property
    def wanted(self) -> int:
        """Number of examples that still fit."""
        return int(self._room.sum())

    def full(self) -> Int[np.ndarray, "full size"]:
        """Examples of each full batch; call it when no batch is partly filled."""
        sorting = np.argsort(self._batch, kind="stable")
        return np.sort(self._places[sorting].reshape(-1, self._size), axis=1)

    def fill(self, positions: Places) -> Places:
        """Place examples into batches with room, from the first batch on, and return the refused ones.

        Examples that share texts go first, because the others fit anywhere.
        """
        keys, refused = self._keys_of(positions), np.ones(len(positions), dtype=np.bool_)
        holders, free = self._holders(keys), int(np.count_nonzero(self._room))
        # Each example first tries the batch that its place in line would have.
        batch = np.resize(np.repeat(np.arange(self._count), self._room), len(positions))
        # Very many waiting examples may share one text; each must not cost a search.
        hopeful = (holders < free).all(axis=1) & _thinned(keys, 2 * free)
        bound = _repeated(keys) | holders.any(axis=1)
        for group in (hopeful & bound, hopeful & ~bound):
            live = np.flatnonzero(group)[: TRIED * self.wanted]
            accepted = self._accepted(positions[live], keys[live], batch[live])
            refused[live[accepted]] = False
        return positions[refused]

    def _accepted(self, positions: Places, keys: Keys, batch: Numbers) -> Places:
        """Let each example try a batch and, if refused, the next one with room; returns which were placed."""
        live, placed = np.arange(len(positions)), [np.empty(0, dtype=np.int64)]
        # One round more than there are batches, because the blocking example may itself have been refused.
        for _ in range(min(PROBES, int(np.count_nonzero(self._room)) + 1)):
            free = np.flatnonzero(self._room)
            if not len(live) or not len(free):
                break
            # The next batch with room, after the last one the first again.
            batch = free[np.searchsorted(free, batch) % len(free)]
            fits = self._fitting(keys[live], batch)
            chosen = live[fits]
            self._put(positions[chosen], keys[chosen], batch[fits])
            placed.append(chosen)
            live, batch = live[~fits], batch[~fits] + 1
        return np.concatenate(placed)

    def settle(self, waiting: Places) -> Places:
        """Leave no batch partly filled: repeatedly dissolve the emptier half of them to fill the others."""
        while len(partly := np.flatnonzero(self._room)):
            emptiest = partly[np.argsort(-self._room[partly], kind="stable")]
            released = self._given_up(emptiest[: (len(partly) + 1) // 2])
            waiting = self.fill(np.concatenate([waiting, released]))
        return waiting

    def _given_up(self, batches: Places) -> Places:
        """Empty some batches for good, and return their examples: a batch is full, or it is none."""
        out = np.isin(self._batch, batches)
        released = self._places[out]
        self._places, self._batch = self._places[~out], self._batch[~out]
        self._room[batches] = 0
        self._taken = self._taken[~np.isin(self._taken % self._count, batches)]
        return released

    def _holders(self, keys: Keys) -> Keys:
        """Number of batches with room that hold each text."""
        has_room = np.isin(self._taken % self._count, np.flatnonzero(self._room))
        texts = self._taken[has_room] // self._count
        return np.searchsorted(texts, keys, side="right") - np.searchsorted(texts, keys)

    def _fitting(self, keys: Keys, batch: Numbers) -> Mask:
        """Which examples may enter the batches they try: there is room, and none of their texts is in the
        batch or tried before them.
        """
        # A text in a batch is one number, so that one sorted array answers for all batches.
        codes = keys * self._count + batch[:, None]
        known = np.searchsorted(self._taken, codes)
        # No text has the code -1, which stands for those behind the last.
        is_taken = np.append(self._taken, -1)[known] == codes
        apart = np.flatnonzero(~is_taken.any(axis=1))
        _, first, number = np.unique(codes[apart], return_index=True, return_inverse=True)
        # The example that tries each text in each batch first, by its place in `apart`.
        owner = first[number].reshape(-1, keys.shape[1]) // keys.shape[1]
        is_first = (owner == np.arange(len(apart))[:, None]).all(axis=1)
        chosen = apart[is_first]
        has_room = _equal_before(batch[chosen]) < self._room[batch[chosen]]
        fits = np.zeros(len(keys), dtype=np.bool_)
        fits[chosen[has_room]] = True
        return fits

    def _put(self, positions: Places, keys: Keys, batch: Numbers) -> None:
        """Note examples in their batches, their texts, and the room that they leave."""
        self._places = np.concatenate([self._places, positions])
        self._batch = np.concatenate([self._batch, batch])
        self._room -= np.bincount(batch, minlength=self._count)
        codes = np.unique(keys * self._count + batch[:, None])
        self._taken = np.sort(np.concatenate([self._taken, codes]), kind="stable")


def _repeated(keys: Keys) -> Mask:
    """Examples that share a text with another example; a text repeated within one example does not count."""
    once = np.sort(keys, axis=1)
    first = np.ones(once.shape, dtype=np.bool_)
    first[:, 1:] = np.diff(once, axis=1) > 0
    _, number, counts = np.unique(once[first], return_inverse=True, return_counts=True)
    repeated = np.zeros(once.shape, dtype=np.bool_)
    repeated[first] = counts[number] > 1
    return np.asarray(repeated.any(axis=1))


def _thinned(keys: Keys, limit: int) -> Mask:
    """All examples, except that of those with very frequent texts at most a fixed number is kept, evenly
    spread.
    """
    chosen = np.ones(len(keys), dtype=np.bool_)
    for column in keys.T:
        _, number, counts = np.unique(column, return_inverse=True, return_counts=True)
        step = -(-counts // max(limit, 1))
        chosen &= _equal_before(number) % step[number] == 0
    return chosen


def _equal_before(numbers: Numbers) -> Numbers:
    """Number of earlier entries equal to each entry."""
    sorting = np.argsort(numbers, kind="stable")
    ordered = numbers[sorting]
    before = np.empty(len(numbers), dtype=np.int64)
    before[sorting] = np.arange(len(numbers)) - np.searchsorted(ordered, ordered)
    return before


def _in_sequence(
    grouped: list[Places], mixed: list[Places], rules: Rules, random: np.random.Generator, first_step: int
) -> list[Places]:
    """Batches ordered by the position of their examples in the pass, interleaved with random batches at the
    share of each step.
    """
    count = len(grouped) + len(mixed)
    is_mixed = random.random(count) < rules.random_shares(first_step + np.arange(count))
    # The examples decide the number of random batches, and the steps their positions.
    excess = int(is_mixed.sum()) - len(mixed)
    wrong = np.flatnonzero(is_mixed == (excess > 0))
    is_mixed[random.permutation(wrong)[: abs(excess)]] ^= True
    next_grouped, next_mixed = (iter(sorted(batches, key=np.mean)) for batches in (grouped, mixed))
    return [next(next_mixed if is_random else next_grouped) for is_random in is_mixed]


def _within_budget(batches: list[Places], order: Order, rules: Rules) -> tuple[list[Places], Places]:
    """Split batches with too many tokens into short and long examples; leave out examples that would be
    alone.
    """
    assert rules.tokens is not None
    assert rules.token_budget is not None
    within, alone = list[Places](), [np.empty(0, dtype=np.int64)]
    for batch in batches:
        lengths = rules.tokens[order[batch]]
        if lengths.sum() <= rules.token_budget:
            within.append(batch)
            continue
        sorting = np.argsort(lengths, kind="stable")
        for piece in _parts(batch[sorting], lengths[sorting], rules.token_budget):
            (within if len(piece) > 1 else alone).append(piece)
    return within, np.concatenate(alone)


def _parts(batch: Places, lengths: Places, budget: int) -> list[Places]:
    """Stretches of ascending lengths, each within the budget, except for single examples above it."""
    ends = np.cumsum(lengths)
    pieces, start = list[Places](), 0
    while start < len(batch):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        pieces.append(batch[start:stop])
        start = stop
    return pieces


class ArrangedBatches:
    """Batches of successive passes under the rules."""

    def __init__(
        self,
        order: Callable[[int], Numbers],
        rules: Rules,
        *,
        pairs: int,
        seed: int,
        first_step: int = 0,
    ) -> None:
        """Set up; a pass is planned when one of its steps is first needed."""
        self.pairs = pairs
        self._order = order
        self._rules = rules
        self._seed = seed
        self._starts = [first_step]
        self._left_out: list[int] = []
        self._empty: int | None = None
        """The first pass that has no batch."""
        self._planned = -1
        self._batches: list[Places] = []

    def rows(self, step: int) -> Int[np.ndarray, " b"]:
        """Rows of a step; a pass without batches ends the steps."""
        while self._starts[-1] <= step and self._empty is None:
            self._plan(len(self._left_out))
        if self._empty is not None and self._starts[self._empty] <= step:
            size = self._rules.batch_size
            raise DataError(
                f"{self._left_out[self._empty]:,} examples must fill a batch of {size} under the rules of "
                "[batches], got none; lower train.batch_size, or relax the rules"
            )
        number = int(np.searchsorted(self._starts, step, side="right")) - 1
        self._plan(number)
        return self._batches[step - self._starts[number]]

    def batches(self, number: int) -> int:
        """Number of batches of a pass; 0 if the rules leave none."""
        self._reach(number)
        return self._starts[number + 1] - self._starts[number]

    def left_out(self, number: int) -> int:
        """Number of rows of a pass in no batch."""
        self._reach(number)
        return self._left_out[number]

    def _reach(self, number: int) -> None:
        """Plan all passes up to this one; a pass starts where the one before ends."""
        for reached in range(len(self._left_out), number + 1):
            self._plan(reached)

    def _plan(self, number: int) -> None:
        """Form the batches of a pass, and note how many it has when it is planned for the first time."""
        if number == self._planned:
            return
        random = np.random.default_rng([self._seed, ARRANGEMENT, number])
        self._batches, leftover = arranged(
            self._order(number), self._rules, random, first_step=self._starts[number]
        )
        self._planned = number
        if number == len(self._left_out):
            if self._empty is None and not self._batches:
                self._empty = number
            self._left_out.append(len(leftover))
            self._starts.append(self._starts[number] + len(self._batches))
