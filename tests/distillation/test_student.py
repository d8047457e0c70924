"""Students in training: from texts or translations to a model, by the functions and by the commands."""

import gzip
import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model2vec import StaticModel
from safetensors.numpy import load_file, save_file

import adiabat
from adiabat.config.distillation import DistillStaticSettings, FitSettings, MultilingualSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked, read_settings
from adiabat.config.section import Section
from adiabat.core.errors import AdiabatError, ConfigError, ModelError
from adiabat.data.records import text_id
from adiabat.distillation.student_data import unit
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.saving import save
from adiabat.store.vector_store import Store
from tests.commands import lines
from tests.pages import no_page as no_page
from tests.refused import refused
from tests.tiny import tiny_dual

WORDS = ("red", "blue", "green", "old", "new", "cat", "dog", "house", "tree", "river")
SENTENCES = [
    f"the {one} {other} of {number}"
    for number, (one, other) in enumerate((a, b) for a in WORDS[:5] for b in WORDS)
]
STEPS = {
    "train": {"steps": 6, "batch_size": 16, "learning_rate": 5e-3, "dropout": False},
    "run": {"device": "cpu"},
}
LONG = {"train": {"steps": 60}}
"""Until a student is close to its teacher."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two teachers, students of two widths, and texts, in the current directory."""
    monkeypatch.chdir(tmp_path)
    for name, options in {
        "teacher": {"seed": 1},
        "second": {"seed": 2},
        "student": {"seed": 3},
        "small": {"seed": 4, "width": 16},
    }.items():
        save(tiny_dual(**options), tmp_path / name)
    lines(tmp_path / "parallel.jsonl", [{"en": one, "de": one.upper(), "fr": one[::-1]} for one in SENTENCES])
    lines(tmp_path / "corpus.jsonl", [{"id": str(n), "text": text} for n, text in enumerate(SENTENCES)])
    return tmp_path


def settings_of(kind: type[Section], data: dict[str, Any], tables: dict[str, Any]) -> Any:
    usual = {"distill": {"teachers": ["teacher"], "student": "student", "out": "job"}, "data": data, **STEPS}
    names = usual | tables
    return checked(kind, {name: {**usual.get(name, {}), **tables.get(name, {})} for name in names})


def multilingual(**tables: Any) -> MultilingualSettings:
    return settings_of(MultilingualSettings, {"parallel": ["parallel.jsonl"], "passages": 2}, tables)


def fitting(**tables: Any) -> FitSettings:
    return settings_of(FitSettings, {"texts": ["corpus.jsonl"]}, tables)


def made_static(**static: Any) -> None:
    """A static model of the teacher in ``static``."""
    settings = checked(DistillStaticSettings, {"static": {"dtype": "float32", **static}})
    adiabat.distill_static("teacher", "static", settings=settings)


def cosine(student: str, texts: list[str], wanted: np.ndarray) -> float:
    found = adiabat.load(student).encode(texts, side="query")
    products = (found * wanted).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(wanted, axis=1)
    return float(products.mean())


@pytest.mark.usefixtures("here")
def test_a_student_comes_close_to_its_teacher_in_every_language() -> None:
    # Without a layer, which would bring it close before it learns.
    result = adiabat.distill_multilingual(settings=multilingual(distill={"width": "none"}, **LONG))
    wanted = adiabat.load("teacher").encode(SENTENCES, side="query")
    for texts in (SENTENCES, [text.upper() for text in SENTENCES], [text[::-1] for text in SENTENCES]):
        assert cosine("student", texts, wanted) < 0.5 < 0.98 < cosine("job", texts, wanted)
    assert result.training is not None
    assert result.training.steps == 60
    assert adiabat.load("job").shared


@pytest.mark.usefixtures("here")
def test_a_student_is_fitted_to_texts_of_ones_own() -> None:
    adiabat.distill_fit(settings=fitting(distill={"width": "none"}, **LONG))
    wanted = adiabat.load("teacher").encode(SENTENCES, side="query")
    assert cosine("student", SENTENCES, wanted) < 0.5 < 0.98 < cosine("job", SENTENCES, wanted)
    # A student that is to stay as it is gets no layer.
    assert not len(adiabat.load("job").query.projections)
    assert not list(Path("job/prepared").glob("layer-*"))


