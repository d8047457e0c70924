"""The command line: what is told to whom, with which exit code; `tests/refusals` has what users do wrong."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from importlib import resources
from pathlib import Path

import pytest

import adiabat
from adiabat import SearchResult, __version__
from adiabat.cli.app import PANELS
from adiabat.cli.options import fold_pairs
from adiabat.core.files import read_json
from adiabat.report import pages
from adiabat.results.evaluation_result import Hit
from adiabat.results.record import read_result
from tests.commands import (
    DOCUMENTS,
    Run,
    Said,
    embed,
    evaluate,
    lines,
    other_pairs,
    search,
    setting,
    tune,
    write_world,
)
from tests.commands import run as run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("world")
    write_world(here)
    return here


class OutOfMemoryError(RuntimeError):
    """Named as torch names it."""


class PanicException(BaseException):
    """Named as Rust's libraries name it."""


LOWER = ("out of memory", "lower tune.batch_size, tune.negatives.per_query or encoder.max_tokens")
DEFECT = ("defect: ", "run with --debug before the verb and report the traceback")


@pytest.mark.parametrize(
    ("fault", "code", "facts"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "store/vectors.npy"),
            2,
            ("store/vectors.npy", "No space left", "check the path"),
        ),
        (ZeroDivisionError("division by zero"), 1, (*DEFECT, "ZeroDivisionError: division by zero")),
        (EOFError("No data left in file"), 1, (*DEFECT, "EOFError: No data left in file")),
        (MemoryError("2 GiB"), 1, (*LOWER, "2 GiB")),
        (OutOfMemoryError("CUDA out of memory"), 1, LOWER),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, LOWER),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), 1, LOWER),
        (RuntimeError("std::bad_alloc"), 1, LOWER),
        (RuntimeError("can't start new thread"), 1, (*LOWER, "ulimit -u")),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), 1, ("out of file descriptors", "ulimit -n")),
        (Exception("Permission denied (os error 13)"), 2, ("Permission denied", "check the path")),
        (PanicException("index out of bounds"), 1, (*DEFECT, "PanicException: index out of bounds")),
    ],
)
def test_what_ends_a_verb_is_one_line(
    run: Run,
    new: str,
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
    code: int,
    facts: tuple[str, ...],
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(adiabat, "tune", failing)
    said = run(*tune("pairs.jsonl", out=new))
    assert (said.code, said.out, len(said.err.splitlines())) == (code, "", 1)
    assert [fact for fact in facts if fact not in said.err] == []


def test_debug_shows_the_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adiabat, "search", lambda *_, **__: 1 / 0)
    monkeypatch.setenv("ADIABAT_DEBUG", "")
    with pytest.raises(ZeroDivisionError):
        run("--debug", *search())


AGAIN = "run the same command again: parts that were finished are kept, if any were"
RESUME = "run the same command with --resume: it goes on from what was saved, if anything was"
START_OVER = "nothing was saved; run the same command again to start over"


@pytest.mark.parametrize(
    ("verb", "then"),
    [
        ("embed", AGAIN),
        ("tune", RESUME),
        ("distill_fit", RESUME),
        ("distill_static", AGAIN),
        ("evaluate", START_OVER),
        ("search", START_OVER),
    ],
)
def test_ctrl_c_ends_with_130_and_says_how_to_go_on(
    run: Run, new: str, monkeypatch: pytest.MonkeyPatch, verb: str, then: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adiabat, verb, interrupted)
    commands = {
        "embed": embed(out=new),
        "tune": tune("pairs.jsonl", out=new),
        "evaluate": evaluate(out=new),
        "search": search(),
    }
    commands["distill_fit"] = (
        f"distill fit --teacher model --student model --texts corpus.jsonl --out {new}",
    )
    commands["distill_static"] = (f"distill static model --out {new}",)
    assert run(*commands[verb]) == Said(130, "", f"adiabat: interrupted; {then}\n")


