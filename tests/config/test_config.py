"""Settings: every key can be reached, every fault is told at once and in plain words, nothing is ignored on the quiet."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from pydantic import ValidationError

import adiabat
from adiabat.config.dataset_settings import (
    ArxivSettings,
    HotpotqaSettings,
    InspectSettings,
    MineSettings,
    MsmarcoSettings,
    SquadSettings,
    XnliSettings,
)
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import assigned, checked, keys_of, read_settings
from adiabat.config.section import Section, value_at
from adiabat.config.shared import EmbedSettings, EncoderSection, EvaluateSettings, SearchSettings
from adiabat.config.tasks import CompareSettings, SpaceSettings, SuiteSettings
from adiabat.config.tuning import TuneSection, TuneSettings
from adiabat.config.validation import shown
from adiabat.core.errors import ConfigError
from tests.config_values import VALUES

KINDS: tuple[type[Section], ...] = (
    EmbedSettings,
    TuneSettings,
    EvaluateSettings,
    SearchSettings,
    TrainSettings,
    InspectSettings,
    MineSettings,
    MsmarcoSettings,
    SquadSettings,
    HotpotqaSettings,
    XnliSettings,
    ArxivSettings,
    SpaceSettings,
    SuiteSettings,
    CompareSettings,
)

EVERY_KEY = [(kind, key) for kind in KINDS for key in keys_of(kind)]


def as_toml(value: object) -> str:
    """On one line, as behind a key."""
    if isinstance(value, Section):
        value = value.model_dump(exclude_unset=True)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {as_toml(one)}' for name, one in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(as_toml, value))}]"
    return tomli_w.dumps({"x": value}, multiline_strings=False).removeprefix("x = ").strip()


def fault(kind: type[Section], *assignments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_settings(kind, None, assignments)
    return str(caught.value)


def require_reached(kind: type[Section], key: str, value: Any, company: dict[str, Any], folder: Path) -> None:
    """A key that is given with what it needs has its value, by ``--set`` and out of a file in `folder` alike."""
    assert value_at(kind(), key) != value
    given = {**company, key: value}
    assignments = [f"{name}={as_toml(one).replace(chr(10), '')}" for name, one in given.items()]
    by_set = read_settings(kind, None, assignments)
    file = folder / "settings.toml"
    file.write_text(tomli_w.dumps(assigned(assignments, kind=kind)), encoding="utf-8")
    assert value_at(by_set, key) == value
    assert read_settings(kind, file) == by_set


def test_the_table_of_values_names_every_key_and_no_other() -> None:
    assert {key for _, key in EVERY_KEY} == set(VALUES)


@pytest.mark.parametrize(("kind", "key"), EVERY_KEY, ids=[f"{kind.__name__}-{key}" for kind, key in EVERY_KEY])
def test_every_key_is_reached_by_set_and_by_toml_alike(kind: type[Section], key: str, tmp_path: Path) -> None:
    require_reached(kind, key, *VALUES[key], tmp_path)


def test_set_wins_over_the_file_and_the_last_set_over_the_first(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[tune]\nmargin = 0.2\nbatch_size = 3\n", encoding="utf-8")
    settings = read_settings(TuneSettings, file, ["tune.margin=0.3", "tune.margin = 0.4"])
    assert (settings.tune.margin, settings.tune.batch_size) == (0.4, 3)


def test_the_defaults_are_the_sources() -> None:
    tune = TuneSettings().tune
    assert (tune.learning_rate, tune.batch_size, tune.margin, tune.loss) == (5e-8, 14, 0.1, "triplet")
    assert (tune.optimizer, tune.batches_per_epoch, tune.idle_epochs, tune.freeze) == ("adamw", 1000, 10, ("embeddings",))
    assert not tune.dropout


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("train", "train"),
        ("a b", "a b"),
        ("'2024'", "2024"),
        ('"x # y"', "x # y"),
        ("# y", "# y"),
        ("query: ", "query: "),
        (" query:", "query:"),
        ("1\nb=2", "1\nb=2"),
        ("Zürich", "Zürich"),
    ],
)
def test_a_bare_word_is_text_and_keeps_a_blank_at_its_end(text: str, value: str) -> None:
    assert read_settings(TuneSettings, None, [f"data.split={text}"]).data.split == value


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("tune.learning_rat", "tune.learning_rate"),
        ("tune.lerning_rate", "tune.learning_rate"),
        ("learning_rate", "tune.learning_rate"),
        ("tunes.margin", "tune.margin"),
        ("data.margin", "tune.margin"),
        ("model.pooling", "encoder.pooling"),
        ("data.query", "data.columns.query"),
        ("data.columns.positives", "data.columns.positive"),
        ("sede", "run.seed"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_known_one(key: str, nearest: str) -> None:
    assert fault(TuneSettings, f"{key}=1") == f"unknown key {key}; did you mean {nearest}?"


def test_an_unknown_key_near_none_is_answered_with_what_there_is() -> None:
    assert fault(SearchSettings, "xyz=1") == "unknown key xyz; the tables are encoder, run"
    assert fault(SearchSettings, "run.xyz=1") == "unknown key run.xyz; the keys here are run.device"


def test_a_search_that_draws_nothing_at_random_takes_no_seed() -> None:
    assert fault(SearchSettings, "run.seed=1").startswith("unknown key run.seed")


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        "[tunes]\nmargin = 1\nbatch_size = 2\n[tune]\nmargin = -1\nloss = 'in_batch_softmax'\ntemperature = 0\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError) as caught:
        read_settings(TuneSettings, file, ["run.seed=x", "data.validation_split=dev"])
    told = str(caught.value)
    assert told.startswith(f"{tmp_path / 'settings.toml'} and --set: 7 faults: ")
    for phrase in (
        "tune.margin must be >= 0, got -1",
        "tune.temperature must be >= 1e-06, got 0",
        "run.seed must be a whole number, got 'x'",
        "unknown key tunes.margin; did you mean tune.margin?",
        "unknown key tunes.batch_size; did you mean tune.batch_size?",
        "tune.margin has no effect with tune.loss = 'in_batch_softmax'",
        "data.validation_split has no effect without data.validation",
    ):
        assert phrase in told


@pytest.mark.parametrize(
    ("kind", "assignments", "told"),
    [
        (TuneSettings, ["tune.loss=in_batch_softmax", "tune.margin=0.2"], "tune.margin has no effect with tune.loss = 'in_batch_softmax'"),
        (TuneSettings, ["tune.loss=in_batch_softmax", "tune.distance=euclidean"], "tune.distance must be cosine or dot with tune.loss"),
        (TuneSettings, ["tune.temperature=0.1"], "tune.temperature has no effect with tune.loss = 'triplet'"),
        (TuneSettings, ["tune.schedule.gamma=0.9"], "tune.schedule.gamma belongs to exponential; kind is constant"),
        (
            TuneSettings,
            ["tune.schedule=exponential", "tune.schedule.final_fraction=0.1"],
            "belongs to linear, quadratic, cosine; kind is exponential",
        ),
        (TuneSettings, ["tune.reference_batch_size=3"], "set tune.batch_scaling to linear or sqrt"),
        (TuneSettings, ["data.validation_split=dev"], "without data.validation; leave it out, or set data.validation too"),
        (TuneSettings, ["data.validation=x", "data.validation_fraction=0.3"], "leave it out, or leave out data.validation"),
        (TuneSettings, ["data.validation=x", "data.max_validation=3"], "data.max_validation has no effect with data.validation = 'x'"),
        (EvaluateSettings, ["measure.negatives=listed", "measure.depth=9"], "set measure.negatives to auto or store"),
        (EvaluateSettings, ["measure.negatives=listed", "measure.drop_same_id=false"], "measure.drop_same_id has no effect"),
    ],
)
def test_a_setting_that_another_makes_meaningless_is_refused(kind: type[Section], assignments: list[str], told: str) -> None:
    assert told in fault(kind, *assignments)


def test_a_meaningless_setting_at_its_default_disturbs_nobody() -> None:
    assert read_settings(TuneSettings, None, ["tune.loss=in_batch_softmax", "tune.margin=0.1"]).tune.loss == "in_batch_softmax"


@pytest.mark.parametrize("name", ["negatives", "difficulty"])
def test_what_a_setting_needs_may_be_without_effect_itself(name: str) -> None:
    given = {"negatives": "random", "difficulty": 3}[name]
    told = f"tune.{name} has no effect with tune.loss = 'store_softmax'; leave it out, or set tune.loss to triplet or in_batch_softmax"
    assert told in fault(TuneSettings, "tune.loss=store_softmax", f"tune.{name}={given}")


def test_meaningless_settings_are_refused_in_python_too() -> None:
    with pytest.raises(ValidationError, match="margin has no effect with loss = 'in_batch_softmax'"):
        TuneSection(loss="in_batch_softmax", margin=0.2)


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        *(
            (f"tune.learning_rate={value}", f'tune.learning_rate must be a number > 0, or "safe", got {shown}; the default is 5e-08')
            for value, shown in (("fast", "'fast'"), ("true", "true"), ("inf", "inf"), ("0", "0"), ("nan", "nan"))
        ),
        ("tune.margin=fast", "tune.margin must be a number, got 'fast'; the default is 0.1"),
        ("tune.margin=true", "tune.margin must be a number, got true; the default is 0.1"),
        ("tune.margin=inf", "tune.margin must be a finite number, got inf; the default is 0.1"),
        ("tune.margin=1e300", "tune.margin must be <= 1000000, got 1e+300; the default is 0.1"),
        ("tune.pull=1e39", "tune.pull must be <= 1000000, got 1e+39; the default is 0.0"),
        ("tune.temperature=1e-320", "tune.temperature must be >= 1e-06, got 1e-320"),
        ("run.seed=99999999999999999999", "run.seed must be <= 4294967295, got 99999999999999999999; the default is 0"),
        ("tune.temperature=0", "tune.temperature must be >= 1e-06, got 0; the default is 0.05"),
        ("guard.most=0", 'guard.most must be a number > 0, or "noise", got 0'),
        ("tune.batch_size=1.5", "tune.batch_size must be a whole number, got 1.5; the default is 14"),
        ("tune.batch_size=true", "tune.batch_size must be a whole number, got true; the default is 14"),
        ("tune.batch_size='14'", "tune.batch_size must be a whole number, got '14'; the default is 14"),
        ("tune.dropout=yes", "tune.dropout must be true or false, got 'yes'; the default is false"),
        ("tune.dropout=1", "tune.dropout must be true or false, got 1; the default is false"),
        ("tune.freeze=embeddings", "tune.freeze must be a list, got 'embeddings'; the default is ['embeddings']"),
        ("tune.freeze=[1]", "tune.freeze must be text (in quotes), got 1; the default is ['embeddings']"),
        ("tune.loss=hinge", "tune.loss must be 'triplet', 'in_batch_softmax' or 'store_softmax', got 'hinge'"),
        ("tune=3", "tune must be a table of settings, got 3"),
        ("tune.margin.x=3", "tune.margin must be a number, got {'x': 3}; the default is 0.1"),
        ("data.split=2024", "data.split must be text (in quotes), got 2024"),
        ("data.split=", "data.split must be text that is not empty, got ''"),
        ("data.validation_fraction=1", "data.validation_fraction must be < 1, got 1; the default is 0.1"),
        ('tune.schedule={kind="exponential", gamma=2}', "tune.schedule.gamma must be <= 1, got 2; the default is 0.98"),
        ("tune.method=lorra", "tune.method must be one of full, bias, lora, got 'lorra'; did you mean lora?"),
        ("tune.method=3", "tune.method must be a table of settings, got 3"),
        ("run.keep_checkpoints=1", "run.keep_checkpoints must be >= 2, got 1"),
        ("tune.warmup_steps=1000001", "tune.warmup_steps must be at most max_epochs x batches_per_epoch = 1000000, got 1000001"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(assignment: str, told: str) -> None:
    assert told in fault(TuneSettings, assignment)


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("measure.measures=[]", "measure.measures must be a list that is not empty, got []"),
        ('measure.measures=["RR", "RR"]', "measure.measures must be a list that names each measure once, got ['RR', 'RR']"),
        ("measure.resamples=99", "measure.resamples must be >= 100, got 99"),
    ],
)
def test_measures_are_some_and_each_once(assignment: str, told: str) -> None:
    assert fault(EvaluateSettings, assignment).startswith(told)


def told_about(kind: type[Section], key: str, value: object) -> str:
    table: Any = value
    for part in reversed(key.split(".")):
        table = {part: table}
    try:
        checked(kind, table)
    except ConfigError as caught:
        return str(caught)
    return ""


def test_every_kind_of_fault_that_the_types_can_have_has_its_words() -> None:
    odd: tuple[object, ...] = (None, True, -1, 1.5, float("nan"), "", "text", [], [[]], {}, {"a": 1}, 10**400)
    told = [told_about(kind, key, value) for kind, key in EVERY_KEY for value in odd]
    assert sum(map(bool, told)) > 500
    assert [one for one in told if "nput should" in one or "should have" in one or "\n" in one] == []


@pytest.mark.parametrize("assignment", ["tune.margin", "=3", "tune..margin=3", ".margin=3", ""])
def test_what_is_no_assignment_is_refused(assignment: str) -> None:
    assert fault(TuneSettings, assignment).startswith(f"--set must be key=value, got {assignment!r}; write it like")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: None, ".*x.toml must be a TOML file of settings, got no such file; check the path"),
        (lambda path: path.mkdir(), ".*x.toml must be a readable TOML file of settings, got: Is a directory"),
        (lambda path: path.write_bytes(b"\xff\xfa"), ".*x.toml must be a readable TOML file of settings, got: .*utf-8"),
        (lambda path: path.write_text("[tune]\nmargin = \n"), r"x.toml must be TOML: .*\(at line 2, column 10\)"),
    ],
    ids=["missing", "folder", "bytes", "not TOML"],
)
def test_a_file_that_cannot_be_read_is_named(spoil: Callable[[Path], object], told: str, tmp_path: Path) -> None:
    spoil(tmp_path / "x.toml")
    with pytest.raises(ConfigError, match=told):
        read_settings(TuneSettings, tmp_path / "x.toml")


def test_settings_do_not_change_after_they_were_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TuneSettings().tune.margin = 3.0


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("data.split=dev", 'split must be left out for .*, which has no splits, got "dev"'),
        ("data.blank=drop", 'blank must be "error" for .*, which holds examples, got "drop"'),
    ],
)
def test_embed_hands_its_data_settings_to_the_reader(assignment: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"query": "q", "pos": ["p"]}\n')
    with pytest.raises(ConfigError, match=told):
        adiabat.embed("demo", tmp_path / "c.jsonl", tmp_path / "out", settings=read_settings(EmbedSettings, None, [assignment]))


def test_what_was_resolved_reads_back_as_itself() -> None:
    settings = read_settings(TuneSettings, None, ['tune.freeze=["embeddings", "blocks[0]"]', "data.split=train", "encoder.query_prompt=''"])
    assert checked(TuneSettings, settings.model_dump(mode="json", exclude_none=True)) == settings


def test_a_long_value_is_shown_in_short() -> None:
    assert shown("x" * 1000) == f"'{'x' * 76}..."
    assert (shown(True), shown((1, "a")), shown(2e-5)) == ("true", "[1, 'a']", "2e-05")


def test_settings_need_no_torch() -> None:
    code = "import sys, adiabat.config; print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_model_that_was_trained_from_settings_has_them_but_for_what_code_may_run() -> None:
    assert EncoderSection(pooling="cls", blocks=2).of_saved("job") == EncoderSection()
    trusted = EncoderSection(pooling="cls", trust_remote_code="owner/name").of_saved("job")
    assert trusted == EncoderSection(trust_remote_code="job")
