"""Damage files that adiabat wrote, let a command read them, and see that nothing wrong is accepted in
silence.

    python scripts/mutation_trials.py [--trials 60] [--folder DIR] [--only WORDS ...] [--versions] [--write]

In each case a file is drawn and a byte of it flipped, its end cut off, all of it taken, 64 bytes of it set to
zero, or it is exchanged with another file of its kind. The command that reads it must refuse it by name in
one line (exit 2), say that it falls back, or give what it gives without damage.

With `--versions`, a key of a record is instead dropped, added or given another type, with all checksums
right, as another version of adiabat might have written it. The command must refuse the file by name, or end
well.

Rows of trials stand in DIR, so that the script goes on where it was cut short. `--write` puts the totals into
benchmarks/RELIABILITY.md.
"""

import argparse
import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import other_versions
from left_files import contents, differences, plain
from reliability import FORMER, VERBS, Ended, Verb, made_whole, place, prepare, run, with_needs
from small_world import write_world
from trials import FileTrial, Trials, write_section
from writes import moments, run_until

KINDS = ("flip", "cut", "empty", "zero", "swap")
GOOD = ("refused", "fallback", "equal")


@dataclass(frozen=True)
class Case:
    """A command that reads what another one wrote.

    Attributes:
        name: Of the case.
        words: Of the command.
        of: Verb whose results are damaged.
        damaged: Names of what it left that files are drawn from.
        left: Names that are compared; none compares what is printed as JSON.
        needs: Names of further results.
        half: Whether the verb was killed before its end.
    """

    name: str
    words: Sequence[str]
    of: str
    damaged: Sequence[str]
    left: Sequence[str] = ()
    needs: Sequence[str] = ()
    half: bool = False


def _again(
    name: str,
    *,
    half: bool = False,
    damaged: Sequence[str] = (),
    left: Sequence[str] = (),
    needs: Sequence[str] = (),
) -> Case:
    verb = VERBS[name]
    kind = "half-made" if half else "finished"
    return Case(
        f"{kind} {name}, once more",
        [*verb.words, *verb.again],
        name,
        damaged or verb.left[:1],
        left or verb.left[:1],
        needs,
        half,
    )


SEARCH = ("search", "store", "which report is about river 8", "--model", "model", "--json", "-k", "20")
EVALUATE = ("evaluate", "model", "store", "asked.jsonl", "--json", "--out", "measured")
STORE = ("store",)
SEALED = tuple(
    f"former/{name}" for name in ("result-3/store", "store-2/job/config.toml", "store-2/job/result.json")
)
"""Former files with a checksum, or with one in a file beside them; the store of the later version is one of
today, which nothing reads."""
CASES = (
    Case("store, searched", SEARCH, "embed", STORE),
    Case("store, evaluated on", EVALUATE, "embed", STORE),
    *(
        Case(f"store, {name}", VERBS[name].words, "embed", STORE, STORE)
        for name in ("append", "update", "delete")
    ),
    Case("store with tombstones, searched", SEARCH, "update", STORE),
    Case("store with tombstones, evaluated on", EVALUATE, "update", STORE),
    *(
        Case(f"store with tombstones, {name}", VERBS[name].words, "update", STORE, STORE)
        for name in ("append", "update", "compact")
    ),
    *(_again(name, half=True, needs=STORE) for name in ("append", "update", "delete")),
    Case(
        "former files, upgraded",
        VERBS["upgrade"].words,
        "upgrade",
        SEALED,
        ("former",),
        tuple(f"world/{name}" for name in FORMER),
    ),
    _again("upgrade", half=True, damaged=SEALED, needs=tuple(f"world/{name}" for name in FORMER)),
    _again("embed", half=True, damaged=(".store.building", "store.building", "store"), left=("store",)),
    Case("cached pairs, trained on", VERBS["train"].words, "train", ("cache",), ("trained",)),
    Case("BM25 index, mined from", VERBS["mine"].words, "mine", ("index",), ("mined.jsonl",)),
    _again("mine", half=True, damaged=(".mined.jsonl.mining", "index"), left=("mined.jsonl",)),
    Case(
        "job, evaluated",
        ("evaluate", "tuned", "store", "asked.jsonl", "--json", "--out", "measured"),
        "tune",
        ("tuned",),
        needs=("store",),
    ),
    _again("tune", needs=("store",)),
    _again("tune", half=True, needs=("store",)),
    _again("train", half=True),
    _again("stream", half=True),
    _again("suite"),
    Case(
        "scores, compared",
        ("compare", "suite/scores/model", "suite/scores/other", "--json"),
        "suite",
        ("suite/scores",),
    ),
    _again("sweep", needs=("store",)),
    _again("sweep", half=True, needs=("store",)),
    _again("safe-rate", half=True, needs=STORE),
    _again("scaling", half=True),
    _again("distill fit", half=True),
    _again("distill ablate", half=True),
)


