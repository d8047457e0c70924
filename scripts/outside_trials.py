"""Damage files of users, plant links, and see that nothing wrong is accepted in silence and nothing is
written outside.

    python scripts/outside_trials.py [--section users links] [--folder DIR] [--only CASE ...] [--most N]
    [--write]

`user_file_trials.py` has the trials of users' files, `link_trials.py` those of links under every name that a
command writes; `--only` takes cases of the first, or verbs of the second, and `--most` bounds the names of
each verb. Rows of trials stand in DIR, so that the script goes on where it was cut short. `--write` puts the
totals into benchmarks/RELIABILITY.md.
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import link_trials
import user_file_trials
from reliability import VERBS, made_whole, prepare, with_needs
from small_world import write_world
from trials import Trials, write_section


@dataclass(frozen=True)
class Section:
    """How the rows of a section are told.

    Attributes:
        title: Of the section.
        lines: What a trial is.
        good: Outcomes that are right.
    """

    title: str
    lines: Sequence[str]
    good: Sequence[str]


SECTIONS = {
    "users": Section(
        "Files of users",
        (
            "each trial loses a file of a model, or puts zeros, a pointer of",
            "Git LFS or a server's page in the place of data, settings or weights. "
            "*Refused*: exit code 2 and one line that names the",
            "file. *Equal*: the results are those without damage. *As published*: models "
            "of this layout are published without the file",
            "(`config_sentence_transformers.json` with prompts, `tokenizer_config.json` "
            "with a token limit), so that nothing tells that it",
            "was lost, and another model is read. *Wrong*: anything else.",
        ),
        user_file_trials.GOOD,
    ),
    "links": Section(
        "Planted links",
        (
            "each trial kills a command just before it first writes a path, puts a link",
            "there (to a file, a folder, a place where nothing is, or to the folder itself, "
            "which moved), and runs it again. *Refused*:",
            "exit code 2. *Ended*: the command made its results. *Wrong*: a defect, or "
            "a change outside the places that it was told.",
        ),
        link_trials.GOOD,
    ),
}


def main() -> None:
    """Make the trials that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--section", nargs="*", choices=tuple(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "adiabat-outside")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    prepare()
    world, work = given.folder / "world", given.folder / "work"
    write_world(world)
    made: Mapping[str, Path] = {}
    tried = (
        [verb for verb in VERBS if verb in given.only or not given.only] if "links" in given.section else []
    )
    verbs = with_needs([*tried, *(["embed", "tune", "distill static"] if "users" in given.section else [])])
    for _, _, every in made_whole(world, given.folder / "whole", verbs):
        made = every
    for name in given.section:
        trials = Trials(given.folder / f"{name}.jsonl", 300 if name == "users" else 3000)
        if name == "users":
            user_file_trials.users_files(world, work, made, trials, only=given.only)
        else:
            link_trials.links(world, work, made, trials, only=tried, most=given.most)
        report(
            SECTIONS[name],
            trials,
            write=given.write,
            command=f"python scripts/outside_trials.py --section {name} --write",
        )


def report(section: Section, trials: Trials, *, write: bool, command: str) -> None:
    """Print what is wrong, and put the totals into the report.

    Args:
        section: How they are told.
        trials: That were made.
        write: Whether to write.
        command: That made them.
    """
    wrong = [row for row in trials.rows if row["outcome"] not in section.good]
    print(f"{section.title}: {len(trials.rows)} trials, {len(wrong)} of them wrong")
    for row in wrong:
        print(row)
    if write:
        first, *others = section.lines
        tables = [*_table(trials, section, "case"), "", *_table(trials, section, "kind")]
        write_section(section.title, [f"`{command}`: {first}", *others, "", *tables])


def _table(trials: Trials, section: Section, column: str) -> list[str]:
    lines = [
        f"| {column} | trials | {' | '.join(section.good)} | wrong |",
        f"|---|---|{'---|' * len(section.good)}---|",
    ]
    names = list(dict.fromkeys(row[column] for row in trials.rows))
    for label, chosen in [*((name, [name]) for name in names), ("all", names)]:
        counts = Counter(row["outcome"] for row in trials.rows if row[column] in chosen)
        good = [counts[outcome] for outcome in section.good]
        lines.append(
            f"| {label} | {counts.total()} | {' | '.join(map(str, good))} | {counts.total() - sum(good)} |"
        )
    return lines


if __name__ == "__main__":
    main()
