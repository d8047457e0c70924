"""The job: its file and statistics, going on after a kill, and what it refuses."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dataset_settings import MineSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import AdiabatError, ConfigError, DataError
from adiabat.core.files import read_json, write_json
from adiabat.core.progress import Watch
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import Example, ExampleSet
from adiabat.mining import mine as mine_module
from adiabat.mining.mine import Mining, mine
from adiabat.mining.miner import MinedQuery, Miner
from adiabat.models.towers import DualEncoder
from adiabat.store.bm25 import BM25Index, build_bm25
from adiabat.store.build import build_store
from adiabat.store.manifest import LEXICAL_FILE
from adiabat.store.vector_store import Store
from tests.commands import lines, listing
from tests.tiny import tiny_dual

WORDS = [letter * 5 for letter in "abcdefgh"]
DOCUMENTS = [{"_id": f"d{n}", "text": f"document {n} about {WORDS[n % 8]}, part {n % 3}"} for n in range(40)]
PAIRS = [
    {"query_id": f"x{n}", "query": f"who wrote document {n} about {WORDS[n % 8]}?", "pos": [f"d{n}"]}
    for n in range(20)
]
ARGUMENTS = ("data", "corpus", "model", "store", "index", "watch")

Here = Callable[..., Mining]


def tiny(name: str, section: EncoderSection) -> DualEncoder:
    del section
    return tiny_dual(seed=len(name))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Mines in a folder with a corpus and pairs, four queries a block."""
    monkeypatch.setattr(mine_module, "BLOCK_QUERIES", 4)
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "corpus.jsonl", DOCUMENTS)
    lines(tmp_path / "pairs.jsonl", PAIRS)

    def run(out: str = "mined.jsonl", **more: Any) -> Mining:
        given = {"data": "pairs.jsonl", "corpus": "corpus.jsonl"} | {
            name: more.pop(name) for name in ARGUMENTS if name in more
        }
        blank = {"corpus": {"blank": more.pop("blank")}} if "blank" in more else {}
        table = more | blank | {"mine": {"negatives_per_query": 2, **more.get("mine", {})}}
        return mine(out=Path(out), load=tiny, settings=checked(MineSettings, table), **given)

    return run


@pytest.fixture
def store(here: Here) -> Store:
    corpus = {"source": "corpus.jsonl", "encoder_name": "a"}
    built = build_store(
        tiny_dual(seed=1), lambda: read_corpus("corpus.jsonl"), "store", dtype="float32", **corpus
    )
    return built.store


def rows_of(mining: Mining) -> list[dict[str, Any]]:
    return [json.loads(line) for line in mining.out.read_text(encoding="utf-8").splitlines()]


def test_the_file_is_read_again_and_holds_no_answers(here: Here) -> None:
    mining = here()
    examples = read_examples(mining.out)
    assert isinstance(examples, ExampleSet)
    assert [(one.query_id, one.query, list(one.positives)) for one in examples.examples] == [
        (pair["query_id"], pair["query"], pair["pos"]) for pair in PAIRS
    ]
    for one in examples.examples:
        assert len(set(one.negatives)) == 2
        assert not set(one.negatives) & set(one.positives)
    names = sorted(path.name for path in Path().iterdir())
    assert names == ["corpus.jsonl", "mined.jsonl", "mined.jsonl.stats.json", "pairs.jsonl"]


def test_the_statistics_are_those_of_the_file(here: Here) -> None:
    mining = here(mine={"choice": "random", "relative_margin": 0.2})
    rows, report = rows_of(mining), json.loads(mining.stats.read_text(encoding="utf-8"))
    assert report == mining.report
    assert (report["queries"], report["negatives"]) == (20, sum(len(row["neg"]) for row in rows))
    assert report["scores"]["chosen"]["count"] == report["negatives"]
    assert report["scores"]["positive"]["least"] == min(score for row in rows for score in row["pos_scores"])
    assert report["settings"]["mine"]["relative_margin"] == 0.2
    assert (report["data"], report["corpus"]) == ("pairs.jsonl", "corpus.jsonl")
    assert all(score < 0.8 * min(row["pos_scores"]) for row in rows for score in row["neg_scores"])


