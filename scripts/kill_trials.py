"""Kill commands at random moments, let them go on, and compare all that they leave with runs that nobody killed, bit for bit.

    python scripts/kill_trials.py [--runs 8] [--kills 4] [--folder DIR] [--write]

For each verb `--runs` runs are killed up to `--kills` times, by SIGKILL, at moments drawn from the seconds that the whole run takes, and
then let go on to the end. The rows of runs stand in DIR, so that the script goes on where it was cut short. `--write` puts the totals into
benchmarks/RELIABILITY.md.
"""

import argparse
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from reliability import VERBS, Ended, Verb, contents, differences, made_whole, place, prepare, run, write_world
from trials import Trials, write_section


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


def killed(verb: Verb, here: Path, *, seconds: float, kills: int, moments: random.Random) -> tuple[int, Ended]:
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


def main() -> None:
    """Make the runs that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "adiabat-kills")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    prepare()
    world = given.folder / "world"
    write_world(world)
    trials = Trials(given.folder / "rows.jsonl", len(VERBS) * given.runs)
    for verb, whole, made in made_whole(world, given.folder / "whole", list(VERBS.values())):
        wanted = contents(given.folder / "whole" / verb.name, verb.left)
        for number in range(given.runs):
            name = f"{verb.name} {number}"
            if name in trials.names:
                continue
            here = place(world, given.folder / "work", {path: made[path] for need in verb.needs for path in VERBS[need].left})
            kills, ended = killed(verb, here, seconds=whole.seconds, kills=given.kills, moments=random.Random(name))
            differing = differences(contents(here, verb.left), wanted) + [path.name for path in here.iterdir() if path.name.startswith(".")]
            trials.add(Row(name, verb.name, kills, ended.code, differing, ended.err if differing or ended.code else ""))
    counts = Counter(row["verb"] for row in trials.rows)
    kills_of = {verb: sum(row["kills"] for row in trials.rows if row["verb"] == verb) for verb in counts}
    wrong = [row for row in trials.rows if row["code"] or row["differing"]]
    print(f"{sum(kills_of.values())} kills in {len(trials.rows)} runs, {len(wrong)} of them differ")
    for row in wrong:
        print(row)
    if given.write:
        lines = [
            f"`python scripts/kill_trials.py --runs {given.runs} --kills {given.kills} --write`: commands on tiny random models are killed",
            "by SIGKILL at random moments and resumed. Their files must equal those of an uninterrupted run byte for byte, except for",
            "dates, durations and the checksums of these. The comparison includes `tokenizer.json`, and a hidden file left behind counts",
            "as a difference.",
            "",
            "| verb | runs | kills | runs that differ |",
            "|---|---|---|---|",
        ]
        lines += [f"| {verb} | {counts[verb]} | {kills_of[verb]} | {sum(row['verb'] == verb for row in wrong)} |" for verb in counts]
        lines += [f"| all | {len(trials.rows)} | {sum(kills_of.values())} | {len(wrong)} |"]
        write_section("Kills", lines)


if __name__ == "__main__":
    main()
