"""The directory of a job."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from adiabat.adiabatic.tune_checks import RULES
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked, keys_of, with_values
from adiabat.config.section import Section, value_at
from adiabat.config.sweeps import TrainSweepSettings
from adiabat.config.tasks import TaskSection
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import DataError, InUseError, JobError
from adiabat.core.files import sole_writer
from adiabat.models.saving import save
from adiabat.runs import output_dir as directory
from adiabat.runs import run_config as descriptions
from adiabat.runs.output_dir import claimed, claimed_for_jobs, require_fitting, require_free
from adiabat.runs.run_config import Job, Rules, is_described, is_job, read_description
from tests.runs.before import forget
from tests.settings_by_name import by_name
from tests.tiny import tiny_dual

open_job = partial(directory.open_job, rules=RULES)


def description(**tune: Any) -> dict[str, Any]:
    settings = checked(TuneSettings, {**by_name(TuneSettings, "tune", tune), "data": {"split": "train"}})
    return {"job": {"model": "demo", "store": "stored"}, **settings.model_dump()}


def refused(folder: Path, wanted: dict[str, Any], *, resume: bool = True, rules: Rules = RULES) -> str:
    """Why a job is not opened."""
    with pytest.raises(JobError) as caught:
        directory.open_job(folder, wanted, resume=resume, rules=rules)
    return str(caught.value)


def test_a_job_is_described_by_all_its_settings(tmp_path: Path) -> None:
    job = open_job(
        tmp_path / "deep" / "job",
        description(learning_rate=3e-8, freeze=["embeddings", "blocks[0]"]),
        resume=False,
    )
    found = read_description(job)
    assert found["job"] == {"model": "demo", "store": "stored"}
    assert (found["tune"]["learning_rate"], found["tune"]["freeze"]) == (3e-8, ["embeddings", "blocks[0]"])
    assert checked(TuneSettings, {key: table for key, table in found.items() if key != "job"}) == checked(
        TuneSettings,
        {"tune": {"learning_rate": 3e-8, "freeze": ["embeddings", "blocks[0]"]}, "data": {"split": "train"}},
    )


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(("name", "text"), [("notes.txt", "mine"), ("config.toml", "[server]\nport = 1\n")])
def test_a_directory_with_other_files_is_refused_and_left_as_it_is(
    tmp_path: Path, name: str, text: str, resume: bool
) -> None:
    (tmp_path / name).write_text(text)
    told = refused(tmp_path, description(), resume=resume)
    assert told == f"out must be a new or empty directory, {tmp_path} holds other files; choose another"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: text}


def test_a_result_may_lie_beside_jobs_and_stores_and_not_among_data(tmp_path: Path) -> None:
    """As in the directory of the demo."""
    open_job(tmp_path / "job", description(), resume=False)
    (tmp_path / "stores/corpus").mkdir(parents=True)
    (tmp_path / "stores/corpus/manifest.json").write_text("{}")
    with claimed(tmp_path) as folder:
        assert folder == tmp_path
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/test.tsv").write_text("")
    with pytest.raises(JobError, match="holds other files"), claimed(tmp_path):
        pass


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("")
    job = tmp_path / "job"
    told = refused(job, description(), resume=False)
    assert f"out must be a new or empty directory, {job} is a file" in told
    assert f"{job / 'inner'} lies in the file {job}" in refused(job / "inner", description(), resume=False)


def test_a_directory_that_holds_a_job_is_refused_without_resume(tmp_path: Path) -> None:
    open_job(tmp_path, description(), resume=False)
    assert "holds a job already; continue it with resume=True" in refused(
        tmp_path, description(), resume=False
    )
    with pytest.raises(JobError, match="holds a job already"):
        require_free(tmp_path, resume=False)


def test_the_same_job_may_be_resumed_and_its_description_stays(tmp_path: Path) -> None:
    first = open_job(tmp_path, description(margin=0.2), resume=False)
    before = first.config.read_bytes()
    assert open_job(tmp_path, description(margin=0.2), resume=True) == first
    assert first.config.read_bytes() == before


def test_a_resumed_job_may_stop_elsewhere_unless_a_schedule_goes_by_the_length(tmp_path: Path) -> None:
    for key in ("max_epochs", "idle_epochs"):
        job = open_job(tmp_path / key, description(**{key: 3}), resume=False)
        open_job(tmp_path / key, description(**{key: 5}), resume=True)
        assert read_description(job)["tune"][key] == 5
    open_job(tmp_path / "linear", description(max_epochs=3, schedule="linear"), resume=False)
    longer = description(max_epochs=5, schedule="linear")
    assert "tune.max_epochs was 3, is 5; repeat" in refused(tmp_path / "linear", longer)


def test_resuming_with_changed_settings_names_every_key_with_both_values(tmp_path: Path) -> None:
    open_job(tmp_path, description(margin=0.2), resume=False)
    changed = description(margin=0.3, freeze=["embeddings.base"])
    changed["job"]["store"] = "moved, which its vectors' digest allows"
    changed["data"]["validation"] = "dev.jsonl"
    told = refused(tmp_path, changed)
    assert "3 differences: data.validation was 'not set', is 'dev.jsonl'; " in told
    assert "tune.freeze was ['embeddings'], is ['embeddings.base']; " in told
    assert "tune.loss.margin was 0.2, is 0.3; repeat" in told


@pytest.mark.parametrize(
    "keys",
    [["tune.keep"], ["tune.freeze"], ["tune.schedule"], ["tune.keep", "run.seed", "data.missing"]],
    ids=str,
)
def test_a_job_of_before_settings_existed_is_resumed_with_their_defaults_and_says_them_then(
    tmp_path: Path, keys: list[str]
) -> None:
    job = open_job(tmp_path, description(), resume=False)
    whole = read_description(job)
    forget(job, *keys)
    assert read_description(job) != whole
    assert require_fitting(tmp_path, description(), resume=True, rules=RULES) is None
    open_job(tmp_path, description(), resume=True)
    assert read_description(job) == whole


def test_a_job_of_before_a_setting_existed_is_refused_where_it_is_not_the_default(tmp_path: Path) -> None:
    forget(open_job(tmp_path, description(margin=0.2), resume=False), "tune.keep", "tune.loss.margin")
    one = "got a difference: tune.loss.margin was 'not set', is 0.2; repeat"
    assert one in refused(tmp_path, description(margin=0.2))
    two = "2 differences: tune.keep was 'not set', is '{}'; tune.loss.margin was 'not set', is {}; repeat"
    assert two.format("last", 0.2) in refused(tmp_path, description(margin=0.2, keep="last"))
    assert two.format("both", 0.1) in refused(tmp_path, description(), rules=Rules())


def test_the_job_of_another_verb_is_told_as_that(tmp_path: Path) -> None:
    trained = {"job": {"model": "demo"}, **TrainSettings().model_dump(exclude={"job"})}
    directory.open_job(tmp_path / "job", trained, resume=False, rules=Rules())
    told = refused(tmp_path / "job", description())
    assert told.endswith("and without [tune] in its config.toml; choose another out")
    assert "must hold a job of the same verb, got one with [batches] and " in told


def test_a_table_that_is_switched_on_or_off_is_a_difference(tmp_path: Path) -> None:
    open_job(tmp_path, {**description(), "guard": {"depth": 10}}, resume=False)
    told = refused(tmp_path, {**description(), "rehearsal": {"weight": 1.0}})
    assert "2 differences: guard.depth was 10, is 'not set'; rehearsal.weight was 'not set', is 1.0; " in told


def test_a_setting_that_was_none_is_not_taken_for_another(tmp_path: Path) -> None:
    open_job(tmp_path, description(method="lora"), resume=False)
    told = refused(tmp_path, description(method={"kind": "lora", "alpha": 64.0}))
    assert "got a difference: tune.method.alpha was 'not set', is 64.0; repeat" in told


EVERYTHING = (TuneSettings(), TrainSettings(), TrainSweepSettings(), TaskSection(data="any"))


@pytest.mark.parametrize("plain", EVERYTHING, ids=lambda plain: type(plain).__name__)
def test_what_is_left_out_of_a_description_was_none_or_did_not_exist_and_never_either(plain: Section) -> None:
    for key in keys_of(type(plain)):
        if value_at(plain, key) is not None:
            with pytest.raises(ValidationError):
                type(plain).model_validate(with_values(type(plain), {}, [(key, None)]))


def claim(folder: Path, wanted: dict[str, Any], *, begun: bool) -> None:
    with claimed_for_jobs(folder, lambda: wanted, begun=begun):
        with pytest.raises(InUseError, match="must have one writer at a time"), sole_writer(folder):
            raise AssertionError
        assert read_description(Job(folder)).keys() == wanted.keys()


def test_what_consists_of_many_jobs_claims_its_directory_once_and_may_be_described_anew(
    tmp_path: Path,
) -> None:
    claim(tmp_path / "many", {"sweep": {"name": "one", "store": None}}, begun=False)
    assert is_described(tmp_path / "many", "sweep")
    assert not is_described(tmp_path / "many", "scaling")
    assert not is_job(tmp_path / "many")
    claim(tmp_path / "many", {"sweep": {"name": "other", "store": None}}, begun=True)
    assert read_description(Job(tmp_path / "many")) == {"sweep": {"name": "other"}}
    with sole_writer(tmp_path / "many"), pytest.raises(InUseError, match="must have one writer at a time"):
        claim(tmp_path / "many", {"sweep": {}}, begun=True)
    with pytest.raises(JobError, match="must be a new or empty directory"):
        claim(tmp_path / "many", {"sweep": {}}, begun=False)


def test_what_another_process_wrote_is_asked_for_once_it_writes_no_more(tmp_path: Path) -> None:
    claim(tmp_path, {"sweep": {"name": "one"}}, begun=False)

    def grown() -> dict[str, Any]:
        with pytest.raises(InUseError), sole_writer(tmp_path):
            raise AssertionError
        return {**read_description(Job(tmp_path)), "more": {}}

    with claimed_for_jobs(tmp_path, grown, begun=True):
        assert read_description(Job(tmp_path)) == {"sweep": {"name": "one"}, "more": {}}


@pytest.mark.parametrize("text", ["sweep = 5", "[sweep]\nstart = 5", "sweep = [{start = {}}]"])
def test_a_description_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(JobError, match="config.toml must describe a sweep, got other tables; restore it"):
        descriptions.description_of(Job(tmp_path), {"sweep": {"start": {}}}, of="a sweep")
    # It may lack tables.
    (tmp_path / "config.toml").write_text("[sweep]\n", encoding="utf-8")
    assert descriptions.description_of(Job(tmp_path), {"sweep": {"start": {}}, "grid": {}}, of="a sweep") == {
        "sweep": {}
    }


@pytest.mark.parametrize(("made", "why"), [(False, "does not exist"), (True, "is empty")])
def test_a_place_without_a_job_is_told_to_whoever_resumes(tmp_path: Path, made: bool, why: str) -> None:
    folder = tmp_path / "job"
    if made:
        folder.mkdir()
    told = require_fitting(folder, description(), resume=True, rules=RULES)
    assert told == f"resume found no job to resume, {folder} {why}: starting a new one"
    assert require_fitting(folder, description(), resume=False) is None
    assert is_job(open_job(folder, description(), resume=made).folder)
    assert require_fitting(folder, description(), resume=True, rules=RULES) is None


def test_why_a_setting_must_stay_and_what_a_digest_means_is_told_with_the_difference(tmp_path: Path) -> None:
    open_job(tmp_path, {"job": {"digest": "00", "free": 1}, "tune": {"a": 1, "b": 1}}, resume=False)
    rules = Rules(
        words={"job.digest": "the data differ"},
        reasons=lambda wanted: {"tune.a": f" (b is {wanted['tune.b']})"},
    )
    told = refused(tmp_path, {"job": {"digest": "ff", "free": 1}, "tune": {"a": 2, "b": 3}}, rules=rules)
    assert "3 differences: the data differ; tune.a was 1, is 2 (b is 3); tune.b was 1, is 3; repeat" in told
    told = refused(tmp_path, {"job": {"digest": "ff", "free": 1}, "tune": {"a": 1, "b": 1}}, rules=rules)
    assert "with its settings and data, got a difference: the data differ; repeat" in told


def test_a_description_that_an_editor_gave_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    job = open_job(tmp_path, description(margin=0.2), resume=False)
    job.config.write_bytes(b"\xef\xbb\xbf" + job.config.read_bytes())
    assert read_description(job)["tune"]["loss"]["margin"] == 0.2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *((text, "be undamaged, got .*; restore it") for text in (b"[job", b"\xff\xfe", b"job = [1,")),
        (
            b"# SHA-256 of the lines below: 00\n[job]\nmodel = 'demo'\n",
            "be undamaged, got .*checksum in its first line",
        ),
        # Its halves are exchanged: this is TOML too.
        (
            b"[job]\nmodel = 'demo'\n# SHA-256 of the lines below: 00\n[tune]\n",
            "be undamaged, got .*SHA-256 is not the first",
        ),
    ],
)
def test_a_damaged_or_former_description_is_one_line(tmp_path: Path, text: bytes, told: str) -> None:
    (tmp_path / "config.toml").write_bytes(text)
    with pytest.raises(JobError, match=f"config.toml must {told}"):
        open_job(tmp_path, description(), resume=True)


def test_a_description_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = open_job(tmp_path, description(), resume=False)

    def refuse(path: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    for method in ("read_text", "read_bytes", "open"):
        monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(JobError, match="config.toml must be readable, got: Permission denied"):
        read_description(job)


def test_a_full_disk_leaves_no_directory_that_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(text: str, path: Path) -> None:
        raise DataError(f"{path} must be writable, got No space left on device")

    monkeypatch.setattr(descriptions, "write_text", full)
    with pytest.raises(DataError, match="No space left on device"):
        open_job(tmp_path / "job", description(), resume=False)
    assert list(tmp_path.iterdir()) == []


def test_looking_whether_a_directory_is_free_writes_nothing(tmp_path: Path) -> None:
    require_free(tmp_path / "new", resume=False)
    require_free(tmp_path, resume=True)
    assert list(tmp_path.iterdir()) == []
    assert not is_job(tmp_path)


def log_of(job: Job, *validations: tuple[float, int]) -> None:
    """Write the log of a run that was validated so, at its start and after each epoch."""
    rows = [
        {"step": n, "epoch": n, "validation_loss": loss, "validation_errors": count, "validation_pairs": 9}
        for n, (loss, count) in enumerate(validations)
    ]
    job.log.write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"step": 9, "epoch": 9, "loss": 0.5}])
    )


def test_a_resumed_job_cannot_stop_before_where_it_is(tmp_path: Path) -> None:
    job = open_job(tmp_path, description(max_epochs=9), resume=False)
    log_of(job, (1.0, 9), (0.9, 8), (0.8, 7), (0.7, 6))
    before = job.config.read_bytes()
    assert "tune.max_epochs must be at least 3, the epochs already done, got 2" in refused(
        tmp_path, description(max_epochs=2)
    )
    assert job.config.read_bytes() == before
    open_job(tmp_path, description(max_epochs=3), resume=True)
    assert read_description(job)["tune"]["max_epochs"] == 3


@pytest.mark.parametrize(
    ("validations", "least"),
    [
        # Two idle epochs, the second of them the latest: a limit of two ends the run here.
        ([(1.0, 9), (0.9, 8), (1.0, 9), (0.8, 8)], 2),
        # Two idle epochs, then one that improved: a limit of two would have ended the run before it.
        ([(1.0, 9), (0.9, 9), (1.0, 8), (0.8, 7)], 3),
    ],
)
def test_a_resumed_job_cannot_have_been_idle_for_too_long_before(
    tmp_path: Path, validations: list[tuple[float, int]], least: int
) -> None:
    job = open_job(tmp_path, description(idle_epochs=9), resume=False)
    log_of(job, *validations)
    told = refused(tmp_path, description(idle_epochs=least - 1))
    assert f"tune.idle_epochs must be at least {least}, or" in told
    assert f"got {least - 1}" in told
    open_job(tmp_path, description(idle_epochs=least), resume=True)


def test_a_directory_inside_a_job_or_a_model_is_refused(tmp_path: Path) -> None:
    open_job(tmp_path / "job", {"job": {"model": "tiny"}}, resume=False)
    save(tiny_dual(), tmp_path / "model")
    for inner in ("job/model", "job/model/deep/er", "model/job"):
        with pytest.raises(
            JobError, match=r"directory of its own, .* lies in the job, model or store .*; choose another"
        ):
            require_free(tmp_path / inner, resume=False)
    # A damaged configuration of another program further up describes no job.
    (tmp_path / "config.toml").write_text("this is = not = TOML")
    require_free(tmp_path / "new", resume=False)


def test_a_lost_link_above_a_new_directory_is_no_fault_of_it(tmp_path: Path) -> None:
    for name in ("modules.json", "manifest.json"):
        (tmp_path / name).symlink_to("gone")
    require_free(tmp_path / "job", resume=False)
