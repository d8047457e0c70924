"""The command line: one function per verb, each importing what it needs when it runs, so that ``--help`` is quick."""

import errno
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adiabat import __version__
from adiabat.config import EmbedSettings, EvaluateSettings, S, SearchSettings, TrainSettings, TuneSettings, read_settings
from adiabat.console import PEOPLE, complain, one_line, plain_warnings, say, watching
from adiabat.errors import AdiabatError, ConfigError

if TYPE_CHECKING:
    from adiabat.measure.results import Hit, Result

app = typer.Typer(
    name="adiabat",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Tune query encoders against stored document embeddings, and measure what changed.",
    epilog="MODEL is a hub name, a directory, the directory of a job, or `demo` (the embedded model).",
)

Config = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.", show_default=False)]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting, such as tune.margin=0.05.")]
Seed = Annotated[str | None, typer.Option("--seed", metavar="N", help="Short for --set run.seed=N.", show_default=False)]
Device = Annotated[str | None, typer.Option("--device", help="Short for --set run.device=auto|cpu|cuda|cuda:N.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Of the command-line parser, whichever copy of it typer uses; it has `format_message`, and a context where the verb was known."""

SURROUNDINGS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
SURROUNDINGS |= {errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.EIO}
"""System errors that no code can mend: a full disk, a missing permission, an impossible path."""

_GOES_ON = "what is finished is kept; run the same command again to go on"
_NOTHING_KEPT = "nothing of it is kept; run the same command again to begin anew"
AFTER_CTRL_C = {"embed": _GOES_ON, "demo": _GOES_ON} | dict.fromkeys(("tune", "train"), "run the same command with --resume to go on")
"""What becomes of a verb's work where it did not say so itself; of the others nothing is kept."""

LOWER_MEMORY = {
    "embed": "encoder.max_tokens",
    "tune": "tune.batch_size, tune.negatives_per_query or encoder.max_tokens",
    "train": "memory.chunk_tokens (with memory.cached), memory.loss_tile or train.batch_size",
    "evaluate": "measure.depth or encoder.max_tokens",
}
"""Settings that decide how much memory a verb takes."""


def _settings(
    kind: type[S],
    config: Path | None,
    assignments: list[str] | None,
    *,
    seed: str | None = None,
    device: str | None = None,
    split: str | None = None,
    out: Path | None = None,
) -> S:
    """Settings from the file, then ``--set``, then the short flags."""
    short = [f"run.seed={seed}"] if seed is not None else []
    short += [f"run.device={json.dumps(device)}"] if device is not None else []
    short += [f"data.split={json.dumps(split)}"] if split is not None else []
    short += [f"job.out={json.dumps(str(out))}"] if out is not None else []
    return read_settings(kind, config, [*(assignments or ()), *short])


@app.command()
def embed(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Its document tower encodes.")],
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="BEIR folder, JSONL, CSV, TSV, Parquet, hf:NAME, or examples.")],
    out: Annotated[Path, typer.Option("--out", help="Directory of the store.")],
    append: Annotated[bool, typer.Option("--append", help="Add the corpus to the store at --out.")] = False,
    vectors: Annotated[Path | None, typer.Option("--import", help="Take these vectors (.npy, Parquet, faiss) instead of encoding.")] = None,
    ids: Annotated[Path | None, typer.Option("--ids", help="Document ids of --import, one per line.")] = None,
    config: Config = None,
    assignments: Assignments = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Encode a corpus into a store of document vectors; cut short, the same command goes on."""
    settings = _settings(EmbedSettings, config, assignments, device=device)
    from adiabat import api

    with watching() as watch:
        store = api.embed(model, corpus, out, settings=settings, append=append, vectors=vectors, ids=ids, watch=watch)
    say(f"{store.count:,} documents, {store.width} numbers each, {store.dtype}")
    _answer({"store": str(out), "count": store.count, "width": store.width, "dtype": store.dtype} if as_json else str(out))


@app.command()
def tune(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Where the query tower starts.")],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors of this model.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Queries with positives and perhaps negatives.")],
    out: Annotated[Path, typer.Option("--out", help="Directory of the job; afterwards a MODEL.")],
    split: Annotated[str | None, typer.Option("--split", help="Short for --set data.split=NAME.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a job that was cut short.")] = False,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Tune a query tower against stored document vectors, which stay as they are."""
    settings = _settings(TuneSettings, config, assignments, seed=seed, device=device, split=split)
    from adiabat import api

    with watching() as watch:
        result = api.tune(model, store, data, out, settings=settings, resume=resume, command=_command(), watch=watch)
    assert result.training is not None
    _say_tuned(result)
    _answer(result.to_json() if as_json else str(out))


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Model, data, towers, loss: job.model and job.data are required.")],
    out: Annotated[Path | None, typer.Option("--out", help="Short for --set job.out=DIR.", show_default=False)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a job that was cut short.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what the run would take, and write nothing.")] = False,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Train both towers of a dual encoder on pairs of texts."""
    settings = _settings(TrainSettings, config, assignments, seed=seed, device=device, out=out)
    from adiabat import api

    with watching() as watch:
        if dry_run:
            if _rank():
                return
            estimate = api.estimate(settings, watch=watch)
            _answer(estimate.to_json() if as_json else estimate.told())
            return
        result = api.train(settings, resume=resume, command=_command(), watch=watch)
    if result is None:
        return
    _show(result)
    _answer(result.to_json() if as_json else str(settings.job.out))


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Under test.")],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors of its document tower.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="The target data set.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for result.json and report.html.")],
    split: Annotated[str | None, typer.Option("--split", help="Of the target data set.", show_default=False)] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="MODEL", help="Compare with this model.", show_default=False)
    ] = None,
    retain: Annotated[
        list[str] | None,
        typer.Option("--retain", metavar="STORE DATA", help="A data set that must not get worse; repeatable."),
    ] = None,
    config: Config = None,
    assignments: Assignments = None,
    seed: Seed = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Measure a model, before and after, on its target and on what must not get worse."""
    settings = _settings(EvaluateSettings, config, assignments, seed=seed, device=device)
    from adiabat import api

    with watching() as watch:
        result = api.evaluate(
            model,
            store,
            data,
            baseline=baseline,
            retain=_pairs(retain or ()),
            split=split,
            out=out,
            settings=settings,
            command=_command(),
            watch=watch,
        )
    _show(result)
    _answer(result.to_json() if as_json else str(out / "report.html"))


def _count(text: str | int) -> int:
    """A number of things; typer's own conversion speaks of what it could not parse rather than of what is wanted."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise typer.BadParameter(f"must be a whole number >= 1, got {text}")
    return number


