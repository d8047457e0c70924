"""Which examples share a batch: of one source, one topic, one tag; no text twice; so many tokens at most (mission D3).

All of it is planned for a whole pass, from the order of its examples. A step's batch follows from the seed and the step's number: no
state is saved, and neither the number of processes nor that of workers matters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.data.batching import ARRANGEMENT
from adiabat.errors import DataError

PROBES = 64
"""Batches that are tried for an example whose texts repeat; refused by all of them, it is left out of the pass."""

Places = Int[np.ndarray, " _"]
"""Positions in the order of a pass."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What examples of one batch have to do with each other.

    Attributes:
        batch_size: Examples of a batch.
        levels: A number for each example at each level, the finest first, such as tag, topic, source: batches are cut from examples of
            one tag as long as there are enough, from what is left of a topic then, and at last from what is left of a source. Numbers of
            a finer level are never shared by different numbers of a coarser one.
        random_share: Share of the batches that are drawn at the last level right away, in [0, 1].
        curriculum_steps: Steps over which that share falls from 1 to `random_share`; 0 begins with `random_share`.
        keys: Numbers for the texts of each example, equal where texts are: no two examples of a batch have one in common. None allows it.
        tokens: Of each example; None where there is no budget.
        token_budget: Most tokens of a batch; one that has more is parted by length. None sets no limit.
    """

    batch_size: int
    levels: Sequence[Int[np.ndarray, " n"]]
    random_share: float = 0.0
    curriculum_steps: int = 0
    keys: Int[np.ndarray, "n k"] | None = None
    tokens: Int[np.ndarray, " n"] | None = None
    token_budget: int | None = None

    def random_shares(self, steps: Int[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Share of random batches at some steps: ``1 - (1 - r) min(1, t / T)``.

        Args:
            steps: ``t``, from 0.

        Returns:
            One for each.
        """
        reached = np.minimum(1.0, steps / self.curriculum_steps) if self.curriculum_steps else np.ones(len(steps))
        shares: Float[np.ndarray, " m"] = 1.0 - (1.0 - self.random_share) * reached
        return shares