def damage(path: Path, kind: str, others: Sequence[Path], chance: random.Random) -> bool:
    """Damage a file.

    Args:
        path: Of it.
        kind: Of `KINDS`.
        others: Files to exchange it with.
        chance: Draws places.

    Returns:
        Whether it is another file now.
    """
    content = path.read_bytes()
    if kind == "swap":
        alike = [
            one for one in others if one != path and one.suffix == path.suffix and one.read_bytes() != content
        ]
        half = len(content) // 2
        changed = chance.choice(alike).read_bytes() if alike else content[half:] + content[:half]
    elif not content:
        return False
    else:
        at = chance.randrange(len(content))
        flipped = content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]
        zeroed = content[:at] + bytes(len(content[at : at + 64])) + content[at + 64 :]
        changed = {"flip": flipped, "cut": content[:at], "empty": b"", "zero": zeroed}[kind]
    path.write_bytes(changed)
    return changed != content


def half_made(
    verb: Verb, world: Path, folder: Path, needs: Mapping[str, Path], chance: random.Random
) -> Path:
    """What a verb leaves that was killed on its way.

    Args:
        verb: That is run.
        world: It reads.
        folder: To work in.
        needs: Results that it reads.
        chance: Draws the moment.

    Returns:
        The folder.
    """
    every, _ = moments(verb.words, place(world, folder, needs))
    for _ in range(40):
        here = place(world, folder, needs)
        before = contents(here, list(needs))
        ended = run_until(verb.words, here, chance.randrange(len(every)))
        after = contents(here, [path.name for path in here.iterdir() if not path.is_symlink()])
        new = [Path(path) for path in differences(after, before) if Path(path).name != "config.toml"]
        taken_up = not verb.again or any(part.startswith("step-") for path in new for part in path.parts)
        is_done = verb.left[0] not in needs and (here / verb.left[0]).is_file()
        if ended.code == -9 and len(new) > 2 and taken_up and not is_done:
            return here
    raise SystemExit(f"{verb.name} was not to be killed half way")


def outcome_of(ended: Ended, file: Path, differing: Sequence[str]) -> str:
    """Judge a trial.

    Args:
        ended: How the command ended.
        file: That was damaged, in the folder of the trial.
        differing: Of what it left.

    Returns:
        One word.
    """
    said = " ".join(ended.err.replace("\n", " ").split())
    # The message may name a whole shard, checkpoint or the like.
    named = file.name in said or (len(file.parts) > 2 and file.parent.name in said)
    if ended.code == 2:
        return "refused" if named else "unnamed"
    if ended.code:
        return "defect"
    if differing:
        return "fallback" if file.name in said else "silent"
    return "fallback" if named else "equal"


def _left(case: Case, here: Path, ended: Ended) -> dict[str, Any]:
    if case.left:
        found = contents(here, case.left)
        for path in [path for path in found if case.of == "upgrade" and path.endswith("store/manifest.json")]:
            # Format 1 has digests of ids and texts, not of their files, whose padding may be damaged without
            # effect.
            found[path] = {key: value for key, value in found[path].items() if key != "files"}
        return found
    return {"stdout": plain(json.loads(ended.out)) if not ended.code else ended.out}


def files_of(case: Case, here: Path) -> list[Path]:
    """Files that may be damaged.

    Args:
        case: At hand.
        here: Where they lie.

    Returns:
        Paths, sorted.
    """
    every = [
        path
        for name in case.damaged
        for path in ([here / name] if (here / name).is_file() else (here / name).rglob("*"))
    ]
    return sorted(
        path
        for path in every
        if path.is_file() and path.stat().st_size and path.suffix not in (".html", ".svg", ".png")
    )


def placed_of(
    case: Case, world: Path, folder: Path, made: Mapping[str, Path], chance: random.Random
) -> dict[str, Path]:
    """What each trial of a case finds beside the world's files.

    Args:
        case: At hand.
        world: Commands read it.
        folder: Of all trials.
        made: What verbs left, by name.
        chance: Draws the moment when it is killed.

    Returns:
        Paths by name.
    """
    verb = VERBS[case.of]
    needed = {name.removeprefix("world/"): made[name] for name in case.needs}
    if case.half:
        half = half_made(verb, world, folder / "work", needed, chance)
        kept = folder / "half"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(half, kept, symlinks=True)
        return {path.name: path for path in kept.iterdir() if not path.is_symlink()}
    asked = {one.split("/")[0] for one in (*case.damaged, *case.left)}
    is_replaced = not set(case.left) & set(case.damaged)
    # Of this verb: several leave a folder of one name.
    whole = [name for name in verb.left if name in asked and not (is_replaced and name in case.left)]
    return {name: folder / "whole" / verb.name / name for name in whole} | needed


