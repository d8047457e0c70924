"""Kill commands, let them go on, and compare all that they leave with runs that nobody killed, bit for bit.

    python scripts/kill_trials.py [--runs 8] [--kills 4] [--every-write [--most N]] [--only VERB ...]
    [--folder DIR] [--write]

For each verb `--runs` runs are killed up to `--kills` times, by SIGKILL, at moments drawn from the seconds
that the whole run takes, and then let go on to the end. With `--every-write`, a run is killed before each
change of a file instead, once a run: of changes that repeat, such as those of checkpoints, before the first
two and the last, and at the most `--most` times for each verb. The rows of runs stand in DIR, so that the
script goes on where it was cut short. `--write` puts the totals into benchmarks/RELIABILITY.md.
"""

import argparse
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from left_files import PASSED_OVER, contents, differences
from reliability import VERBS, Ended, Verb, made_whole, needed_of, place, prepare, run, with_needs
from small_world import write_world
from trials import Trials, write_section
from writes import chosen, moments, run_until

SEARCH = (*VERBS["search"].words, "--json", "-k", "240")


@dataclass(frozen=True)
class Row:
    """A run that was killed.

    Attributes:
        name: Of the trial.
        verb: That was run.
        kills: How often it was killed.
        code: With which it ended at last.
        differing: Files that are not those of the run that was let alone.
        said: On stderr at last, where something is wrong.
    """

    name: str
    verb: str
    kills: int
    code: int
    differing: list[str]
    said: str


def killed(
    verb: Verb, here: Path, *, seconds: float, kills: int, moments: random.Random
) -> tuple[int, Ended]:
    """Run a verb, kill it some times, and let it end.

    Args:
        verb: To run.
        here: To work in.
        seconds: That it takes.
        kills: At the most.
        moments: Draws them.

    Returns:
        How often it was killed, and how it ended.
    """
    count = 0
    for number in range(kills):
        again = verb.again if number else ()
        ended = run([*verb.words, *again], here, kill_after=moments.uniform(0.0, seconds))
        count += ended.code == -9
        if ended.code != -9:
            break
    if not ended.code and not verb.again:
        return count, ended
    return count, run([*verb.words, *verb.again], here)


@dataclass(frozen=True)
class Subject:
    """A verb whose runs are killed.

    Attributes:
        verb: To run.
        world: It reads.
        needed: Results of other verbs that it reads, by name.
        work: Folder to work in.
        wanted: What a whole run leaves.
        seconds: That one takes.
    """

    verb: Verb
    world: Path
    needed: Mapping[str, Path]
    work: Path
    wanted: Mapping[str, Any]
    seconds: float

    def found(self, here: Path) -> str:
        """What a search prints, for verbs that change a store; "" where it is refused."""
        if self.verb.left != ("store",) or "store" not in self.needed:
            return ""
        said = run(SEARCH, here)
        return said.out if not said.code else f"defect: {said.err[-300:]}" if said.code != 2 else ""

    def place(self) -> Path:
        """The folder to work in, as before the first run."""
        return place(self.world, self.work, self.needed)

    def row(self, name: str, here: Path, kills: int, ended: Ended) -> Row:
        """Compare what a run left with what a whole one leaves.

        Args:
            name: Of the trial.
            here: Where it worked.
            kills: How often it was killed.
            ended: How it ended at last.

        Returns:
            The row.
        """
        differing = differences(contents(here, self.verb.left), self.wanted)
        differing += [str(path.relative_to(here)) for path in hidden(here, [*self.verb.left, "."])]
        return Row(
            name, self.verb.name, kills, ended.code, differing, ended.err if differing or ended.code else ""
        )


def hidden(here: Path, names: Sequence[str]) -> list[Path]:
    """Temporary files and folders, which no command leaves behind.

    Args:
        here: Where it worked.
        names: Of what it left.

    Returns:
        Their paths.
    """
    found = [path for name in names if (here / name).is_dir() for path in (here / name).iterdir()]
    return sorted(
        path
        for path in found
        if path.name.startswith(".") and not PASSED_OVER.search(str(path.relative_to(here)))
    )