def arranged(
    order: Int[np.ndarray, " o"], rules: Rules, random: np.random.Generator, *, first_step: int = 0
) -> tuple[list[Int[np.ndarray, " _"]], Int[np.ndarray, " left"]]:
    """Cut the examples of a pass into batches.

    Args:
        order: Examples in the order in which they shall come, as far as the rules allow; one may come twice.
        rules: Of a batch.
        random: Draws which examples make random batches, and where these stand.
        first_step: Of the pass, for a curriculum.

    Returns:
        Batches in order, each of `Rules.batch_size` unless a token budget parts it, and the examples that are in none.
    """
    steps = first_step + np.arange(max(1, len(order) // rules.batch_size))
    drawn = np.ones(len(order), dtype=np.bool_)
    if len(rules.levels) > 1:
        drawn = random.random(len(order)) < rules.random_shares(steps).mean()
    left, alike = np.flatnonzero(~drawn), list[Places]()
    for level in rules.levels[:-1]:
        cut, left = _cut_each(left, level, order, rules)
        alike += cut
    mixed, left = _cut_each(np.sort(np.concatenate([left, np.flatnonzero(drawn)])), rules.levels[-1], order, rules)
    batches = _in_sequence(alike, mixed, rules, random, first_step)
    if rules.token_budget is not None:
        batches, longest = _within_budget(batches, order, rules)
        left = np.concatenate([left, longest])
    return [order[places] for places in batches], order[left]


def _cut_each(places: Places, level: Int[np.ndarray, " n"], order: Int[np.ndarray, " o"], rules: Rules) -> tuple[list[Places], Places]:
    """Batches from the examples of each number of a level, and what they leave."""
    if not len(places):
        return [], places
    numbers = level[order[places]]
    sorting = np.argsort(numbers, kind="stable")
    runs = np.split(places[sorting], np.flatnonzero(np.diff(numbers[sorting])) + 1)
    batches, left = list[Places](), list[Places]()
    for run in runs:
        whole, rest = (_cut if rules.keys is None else _cut_apart)(run, order, rules)
        batches += whole
        left.append(rest)
    return batches, np.sort(np.concatenate(left))


def _cut(run: Places, order: Int[np.ndarray, " o"], rules: Rules) -> tuple[list[Places], Places]:
    del order
    count = len(run) // rules.batch_size
    whole = count * rules.batch_size
    return list(run[:whole].reshape(count, rules.batch_size)), run[whole:]


def _cut_apart(run: Places, order: Int[np.ndarray, " o"], rules: Rules) -> tuple[list[Places], Places]:
    """As `_cut`, without equal texts in a batch.

    Examples whose texts stand in no other one go anywhere. The others go first, each near its own place: tried are the batches from there
    on, or from behind the last one that has such a text, so that a text that stands in half of all examples costs no more than another.
    """
    assert rules.keys is not None
    count, size = len(run) // rules.batch_size, rules.batch_size
    if not count:
        return [], run
    keys = rules.keys[order[run]]
    repeated = _repeated(keys)
    bound, free = np.flatnonzero(repeated), np.flatnonzero(~repeated)
    number = np.full(len(run), -1)
    rooms = _Rooms(count, size)
    number[bound] = [rooms.place(own, near=place // size) for place, own in zip(bound.tolist(), keys[bound].tolist(), strict=True)]
    slots = np.repeat(np.arange(count), rooms.room)[: len(free)]
    number[free[: len(slots)]] = slots
    full = np.bincount(number[number >= 0], minlength=count) == size
    kept = (number >= 0) & full[number]
    sorting = np.argsort(number[kept], kind="stable")
    return list(run[kept][sorting].reshape(-1, size)), run[~kept]


def _repeated(keys: Int[np.ndarray, "n k"]) -> Bool[np.ndarray, " n"]:
    """Which examples have a text that another one has too; the same text twice in one example does not count."""
    once = np.sort(keys, axis=1)
    first = np.concatenate([np.ones((len(once), 1), dtype=np.bool_), np.diff(once, axis=1) > 0], axis=1)
    _, number, counts = np.unique(once[first], return_inverse=True, return_counts=True)
    repeated = np.zeros(once.shape, dtype=np.bool_)
    repeated[first] = counts[number] > 1
    return np.asarray(repeated.any(axis=1))


class _Rooms:
    """Batches that are being filled so that no text is twice in one."""

    def __init__(self, count: int, size: int) -> None:
        self.room = [size] * count
        self._count = count
        self._ahead = list(range(count + 1))
        """From each batch a step towards the next one with room; `count` behind the last."""
        self._taken: set[int] = set()
        self._after: dict[int, int] = {}
        self._uses: dict[int, int] = {}

    def place(self, keys: Sequence[int], *, near: int) -> int:
        """A batch for an example with these texts, from `near` on or behind the last that has one of them; -1 where none is found."""
        own = set(keys)
        if any(self._uses.get(key, 0) >= self._count for key in own):
            # Every batch has it by now.
            return -1
        first = batch = self._with_room(max((self._after[key] for key in own if key in self._after), default=near))
        for _ in range(PROBES):
            if batch == self._count:
                return -1
            if not any(key * self._count + batch in self._taken for key in own):
                self._take(own, batch)
                return batch
            batch = self._with_room(batch + 1)
            if batch == first:
                return -1
        return -1

    def _take(self, own: set[int], batch: int) -> None:
        self.room[batch] -= 1
        if not self.room[batch]:
            self._ahead[batch] = batch + 1
        for key in own:
            self._taken.add(key * self._count + batch)
            self._after[key] = batch + 1
            self._uses[key] = self._uses.get(key, 0) + 1

    def _with_room(self, batch: int) -> int:
        """The next batch with room, from the first on behind the last; `count` where there is none."""
        found = self._found(batch)
        return self._found(0) if found == self._count else found

    def _found(self, batch: int) -> int:
        root = batch
        while self._ahead[root] != root:
            root = self._ahead[root]
        while self._ahead[batch] != root:
            self._ahead[batch], batch = root, self._ahead[batch]
        return root


def _in_sequence(alike: list[Places], mixed: list[Places], rules: Rules, random: np.random.Generator, first_step: int) -> list[Places]:
    """Batches by where their examples stand in the pass, random ones among them as often as each step wants."""
    alike, mixed = (sorted(batches, key=lambda places: float(places.mean())) for batches in (alike, mixed))
    count = len(alike) + len(mixed)
    wanted = random.random(count) < rules.random_shares(first_step + np.arange(count))
    # The examples decide how many random batches there are; the steps, where they stand.
    wrong = np.flatnonzero(wanted) if wanted.sum() > len(mixed) else np.flatnonzero(~wanted)
    wanted[random.permutation(wrong)[: abs(int(wanted.sum()) - len(mixed))]] ^= True
    kinds = {True: iter(mixed), False: iter(alike)}
    return [next(kinds[bool(kind)]) for kind in wanted]


def _within_budget(batches: list[Places], order: Int[np.ndarray, " o"], rules: Rules) -> tuple[list[Places], Places]:
    """Part batches of too many tokens, short examples from long ones; and leave out those that would be alone."""
    assert rules.tokens is not None
    assert rules.token_budget is not None
    kept, alone = list[Places](), [np.empty(0, dtype=np.int64)]
    for batch in batches:
        lengths = rules.tokens[order[batch]]
        if lengths.sum() <= rules.token_budget:
            kept.append(batch)
            continue
        sorting = np.argsort(lengths, kind="stable")
        for part in _parts(batch[sorting], lengths[sorting], rules.token_budget):
            (kept if len(part) > 1 else alone).append(part)
    return kept, np.concatenate(alone)


def _parts(batch: Places, lengths: Int[np.ndarray, " _"], budget: int) -> list[Places]:
    """Stretches of ascending lengths that each add up to the budget at most, but for a single example that is above it."""
    ends = np.cumsum(lengths)
    parts, start = list[Places](), 0
    while start < len(batch):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        parts.append(batch[start:stop])
        start = stop
    return parts


class ArrangedStream:
    """Batches of one pass after another, by rules."""

    def __init__(self, order: Callable[[int], Int[np.ndarray, " n"]], rules: Rules, *, seed: int) -> None:
        """Set up; a pass is planned when one of its steps is asked for.

        Args:
            order: Examples of a pass by its number, from 0.
            rules: Of a batch.
            seed: Of what the rules draw.
        """
        self._order = order
        self._rules = rules
        self._seed = seed
        self._starts = [0]
        self._planned = -1
        self._batches: list[Int[np.ndarray, " _"]] = []
        self.left: dict[int, int] = {}
        """Examples that each pass planned so far left out."""

    def rows(self, step: int) -> Int[np.ndarray, " b"]:
        """Examples of one step.

        Args:
            step: From 0.

        Returns:
            Their rows.

        Raises:
            DataError: If the rules leave no batch.
        """
        number = int(np.searchsorted(self._starts, step, side="right")) - 1
        while number == len(self._starts) - 1:
            self._plan(number)
            self._starts.append(self._starts[-1] + len(self._batches))
            number += self._starts[-1] <= step
        self._plan(number)
        return self._batches[step - self._starts[number]]

    def _plan(self, number: int) -> None:
        if number == self._planned:
            return
        random = np.random.default_rng([self._seed, ARRANGEMENT, number])
        order = self._order(number)
        self._batches, left = arranged(order, self._rules, random, first_step=self._starts[number])
        self._planned, self.left[number] = number, len(left)
        if not self._batches:
            raise DataError(
                f"{len(order):,} examples must make a batch of {self._rules.batch_size} by the rules of [batches], got none; "
                "lower train.batch_size, or loosen the rules"
            )