def trial_of(
    case: Case, here: Path, wanted: Mapping[str, Any], number: int, *, versions: bool
) -> FileTrial | None:
    """Damage one file and run the command.

    Args:
        case: At hand.
        here: Where it works.
        wanted: What it leaves without damage.
        number: Of the trial.
        versions: Whether the damage is that of another version.

    Returns:
        The row; None where nothing was damaged.
    """
    name = f"{case.name} {number}"
    chance, files = random.Random(name), files_of(case, here)
    if versions:
        files = [path for path in files if path.suffix in other_versions.SUFFIXES]
    kinds = other_versions.KINDS if versions else KINDS
    kind, file = kinds[number % len(kinds)], chance.choice(files)
    changed = other_versions.mutate(file, kind, chance) if versions else damage(file, kind, files, chance)
    if not changed:
        return None
    after = file.read_bytes()
    ended = run(case.words, here)
    differing = [] if ended.code else differences(_left(case, here, ended), wanted)
    if file.exists() and file.read_bytes() == after:
        # Not read, and not written again.
        differing = [path for path in differing if path != str(file.relative_to(here))]
    # Another version may leave out what matters little, so that the result is allowed to differ.
    judged = outcome_of(ended, file.relative_to(here), [] if versions else differing)
    said = "" if judged in GOOD else f"{changed} {differing} {ended.err[-600:]}"
    return FileTrial(name, case.name, str(file.relative_to(here)), kind, judged, said)


def main() -> None:
    """Make the trials that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "adiabat-mutations")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--versions", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    prepare()
    world, trial = given.folder / "world", given.folder / "work"
    write_world(world)
    cases = [case for case in CASES if not given.only or any(words in case.name for words in given.only)]
    trials = Trials(
        given.folder / ("versions.jsonl" if given.versions else "rows.jsonl"), len(cases) * given.trials
    )
    made: Mapping[str, Path] = {}
    # Results that a case reads come from the first verb that leaves them.
    asked = {name for case in cases for name in case.needs}
    makers = [verb.name for verb in VERBS.values() if asked & set(verb.left)]
    for _, _, every in made_whole(
        world, given.folder / "whole", with_needs([*makers, *(case.of for case in cases)])
    ):
        made = every
    for case in cases:
        # A half-made state is made anew for every ten trials, since each is that of one moment.
        step = 10 if case.half else given.trials
        for first in range(0, given.trials, step):
            numbers = [
                number
                for number in range(first, min(first + step, given.trials))
                if f"{case.name} {number}" not in trials.names
            ]
            if not numbers:
                continue
            placed = placed_of(case, world, given.folder, made, random.Random(f"{case.name} from {first}"))
            here = place(world, trial, placed)
            ended = run(case.words, here)
            if ended.code:
                raise SystemExit(f"{case.name} failed: {ended.err}")
            wanted = _left(case, here, ended)
            for number in numbers:
                row = trial_of(case, place(world, trial, placed), wanted, number, versions=given.versions)
                if row is not None:
                    trials.add(row)
    options = " --versions" if given.versions else ""
    command = f"python scripts/mutation_trials.py --trials {given.trials}{options} --write"
    report(
        trials,
        write=given.write,
        command=command,
        section="Files of other versions" if given.versions else "Damaged files",
    )


def report(trials: Trials, *, write: bool, command: str, section: str) -> None:
    """Print what is wrong, and put the totals into the report.

    Args:
        trials: That were made.
        write: Whether to write.
        command: That made them.
        section: Of the report.
    """
    counts = Counter((row["case"], row["outcome"]) for row in trials.rows)
    kinds = Counter((row["kind"], row["outcome"]) for row in trials.rows)
    wrong = [row for row in trials.rows if row["outcome"] not in GOOD]
    print(f"{len(trials.rows)} trials, {len(wrong)} of them wrong")
    for row in wrong:
        print(row)
    if write:
        lines = [
            f"`{command}`: each trial changes a file that a command wrote;",
            "another command, or the same one again, then reads it. *Refused*: exit code "
            "2 and one line that names the file, or its",
            "checkpoint or shard. *Fallback*: a note names the file, and the command "
            "rebuilds it or continues without it. *Equal*: the",
            "results are those without damage, because the file is not read, is written "
            "again, or its damaged part has no effect.",
            "*Wrong*: anything else.",
            "",
        ]
        lines += [*_table("read", counts), "", *_table("damage", kinds)]
        write_section(section, lines)


def _table(head: str, counts: Mapping[tuple[str, str], int]) -> list[str]:
    rows = list(dict.fromkeys(name for name, _ in counts))
    lines = [f"| {head} | trials | refused | fallback | equal | wrong |", "|---|---|---|---|---|---|"]
    for label, names in [*((row, [row]) for row in rows), ("all", rows)]:
        numbers = [sum(counts.get((name, outcome), 0) for name in names) for outcome in GOOD]
        total = sum(count for (name, _), count in counts.items() if name in names)
        lines.append(f"| {label} | {total} | {' | '.join(map(str, numbers))} | {total - sum(numbers)} |")
    return lines


if __name__ == "__main__":
    main()