def kill(monkeypatch: pytest.MonkeyPatch, *, blocks: int) -> list[int]:
    """Interrupts mining once, after so many blocks; returns a list that grows with every block begun."""
    real, begun = Miner.mine, list[int]()

    def interrupted(miner: Miner, examples: Sequence[Example]) -> Iterator[MinedQuery]:
        begun.append(len(examples))
        if len(begun) == blocks + 1:
            raise KeyboardInterrupt
        return real(miner, examples)

    monkeypatch.setattr(Miner, "mine", interrupted)
    return begun


@pytest.mark.parametrize("kills", [1, 3])
def test_a_killed_run_goes_on_and_writes_the_same(
    here: Here, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    settings = {"mine": {"choice": "random"}}
    whole = here("whole.jsonl", **settings)
    begun = kill(monkeypatch, blocks=kills)
    with pytest.raises(KeyboardInterrupt):
        here(**settings)
    assert not Path("mined.jsonl").exists()
    notes: list[str] = []
    again = here(watch=Watch(note=notes.append), **settings)
    assert notes == [f"resumed at {4 * kills} of 20 queries"]
    assert begun == [4] * 6  # five blocks, one of them twice
    assert again.out.read_bytes() == whole.out.read_bytes()
    one, other = ({**run.report, "created": "", "seconds": 0.0} for run in (again, whole))
    assert one == other


@pytest.mark.parametrize("change", ["settings", "data", "corpus"])
def test_other_runs_are_begun_anew(here: Here, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    kill(monkeypatch, blocks=2)
    with pytest.raises(KeyboardInterrupt):
        here()
    if change == "data":
        lines(Path("pairs.jsonl"), PAIRS[::-1])
    if change == "corpus":
        lines(Path("corpus.jsonl"), DOCUMENTS[::-1])
    settings = {"mine": {"skip_first": 3}} if change == "settings" else {}
    notes: list[str] = []
    again = here(watch=Watch(note=notes.append), **settings)
    assert notes == []
    assert again.out.read_bytes() == here("whole.jsonl", **settings).out.read_bytes()


def test_an_index_is_kept_and_used_again(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Path] = []

    def counted(texts: Any, folder: Path, **more: Any) -> BM25Index:
        built.append(folder)
        return build_bm25(texts, folder, **more)

    monkeypatch.setattr(mine_module, "build_bm25", counted)
    first, again = (here(f"{name}.jsonl", index=Path("kept")) for name in ("first", "again"))
    assert again.out.read_bytes() == first.out.read_bytes()
    assert built == [Path("kept")]
    here("other.jsonl", index=Path("kept"), bm25={"b": 0.9})
    assert built == [Path("kept")] * 2
    lines(Path("corpus.jsonl"), DOCUMENTS[:30])
    with pytest.raises(DataError, match=r"kept must hold the current corpus corpus\.jsonl"):
        here("third.jsonl", index=Path("kept"))


@pytest.mark.parametrize("source", ["dense", "fused"])
@pytest.mark.parametrize("corpus", ["corpus.jsonl", "store"])
def test_vectors_propose_candidates(here: Here, store: Store, source: str, corpus: str) -> None:
    mining = here(
        corpus=corpus, store=None if corpus == "store" else "store", model="a", mine={"source": source}
    )
    towers = tiny_dual(seed=1)
    for row in rows_of(mining)[:3]:
        assert len(row["neg"]) == 2
        vectors = store.gather(store.rows([*row["pos"], *row["neg"]]))
        query = towers.encode([row["query"]], side="query", precision="fp32")
        cosines = (vectors @ query[0]).tolist()
        assert [*row["pos_scores"], *row["neg_scores"]] == pytest.approx(cosines, abs=1e-5)


def test_a_corpus_and_its_store_give_the_same_negatives(here: Here, store: Store) -> None:
    one = here("one.jsonl", store="store", model="a", mine={"source": "dense", "write": "texts"})
    other = here("other.jsonl", corpus="store", model="a", mine={"source": "dense", "write": "texts"})
    assert one.out.read_bytes() == other.out.read_bytes()
    assert rows_of(one)[0]["pos"] == [DOCUMENTS[0]["text"]]


def test_a_judge_with_a_store_decides_as_one_that_encodes(here: Here, store: Store) -> None:
    first, second = (
        here(f"{number}.jsonl", judge={"model": "a", **more})
        for number, more in enumerate(({}, {"store": "store"}))
    )
    assert first.out.read_bytes() == second.out.read_bytes()
    dropped = first.report["dropped"]["judge"]["candidates"]
    assert first.report["judged"] >= dropped + first.report["negatives"]
    assert dropped > 0


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "texts"])
def test_negatives_by_the_positives_resemble_them(here: Here, ids: bool) -> None:
    # What is asked for shares words with one document, and its answer with others.
    said = {"_id": "d40", "text": "a zebra has stripes and lives on the savannah"}
    alike = {"_id": "d41", "text": "a tiger has stripes and lives in the forest"}
    lines(Path("corpus.jsonl"), [*DOCUMENTS, said, alike])
    lines(Path("pairs.jsonl"), [{"query": "which animal? document", "pos": ["d40" if ids else said["text"]]}])
    settings = {"mine": {"negatives_per_query": 1, "choice": "ranked"}}
    (by_query,), (by_positive,) = (
        rows_of(here(f"{by}.jsonl", bm25={"search_by": by}, **settings)) for by in ("query", "positive")
    )
    assert by_query["neg"] != by_positive["neg"] == ["d41" if ids else alike["text"]]
    assert by_positive["neg_scores"] == [0.0]
    (either,) = rows_of(here("both.jsonl", bm25={"search_by": "both"}, mine={"negatives_per_query": 50}))
    assert {*by_query["neg"], *by_positive["neg"]} <= set(either["neg"])


