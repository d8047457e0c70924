"""What trials share: commands in forked processes, and folders to work in.

Commands run in a fork of a process that has imported everything, since a start of the command line takes
seconds and a trial less than one.
"""

import importlib
import os
import pkgutil
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["XDG_CACHE_HOME"] = "/nonexistent"
os.environ.setdefault("COLUMNS", "200")

import torch

import adiabat
from adiabat import cli
from adiabat.mining import label as labelling
from adiabat.mining import mine as mining
from adiabat.report import pages
from adiabat.store import build


@dataclass(frozen=True)
class Verb:
    """A command that is tried.

    Attributes:
        name: Of the trial.
        words: Of the command line.
        left: Files and folders that it leaves.
        again: Words that are added where it goes on.
        needs: Verbs whose results it reads.
        own: Files of the world that it changes.
    """

    name: str
    words: Sequence[str]
    left: Sequence[str]
    again: Sequence[str] = ()
    needs: Sequence[str] = ()
    own: Sequence[str] = ()


RESUME = ("--resume",)
FEW = ("--set", "measure.resamples=100")
IMPORTED = ("--import", "store/vectors.npy", "--ids", "ids.txt")
STUDENT = (
    "--teacher",
    "other",
    "--student",
    "model",
    "--texts",
    "corpus.jsonl",
    "--set",
    "train.steps=4",
    "--set",
    "train.batch_size=8",
)
FORMER = ("former", "former.toml")
VERBS = {
    verb.name: verb
    for verb in (
        Verb("embed", ("embed", "model", "corpus.jsonl", "--out", "store"), ("store",)),
        Verb(
            "append",
            ("embed", "model", "more.jsonl", "--out", "store", "--append"),
            ("store",),
            (),
            ("embed",),
        ),
        Verb(
            "update",
            ("embed", "model", "changed.jsonl", "--out", "store", "--update", "--delete", "gone.txt"),
            ("store",),
            (),
            ("embed",),
        ),
        Verb("delete", ("embed", "--delete", "gone.txt", "--out", "store"), ("store",), (), ("embed",)),
        Verb("compact", ("embed", "--compact", "--out", "store"), ("store",), (), ("update",)),
        Verb(
            "import",
            ("embed", "model", "corpus.jsonl", *IMPORTED, "--out", "imported"),
            ("imported",),
            (),
            ("embed",),
        ),
        Verb(
            "import update",
            ("embed", "model", "turned.jsonl", *IMPORTED[:3], "turned.txt", "--out", "imported", "--update"),
            ("imported",),
            (),
            ("embed", "import"),
        ),
        Verb(
            "search",
            ("search", "store", "which report is about river 8", "--model", "model"),
            (),
            (),
            ("embed",),
        ),
        Verb(
            "tune",
            ("tune", "model", "store", "pairs.jsonl", "--out", "tuned", "--config", "tune.toml"),
            ("tuned",),
            RESUME,
            ("embed",),
        ),
        Verb(
            "tune 1",
            (
                "tune",
                "model",
                "store",
                "pairs.jsonl",
                "--out",
                "tuned-1",
                "--config",
                "tune.toml",
                "--seed",
                "1",
            ),
            ("tuned-1",),
            RESUME,
            ("embed",),
        ),
        Verb(
            "range test",
            ("tune", "model", "store", "pairs.jsonl", "--out", "ranged", "--config", "search.toml"),
            ("ranged",),
            RESUME,
            ("embed",),
        ),
        Verb(
            "safe-rate",
            ("safe-rate", "model", "store", "pairs.jsonl", "--out", "safe", "--config", "safe.toml"),
            ("safe",),
            RESUME,
            ("embed",),
        ),
        Verb("train", ("train", "train.toml", "--out", "trained"), ("trained", "cache"), RESUME),
        Verb("stream", ("train", "stream.toml", "--out", "streamed"), ("streamed", "cache"), RESUME),
        Verb(
            "mine",
            (
                "mine",
                "pairs.jsonl",
                "corpus.jsonl",
                "--out",
                "mined.jsonl",
                "--index",
                "index",
                "--set",
                "mine.depth=20",
            ),
            ("mined.jsonl", "mined.jsonl.stats.json", "index"),
        ),
        Verb(
            "label",
            ("label", "pairs.jsonl", "store", "--reranker", "reranker", "--out", "scored.jsonl"),
            ("scored.jsonl", "scored.jsonl.stats.json"),
            (),
            ("embed",),
        ),
        Verb(
            "advise",
            ("advise", "model", "store", "asked.jsonl", "--out", "advised"),
            ("advised",),
            (),
            ("embed",),
        ),
        Verb(
            "evaluate",
            (
                "evaluate",
                "tuned",
                "store",
                "asked.jsonl",
                "--baseline",
                "model",
                "--power",
                "--out",
                "evaluated",
                *FEW,
            ),
            ("evaluated",),
            (),
            ("embed", "tune"),
        ),
        Verb(
            "two runs",
            (
                "evaluate",
                "tuned",
                "store",
                "asked.jsonl",
                "--run",
                "tuned-1",
                "--baseline",
                "model",
                "--out",
                "runs",
                *FEW,
            ),
            ("runs",),
            (),
            ("embed", "tune", "tune 1"),
        ),
        Verb(
            "suite",
            ("evaluate", "model", "other", "bm25", "--suite", "suite.toml", "--out", "suite"),
            ("suite",),
        ),
        Verb(
            "compare",
            ("compare", "suite/scores/model", "suite/scores/other", "--out", "compared", *FEW),
            ("compared",),
            (),
            ("suite",),
        ),
        Verb(
            "space",
            ("space", "model", "store", "asked.jsonl", "--out", "space", "--set", "space.resamples=100"),
            ("space",),
            (),
            ("embed",),
        ),
        Verb("distill static", ("distill", "static", "model", "--out", "static", "--dims", "8"), ("static",)),
        Verb("distill fit", ("distill", "fit", *STUDENT, "--out", "student"), ("student",), RESUME),
        Verb("distill pair", ("distill", "pair", "model", "other", "--out", "pair"), ("pair",)),
        Verb(
            "distill ablate",
            (
                "distill",
                "ablate",
                "model",
                "--suite",
                "suite.toml",
                "--out",
                "steps",
                "--set",
                "static.reduction.dims=8",
            ),
            ("steps",),
            RESUME,
        ),
        Verb("data", ("data", "squad", "squad-train-v1.1.json", "--out", "squad"), ("squad",)),
        Verb("scaling", ("scaling", "scaling.toml", "--out", "scaled"), ("scaled", "cache"), RESUME),
        Verb("plan", ("plan", "--budget", "1e17", "--out", "planned"), ("planned",)),
        Verb("sweep", ("sweep", "sweep.toml", "--out", "sweep"), ("sweep",), RESUME, ("embed",)),
        Verb("upgrade", ("upgrade", *FORMER), FORMER, own=FORMER),
    )
}