SECOND_CTRL_C = """
import atexit, os, signal, sys
from adiabat.cli import app as cli
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
cli.app_of = lambda verb: lambda **_: 130
sys.argv = ["adiabat", "search"]
cli.main()
"""


def test_a_second_ctrl_c_ends_the_process_without_a_traceback() -> None:
    done = python(SECOND_CTRL_C)
    assert done.returncode == -signal.SIGINT
    assert (
        done.stderr == "adiabat: interrupted; nothing was saved; run the same command again to start over\n"
    )


BROKEN_PIPE = """
import os, sys
from adiabat.cli import app as cli
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 1)
cli.app_of = lambda verb: lambda **_: print("shown to nobody")
cli.main()
"""


def test_output_that_nobody_reads_any_more_ends_without_a_word() -> None:
    done = python(BROKEN_PIPE)
    assert (done.returncode, done.stderr) == (1, "")


def test_search_prints_ranks_scores_ids_and_texts(run: Run) -> None:
    said = run(*search("document 3", "-k", "2", "--compare", "model"))
    first, one, two, *rest = said.out.splitlines()
    assert (said.code, said.err, first, rest) == (0, "", "model, by cosine", [])
    assert re.fullmatch(r"  1  0\.\d{4}  d\d+  document \d+ about \w+", one)
    assert re.fullmatch(r"  2  0\.\d{4}  d\d+  document \d+ about \w+", two)


def test_documents_cannot_move_the_cursor_of_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = SearchResult("hello", {"model": [Hit("d\x1b[2J", "red \x1b[31mtext\x07\n here", 0.5, False)]})
    monkeypatch.setattr(adiabat, "search", lambda *_, **__: found)
    assert run(*search()).out.splitlines()[1:] == ["  1  0.5000  d\ufffd[2J  red \ufffd[31mtext\ufffd here"]


MANY_SIGNS = SearchResult("étude", {"model": [Hit("d–1", "star 星 🦄 − étude", -0.5, False)]})


def test_output_of_few_letters_has_the_others_escaped_and_json_stays_json(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adiabat, "search", lambda *_, **__: MANY_SIGNS)
    for encoding, letter in (("ascii", "\\xe9"), ("latin-1", "é")):
        plain, as_json = io.BytesIO(), io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(plain, encoding=encoding))
        assert run(*search()).code == 0
        assert (
            plain.getvalue()
            .decode(encoding)
            .splitlines()[1]
            .endswith(f"d-1  star \\u661f \\U0001f984 - {letter}tude")
        )
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(as_json, encoding=encoding))
        assert run(*search(), "--json").code == 0
        assert "star 星 🦄 − étude" in str(json.loads(as_json.getvalue().decode("ascii")))


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdin", "stdout", "stderr")])
def test_a_finished_verb_whose_streams_are_closed_has_exit_code_0(
    run: Run, monkeypatch: pytest.MonkeyPatch, closed: tuple[str, ...]
) -> None:
    monkeypatch.setattr(adiabat, "search", lambda *_, **__: MANY_SIGNS)
    for name in closed:
        monkeypatch.setattr(sys, name, None)
    assert run(*search()).code == 0


def test_output_on_a_full_disk_is_one_line_that_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adiabat, "search", lambda *_, **__: MANY_SIGNS)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(FullDisk(), encoding="utf-8"))
    said = run(*search())
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "standard output must be writable, got No space left on device" in said.err


class FullDisk(io.RawIOBase):
    """A file on a full disk."""

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_working_directory_that_was_removed_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(os, "getcwd", gone)
    said = run(*search(store="elsewhere"))
    assert said.code == 2
    assert "the working directory was removed, change to another" in said.err


