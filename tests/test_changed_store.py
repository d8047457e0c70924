"""A store that is written anew while a verb reads it ends the verb, and a job goes on once the store is put
back.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.store.vector_store import Store
from adiabat.training.loop import Loop
from tests.commands import DOCUMENTS, Run, Said, evaluate, lines, search, setting, tune, write_world
from tests.commands import run as run
from tests.jobs import everything


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    write_world(folder)
    # Of equal count and width, so that nothing but its content differs.
    lines(
        folder / "others.jsonl",
        [{**document, "text": f"another {document['text']}"} for document in DOCUMENTS],
    )
    adiabat.embed(folder / "model", folder / "others.jsonl", folder / "other")
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "world"))


def exchange() -> None:
    Path("store").rename("former")
    shutil.copytree("other", "store")


def put_back() -> None:
    shutil.rmtree("store")
    Path("former").rename("store")


def exchanged_when(
    owner: type, name: str, patch: pytest.MonkeyPatch, *, at: Callable[..., bool] = lambda *_: True
) -> None:
    """Exchange the store after a method was called for the first time."""
    called: Callable[..., object] = getattr(owner, name)

    def then(self: object, *arguments: object, **options: object) -> object:
        result = called(self, *arguments, **options)
        if at(self) and not Path("former").exists():
            exchange()
        return result

    patch.setattr(owner, name, then)


def assert_ends(said: Said, *facts: str) -> None:
    """Exit code 2, and a last line of our own words that holds all facts."""
    *_, last = said.err.splitlines()
    assert said.code == 2
    assert last.startswith("adiabat: ")
    assert [fact for fact in facts if fact not in last] == [], said.err


STAYS = (
    "store must stay as it is while it is read, another process changed its",
    "put the former store back",
)


def test_a_job_ends_at_the_next_checkpoint_and_goes_on_with_the_former_store(run: Run) -> None:
    settings = setting("tune.learning_rate=1e-3", "run.checkpoint_seconds=1e-6")
    words = tune("pairs.jsonl", *settings)
    assert run(*tune("pairs.jsonl", *settings, out="whole")).code == 0
    with pytest.MonkeyPatch.context() as patch:
        exchanged_when(Loop, "step", patch, at=lambda loop: loop.position.step == 3)
        said = run(*words)
    assert_ends(said, *STAYS, "--resume")
    assert not Path("new/result.json").exists()
    # With another store the job does not go on at all.
    assert run(*words, "--resume").code == 2
    put_back()
    assert run(*words, "--resume").code == 0
    assert everything(Path("new"))["query"] == everything(Path("whole"))["query"]


@pytest.mark.parametrize("words", [search(), evaluate("pairs.jsonl", *setting("measure.negatives=store"))])
def test_a_verb_that_reads_two_stores_gives_no_result(
    words: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchanged_when(Store, "read_into", monkeypatch)
    assert_ends(run(*words), *STAYS)
    assert not Path("new").exists()


def test_documents_that_are_added_meanwhile_do_not_end_a_search(world: Path, run: Run) -> None:
    store = Store.open("store")
    lines(world / "more.jsonl", [{"_id": "more", "text": "question 3"}])
    assert run("embed", "model", "more.jsonl", "--out", "store", "--append").code == 0
    store.require_unchanged()
    assert len(store) == 20
    assert np.array_equal(store.gather(range(20)), Store.open("store").gather(range(20)))
