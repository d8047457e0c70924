import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.dataset_settings import MsmarcoSection, MsmarcoSettings
from adiabat.config.reader import read_settings
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import Watch
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import read_examples
from adiabat.data.records import ExampleSet, text_id
from adiabat.datasets.msmarco import make_msmarco, part_of
from tests.datasets.making import corpus, made, names, rows, triplets

SMALL = ("msmarco.train=3", "msmarco.dev=2", "msmarco.test=4")


def sample(number: int, negatives: int = 3, **more: Any) -> dict[str, Any]:
    listed = [f"no {number}.{one}" for one in range(negatives)]
    return {"query": f"query {number}", "pos": [f"yes {number}.a", f"yes {number}.b"], "neg": listed, **more}


def write(path: Path, samples: list[Any]) -> Path:
    data = "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in samples).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def make(source: Path, out: Path, *settings: str) -> dict[str, Any]:
    make_msmarco(source, out, read_settings(MsmarcoSettings, None, settings))
    return made(out)


def fault(source: Path, out: Path, *settings: str) -> str:
    with pytest.raises((ConfigError, DataError)) as caught:
        make(source, out, *settings)
    assert not out.exists()
    return str(caught.value)


def test_the_default_cut_is_that_of_the_source() -> None:
    total, section = 499_184, MsmarcoSection()
    parts = [part_of(number, total, section) for number in (0, 487_982, 487_983, 492_182, 492_183, 492_184, 499_183)]
    assert parts == ["train", "train", "dev", "dev", None, "test", "test"]
    assert 499_184 - 492_184 == 7_000


@pytest.mark.parametrize("sizes", [(3, 2, 4), (0, 0, 9), (9, 0, 0), (0, 1, 0), (4, 4, 4)])
def test_parts_have_their_sizes_and_stand_in_order(sizes: tuple[int, int, int]) -> None:
    section = MsmarcoSection(train=sizes[0], dev=sizes[1], test=sizes[2])
    for total in (sum(sizes), sum(sizes) + 1, sum(sizes) + 5):
        parts = [part_of(number, total, section) for number in range(total)]
        gap: list[str | None] = [None] * (total - sum(sizes))
        assert parts == ["train"] * sizes[0] + ["dev"] * sizes[1] + gap + ["test"] * sizes[2]


def test_first_next_and_last_samples_make_the_three_files(tmp_path: Path) -> None:
    told = make(write(tmp_path / "m.jsonl.gz", [sample(number) for number in range(11)]), tmp_path / "out", *SMALL)
    assert told["examples"] == {"train.jsonl.gz": 3, "dev.jsonl.gz": 2, "test.jsonl.gz": 4}
    queries = {stem: [query for query, _, _ in triplets(tmp_path / "out", stem)] for stem in ("train", "dev", "test")}
    wanted = {"train": range(3), "dev": range(3, 5), "test": range(7, 11)}
    assert queries == {stem: [f"query {number}" for number in numbers] for stem, numbers in wanted.items()}
    assert told["notes"] == ["2 of 11 samples left out: between the last to validate on and the first to measure on"]


def test_what_is_tuned_on_has_one_pair_and_what_is_measured_on_has_all(tmp_path: Path) -> None:
    source = write(tmp_path / "m.jsonl", [sample(number) for number in range(9)])
    make(source, tmp_path / "out", *SMALL)
    assert triplets(tmp_path / "out", "train")[1] == ("query 1", ["yes 1.a"], ["no 1.0"])
    assert triplets(tmp_path / "out", "dev")[0] == ("query 3", ["yes 3.a"], ["no 3.0"])
    assert triplets(tmp_path / "out", "test")[0] == ("query 5", ["yes 5.a", "yes 5.b"], ["no 5.0", "no 5.1", "no 5.2"])
    assert len(corpus(tmp_path / "out")) == 5 * 2 + 4 * 5
    make(source, tmp_path / "all", *SMALL, "msmarco.pairs=all")
    assert triplets(tmp_path / "all", "train")[1] == ("query 1", ["yes 1.a", "yes 1.b"], ["no 1.0", "no 1.1", "no 1.2"])


def test_measured_samples_with_many_negatives_make_a_subset(tmp_path: Path) -> None:
    source = write(
        tmp_path / "m.jsonl", [sample(number, negatives) for number, negatives in enumerate([65, 65, 65, 65, 65, 64, 65, 66, 1])]
    )
    told = make(source, tmp_path / "out", *SMALL)
    assert told["examples"] == {"train.jsonl.gz": 3, "dev.jsonl.gz": 2, "test.jsonl.gz": 4, "test-65negatives.jsonl.gz": 2}
    assert [len(negatives) for _, _, negatives in triplets(tmp_path / "out", "test-65negatives")] == [65, 66]
    assert make(source, tmp_path / "few", *SMALL, "msmarco.subset_negatives=1")["examples"]["test-1negatives.jsonl.gz"] == 4