def test_help_is_shown_in_a_terminal_that_states_no_width(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.setenv("LINES", "0")
    assert "--baseline" in run("evaluate", "--help").out


@pytest.mark.parametrize(
    "query",
    ["x" * 100_000, "שלום עולם", "🎉👩‍👩‍👧", "--flag", "a\nb"],
    ids=["long", "RTL", "emoji", "dashes", "lines"],
)
def test_any_text_is_a_query(run: Run, query: str) -> None:
    said = run("search", "store", "--model", "model", "--json", "-k", "3", "--", query)
    assert (said.code, said.err) == (0, "")
    assert len(json.loads(said.out)["model"]) == 3


def test_more_results_than_documents_gives_all_of_them(run: Run) -> None:
    found = json.loads(run(*search("hello", "-k", "1000", "--json")).out)["model"]
    assert sorted(hit["doc_id"] for hit in found) == sorted(document["_id"] for document in DOCUMENTS)
    assert [hit["score"] for hit in found] == sorted((hit["score"] for hit in found), reverse=True)


@pytest.fixture
def new(tmp_path: Path) -> str:
    return str(tmp_path / "new")


def test_embed_answers_programs_on_stdout_and_people_on_stderr(run: Run, new: str) -> None:
    plain, as_json = run(*embed(out=new)), run(*embed("corpus.jsonl", "--json", out=new))
    assert (plain.code, plain.out, plain.err) == (0, f"{new}\n", "20 documents, 32 numbers each, float16\n")
    assert json.loads(as_json.out) == {"store": new, "count": 20, "width": 32, "dtype": "float16"}
    assert "finished before" in as_json.err


def test_tune_answers_programs_on_stdout_and_people_on_stderr(run: Run, new: str) -> None:
    said = run(*tune("pairs.jsonl", "--json", "--seed", "7", out=new))
    assert said.code == 0
    result = json.loads(said.out)
    assert (result["seed"], result["training"]["steps"]) == (7, 4)
    assert re.search(r"^tuning [\d,]+ of [\d,]+ parameters on \d+ queries of pairs$", said.err, re.MULTILINE)
    told = said.err.splitlines()
    assert "4 steps in 2 epochs" in told[-2]
    assert told[-1].startswith("pairs, validation: ")
    said_of_it = {name: result.pop(name) for name in ("headline", "reasons")}
    assert result == read_json(Path(new) / "result.json", remedy="")
    assert said_of_it["headline"].startswith("Tuning ")


def test_evaluate_answers_with_the_report_or_the_whole_result(run: Run, new: str) -> None:
    plain = run(*evaluate("pairs.jsonl", "--baseline", "model", out=new))
    as_json = run(*evaluate("pairs.jsonl", "--baseline", "model", "--json", out=new))
    assert (plain.code, plain.out) == (0, f"{new}/report.html\n")
    assert "not worse" in " ".join(plain.err.split())
    answered = json.loads(as_json.out)
    assert {change["verdict"] for change in answered["datasets"][0]["changes"]} == {"not worse"}
    assert " ".join(answered["headline"].split()) in " ".join(as_json.err.split())
    assert as_json.err.count("same query tower") == 1
    assert any("same query tower" in reason for reason in answered["reasons"])
    kept = read_result(Path(new) / "result.json")
    assert pages.verdict(kept) == (answered["headline"], answered["reasons"])
    assert sorted(path.name for path in Path(new).iterdir()) == [
        ".call.json",
        "report.html",
        "result.json",
        "scores",
    ]


def test_retain_takes_two_words_as_often_as_wanted(run: Run, new: str) -> None:
    lines(Path(f"{new}.jsonl"), other_pairs("held", 12))
    lines(Path(f"{new}-2.jsonl"), other_pairs("kept", 13))
    retained = f"--retain store {new}.jsonl --retain store {new}-2.jsonl"
    said = run(f"evaluate model store pairs.jsonl {retained} --json --out {new}")
    assert [one["role"] for one in json.loads(said.out)["datasets"]] == ["target", "retain", "retain"]


def test_a_warning_is_one_line(run: Run, world: Path, new: str) -> None:
    folder = world / "beir_with_warning"
    (folder / "qrels").mkdir(parents=True)
    lines(folder / "queries.jsonl", [{"_id": "q1", "text": "one"}, {"_id": "q2", "text": "two"}])
    lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", "q1\td1\t1", "q2\td2\t0"])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = run(*evaluate(folder.name, out=new))
    assert said.code == 0
    shown = [line for line in said.err.splitlines() if "no score above 0" in line]
    assert len(shown) == 1
    assert shown[0].startswith("warning: ")
    assert ".py:" not in said.err


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


WATCHED = """
import sys
from adiabat.cli import main
try:
    main()
finally:
    slow = {"torch", "transformers", "pyarrow", "datasets", "matplotlib", "scipy", "numpy"} & set(sys.modules)
    print("loaded:", sorted(slow), file=sys.stderr)
"""

PANELS_LOADED = """
import sys
from adiabat.cli import main
try:
    main()
finally:
    panels = sorted(name for name in sys.modules if name.startswith("adiabat.cli.panel_"))
    print("loaded:", *panels, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "panels"),
    [
        (["settings", "tune"], ["results"]),
        (["--debug", "tune", "--help"], ["main"]),
        (["--help", "tune"], ["experiments", "main", "results", "train"]),
        (["tuen"], ["experiments", "main", "results", "train"]),
    ],
)
def test_a_verb_loads_the_module_of_its_panel_and_anything_else_all_four(
    words: list[str], panels: list[str]
) -> None:
    done = python(PANELS_LOADED, *words)
    assert f"loaded: {' '.join(f'adiabat.cli.panel_{panel}' for panel in panels)}\n" in done.stderr
    assert ("Did you mean" in done.stderr) == (words == ["tuen"])
    assert ("mine" in done.stdout) == (words[0] == "--help")


ALL_HELP = """
import sys
from adiabat.cli.app import PANELS, app_of
verbs = [[verb] for panel in PANELS.values() for verb in panel]
app = app_of("")
students = [["distill", name] for name in ("static", "fit", "multilingual", "pair", "ablate")]
for words in [[], *verbs, *students]:
    app(args=[*words, "--help"], prog_name="adiabat", standalone_mode=False)
heavy = {"torch", "transformers", "pyarrow", "datasets", "matplotlib", "scipy", "numpy"}
print("loaded:", sorted(heavy & set(sys.modules)))
"""


def test_help_of_every_verb_loads_nothing_heavy() -> None:
    done = python(ALL_HELP)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded: []"
    assert done.stdout.count("Usage: adiabat") == 6 + sum(map(len, PANELS.values()))
    options = ("--import", "--resume", "--retain", "--compare", "--budget-time")
    for words in ("MODEL is a hub name", "Main job", *options):
        assert words in done.stdout
    suites = [
        path.name.removesuffix(".toml") for path in (resources.files("adiabat.config") / "suites").iterdir()
    ]
    assert suites
    assert [name for name in suites if name not in done.stdout] == []


def test_a_wrong_setting_is_told_without_loading_anything_heavy() -> None:
    done = python(WATCHED, *tune("pairs.jsonl", *setting("tune.margni=1")))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "adiabat: unknown key tune.margni; did you mean tune.loss.margin?",
        "loaded: []",
    ]


def test_python_m_adiabat_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "adiabat", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")


def test_folding_leaves_everything_else_as_it_stands() -> None:
    words = ["evaluate", "m", "--retain", "s", "d", "x", "--", "--retain", "a"]
    assert fold_pairs(words) == ["evaluate", "m", "--retain", "s\0d", "x", "--", "--retain", "a"]


def test_a_verb_of_several_commands_asks_for_one(run: Run) -> None:
    said = run("distill")
    assert (said.code, said.err.splitlines()[-1]) == (
        2,
        "adiabat: a command is missing; see adiabat distill --help",
    )
