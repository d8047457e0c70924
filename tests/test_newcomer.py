"""Losses, a task, a measure and a measure of drift are added to a copy of the package, in the files that
ARCHITECTURE.md names, and commands use them.
"""

import contextlib
import importlib
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import tomli_w

from tests.commands import lines
from tests.forks import exit_code
from tests.tiny import save_tiny

ROOT = Path(__file__).resolve().parents[1]

HINGE = '''
def cosine_hinge(pairs: Pairs, margin: float) -> Float[Tensor, ""]:
    """Mean of ``max(0, margin - cos(q, p))`` over the pairs of a batch."""
    cosine = torch.nn.functional.cosine_similarity(pairs.query[pairs.rows], pairs.positive[pairs.rows])
    return (margin - cosine).clamp(min=0).mean()
'''
HINGE_SETTINGS = '''class CosineHinge(PairwiseLoss):
    """The cosine of a query and its document should reach a margin."""

    kind: Literal["cosine_hinge"] = "cosine_hinge"
    margin: float = 1.0
    """Cosine above which a pair costs nothing."""
    negatives_per_query: ClassVar[int] = 0
    ranks_by: ClassVar[Literal["cosine"]] = "cosine"

    def criterion(self, tile: int | None) -> "Criterion":
        """The loss of a batch."""
        from adiabat.losses.in_batch import cosine_hinge

        del tile
        return lambda pairs, t: cosine_hinge(pairs, self.margin)


'''
TUNING_SETTINGS = '''class CosineHingeTuning(TuningLoss):
    """The cosine of a query and its document should reach a margin."""

    negatives_from = "none"
    kind: Literal["cosine_hinge"] = "cosine_hinge"
    margin: float = 1.0
    """Cosine above which a pair costs nothing."""

    def criterion(self, distance: "Distance") -> "Callable[[Pairs], Tensor]":
        """The loss of a batch."""
        from adiabat.losses.in_batch import cosine_hinge

        return lambda pairs: cosine_hinge(pairs, self.margin)


class OtherSoftmax(InBatchTuning):
    """In-batch softmax under another name."""

    kind: Literal["other_softmax"] = "other_softmax"


class OtherTriplet(TripletTuning):
    """Triplet loss under another name."""

    kind: Literal["other_triplet"] = "other_triplet"


'''
HALF_TURN = '''HALF_TURN = "half turn"
"""Half of `turns`."""

'''
ODD_SETTINGS = '''class OddOneOutTask(TextsTask):
    """Three texts, of which the last is the odd one: the share of rows whose first two are nearest."""

    kind: Literal["odd_one_out"]
    a: Text = "a"
    b: Text = "b"
    odd: Text = "odd"


'''
ODD = '''

def score_odd_one_out(
    model: DualEncoder, near: ParallelTexts, far: ParallelTexts, *, side: Side, name: str, watch: Watch
) -> TaskScores:
    """Share of rows whose first text is nearer to the second than to the third."""
    a, b, odd = (
        embed_texts(model, texts, side=side, name=name, watch=watch) for texts in (near.a, near.b, far.b)
    )
    to_b = pair_similarities(a, b, similarity="cosine")
    to_odd = pair_similarities(a, odd, similarity="cosine")
    values = (to_b > to_odd).astype(np.float64)
    units = [str(number) for number in range(len(values))]
    samples = [Sample("accuracy", values, "cosine", bounds=SHARE), Sample("lead", to_b - to_odd, "cosine")]
    return TaskScores(name, "odd_one_out", "row", units, samples)
'''
ODD_READER = """def _odd_one_out(section: OddOneOutTask, _: int) -> LoadedTask:
    near, far = (
        read_parallel_texts(section.data, a=section.a, b=b, split=section.split, where=section.where)
        for b in (section.b, section.odd)
    )
    return _of_texts(section, near, partial(score_odd_one_out, near=near, far=far), far.b)


"""