def test_a_passage_that_many_samples_name_is_one_document(tmp_path: Path) -> None:
    samples = [sample(number, neg=["shared", "shared", f"no {number}"]) for number in range(9)]
    assert make(write(tmp_path / "m.jsonl", samples), tmp_path / "out", *SMALL, "msmarco.pairs=all")["documents"] == 9 * 3 + 1
    assert triplets(tmp_path / "out", "test")[0][2] == ["shared", "no 5"]


def test_a_negative_that_is_a_positive_is_none_and_samples_without_negatives_are_counted(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(9)]
    samples[0]["neg"] = ["yes 0.b", "no 0.5"]
    samples[4]["neg"] = ["yes 4.a"]
    samples[8]["neg"] = []
    told = make(write(tmp_path / "m.jsonl", samples), tmp_path / "out", *SMALL)
    assert triplets(tmp_path / "out", "train")[0][2] == ["no 0.5"]
    assert told["examples"] == {"train.jsonl.gz": 3, "dev.jsonl.gz": 1, "test.jsonl.gz": 3}
    assert told["notes"] == ["2 of 9 samples left out: without negatives"]


def test_queries_asked_again_after_the_tuning_part_are_told(tmp_path: Path) -> None:
    samples = [sample(number) for number in range(9)]
    samples[1]["query"] = samples[5]["query"] = samples[6]["query"] = "query 0"
    told = make(write(tmp_path / "m.jsonl", samples), tmp_path / "out", *SMALL)
    assert told["notes"] == ["2 samples of dev and test ask what a sample before them asks"]


def test_ids_and_texts_name_the_same_documents(tmp_path: Path) -> None:
    source = write(tmp_path / "m.jsonl", [sample(number, query=f"سؤال {number}", pos=["جواب", "да"]) for number in range(9)])
    make(source, tmp_path / "ids", *SMALL)
    make(source, tmp_path / "texts", *SMALL, "msmarco.documents=texts")
    assert names(tmp_path / "texts") == ["dev.jsonl.gz", "made.json", "test.jsonl.gz", "train.jsonl.gz"]
    assert list(rows(tmp_path / "texts" / "train.jsonl.gz")[0]) == ["query", "pos", "neg"]
    by_id, by_text = (read_examples(tmp_path / name / "test.jsonl.gz") for name in ("ids", "texts"))
    assert isinstance(by_id, ExampleSet)
    assert isinstance(by_text, ExampleSet)
    assert {document.doc_id: document.text for document in read_corpus(tmp_path / "ids")} == corpus(tmp_path / "ids")
    for one, other in zip(by_id.examples, by_text.examples, strict=True):
        assert one.query == other.query
        assert one.positives + one.negatives == tuple(map(text_id, other.positives + other.negatives))


def test_too_few_samples_say_which_settings_to_lower(tmp_path: Path) -> None:
    source = write(tmp_path / "m.jsonl", [sample(number) for number in range(8)])
    wanted = "must hold at least msmarco.train + msmarco.dev + msmarco.test = 9 samples, got 8; lower these"
    assert wanted in fault(source, tmp_path / "out", *SMALL)
    assert "499,183 samples, got 8" in fault(source, tmp_path / "out")


def test_every_fault_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    samples: list[Any] = [sample(number) for number in range(9)]
    samples[2] = 7
    samples[4]["pos"] = []
    samples[6]["query"] = " "
    samples[7]["neg"] = ["", "x"]
    source = write(tmp_path / "m.jsonl", samples)
    said = fault(source, tmp_path / "out", *SMALL)
    for wanted in (
        "4 faults: ",
        f"{source}:3 must be one JSON object, got a JSON number",
        f'{source}:5: "pos" must name at least one document, got none',
        f'{source}:7: "query" must not be empty',
        f'{source}:8: "neg" must not be empty',
    ):
        assert wanted in said
    assert names(tmp_path) == ["m.jsonl"]


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("triples.train.small.tsv", "q\tp\tn\n", "must be a file of triplets (JSON lines with query, pos and neg), or a folder"),
        ("m.jsonl", '{"question": "a", "text": "b"}\n' * 9, 'expected "question" and "positive"'),
        ("m.json.gz", "no gzip", "must be a gzip file"),
    ],
)
def test_a_file_that_holds_no_triplets_is_told(tmp_path: Path, name: str, text: str, wanted: str) -> None:
    (tmp_path / name).write_text(text)
    assert wanted in fault(tmp_path / name, tmp_path / "out", *SMALL)


def test_a_missing_source_and_settings_without_effect_are_told(tmp_path: Path) -> None:
    assert "must exist, got no such file" in fault(tmp_path / "gone", tmp_path / "out")
    source = write(tmp_path / "m.jsonl", [sample(0)])
    assert fault(source, tmp_path / "out", "msmarco.most_negatives=3") == (
        "msmarco.most_negatives has no effect with a file of triplets; leave it out"
    )


def test_progress_is_told_by_samples(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    source = write(tmp_path / "m.jsonl", [sample(number, 1) for number in range(1_006)])
    settings = read_settings(MsmarcoSettings, None, ["msmarco.train=1000", *SMALL[1:]])
    make_msmarco(source, tmp_path / "out", settings, watch=Watch(progress=lambda *one: told.append(one)))
    assert told == [("samples", 0, 1_006), ("samples", 1_000, 1_006)]
