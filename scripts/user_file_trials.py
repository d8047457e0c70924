"""Damage files of a user, one by one, and see that nothing wrong is accepted in silence.

Of a model, each file is lost, or becomes a link that leads nowhere. Of data and settings in every format, a
block becomes zeros, or the file is replaced by a pointer of Git LFS, or by a server's page. The command must
refuse the file by name in one line (exit 2), or do as without damage.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from left_files import contents, differences, plain
from reliability import Ended, place, run
from trials import FileTrial, Trials

GOOD = ("refused", "equal", "as published")
AS_PUBLISHED = (
    "saved/config_sentence_transformers.json",
    "model/tokenizer_config.json",
    "spelt/tokenizer_config.json",
)
"""Files that models of the same layout are published without, as E5 models are without the first: nothing
tells that these were lost."""
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"
PAGE = b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head><body>Not Found</body></html>\n"


@dataclass(frozen=True)
class UserCase:
    """A command that reads files of a user.

    Attributes:
        name: Of the case.
        words: Of the command.
        files: Names of files or folders that are damaged.
        needs: Names of results that it reads.
        left: Names that are compared; none compares what is printed as JSON.
        kinds: Of damage.
    """

    name: str
    words: Sequence[str]
    files: Sequence[str]
    needs: Sequence[str] = ("store",)
    left: Sequence[str] = ()
    kinds: Sequence[str] = ("zeros", "pointer", "page")


LOST = ("lost", "dangling")
NEW = ("new",)
EVALUATE = ("--json", "--out", "measured", "--set", "measure.resamples=100")
IMPORT = ("embed", "model", "corpus.jsonl", "--out", "new", "--import")
TUNED = ("search", "store", "river 8", "--model", "tuned/model", "--json")
TUNE = ("tune", "model", "store", "pairs.jsonl", "--out", "new", "--config", "tune.toml")
SAFE = ("safe-rate", "model", "store", "pairs.jsonl", "--out", "new", "--config", "safe.toml")
MADE = ("data", "squad", "squad-train-v1.1.json", "--out", "new")
FORMATS = ("jsonl", "csv", "tsv", "parquet")
CASES = (
    UserCase(
        "a saved model, lost", ("embed", "saved", "corpus.jsonl", "--out", "new"), ("saved",), (), NEW, LOST
    ),
    UserCase(
        "a plain model, lost", ("embed", "model", "corpus.jsonl", "--out", "new"), ("model",), (), NEW, LOST
    ),
    UserCase("a tuned model, lost", TUNED, ("tuned/model",), ("store", "tuned"), (), LOST),
    UserCase(
        "a static model, lost",
        ("embed", "static", "corpus.jsonl", "--out", "new"),
        ("static",),
        ("static",),
        NEW,
        LOST,
    ),
    UserCase(
        "a model of a list of words, lost",
        ("embed", "spelt", "corpus.jsonl", "--out", "new"),
        ("spelt",),
        (),
        NEW,
        LOST,
    ),
    UserCase(
        "a model of a list of words, replaced",
        ("embed", "spelt", "corpus.jsonl", "--out", "new"),
        ("spelt",),
        (),
        NEW,
    ),
    UserCase(
        "a static model, replaced",
        ("embed", "static", "corpus.jsonl", "--out", "new"),
        ("static",),
        ("static",),
        NEW,
    ),
    UserCase(
        "a saved model, replaced", ("embed", "saved", "corpus.jsonl", "--out", "new"), ("saved",), (), NEW
    ),
    *(
        UserCase(
            f"a corpus in {ending}",
            ("embed", "model", f"corpus.{ending}", "--out", "new"),
            (f"corpus.{ending}",),
            (),
            NEW,
        )
        for ending in (*FORMATS, "jsonl.gz", "jsonl.zst")
    ),
    *(
        UserCase(
            f"queries in {ending}",
            ("evaluate", "model", "store", f"asked.{ending}", *EVALUATE),
            (f"asked.{ending}",),
        )
        for ending in FORMATS
    ),
    UserCase("a BEIR folder", ("evaluate", "model", "store", "beir", *EVALUATE), ("beir",)),
    UserCase("a profile", ("inspect", "asked.csv", "--json"), ("asked.csv",), ()),
    *(
        UserCase(
            f"ids in {ending}",
            (*IMPORT, "vectors.npy", "--ids", f"ids.{ending}"),
            (f"ids.{ending}",),
            (),
            NEW,
        )
        for ending in ("txt", "json", "npy")
    ),
    UserCase("vectors in npy", (*IMPORT, "vectors.npy", "--ids", "ids.txt"), ("vectors.npy",), (), NEW),
    *(
        UserCase(f"vectors in {ending}", (*IMPORT, f"vectors.{ending}"), (f"vectors.{ending}",), (), NEW)
        for ending in ("parquet", "arrow")
    ),
    UserCase(
        "a vocabulary",
        ("distill", "static", "model", "--out", "new", "--vocabulary", "words.txt"),
        ("words.txt",),
        (),
        NEW,
    ),
    UserCase("probes", SAFE, ("probes.txt",), left=NEW),
    UserCase("settings", TUNE, ("tune.toml",), left=NEW),
    UserCase(
        "a suite",
        ("evaluate", "model", "--suite", "suite.toml", *EVALUATE),
        ("suite.toml", "listed.jsonl", "alike.jsonl"),
        (),
    ),
    UserCase("training data", ("train", "train.toml", "--out", "new"), ("pairs.jsonl",), (), NEW),
    UserCase("a publisher's file", MADE, ("squad-train-v1.1.json",), (), NEW),
)


def damage(path: Path, kind: str) -> None:
    """Damage a file.

    Args:
        path: Of it.
        kind: Of damage.
    """
    content = path.read_bytes()
    path.unlink()
    if kind == "dangling":
        path.symlink_to("gone")
    elif kind == "zeros":
        middle = len(content) // 2
        path.write_bytes(
            content[:middle] + bytes(len(content[middle : middle + 64])) + content[middle + 64 :]
        )
    elif kind != "lost":
        path.write_bytes({"pointer": POINTER, "page": PAGE}[kind])


def own_copy(here: Path, name: str) -> list[Path]:
    """Replace a link to the world's file or folder by a copy.

    Args:
        here: Where a command works.
        name: Of the file or folder.

    Returns:
        Its files.
    """
    path = here / name
    if path.is_symlink():
        original = path.resolve()
        path.unlink()
        if original.is_dir():
            shutil.copytree(original, path)
        else:
            shutil.copy2(original, path)
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return [
        file
        for file in found
        if file.is_file() and not file.name.startswith(".") and file.name not in ("README.md", "result.json")
    ]


def _left(case: UserCase, here: Path, ended: Ended) -> Mapping[str, object]:
    if case.left:
        return contents(here, case.left)
    return {"stdout": plain(json.loads(ended.out)) if not ended.code else ended.out}


def outcome_of(ended: Ended, file: Path, kind: str, differing: Sequence[str]) -> str:
    """Judge a trial.

    Args:
        ended: How the command ended.
        file: That was damaged.
        kind: Of damage.
        differing: Of what the command left.

    Returns:
        One word.
    """
    if ended.code == 2:
        said = " ".join(ended.err.split())
        # Where another file would do as well, all are named: `vocab.*`.
        return "refused" if file.name in said or f"{file.stem}.*" in said else "unnamed"
    if ended.code:
        return "defect"
    if not differing:
        return "equal"
    return "as published" if kind == "lost" and str(file) in AS_PUBLISHED else "silent"


def users_files(
    world: Path, folder: Path, made: Mapping[str, Path], trials: Trials, *, only: Sequence[str] = ()
) -> None:
    """Make the trials that are not there yet.

    Args:
        world: Commands read it.
        folder: To work in.
        made: What verbs left, by name.
        trials: Their rows.
        only: Names of cases; none takes all.
    """
    for case in CASES:
        if not only or case.name in only:
            for row in _of_case(case, world, folder, {name: made[name] for name in case.needs}, trials.names):
                trials.add(row)


def _of_case(
    case: UserCase, world: Path, folder: Path, needed: Mapping[str, Path], done: set[str]
) -> Iterator[FileTrial]:
    here = place(world, folder, needed)
    ended = run(case.words, here)
    if ended.code:
        raise SystemExit(f"{case.name} failed: {ended.err}")
    wanted = _left(case, here, ended)
    files = [file.relative_to(here) for name in case.files for file in own_copy(here, name)]
    for file in files:
        for kind in case.kinds:
            name = f"{case.name}: {file} {kind}"
            # Nothing says which numbers the weights of somebody else's model should have.
            if name in done or (kind == "zeros" and file.suffix == ".safetensors"):
                continue
            here = place(world, folder, needed)
            for given in case.files:
                own_copy(here, given)
            damage(here / file, kind)
            ended = run(case.words, here)
            differing = [] if ended.code else differences(_left(case, here, ended), wanted)
            judged = outcome_of(ended, file, kind, differing)
            said = "" if judged in GOOD else f"{differing[:5]} {ended.err[-400:]}"
            yield FileTrial(name, case.name, str(file), kind, judged, said)
