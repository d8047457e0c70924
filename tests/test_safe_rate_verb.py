"""The verb ``adiabat safe-rate`` and its function: files, and going on."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import adiabat
from adiabat.core.progress import Watch
from adiabat.results.rate_search_result import SafeRate
from adiabat.results.record import read_result
from tests.adiabatic.problem import write_problem
from tests.commands import Said, lines, run_in_process, setting
from tests.pages import no_page as no_page
from tests.pages import real_pages as real_pages
from tests.tiny import save_tiny

Verb = Callable[..., Said]

SHORT = setting("rate_search.count=3", "rate_search.steps=4", "rate_search.checks=2", "tune.batch_size=4")


@pytest.fixture
def verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verb:
    """A verb with a small search in the test's directory."""
    monkeypatch.chdir(tmp_path)
    write_problem(tmp_path)
    Path("probes.txt").write_text("".join(f"probe {number}\n" for number in range(20)), encoding="utf-8")
    save_tiny(tmp_path / "model")
    rows = [json.loads(line) for line in Path("triplets.jsonl").read_text(encoding="utf-8").splitlines()]
    names = sorted({name for row in rows for name in (*row["pos"], *row["neg"])})
    lines(Path("corpus.jsonl"), [{"_id": name, "text": f"paper {name}"} for name in names])
    adiabat.embed(tmp_path / "model", tmp_path / "corpus.jsonl", tmp_path / "own")

    def run(*more: str, name: str = "safe-rate") -> Said:
        return run_in_process(
            capsys,
            monkeypatch,
            [name, "model", "own", "triplets.jsonl", "--out", "out", "--device", "cpu", *more],
        )

    return run


@pytest.mark.usefixtures("real_pages")
def test_the_verb_leaves_a_page_and_prints_what_it_found(verb: Verb) -> None:
    said = verb(*SHORT)
    assert (said.code, said.out) == (0, "out/report.html\n"), said.err
    found = read_result(Path("out/result.json"), SafeRate)
    assert (found.model, found.probes, found.rates) == ("model", 680, [1e-8, 3.16e-7, 1e-5])
    assert found.settings["rate_search"]["kind"] == "safe"
    assert {one.name for one in Path("out").iterdir()} >= {
        "config.toml",
        "trials.parquet",
        "report.html",
        "table.csv",
        "figures",
    }
    assert {one.suffix for one in Path("out/figures").iterdir()} == {".svg"}
    assert f"{found.trials[0].rate:g}, seed 0: " in said.err


@pytest.mark.parametrize(
    ("verb_name", "more"),
    [
        ("safe-rate", SHORT),
        ("tune", ("--recipe", "paper", *setting("tune.max_epochs=1", "tune.batches_per_epoch=2"))),
    ],
)
def test_a_beir_folder_which_lists_no_negatives_takes_the_hardest_of_the_store_and_says_so(
    verb: Verb, verb_name: str, more: tuple[str, ...]
) -> None:
    rows = [json.loads(line) for line in Path("triplets.jsonl").read_text(encoding="utf-8").splitlines()]
    Path("triplets.jsonl").unlink()
    folder = Path("triplets.jsonl")
    (folder / "qrels").mkdir(parents=True)
    Path("corpus.jsonl").rename(folder / "corpus.jsonl")
    lines(folder / "queries.jsonl", [{"_id": f"q{n}", "text": row["query"]} for n, row in enumerate(rows)])
    judged = (f"q{n}\t{row['pos'][0]}\t1" for n, row in enumerate(rows))
    lines(folder / "qrels" / "train.tsv", ["query-id\tcorpus-id\tscore", *judged])
    said = verb(*more, name=verb_name)
    assert said.code == 0, said.err
    told = (
        "queries list no negatives: each step takes the store's hardest for "
        "them, as under tune.negatives = hardest"
    )
    assert told in " ".join(said.err.split())
    assert told in Path("out/result.json").read_text(encoding="utf-8")


def test_a_file_for_tune_serves_whatever_rate_it_names(verb: Verb) -> None:
    Path("tune.toml").write_text("[tune]\nlearning_rate = 5e-8\nloss.margin = 0.3\n", encoding="utf-8")
    said = verb(*SHORT, "--config", "tune.toml", "--probes", "probes.txt", "--json")
    assert said.code == 0, said.err
    assert "tune.learning_rate = 5e-08 is ignored" in " ".join(said.err.split())
    found = json.loads(said.out)
    assert (found["probes"], found["settings"]["tune"]["loss"]["margin"]) == (20, 0.3)
    again = verb(*SHORT, "--config", "tune.toml", "--probes", "probes.txt", "--json", "--resume")
    assert json.loads(again.out)["trials"] == found["trials"]
    assert "seed 0:" not in again.err


def test_a_file_for_tune_that_switches_the_guard_off_serves_too(verb: Verb) -> None:
    Path("tune.toml").write_text(
        "guard = false\n[rate_search]\ncount = 2\nsteps = 2\nchecks = 1\n[tune]\nbatch_size = 4\n"
    )
    notes: list[str] = []
    options = {"settings": "tune.toml", "device": "cpu", "progress": Watch(note=notes.append)}
    found = adiabat.safe_rate("model", "own", "triplets.jsonl", "out", **options)
    assert found.limit > 0
    ignored = "the search measures drift: guard = false is ignored"
    assert ignored in notes
    said = verb("--config", "tune.toml", "--out", "again")
    assert said.code == 0, said.err
    assert ignored in " ".join(said.err.split())


def test_a_search_without_a_safe_rate_is_a_number_to_the_verb_and_a_mistake_to_tune(verb: Verb) -> None:
    tight = setting("guard.measure=turn", "guard.limit=1e-12", "guard.probes=probes.txt")
    said = verb(*SHORT, *tight)
    assert said.code == 0, said.err
    assert read_result(Path("out/result.json"), SafeRate).rate is None
    said = verb(*SHORT, *tight, "--set", "rate_search.kind=safe", "--out", "job", name="tune")
    assert said.code == 2
    assert "one rate of the search must stay within the limit" in said.err


def test_the_function_gives_what_the_verb_writes(verb: Verb) -> None:
    verb(*SHORT, "--probes", "probes.txt")
    written = read_result(Path("out/result.json"), SafeRate)
    notes: list[str] = []
    for rate in ({}, {"learning_rate": 1e-6}):
        # A rate that was written for tuning is replaced, and that is said.
        settings = {**written.settings, "tune": {**written.settings["tune"], **rate}}
        watch = Watch(note=notes.append)
        again = adiabat.safe_rate(
            "model", "own", "triplets.jsonl", "out", settings=settings, resume=True, progress=watch
        )
        assert again.trials == written.trials
    assert ["tune.learning_rate = 1e-06 is ignored" in note for note in notes if "its own rates" in note] == [
        True
    ]
