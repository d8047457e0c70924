"""The command line: its verbs, and what ends one."""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from adiabat import __version__
from adiabat.cli.comparing import compare
from adiabat.cli.console import complain, plain_warnings
from adiabat.cli.data import inspect, make, mine
from adiabat.cli.distilling import distill
from adiabat.cli.measuring import compare_runs, demo, evaluate, folded, search
from adiabat.cli.options import local_rank, rank
from adiabat.cli.panel_experiments import plan, safe_rate, scaling, sweep
from adiabat.cli.settings import settings
from adiabat.cli.space import space
from adiabat.cli.training import embed, train, tune
from adiabat.core.checksums import VERIFY
from adiabat.core.errors import AdiabatError, ConfigError, is_out_of_memory


class _Verbs(TyperGroup):
    """The verbs; typer takes an EOFError for the end of a person's input, and none of them asks for any."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EOFError as fault:
            raise RuntimeError(f"EOFError: {fault}") from fault


app = typer.Typer(
    name="adiabat",
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Tune query encoders against stored document embeddings, and measure what changed.",
    epilog="MODEL is a hub name, a directory, the directory of a job, or `demo` (the embedded model).",
)
for verb in (embed, tune, train, evaluate, search, inspect, mine, compare, space, sweep, scaling, plan, settings):
    app.command()(verb)
app.command("safe-rate")(safe_rate)
app.command("compare-runs")(compare_runs)
app.command("data")(make)
app.add_typer(distill, name="distill")
app.command()(demo)

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Of the command-line parser, whichever copy of it typer uses; it has `format_message`, and a context where the verb was known."""

SURROUNDINGS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
SURROUNDINGS |= {errno.ENAMETOOLONG, errno.ELOOP, errno.EMFILE, errno.EIO}
"""System errors that no code can mend: a full disk, a missing permission, an impossible path."""

_GOES_ON = "what is finished is kept; run the same command again to go on"
_NOTHING_KEPT = "nothing of it is kept; run the same command again to begin anew"
AFTER_CTRL_C = dict.fromkeys(("embed", "demo", "mine", "evaluate --suite", "distill"), _GOES_ON)
AFTER_CTRL_C |= dict.fromkeys(("tune", "train", "compare", "sweep", "scaling", "safe-rate"), "run the same command with --resume to go on")
"""What becomes of a verb's work where it did not say so itself; of the others nothing is kept."""

LOWER_MEMORY = {
    "embed": "encoder.max_tokens",
    "tune": "tune.batch_size, tune.negatives_per_query or encoder.max_tokens",
    "safe-rate": "tune.batch_size, tune.negatives_per_query, guard.depth or encoder.max_tokens",
    "train": "memory.chunk_tokens (with memory.cached), memory.loss_tile or train.batch_size",
    "compare": "memory.chunk_tokens (with memory.cached) or train.batch_size",
    "sweep": "tune.batch_size, measure.depth or encoder.max_tokens",
    "scaling": "memory.chunk_tokens (with memory.cached) or train.batch_size",
    "mine": "mine.depth",
    "evaluate --suite": "measure.depth or encoder.max_tokens",
    "space": "space.queries, space.documents, space.resamples or encoder.max_tokens",
    "evaluate": "measure.depth or encoder.max_tokens",
}
"""Settings that decide how much memory a verb takes."""


def _version(asked: bool) -> bool:
    if asked:
        print(__version__)
        raise typer.Exit
    return asked


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Read every stored file whole, and compare its checksum.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    del version
    if debug:
        os.environ["ADIABAT_DEBUG"] = "1"
    if verify:
        # By the environment, which processes that a verb starts have too.
        os.environ[VERIFY] = "1"


def main() -> None:
    """Run a verb.

    Exit codes: 0; 2 for the user's mistake, told in one line; 130 after Ctrl-C; 1 for ours, for too little memory, and, without a word,
    where the reader of the output has gone.
    """
    try:
        with plain_warnings():
            code = app(args=folded(sys.argv[1:]) or ["--help"], prog_name="adiabat", standalone_mode=False)
        # typer turns Ctrl-C into this code.
        if code == 130:
            raise KeyboardInterrupt
        sys.stdout.flush()
    except BrokenPipeError:
        # Or the interpreter would complain when it flushes at its end.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        code = 1
    except (Exception, KeyboardInterrupt) as fault:
        if isinstance(fault, KeyboardInterrupt):
            # All is unwound: a second Ctrl-C ends the process at once, without a traceback of its end.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if os.environ.get("ADIABAT_DEBUG"):
            raise
        code, sentence = _judged(fault, _verb(sys.argv[1:]))
        # What is wrong with settings every process finds, and the first of each machine tells.
        if not (local_rank() and isinstance(fault, ConfigError)):
            complain(f"process {rank()}: {sentence}" if rank() else sentence)
    if code:
        sys.exit(code)


def _verb(words: Sequence[str]) -> str:
    verb = next((word for word in words if not word.startswith("-")), "")
    return f"{verb} --suite" if verb == "evaluate" and any(word.partition("=")[0] == "--suite" for word in words) else verb


def _judged(fault: BaseException, verb: str) -> tuple[int, str]:
    """Exit code and sentence for what ended a verb."""
    if isinstance(fault, AdiabatError):
        return 130 if type(fault).__name__ == "InterruptionError" else 2, str(fault)
    if isinstance(fault, KeyboardInterrupt):
        return 130, f"interrupted; {AFTER_CTRL_C.get(verb, _NOTHING_KEPT)}"
    if is_out_of_memory(fault):
        advice = f"lower {LOWER_MEMORY[verb]}, or free some" if verb in LOWER_MEMORY else "free some"
        return 1, f"memory must be enough for the work, got: {fault or type(fault).__name__}; {advice}"
    if isinstance(fault, UsageError):
        context = getattr(fault, "ctx", None)
        message = fault.format_message().rstrip(".") or "a command must be named, got none"  # type: ignore[attr-defined]
        return 2, f"{message}; see {context.command_path if context else 'adiabat'} --help"
    if isinstance(fault, OSError) and fault.errno in SURROUNDINGS:
        place = "a file" if fault.filename is None else fault.filename
        return 2, f"{place} must be readable or writable, got: {fault.strerror}; check the path, its permissions and the free space"
    return 1, f"defect: {type(fault).__name__}: {fault}; run with --debug before the verb and report the traceback"