@app.command()
def search(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Document vectors.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One text.")],
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="Whose query tower encodes the query.")],
    compare: Annotated[
        str | None, typer.Option("--compare", metavar="MODEL", help="Show this model's results too.", show_default=False)
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="N", parser=_count, help="Results wanted.")] = 10,
    config: Config = None,
    assignments: Assignments = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Ask a store a question, through one query tower or two."""
    settings = _settings(SearchSettings, config, assignments, device=device)
    from dataclasses import asdict

    from adiabat import api

    found = {name: api.search(store, query, model=name, k=k, settings=settings) for name in filter(None, (model, compare))}
    if as_json:
        _answer(
            {
                name: [{key: value for key, value in asdict(hit).items() if key != "relevant"} for hit in hits]
                for name, hits in found.items()
            }
        )
    else:
        _show_hits(found)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Directory for the demo's files.")] = Path("runs/demo"),
    as_json: AsJson = False,
) -> None:
    """Tune the embedded model on embedded papers, and show what got better and that nothing else got worse."""
    from adiabat.demo.job import run_demo

    with watching() as watch:
        result = run_demo(out, command=_command(), watch=watch)
    _show(result)
    _answer(result.to_json() if as_json else str(out / "report.html"))


def _folded(arguments: Sequence[str]) -> list[str]:
    """Make ``--retain STORE DATA`` one value: typer knows no repeatable option of two, and NUL can stand in no argument."""
    folded: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*folded, word, *rest]
        if word == "--retain" or word.startswith("--retain="):
            pair = [word.removeprefix("--retain=")] if "=" in word else rest[:2]
            if len(pair) < 2 or any(one.startswith("--") for one in pair):
                raise ConfigError(f"--retain must be followed by two words, STORE and DATA, got {' '.join(pair) or 'nothing'}")
            word, rest = "\0".join(pair), rest[2:]
            folded.append("--retain")
        folded.append(word)
    return folded


def _pairs(folded: Sequence[str]) -> list[tuple[str, str]]:
    """What `_folded` made one, as two again."""
    pairs = [value.partition("\0") for value in folded]
    return [(store, data) for store, _, data in pairs]


def _command() -> str:
    return shlex.join(["adiabat", *sys.argv[1:]])


def _answer(answer: str | dict[str, Any]) -> None:
    """What a program reads: on stdout."""
    print(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, indent=2))


def _say_tuned(result: "Result") -> None:
    from adiabat.report.wording import counted

    record = result.training
    assert record is not None
    first, best = record.validation_errors[0][1], dict(record.validation_errors)[record.best_epoch]
    outcome = f"best epoch {record.best_epoch}: {best:,} validation errors of {record.validation_pairs:,} pairs, {first:,} at the start"
    if not record.steps:
        say(f"nothing was trained: {record.stop_reason}")
        return
    if not record.best_epoch:
        outcome = f"no epoch had both a lower validation loss and fewer errors than the start's {first:,}: the starting weights are kept"
    ran = f"{counted(record.steps, 'step')} in {counted(record.epochs, 'epoch')}, {record.seconds:.0f} s"
    say(f"{ran}; stopped after {record.stop_reason}; {outcome}")


def _show(result: "Result") -> None:
    from adiabat.report.table import result_table

    PEOPLE.print(result_table(result))


def _show_hits(found: "dict[str, list[Hit]]") -> None:
    from adiabat.report.wording import cut

    for name, hits in found.items():
        print(one_line(name))
        for place, hit in enumerate(hits, start=1):
            print(f"{place:3d}  {hit.score:.4f}  {one_line(hit.doc_id)}  {cut(one_line(hit.text), limit=120)}")


def _version(asked: bool) -> bool:
    if asked:
        print(__version__)
        raise typer.Exit
    return asked


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    del version
    if debug:
        os.environ["ADIABAT_DEBUG"] = "1"


def main() -> None:
    """Run a verb.

    Exit codes: 0; 2 for the user's mistake, told in one line; 130 after Ctrl-C; 1 for ours, for too little memory, and, without a word,
    where the reader of the output has gone.
    """
    try:
        with plain_warnings():
            code = app(args=_folded(sys.argv[1:]) or ["--help"], prog_name="adiabat", standalone_mode=False)
        # typer turns Ctrl-C into this code.
        if code == 130:
            raise KeyboardInterrupt
        sys.stdout.flush()
    except BrokenPipeError:
        # Or the interpreter would complain when it flushes at its end.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        code = 1
    except (Exception, KeyboardInterrupt) as fault:
        if os.environ.get("ADIABAT_DEBUG"):
            raise
        code, sentence = _judged(fault, _verb(sys.argv[1:]))
        complain(f"process {_rank()}: {sentence}" if _rank() else sentence)
    if code:
        sys.exit(code)


def _rank() -> int:
    """Of this process among those that a launcher started; 0 for the main one, and where there is no launcher."""
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() else 0


def _verb(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _judged(fault: BaseException, verb: str) -> tuple[int, str]:
    """Exit code and sentence for what ended a verb."""
    if isinstance(fault, AdiabatError):
        return 130 if type(fault).__name__ == "InterruptionError" else 2, str(fault)
    if isinstance(fault, KeyboardInterrupt | typer.Abort):
        return 130, f"interrupted; {AFTER_CTRL_C.get(verb, _NOTHING_KEPT)}"
    if _is_out_of_memory(fault):
        advice = f"lower {LOWER_MEMORY[verb]}, or free some" if verb in LOWER_MEMORY else "free some"
        return 1, f"memory must be enough for the work, got: {fault or type(fault).__name__}; {advice}"
    if isinstance(fault, UsageError):
        context = getattr(fault, "ctx", None)
        message = fault.format_message().rstrip(".")  # type: ignore[attr-defined]
        return 2, f"{message}; see {context.command_path if context else 'adiabat'} --help"
    if isinstance(fault, OSError) and fault.errno in SURROUNDINGS:
        place = "a file" if fault.filename is None else fault.filename
        return 2, f"{place} must be readable or writable, got: {fault.strerror}; check the path, its permissions and the free space"
    return 1, f"defect: {type(fault).__name__}: {fault}; run with --debug before the verb and report the traceback"


def _is_out_of_memory(fault: BaseException) -> bool:
    """Of Python, of a GPU (known by its name: torch may not be loaded), or of torch on a CPU, which has no class for it."""
    return isinstance(fault, MemoryError) or type(fault).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(fault)