def test_queries_without_any_negative_are_written_apart_or_dropped(here: Here) -> None:
    lines(Path("pairs.jsonl"), [*PAIRS, {"query": "zebra", "pos": ["d1"]}])
    mining = here()
    apart, report = Path("mined.without-negatives.jsonl"), mining.report
    assert mining.without_negatives == apart
    (row,) = [json.loads(line) for line in apart.read_text(encoding="utf-8").splitlines()]
    assert (row["query"], row["pos"], row["neg"]) == ("zebra", ["d1"], [])
    assert all(row["neg"] for row in rows_of(mining))
    assert (report["written"], report["without"], report["without_negatives"]) == (20, 1, apart.name)
    dropped = here("dropped.jsonl", mine={"too_few": "drop"})
    assert (dropped.without_negatives, dropped.report["without_negatives"]) == (None, None)
    assert len(rows_of(dropped)) == 20
    assert report["too_few"] == dropped.report["too_few"] == dropped.report["without"] == 1
    with pytest.raises(DataError, match=r"got none with mine\.negatives_per_query = 90"):
        here("none.jsonl", mine={"too_few": "drop", "negatives_per_query": 90})
    mining.out.unlink()
    with pytest.raises(DataError, match=r"mined\.without-negatives\.jsonl exists"):
        here()
    lines(Path("pairs.jsonl"), [{"query": "zebra", "pos": ["d1"]}])
    with pytest.raises(DataError, match=r"zebra\.jsonl must .* got none with a negative; lower the margins"):
        here("zebra.jsonl")