FILES = pages.files


def prepare() -> None:
    """Import what commands import when they run, and make blocks so small that a run has many moments."""
    assert build.build_store.__kwdefaults__ is not None
    build.build_store.__kwdefaults__["chunk_size"] = 16
    vars(mining)["BLOCK_QUERIES"] = 4
    vars(labelling)["BLOCK_QUERIES"] = 4
    vars(pages)["files"] = lambda record: (
        {"report.html": lambda: "page"} if record.kind in ("training", "evaluation") else FILES(record)
    )
    for module in pkgutil.walk_packages(adiabat.__path__, "adiabat."):
        if module.name != "adiabat.__main__":
            importlib.import_module(module.name)
    torch.set_num_threads(1)
    torch.optim.AdamW([torch.zeros(1)]).step()


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Exit code; negative where a signal ended it.
        out: Of stdout.
        err: Of stderr.
        seconds: That it took.
    """

    code: int
    out: str
    err: str
    seconds: float


def begin(words: Sequence[str], folder: Path, *, hook: Callable[[], None] | None = None) -> int:
    """Begin a command in a process of its own; what it prints goes to files beside the folder.

    Args:
        words: Of the command line.
        folder: To work in.
        hook: Called in that process first.

    Returns:
        Number of the process.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        for descriptor, ending in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(f"{folder}{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv = ["adiabat", *words]
        if hook:
            hook()
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def wait(child: int, folder: Path, *, begun: float) -> Ended:
    """Wait for a command.

    Args:
        child: From `begin`.
        folder: Likewise.
        begun: By the clock `time.monotonic`.

    Returns:
        How it ended.
    """
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    out, err = (
        Path(f"{folder}{ending}").read_text(encoding="utf-8", errors="replace") for ending in (".out", ".err")
    )
    return Ended(code, out, err, time.monotonic() - begun)


def run(
    words: Sequence[str],
    folder: Path,
    *,
    kill_after: float | None = None,
    hook: Callable[[], None] | None = None,
) -> Ended:
    """Run a command, and end it by SIGKILL where it takes longer than it may.

    Args:
        words: Of the command line.
        folder: To work in.
        kill_after: Seconds; None lets it end.
        hook: Called in its process first.

    Returns:
        How it ended.
    """
    begun = time.monotonic()
    child = begin(words, folder, hook=hook)
    if kill_after is not None:
        time.sleep(kill_after)
        # Not waited for yet: the number is still its own.
        os.kill(child, signal.SIGKILL)
    return wait(child, folder, begun=begun)


def place(world: Path, folder: Path, made: Mapping[str, Path]) -> Path:
    """A folder to work in, with the world's files and copies of what commands made before.

    Args:
        world: Whose files are linked to.
        folder: Made anew.
        made: Name to what is copied there.

    Returns:
        The folder.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in world.iterdir():
        if path.name not in made:
            (folder / path.name).symlink_to(path)
    for name, path in made.items():
        if path.is_dir():
            shutil.copytree(path, folder / name, symlinks=True)
        else:
            shutil.copy2(path, folder / name)
    return folder


def with_needs(names: Sequence[str]) -> list[Verb]:
    """Verbs, and those whose results they read.

    Args:
        names: Of verbs.

    Returns:
        In the order in which they can be made.
    """
    wanted = set(names)
    for verb in reversed(VERBS.values()):
        if verb.name in wanted:
            wanted.update(verb.needs)
    return [verb for verb in VERBS.values() if verb.name in wanted]


def needed_of(verb: Verb, made: Mapping[str, Path]) -> dict[str, Path]:
    """Results that a verb reads, as the last of its needs left each, and files of the world that it changes.

    Args:
        verb: To run.
        made: From `made_whole`.

    Returns:
        Their paths by name.
    """
    results = {name: made[f"{need}/{name}"] for need in verb.needs for name in VERBS[need].left}
    return results | {name: made[f"world/{name}"] for name in verb.own}


def made_whole(
    world: Path, folder: Path, verbs: Sequence[Verb]
) -> Iterator[tuple[Verb, Ended, Mapping[str, Path]]]:
    """Run verbs without interruption, those first that others need.

    Args:
        world: They read.
        folder: Where results are kept.
        verbs: In an order in which each comes after those that it needs.

    Yields:
        The verb, how it ended, and everything made so far by name.
    """
    made = {f"world/{path.name}": path for path in world.iterdir()}
    for verb in verbs:
        # Where trials work too: what is cached goes by the paths of files.
        here = place(world, folder.parent / "work", needed_of(verb, made))
        ended = run(verb.words, here)
        if ended.code:
            raise SystemExit(f"{verb.name} failed: {ended.err}")
        shutil.rmtree(folder / verb.name, ignore_errors=True)
        shutil.copytree(here, folder / verb.name, symlinks=True)
        # What a verb changes stays that of the verb before, except for verbs that need its own.
        made = {**{name: folder / verb.name / name for name in verb.left}, **made}
        made |= {f"{verb.name}/{name}": folder / verb.name / name for name in verb.left}
        yield verb, ended, made
