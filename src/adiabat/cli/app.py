"""The command line: its verbs, and how a command ends."""

import atexit
import errno
import gc
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from adiabat import __version__
from adiabat.cli.options import complain, fold_pairs, local_rank, plain_warnings, rank
from adiabat.core.errors import (
    MEMORY,
    THREADS,
    AdiabatError,
    ConfigError,
    InterruptionError,
    Shortage,
    disk_error_of,
    shortage_of,
)
from adiabat.core.provenance import VERIFY
from adiabat.core.surroundings import (
    has_working_directory,
    release_stdout,
    require_words,
    settle_streams,
    settle_terminal,
)
from adiabat.core.wording import typed


class _Verbs(TyperGroup):
    """The verbs; typer would report an EOFError as an interruption, although no verb reads input."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EOFError as fault:
            raise RuntimeError(f"EOFError: {fault}") from fault


class _Verb(TyperCommand):
    """A verb, which refuses an empty text in place of a value.

    An empty text is what a shell makes of a variable that is not set, as in ``--out "$OUT"``. As a path it
    would be the working directory.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Parsed here for this check alone: typer would turn an empty text into the path `.`.
        given, *_ = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in self.params:
            value = given.get(parameter.name)
            is_empty = value == "" or (isinstance(value, list | tuple) and "" in value)
            if is_empty and parameter.opts[0].startswith("-"):
                raise ConfigError(
                    f"{parameter.opts[0]} must have a value, got an empty text; give one, or leave it out"
                )
            # Verbs judge these two themselves.
            if is_empty and parameter.metavar not in ("MODEL", "QUERY"):
                raise ConfigError(f"{parameter.metavar} must not be empty, got an empty text; name one")
        return super().parse_args(ctx, args)


PANELS: Mapping[str, Mapping[str, str]] = {
    "Main job": dict.fromkeys(("embed", "advise", "tune", "evaluate", "search"), "panel_main"),
    "Train": dict.fromkeys(("train", "mine", "label", "inspect", "distill"), "panel_train"),
    "Experiments": dict.fromkeys(("sweep", "scaling", "plan", "safe-rate"), "panel_experiments"),
    "Results": dict.fromkeys(("compare", "space", "export", "serve", "check", "watch"), "panel_results"),
    "Data and help": dict.fromkeys(("data", "settings", "upgrade", "demo"), "panel_results"),
}
"""Panels of ``adiabat --help``: each verb with the module of its function."""

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""Base class of the parser's errors, in typer's copy of the parser; it has `format_message`, and a context
once the verb is known."""

SURROUNDINGS = {
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EIO,
}
"""System errors that the user can fix: a missing permission, an impossible path, a broken disk."""

# Advice after Ctrl-C: what was saved, and how to go on from it.
_CONTINUES = "run the same command again: parts that were finished are kept, if any were"
_RESUMES = "run the same command with --resume: it goes on from what was saved, if anything was"
_STARTS_AGAIN = "nothing was saved; run the same command again to start over"
AFTER_CTRL_C = dict.fromkeys(
    ("embed", "demo", "mine", "label", "evaluate --suite", "distill static", "distill pair", "upgrade"),
    _CONTINUES,
)
AFTER_CTRL_C |= dict.fromkeys(
    (
        "tune",
        "train",
        "sweep",
        "scaling",
        "safe-rate",
        "distill fit",
        "distill multilingual",
        "distill ablate",
    ),
    _RESUMES,
)
"""Advice after an interruption, unless the verb gives its own; other verbs save nothing."""

LOWER_MEMORY = {
    "embed": "encoder.max_tokens",
    "tune": "tune.batch_size, tune.negatives.per_query or encoder.max_tokens",
    "safe-rate": "tune.batch_size, tune.negatives.per_query, guard.depth or encoder.max_tokens",
    "train": "memory.chunk_tokens (with memory.cached), memory.loss_tile or train.batch_size",
    "sweep": "tune.batch_size or train.batch_size, measure.depth or encoder.max_tokens",
    "scaling": "memory.chunk_tokens (with memory.cached) or train.batch_size",
    "mine": "mine.depth",
    "label": "label.max_tokens",
    "evaluate --suite": "measure.depth or encoder.max_tokens",
    "space": "space.queries, space.documents, space.resamples or encoder.max_tokens",
    "evaluate": "measure.depth or encoder.max_tokens",
    "advise": "advise.queries or encoder.max_tokens",
}
"""Settings that control a verb's memory."""


def _version(requested: bool) -> bool:
    """Print the version and end, before a verb is asked for."""
    if requested:
        print(__version__)
        raise typer.Exit
    return requested


def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify the checksum of every file that is read.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    # Its callback has done what it asks for.
    del version
    if debug:
        os.environ["ADIABAT_DEBUG"] = "1"
    if verify:
        # Through the environment, so that child processes inherit it.
        os.environ[VERIFY] = "1"


def app_of(verb: str) -> typer.Typer:
    """The command line with one verb, loading only its module; with all verbs for an unknown word."""
    app = typer.Typer(
        name="adiabat",
        cls=_Verbs,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Tune query encoders against stored document embeddings, and measure what changed.",
        epilog="MODEL is a hub name, a directory, a finished job, or `demo` (the embedded model).",
    )
    app.callback()(_root)
    # A word that is no verb loads all of them, so that typer can suggest a similar one.
    known = any(verb in verbs for verbs in PANELS.values())
    for panel, verbs in PANELS.items():
        for name in (name for name in verbs if name == verb or not known):
            function = getattr(import_module(f"adiabat.cli.{verbs[name]}"), name.replace("-", "_"))
            if isinstance(function, typer.Typer):
                # The verbs of a group, such as `distill fit`, check their words as the others do.
                for command in function.registered_commands:
                    command.cls = _Verb
                app.add_typer(function, name=name, rich_help_panel=panel)
            else:
                app.command(name, cls=_Verb, rich_help_panel=panel)(function)
    return app