@pytest.mark.usefixtures("here")
def test_texts_may_be_documents_of_examples_and_queries_and_blank_documents_are_passed_over() -> None:
    rows = [{"query": f"what of {text}", "positive": text} for text in SENTENCES]
    lines(Path("pairs.jsonl"), rows)
    with Path("corpus.jsonl").open("a") as file:
        file.write('{"id": "blank", "text": ""}\n')
    sources = {"texts": ["corpus.jsonl", "pairs.jsonl"], "queries": ["pairs.jsonl"]}
    with pytest.warns(UserWarning, match="blank documents"):
        adiabat.distill_fit(settings=fitting(data=sources, train={"steps": 2}))
    with gzip.open("job/prepared/lessons/corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        found = sorted(json.loads(line)["text"] for line in file)
    assert found == sorted([*SENTENCES, *(row["query"] for row in rows)])


@pytest.mark.usefixtures("here")
def test_a_narrow_student_learns_the_main_directions_and_keeps_its_width() -> None:
    result = adiabat.distill_fit(settings=fitting(distill={"student": "small"}))
    job, targets = adiabat.load("job"), Store.open(Path("job/prepared/targets"))
    assert job.width == targets.width == 16
    assert result.training is not None
    assert result.training.validation_loss[0][1] < 0.05
    wanted = targets.gather(targets.rows([text_id(text) for text in SENTENCES])).astype(np.float32)
    assert cosine("job", SENTENCES, wanted) > 0.99


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("student", "width"), [("student", "auto"), ("small", "projection")])
def test_a_student_starts_near_its_teacher_by_a_layer_and_ends_in_its_space(student: str, width: str) -> None:
    result = adiabat.distill_fit(settings=fitting(distill={"student": student, "width": width}))
    assert result.training is not None
    assert result.training.validation_loss[0][1] < 0.05
    job, wanted = adiabat.load("job"), adiabat.load("teacher").encode(SENTENCES, side="query")
    shapes = [tuple(one.get_parameter("linear.weight").shape) for one in job.query.projections]
    assert shapes == [(32, adiabat.load(student).width)]
    assert cosine("job", SENTENCES, wanted) > 0.99


@pytest.mark.usefixtures("here")
def test_a_static_student_takes_its_layer_into_its_table() -> None:
    made_static(reduction={"dims": 8})
    distill = {"student": "static", "width": "projection"}
    result = adiabat.distill_fit(settings=fitting(distill=distill, train={"steps": 2}))
    job, wanted = adiabat.load("job"), adiabat.load("teacher").encode(SENTENCES, side="query")
    assert not len(job.query.projections)
    assert job.width == 32
    assert result.training is not None
    assert result.training.validation_loss[0][1] < 0.1
    by_model2vec = unit(StaticModel.from_pretrained("job/model").encode(SENTENCES))
    np.testing.assert_allclose(by_model2vec, job.encode(SENTENCES, side="query", precision="fp32"), atol=1e-5)
    assert cosine("job", SENTENCES, wanted) > 0.9


@pytest.mark.usefixtures("here")
def test_a_job_with_a_layer_is_resumed_and_repeated_but_not_with_another_layer() -> None:
    first = adiabat.distill_fit(settings=fitting(train={"steps": 3}))
    before = Path("job/log.jsonl").read_text()
    # By another name of its folder.
    whole = {"out": str(Path("job").resolve())}
    adiabat.distill_fit(settings=fitting(distill=whole, train={"steps": 3}), resume=True)
    assert Path("job/log.jsonl").read_text() == before
    settings = read_settings(TrainSettings, Path("job/config.toml"))
    again, other = (
        settings.model_copy(update={"job": settings.job.model_copy(update={"out": out})})
        for out in ("again", "other")
    )
    repeated = adiabat.train(settings=again)
    assert first.training is not None
    assert repeated is not None
    assert repeated.training is not None
    assert repeated.training.validation_loss == first.training.validation_loss
    layer = Path(str(settings.towers.projection_start))
    np.save(layer, np.load(layer)[::-1])
    with refused(ConfigError, "the model differs from the one the job began with"):
        adiabat.train(settings=other)


@pytest.mark.usefixtures("here")
def test_a_student_of_no_numbers_is_refused_before_a_teacher_embeds() -> None:
    weights = load_file("student/model.safetensors")
    weights[next(name for name in weights if name.endswith("word_embeddings.weight"))][5] = np.nan
    save_file(weights, "student/model.safetensors", metadata={"format": "pt"})
    with refused(ModelError, "every weight must be a finite number"):
        adiabat.distill_fit(settings=fitting())
    assert not Path("job/prepared/teacher-1").exists()


@pytest.mark.usefixtures("here")
def test_several_teachers_teach_one_student() -> None:
    adiabat.distill_fit(settings=fitting(distill={"teachers": ["teacher", "second"]}))
    assert adiabat.load("job").width == 32
    assert (Path("job") / "prepared" / "teacher-2").is_dir()


@pytest.mark.usefixtures("here")
def test_a_static_student_has_a_rate_of_its_own() -> None:
    made_static(reduction="none")
    distill, train = {"student": "static", "width": "none"}, {"learning_rate": 0.01, "steps": 60}
    adiabat.distill_fit(settings=fitting(distill=distill, train=train))
    wanted = adiabat.load("teacher").encode(SENTENCES, side="query")
    assert cosine("static", SENTENCES, wanted) < 0.9 < 0.98 < cosine("job", SENTENCES, wanted)
    settings = fitting(distill={"student": "static", "out": "usual"})
    plain = settings.model_copy(update={"train": type(settings.train)(steps=2, batch_size=4)})
    adiabat.distill_fit(settings=plain)
    assert "learning_rate = 0.005" in (Path("usual") / "config.toml").read_text()