def run_all(source: Path, here: Path, commands: Sequence[Sequence[str]]) -> None:
    """In a process of its own: commands of the package below a folder, their exit codes and messages in a
    file.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == "adiabat"]:
        del sys.modules[name]
    sys.path.insert(0, str(source))
    os.chdir(here)
    main, said = importlib.import_module("adiabat.cli").main, []
    for words in commands:
        sys.argv, code = ["adiabat", *words], 0
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        said.append((code, told.getvalue()))
    Path("said.json").write_text(json.dumps(said), encoding="utf-8")


class Copy:
    """A copy of the package that a test may change."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "src" / "adiabat"
        self.touched: list[str] = []
        # With what is compiled already: to compile all of the package takes longer than the commands.
        shutil.copytree(ROOT / "src" / "adiabat", self.package)

    def insert_after(self, module: str, pattern: str, code: str) -> None:
        """Add code after the one place of a module that a pattern matches."""
        path = self.package / module
        text = path.read_text(encoding="utf-8")
        places = re.findall(pattern, text)
        assert len(places) == 1, f"{module} must match {pattern!r} once: say here where the addition goes"
        path.write_text(text.replace(places[0], places[0] + code), encoding="utf-8")
        self.touched = list(dict.fromkeys([*self.touched, module]))

    def append(self, module: str, code: str) -> None:
        """Add code at the end of a module."""
        self.insert(module, None, code)

    def insert(self, module: str, before: str | None, code: str) -> None:
        """Add code before a text that stands once in a module."""
        path = self.package / module
        text = path.read_text(encoding="utf-8")
        if before is None:
            changed = f"{text}\n{code}"
        else:
            assert text.count(before) == 1, f"{module} must hold {before!r} once: say where the addition goes"
            changed = text.replace(before, code + before)
        path.write_text(changed, encoding="utf-8")
        self.touched = list(dict.fromkeys([*self.touched, module]))

    def run(self, here: Path, *commands: Sequence[str]) -> list[tuple[int, str]]:
        """Exit code and messages of commands of the changed package."""
        assert exit_code(partial(run_all, self.package.parent, here, commands)) == 0
        return [(code, said) for code, said in json.loads((here / "said.json").read_text(encoding="utf-8"))]