def at_random(subject: Subject, runs: int, kills: int, done: set[str]) -> Iterator[Row]:
    """Kill runs at random moments.

    Args:
        subject: The verb.
        runs: How many.
        kills: In each, at the most.
        done: Names of rows that are there already.

    Yields:
        A row for each run.
    """
    for name in (f"{subject.verb.name} {number}" for number in range(runs)):
        if name not in done:
            here = subject.place()
            count, ended = killed(
                subject.verb, here, seconds=subject.seconds, kills=kills, moments=random.Random(name)
            )
            yield subject.row(name, here, count, ended)


def at_every_write(subject: Subject, most: int, done: set[str]) -> Iterator[Row]:
    """Kill runs before each change of a file.

    Args:
        subject: The verb.
        most: Number of changes, drawn where there are more.
        done: Names of rows that are there already.

    Yields:
        A row for each run.
    """
    verb = subject.verb
    every, _ = moments(verb.words, subject.place())
    before = subject.found(subject.place())
    numbers = chosen(every)
    if len(numbers) > most:
        numbers = sorted(random.Random(verb.name).sample(numbers, most))
    for number in numbers:
        name = f"{verb.name} before {number}: {every[number].event} {every[number].path}"
        if name not in done:
            here = subject.place()
            first = run_until(verb.words, here, number)
            # The moments of two runs differ a little: the last one may not come.
            was_killed = first.code == -signal.SIGKILL
            found = subject.found(here)
            row = subject.row(
                name, here, int(was_killed), run([*verb.words, *verb.again], here) if was_killed else first
            )
            # A store that is half changed is refused, or read as it was or will be.
            is_known = found in ("", before, subject.found(here))
            yield (
                row if is_known else replace(row, differing=[*row.differing, f"a search in between: {found}"])
            )


def main() -> None:
    """Make the runs that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--every-write", action="store_true")
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", default=list(VERBS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "adiabat-kills")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    prepare()
    world = given.folder / "world"
    write_world(world)
    trials = Trials(
        given.folder / ("writes.jsonl" if given.every_write else "rows.jsonl"), len(given.only) * given.runs
    )
    needed = with_needs(given.only)
    for verb, whole, made in made_whole(world, given.folder / "whole", needed):
        if verb.name not in given.only:
            continue
        inputs = needed_of(verb, made)
        wanted = contents(given.folder / "whole" / verb.name, verb.left)
        subject = Subject(verb, world, inputs, given.folder / "work", wanted, whole.seconds)
        done = trials.names
        rows = (
            at_every_write(subject, given.most, done)
            if given.every_write
            else at_random(subject, given.runs, given.kills, done)
        )
        for row in rows:
            trials.add(row)
    counts = Counter(row["verb"] for row in trials.rows)
    kills_of = {verb: sum(row["kills"] for row in trials.rows if row["verb"] == verb) for verb in counts}
    # A command that is refused because all of its results are there has nothing to make again.
    complete = Counter(row["verb"] for row in trials.rows if row["code"] == 2 and not row["differing"])
    wrong = [row for row in trials.rows if row["code"] not in (0, 2) or row["differing"]]
    print(f"{sum(kills_of.values())} kills in {len(trials.rows)} runs, {len(wrong)} of them differ")
    for differing in wrong:
        print(differing)
    if given.write:
        options = (
            f"--every-write --most {given.most}"
            if given.every_write
            else f"--runs {given.runs} --kills {given.kills}"
        )
        how = (
            [
                "before each change of a file (of changes that repeat, before the first "
                "two and the last) and repeated or resumed."
            ]
            if given.every_write
            else ["by SIGKILL at random moments and resumed."]
        )
        lines = [
            f"`python scripts/kill_trials.py {options} --write`: commands on tiny random models are killed",
            *how,
            "Their files must equal those of an uninterrupted run byte for byte, except for",
            "dates, durations and the checksums of these. The comparison includes "
            "`tokenizer.json`, and a hidden file left behind counts",
            "as a difference. A run killed after its last result is complete, and "
            "the same command may say so and refuse.",
            "",
            "| verb | runs | kills | complete and refused | runs that differ |",
            "|---|---|---|---|---|",
        ]
        differing = Counter(row["verb"] for row in wrong)
        lines += [
            f"| {verb} | {counts[verb]} | {kills_of[verb]} | {complete[verb]} | {differing[verb]} |"
            for verb in counts
        ]
        lines += [
            f"| all | {len(trials.rows)} | {sum(kills_of.values())} | {complete.total()} | {len(wrong)} |"
        ]
        write_section("Kills before each write" if given.every_write else "Kills", lines)


if __name__ == "__main__":
    main()