@pytest.mark.usefixtures("here")
def test_what_was_cut_short_goes_on_and_computes_no_vector_again(monkeypatch: pytest.MonkeyPatch) -> None:
    adiabat.distill_multilingual(settings=multilingual(distill={"out": "whole"}))

    def cut_short(*given: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr("adiabat.distillation.student.train", cut_short)
        with pytest.raises(KeyboardInterrupt):
            adiabat.distill_multilingual(settings=multilingual())
    seen: list[str] = []
    encode = Encoder.encode

    def noted(self: Encoder, texts: list[str], **options: Any) -> Any:
        seen.extend(texts)
        return encode(self, texts, **options)

    monkeypatch.setattr(Encoder, "encode", noted)
    adiabat.distill_multilingual(settings=multilingual(), resume=True)
    # What the student is validated on is all that is embedded, and each text once for each validation.
    with gzip.open("job/prepared/lessons/validation.jsonl.gz", "rt", encoding="utf-8") as file:
        held_out = {json.loads(line)["query"] for line in file}
    assert set(seen) == held_out
    assert logged("job") == logged("whole")


def logged(job: str) -> list[tuple[int, float]]:
    rows = [json.loads(line) for line in (Path(job) / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(row["step"], row[name]) for row in rows for name in ("loss", "validation_loss") if name in row]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"distill": {"teachers": []}}, ["distill.teachers must be given, got none"]),
        ({"data": {"parallel": []}}, ["data.parallel must be given, got none; "]),
        ({"data": {"languages": ["de", "xx"]}}, ["languages must be ", "(de, fr), got xx; "]),
        (
            {"distill": {"width": "pca", "student": "wide"}},
            ["distill.width must be projection or auto ", "48 dimensions ", "have 32, got pca; "],
        ),
        (
            {"distill": {"width": "none", "student": "small"}},
            ["distill.width must be pca or projection or auto ", "16 dimensions ", "have 32, got none"],
        ),
        (
            {"distill": {"width": "pca"}},
            ["distill.width must be projection or none or auto ", "32 dimensions ", "have 32, got pca"],
        ),
        (
            {"train": {"loss": {"negatives_per_query": 3}}},
            [
                "negatives_per_query belongs to in_batch_softmax, samtone, pair, triplet, listwise; ",
                "kind is cosine_distance",
            ],
        ),
        ({"distill": {"student": "nobody"}}, ["nobody"]),
    ],
)
def test_what_is_wrong_is_told_and_no_job_is_begun(tables: dict[str, Any], told: list[str]) -> None:
    save(tiny_dual(width=48), Path("wide"))
    with refused(AdiabatError, *told):
        adiabat.distill_multilingual(settings=multilingual(**tables))
    assert not (Path("job") / "config.toml").exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"data": {"texts": ["corpus.jsonl", "gone.jsonl"]}}, "gone.jsonl"),
        ({"data": {"texts": ["parallel.jsonl"]}}, "parallel.jsonl"),
        ({"data": {"max_validation": 1}}, "must leave 2 or more texts for validation"),
        ({"train": {"batch_size": 51}}, r"train.batch_size must be at most the \d+ pairs trained on, got 51"),
        ({"distill": {"teachers": ["teacher", "corpus.jsonl"]}}, "got corpus.jsonl, a file; name a model"),
    ],
)
def test_faults_of_texts_and_names_are_told_before_a_model_is_loaded(
    tables: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adiabat.distillation.student.load_with", lambda *given: pytest.fail("too early"))
    with pytest.raises(AdiabatError, match=told):
        adiabat.distill_fit(settings=fitting(**tables))


@pytest.mark.usefixtures("here")
def test_more_files_of_texts_are_checked_than_a_process_may_open() -> None:
    names = [f"shard{number}.jsonl" for number in range(40)]
    for name in names:
        Path(name).write_text('{"id": "a", "text": "a text"}\n')
    Path(names[-1]).write_text('{"id": "a"}\n')
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, hard))
    try:
        with refused(AdiabatError, "shard39.jsonl"):
            adiabat.distill_fit(settings=fitting(data={"texts": names}))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("here")
def test_a_loss_that_a_student_of_unit_length_cannot_lower_is_refused() -> None:
    save(tiny_dual(seed=5, settings=EncoderSettings(normalize=False)), Path("long"))
    mse = {"train": {"loss": "mse", "steps": 2}}
    with refused(ConfigError, "train.loss = mse needs a student that can reach "):
        adiabat.distill_fit(settings=fitting(distill={"teachers": ["long"]}, **mse))
    to_unit = fitting(distill={"teachers": ["long"], "out": "unit"}, teacher={"normalize": True}, **mse)
    adiabat.distill_fit(settings=to_unit)
    adiabat.distill_fit(settings=fitting(distill={"student": "long", "out": "free"}, **mse))


@pytest.mark.usefixtures("here")
def test_a_student_of_two_towers_and_a_launcher_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    save(tiny_dual(shared=False), Path("pair"))
    with refused(ModelError, "a student must have one tower for both sides, got two"):
        adiabat.distill_fit(settings=fitting(distill={"student": "pair"}))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused(ConfigError, "distillation must run in one process, got 2"):
        adiabat.distill_fit(settings=fitting())