def main(began: float | None = None) -> None:
    """Run a verb.

    A time limit counts from `began`, a value of the monotonic clock; None takes the start of the process.

    Exit codes: 0; 2 for a user error, reported in one line; 3 if ``--fail-on`` holds, ``check`` finds a
    difference or ``watch`` an alarm; 130 after Ctrl-C; 1 for a defect, for too little memory, and silently if
    the reader of the output is gone.
    """
    settle_streams()
    settle_terminal()
    _settle_collector()
    # Two options of all verbs may stand before the verb.
    words = sys.argv[1:]
    verb = next((word for word in words if word not in ("--debug", "--verify")), "")
    try:
        require_words(words)
        with (
            plain_warnings(),
            typed(shlex.join(["adiabat", *words]), began=_process_start() if began is None else began),
        ):
            code = app_of(verb)(
                # Without words, the help: a bare command is no error.
                args=fold_pairs(words) or ["--help"],
                prog_name="adiabat",
                standalone_mode=False,
            )
        # typer turns Ctrl-C into this code.
        if code == 130:
            raise KeyboardInterrupt
        sys.stdout.flush()
    except BrokenPipeError:
        code = 1
    # Raised by a verb or by typer with its own code, after its own words.
    except SystemExit:
        raise
    # A panic of a Rust library is no `Exception`.
    except BaseException as fault:
        if isinstance(fault, KeyboardInterrupt):
            # From here a second Ctrl-C ends the process at once, without a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if os.environ.get("ADIABAT_DEBUG"):
            raise
        code, message = _ending(fault, _with_kind(verb, words))
        if code == 2 and not has_working_directory():
            message = f"{message}; the working directory was removed, change to another"
        # All processes find errors in settings; the first one of each machine reports them.
        if not (local_rank() and isinstance(fault, ConfigError)):
            complain(f"process {rank()}: {message}" if rank() else message)
    release_stdout()
    if code:
        sys.exit(code)


def _process_start() -> float:
    """The monotonic clock when the process started: until here it has loaded Python and this module, and
    waited for nothing.
    """
    return time.monotonic() - time.process_time()


ALLOCATIONS = 10_000
"""Containers allocated between two collections of garbage; Python's own 700 cost a tenth of a verb's
processor time."""


def _settle_collector() -> None:
    """Collect garbage rarely while libraries load, and not at the end, where the process gives all of its
    memory back.

    Measured on `adiabat evaluate` of the demo: 8.2 s of processor time become 7.4, and the end of the process
    takes 0.1 s instead of 1.1.
    """
    gc.set_threshold(ALLOCATIONS)
    atexit.register(gc.freeze)


def _with_kind(verb: str, words: list[str]) -> str:
    """The verb, with what tells its kinds apart: `--suite` of evaluate, or the second word of distill."""
    if verb == "evaluate":
        return "evaluate --suite" if any(word.partition("=")[0] == "--suite" for word in words) else verb
    if verb == "distill":
        return " ".join([verb, *words[words.index(verb) + 1 :][:1]])
    return verb


def _ending(fault: BaseException, verb: str) -> tuple[int, str]:
    """Exit code and message for the exception that ended a verb.

    The classes in their order: errors of adiabat, which are statements already; Ctrl-C; a lack of memory or
    the like, in whatever class a library reports it; errors of the command line; errors of the system about
    a path; and all others, which are defects.
    """
    if isinstance(fault, AdiabatError):
        return 130 if isinstance(fault, InterruptionError) else 2, str(fault)
    if isinstance(fault, KeyboardInterrupt):
        return 130, f"interrupted; {AFTER_CTRL_C.get(verb, _STARTS_AGAIN)}"
    # A library may wrap a shortage in an error of any class, so it is looked for first.
    if shortage := shortage_of(fault):
        return shortage.resource.exit_code, _shortage_told(shortage, verb)
    if isinstance(fault, UsageError):
        context = getattr(fault, "ctx", None)
        message = fault.format_message().rstrip(".") or "a command is missing"  # type: ignore[attr-defined]
        # typer checks words with pydantic, which adds this prefix.
        message = message.replace("Value error, ", "")
        return 2, f"{message}; see {context.command_path if context else 'adiabat'} --help"
    # What remains is a defect, unless it is about a path that the user can mend.
    error = disk_error_of(fault)
    if error is not None and error.errno in SURROUNDINGS:
        name = "a file" if error.filename is None else error.filename
        return 2, f"{name} could not be read or written: {error.strerror}; check the path and its permissions"
    return (
        1,
        f"defect: {type(fault).__name__}: {fault}; run with --debug before the verb and report the traceback",
    )


def _shortage_told(shortage: Shortage, verb: str) -> str:
    """The message for a verb that ended for want of a resource."""
    advice = shortage.resource.advice
    if shortage.resource in (MEMORY, THREADS) and verb in LOWER_MEMORY:
        advice = f"lower {LOWER_MEMORY[verb]}, or {advice}"
    return f"out of {shortage.resource.name}: {shortage.reason}; {advice}"