OTHER_ENCODER = "was built by another encoder: weights"
OWN = "must be a directory of its own"
IN_A_JOB = "lies in the job, model or store"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "a"}, 'model has no effect with mine.source = bm25, got a; .*source="dense"'),
        ({"store": "store"}, "store has no effect with mine.source = bm25, got store"),
        ({"encoder": {"max_tokens": 9}}, "encoder has no effect with mine.source = bm25, got settings of a"),
        ({"mine": {"source": "dense"}}, "mine.source = dense must have model and store, got none"),
        ({"mine": {"source": "fused"}, "model": "a"}, "mine.source = fused must have store, got none"),
        ({"mine": {"source": "dense"}, "model": "aa", "store": "store"}, OTHER_ENCODER),
        ({"judge": {"model": "aa", "store": "store"}}, OTHER_ENCODER),
        ({"corpus": "store", "blank": "drop"}, "corpus must be left out of the settings .* is a store"),
        ({"out": "corpus.jsonl"}, "out must be a new file, corpus.jsonl exists"),
        ({"out": "gone/mined.jsonl"}, "out must be in a folder that exists, got gone/mined.jsonl"),
        ({"out": "."}, r"out must end in \.jsonl, .*, got \.; .* such as mined\.jsonl"),
        ({"out": "/"}, r"got /; .* such as /mined\.jsonl"),
        ({"out": "store/mined.jsonl"}, rf"out {OWN}, store/mined\.jsonl {IN_A_JOB}"),
        ({"out": f"{'m' * 195}.jsonl"}, "out must be a name of at most 200 bytes, got 201"),
        ({"index": Path("store")}, "index must be a folder of its own, store is a store"),
        ({"index": Path("pairs.jsonl")}, "index must be a folder of its own, pairs.jsonl is a file"),
        ({"index": Path("pairs.jsonl/x")}, r"index must be in a .*, pairs\.jsonl/x .* file .*pairs\.jsonl"),
        ({"index": Path()}, r"index must be a new or empty folder, .*, \. holds .*corpus\.jsonl"),
        ({"index": Path("own"), "out": "own/mined.jsonl"}, r"index .*, own/mined\.jsonl lies in it"),
        ({"index": Path("store/index")}, f"index {OWN}, store/index {IN_A_JOB}"),
        ({"corpus": "faulty.jsonl"}, "2 faults"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_nothing_is_left(
    here: Here, store: Store, arguments: dict[str, Any], message: str
) -> None:
    lines(Path("faulty.jsonl"), [*DOCUMENTS, DOCUMENTS[0], {"_id": "x", "text": ""}])
    Path("own").mkdir()
    before = listing(Path())
    with pytest.raises(AdiabatError, match=message):
        here(**arguments)
    assert listing(Path()) == before


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"mine": {"skip_first": 100}}, "mine.skip_first must be below mine.depth = 100, got 100"),
        ({"mine": {"source": "dense"}, "bm25": {"k1": 1.2}}, 'bm25 has no effect with mine.source = "dense"'),
        ({"judge": {"model": "m", "relative": True}}, "judge.relative has no effect with judge.margin = 0"),
        (
            {"judge": {"model": "m", "relative": True, "margin": 1.5}},
            "judge.margin must be <= 1 where judge.relative is true, got 1.5",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(MineSettings, table)


def test_an_index_of_stems_or_of_an_older_version_is_built_again(here: Here) -> None:
    first = here("first.jsonl", index=Path("kept"))
    record, texts = read_json(Path("kept", LEXICAL_FILE), remedy=""), [one["text"] for one in DOCUMENTS]
    build_bm25(texts, Path("kept"), stemmer="english", corpus=record["corpus"])
    assert here("words.jsonl", index=Path("kept")).out.read_bytes() == first.out.read_bytes()
    assert BM25Index.open(Path("kept")).stemmer is None
    write_json({**record, "version": 2}, Path("kept", LEXICAL_FILE))
    assert here("again.jsonl", index=Path("kept")).out.read_bytes() == first.out.read_bytes()
    assert read_json(Path("kept", LEXICAL_FILE), remedy="") == record