def documented(thing: str) -> str:
    """What ARCHITECTURE.md says about adding something."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return text.split(f"- **{thing}**")[1].split("\n- **")[0]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, pairs, and rows of texts."""
    folder = tmp_path_factory.mktemp("here")
    save_tiny(folder / "model")
    lines(
        folder / "pairs.jsonl",
        [{"query": f"question {number}", "pos": [f"answer {number % 7}"]} for number in range(20)],
    )
    settings = {
        "job": {"model": "model", "data": "pairs.jsonl"},
        "data": {"cache": "cache", "validation_fraction": 0.2},
        "train": {"batch_size": 4, "steps": 2, "loss": {"kind": "cosine_hinge", "margin": 3.0}},
    }
    (folder / "run.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    tune = {"batch_size": 3, "batches_per_epoch": 2, "max_epochs": 2, "learning_rate": 1e-3, "keep": "last"}
    tuning = {"tune": tune, "data": {"validation_fraction": 0.4}}
    (folder / "tune.toml").write_text(tomli_w.dumps(tuning), encoding="utf-8")
    lines(folder / "corpus.jsonl", [{"_id": f"d{n}", "text": f"answer {n}"} for n in range(7)])
    (folder / "probes.txt").write_text("".join(f"probe {n}\n" for n in range(20)), encoding="utf-8")
    # Equal texts have cosine 1, so three of the four rows are right.
    rows = [{"a": f"text {n}", "b": f"text {n}", "odd": f"other {n * 7}"} for n in range(3)] + [
        {"a": "c", "b": "d e f", "odd": "c"}
    ]
    lines(folder / "rows.jsonl", rows)
    suite = {"measure": {"resamples": 100}, "tasks": [{"kind": "odd_one_out", "data": "rows.jsonl"}]}
    (folder / "suite.toml").write_text(tomli_w.dumps(suite), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def said(here: Path) -> Sequence[tuple[int, str]]:
    """What three commands say once both are added: one with a wrong setting of the loss, one that trains with
    it, one that measures.
    """
    copy = Copy(here)
    copy.append("losses/in_batch.py", HINGE)
    copy.insert("config/training_choices.py", "TrainLoss = Annotated[", HINGE_SETTINGS)
    copy.insert("config/training_choices.py", "InBatchSoftmax | SamToNe | Pair | Triplet", "CosineHinge | ")
    copy.insert("config/training_choices.py", "TuneLoss = Annotated[", TUNING_SETTINGS)
    further = "CosineHingeTuning | OtherSoftmax | OtherTriplet | "
    copy.insert_after("config/training_choices.py", r"TuneLoss = Annotated\[\s*", further)
    assert all(f"`{module}`" in documented("A loss") for module in copy.touched)
    copy.touched.clear()
    copy.insert("adiabatic/drift.py", "MEASURES = (", HALF_TURN)
    # First, where no other measure may be taken for the one that every row has.
    copy.insert_after("adiabatic/drift.py", r"\nMEASURES = \(", "HALF_TURN, ")
    copy.insert(
        "adiabatic/drift.py",
        "        TURN: turns(base, tuned),\n",
        "        HALF_TURN: turns(base, tuned) / 2,\n",
    )
    copy.insert_after("config/tuning.py", r"measure: Literal\[\s*", '"half turn", ')
    copy.insert("report/captions.toml", '"rotation share" = "share', '"half turn" = "half the angle"\n')
    assert all(f"`{module}`" in documented("A measure of drift") for module in copy.touched)
    copy.touched.clear()
    copy.insert("results/suite_result.py", '    "mteb",\n]', '    "odd_one_out",\n')
    copy.insert("report/suite_headline.py", '    "mteb": "mteb",\n', '    "odd_one_out": "odd one out",\n')
    copy.insert("config/tasks.py", "AnyTask = Annotated[", ODD_SETTINGS)
    copy.insert("config/tasks.py", "    | NliGridTask\n", "    | OddOneOutTask\n")
    copy.append("evaluation/similarity.py", ODD)
    copy.insert("evaluation/task_kinds.py", "    MtebTask,\n    NliGridTask,", "    OddOneOutTask,\n")
    copy.insert("evaluation/task_kinds.py", "score_bitext, score_pair", "score_odd_one_out, ")
    copy.insert("evaluation/task_kinds.py", "_READERS: Mapping", ODD_READER)
    copy.insert("evaluation/task_kinds.py", "    MtebTask: _mteb,\n", "    OddOneOutTask: _odd_one_out,\n")
    assert all(f"`{module}`" in documented("A task") for module in copy.touched)
    copy.touched.clear()
    copy.insert("report/captions.toml", 'V-measure = """', 'lead = "How far the odd text is off."\n')
    assert all(f"`{module}`" in documented("A measure") for module in copy.touched)
    train = ("train", "run.toml", "--out", "job")
    return copy.run(
        here,
        (*train, "--set", "train.loss.weight=0.5"),
        train,
        ("evaluate", "model", "--suite", "suite.toml", "--out", "out"),
        ("embed", "model", "corpus.jsonl", "--out", "store"),
        (*tune("hinge", "cosine_hinge"), "--set", "tune.negatives=hardest"),
        (*tune("hinge", "cosine_hinge"), "--set", "tune.loss.margin=3.0"),
        *(tune(kind, kind) for kind in PAIRED),
        (*tune("drifting", "triplet"), *DRIFT),
    )


PAIRED = ("in_batch_softmax", "other_softmax", "triplet", "other_triplet")
"""Losses of tuning, each with the same one under another name."""

DRIFT = tuple(
    word
    for setting in ("probes='probes.txt'", "depth=3", "measure='half turn'", "limit=9")
    for word in ("--set", f"guard.{setting}")
)


def tune(out: str, loss: str) -> tuple[str, ...]:
    """A tuning job with a loss."""
    command = ("tune", "model", "store", "pairs.jsonl", "--out", out, "--config", "tune.toml")
    return (*command, "--set", f"tune.loss={loss}")


def log_of(job: Path) -> list[dict[str, object]]:
    """The log of a job, without times and checksums."""
    rows = [json.loads(line) for line in (job / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if key not in ("seconds", "checksum")} for row in rows]


def test_a_loss_takes_a_function_and_a_settings_class(here: Path, said: Sequence[tuple[int, str]]) -> None:
    (code, refused), trained, *_ = said
    assert code == 2
    assert "train.loss.weight" in refused
    assert "cosine_hinge" in refused
    assert trained[0] == 0, trained
    log = [json.loads(line) for line in (here / "job" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [row["loss"] for row in log if "loss" in row]
    # 3 minus a cosine.
    assert losses
    assert all(2 <= loss <= 4 for loss in losses)


def test_a_task_takes_a_kind_a_settings_class_a_reader_and_a_score_and_a_measure_its_sentence(
    here: Path, said: Sequence[tuple[int, str]]
) -> None:
    assert said[2][0] == 0, said[2]
    result = json.loads((here / "out" / "result.json").read_text(encoding="utf-8"))
    accuracy, lead = (score["value"] for score in result["scores"])
    assert accuracy == 0.75
    assert -2 < lead < 2
    page = (here / "out" / "report.html").read_text(encoding="utf-8")
    assert "odd one out" in page
    assert "How far the odd text is off." in page


def test_a_loss_of_tuning_is_what_its_traits_say_whatever_its_name(
    here: Path, said: Sequence[tuple[int, str]]
) -> None:
    refused, hinge = said[4:6]
    assert refused[0] == 2
    assert "tune.negatives has no effect" in refused[1]
    assert hinge[0] == 0, hinge
    losses = [row[key] for row in log_of(here / "hinge") for key in ("loss", "validation_loss") if key in row]
    # 3 minus a cosine, also of validation queries.
    assert losses
    assert all(2 <= float(str(loss)) <= 4 for loss in losses)
    for kind, other in zip(PAIRED[::2], PAIRED[1::2], strict=True):
        assert log_of(here / kind) == log_of(here / other) != []


def test_a_measure_of_drift_takes_a_function_a_word_and_a_sentence(
    here: Path, said: Sequence[tuple[int, str]]
) -> None:
    assert said[-1][0] == 0, said[-1]
    rows = [row for row in log_of(here / "drifting") if "validation_turn" in row]
    assert len(rows) > 1
    assert all(row["validation_half turn"] == float(str(row["validation_turn"])) / 2 for row in rows)
    assert "half turn" in (here / "drifting" / "report.html").read_text(encoding="utf-8")
