"""Settings: every key can be reached, every fault is told at once and in plain words, nothing is ignored on
the quiet.
"""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

import adiabat
from adiabat.cli.options import short_for
from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.config.dual_training import TrainSettings
from adiabat.config.faults import shown
from adiabat.config.reader import checked, read_settings
from adiabat.config.section import Choice, ScheduleName, Section, by_kind, overlaid, sections_in
from adiabat.config.settings_template import template
from adiabat.config.shared import EmbedSettings, EncoderSection, EvaluateSettings, SearchSettings
from adiabat.config.training_choices import (
    ENDING,
    GuideSection,
    InBatchSoftmax,
    Method,
    SamToNe,
    Schedule,
    Temperature,
    TripletTuning,
    TuneLoss,
)
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError


def fault(kind: type[Section], *assignments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_settings(kind, None, assignments)
    return str(caught.value)


def test_set_wins_over_the_file_and_the_last_set_over_the_first(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[tune]\nbatch_size = 3\nloss = {margin = 0.2}\n", encoding="utf-8")
    settings = read_settings(TuneSettings, file, ["tune.loss.margin=0.3", "tune.loss.margin = 0.4"])
    assert (settings.tune.loss.margin, settings.tune.batch_size) == (0.4, 3)


def test_the_defaults_are_the_sources() -> None:
    tune = TuneSettings().tune
    assert (tune.learning_rate, tune.batch_size, tune.loss) == (5e-8, 14, TripletTuning(margin=0.1))
    assert (tune.optimizer, tune.batches_per_epoch, tune.idle_epochs, tune.freeze) == (
        "adamw",
        1000,
        10,
        ("embeddings",),
    )
    assert not tune.dropout


@pytest.mark.parametrize(
    ("below", "above", "result"),
    [
        (
            {"loss": "samtone"},
            {"loss": {"same_tower": "both"}},
            {"loss": {"kind": "samtone", "same_tower": "both"}},
        ),
        (
            {"loss": {"margin": 0.1}},
            {"loss": {"kind": "in_batch_softmax"}},
            {"loss": {"kind": "in_batch_softmax", "margin": 0.1}},
        ),
        (
            {"loss": {"kind": "pair", "weight": 0.3}},
            {"loss": "pair"},
            {"loss": {"kind": "pair", "weight": 0.3}},
        ),
        ({"loss": {"kind": "pair", "weight": 0.3}}, {"loss": "triplet"}, {"loss": {"kind": "triplet"}}),
        ({"loss": {"margin": 0.1}}, {"loss": {"kind": "triplet"}}, {"loss": {"kind": "triplet"}}),
        (
            {"loss": {"temperature": "learned"}},
            {"loss": {"temperature": 0.1}},
            {"loss": {"kind": "in_batch_softmax", "temperature": 0.1}},
        ),
        ({"freeze": ["a"], "steps": 3}, {"freeze": ["b"]}, {"freeze": ["b"], "steps": 3}),
    ],
)
def test_an_overlay_of_another_kind_replaces_a_table_and_others_merge(
    below: Any, above: Any, result: Any
) -> None:
    laid = overlaid(TrainSettings, {"train": below}, {"train": above})
    assert checked(TrainSettings, laid) == checked(TrainSettings, {"train": result})


@pytest.mark.parametrize("loss", [5, True, ["triplet"]])
def test_a_wrong_value_below_a_key_of_its_table_is_refused(loss: Any, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(tomli_w.dumps({"train": {"loss": loss}}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"train\.loss must be a table of settings, got "):
        read_settings(TrainSettings, tmp_path / "x.toml", ["train.loss.margin=0.3"])


@pytest.mark.parametrize("text", ["\N{GRINNING FACE} out", 'a"b\\c\n', "Zürich", "\x7f"])
def test_an_option_passes_any_text_to_its_setting(text: str) -> None:
    assert read_settings(TrainSettings, None, short_for({"job.out": text})).job.out == text


@pytest.mark.parametrize(
    "assignments",
    [["train.loss.margin=0.3", "train.loss=samtone"], ["train.loss=samtone", "train.loss.margin=0.3"]],
)
def test_a_kind_is_laid_before_its_keys_whatever_their_order(assignments: list[str]) -> None:
    assert read_settings(TrainSettings, None, assignments).train.loss == SamToNe(margin=0.3)


@pytest.mark.parametrize("loss", ["in_batch_softmax", "samtone", "pair"])
@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        ({}, Temperature(value=1 / 40)),
        ({"temperature": "fixed"}, Temperature(value=1 / 40)),
        ({"temperature": 0.3}, Temperature(value=0.3)),
        ({"temperature": "scheduled"}, Temperature(kind="scheduled", value=1 / 40)),
        ({"temperature": "learned"}, Temperature(kind="learned", value=1 / 40)),
    ],
)
def test_scaling_experiments_have_the_papers_temperature_under_every_loss(
    loss: str, temperature: Any, expected: Choice
) -> None:
    for table in ({"kind": loss, **temperature}, *([] if temperature else [loss])):
        train = checked(ScalingSettings, {"train": {"loss": table}}).common()["train"]
        assert checked(TrainSettings, {"train": train}).train.loss.temperature == expected


@pytest.mark.parametrize("schedule", ENDING)
def test_scaling_experiments_end_at_a_tenth_of_the_peak_under_every_schedule(schedule: ScheduleName) -> None:
    train = checked(ScalingSettings, {"train": {"schedule": schedule}}).common()["train"]
    expected = Schedule(kind=schedule, final_fraction=0.1)
    assert checked(TrainSettings, {"train": train}).train.schedule == expected
    stated = checked(
        ScalingSettings, {"train": {"schedule": {"kind": schedule, "final_fraction": 0.0}}}
    ).common()["train"]
    assert checked(TrainSettings, {"train": stated}).train.schedule.final_fraction == 0.0


def test_the_described_settings_of_scaling_state_the_papers_values_for_every_kind() -> None:
    described = template(ScalingSettings)
    assert "value = 0.025" in described
    assert "= 0.05" not in described
    assert "final_fraction = 0.1" in described


def test_the_kind_of_a_default_keeps_what_the_default_sets() -> None:
    assert checked(
        ScalingSettings, {"train": {"loss": {"margin": 0.1}}}
    ).train.loss.temperature == Temperature(value=1 / 40)
    assert (
        checked(ScalingSettings, {"train": {"schedule": {"final_fraction": 0.3}}}).train.schedule.kind
        == "cosine"
    )


def test_a_kind_that_is_no_word_is_refused() -> None:
    table = overlaid(
        TrainSettings, {"train": {"loss": {"kind": ["a"]}}}, {"train": {"loss": {"margin": 0.3}}}
    )
    with pytest.raises(ConfigError, match=r"train\.loss\.kind must be"):
        checked(TrainSettings, table)


def test_short_forms_stand_for_tables() -> None:
    train = read_settings(
        TrainSettings, None, ["train.loss.temperature=0.1", "train.loss.guide=self", "train.method=lora"]
    ).train
    assert train.loss == InBatchSoftmax(temperature=Temperature(value=0.1), guide=GuideSection(model="self"))
    assert train.method == Method(kind="lora")
    assert (
        read_settings(TrainSettings, None, ["train.loss.guide=self", "train.loss.guide=false"])
        == TrainSettings()
    )


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
        ("learning_rate", "tune.learning_rate"),
        ("tunes.margin", "tune.loss.margin"),
        ("model.pooling", "encoder.pooling"),
        ("data.query", "data.columns.query"),
        ("sede", "run.seed"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_known_one(key: str, nearest: str) -> None:
    assert fault(TuneSettings, f"{key}=1") == f"unknown key {key}; did you mean {nearest}?"


def test_an_unknown_key_near_none_is_answered_with_what_there_is() -> None:
    assert fault(SearchSettings, "xyz=1") == "unknown key xyz; the tables are encoder, fuse, run"
    assert (
        fault(SearchSettings, "run.xyz=1") == "unknown key run.xyz; the keys here are run.device, run.backend"
    )


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(
        "[tunes]\nmargin = 1\nbatch_size = 2\n[tune.loss]\nmargin = -1\nkind "
        "= 'in_batch_softmax'\ntemperature = 0\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        read_settings(TuneSettings, file, ["run.seed=x", "data.validation_split=dev"])
    told = str(caught.value)
    assert told.startswith(f"{tmp_path / 'settings.toml'} and set: 6 faults: ")
    for phrase in (
        "tune.loss.temperature must be >= 1e-06, got 0",
        "run.seed must be a whole number, got 'x'",
        "unknown key tunes.margin; did you mean tune.loss.margin?",
        "unknown key tunes.batch_size; did you mean tune.batch_size?",
        "tune.loss.margin belongs to triplet; kind is in_batch_softmax",
        "data.validation_split has no effect without data.validation",
    ):
        assert phrase in told


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        (
            "tune.learning_rate=safe",
            'must be a number > 0, or left out where rate_search = "safe" or "range" finds one, got \'safe\'',
        ),
        ("tune.learning_rate=true", "must be a number, got true; the default is 5e-08"),
        ("tune.learning_rate=inf", "must be a finite number, got inf; the default is 5e-08"),
        ("tune.learning_rate=0", "must be > 0, got 0; the default is 5e-08"),
        ("tune.learning_rate=nan", "must be a finite number, got nan; the default is 5e-08"),
        ("tune.loss.margin=fast", "must be a number, got 'fast'; the default is 0.1"),
        ("tune.loss.margin=inf", "must be a finite number, got inf; the default is 0.1"),
        ("tune.loss.margin=1e300", "must be <= 1000000, got 1e+300; the default is 0.1"),
        (
            "run.seed=99999999999999999999",
            "must be <= 4294967295, got 99999999999999999999; the default is 0",
        ),
        ("guard.limit=0", 'must be a number > 0, or "noise", got 0'),
        ("tune.batch_size=1.5", "must be a whole number, got 1.5; the default is 14"),
        ("tune.dropout=yes", "must be true or false, got 'yes'; the default is false"),
        ("tune.freeze=embeddings", "must be a list, got 'embeddings'; the default is ['embeddings']"),
        ("tune.loss=hinge", f"must be one of {', '.join(by_kind(sections_in(TuneLoss)))}, got 'hinge'"),
        ("data.split=", "must be text that is not empty, got ''"),
        ("data.validation_fraction=1", "must be < 1, got 1; the default is 0.1"),
        ("tune.method=3", "must be a table of settings, got 3"),
        (
            "tune.warmup_steps=1000001",
            "must be at most max_epochs x batches_per_epoch = 1000000, got 1000001",
        ),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(assignment: str, told: str) -> None:
    assert f"{assignment.partition('=')[0]} {told}" in fault(TuneSettings, assignment)


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        (
            "tune.loss={margin=0.1, temperature=0.1}",
            "tune.loss.temperature belongs to in_batch_softmax, store_softmax, listwise; kind is triplet",
        ),
        (
            "tune.loss={kind='store_softmax', distance='euclidean'}",
            "tune.loss.distance must be 'cosine' or 'dot', got 'euclidean'",
        ),
    ],
)
def test_a_key_of_another_kind_and_a_value_of_another_loss_are_told(assignment: str, told: str) -> None:
    assert told in fault(TuneSettings, assignment)


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("measure.report=[]", "must be a list that is not empty, got []"),
        ('measure.report=["RR", "RR"]', "must be a list that names each measure once, got ['RR', 'RR']"),
        ("measure.resamples=99", "must be >= 100, got 99"),
        ("measure.margin=0", "must be > 0, got 0"),
        ("measure.margin=1", "must be < 1, got 1"),
        ("measure.margin=nan", "must be a finite number, got nan"),
        ("measure.margin=[1]", "must be a number, got [1]"),
        ("measure.margin=true", "must be a number, got true"),
        ("measure.margin=1 %", "must be a share of the baseline such as 0.01; "),
        ("measure.margin=0.01 nDCG", "must be a share of the baseline such as 0.01; "),
        ("measure.margin_absolute=0", "must be > 0, got 0"),
        ("measure.margin_absolute=0.01 nDCG", "must be a number, got '0.01 nDCG'"),
    ],
)
def test_measures_are_some_and_each_once(assignment: str, told: str) -> None:
    said = fault(EvaluateSettings, assignment)
    assert said.startswith(f"{assignment.partition('=')[0]} {told}")
    assert "\n" not in said
    assert said.count("must be") == 1


@pytest.mark.parametrize("assignment", ["tune.loss.margin", "=3", "tune..loss=3", ".margin=3", ""])
def test_what_is_no_assignment_is_refused(assignment: str) -> None:
    assert fault(TuneSettings, assignment).startswith(
        f"set must be key=value, got {assignment!r}; write it like"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "x.toml must be a TOML file of settings, got no such file"),
        (b"\xff\xfa", "x.toml must be a readable TOML file of settings, got: .*utf-8"),
        ("[tune]".encode("utf-16"), "x.toml must be UTF-8, got UTF-16"),
        (b"\xfe\xff" + "[tune]".encode("utf-16-be"), "x.toml must be UTF-8, got UTF-16"),
        (b"[tune]\nmargin = \n", r"x.toml must be TOML: .*\(at line 2, column 10\)"),
    ],
    ids=["missing", "bytes", "UTF-16", "UTF-16 of the other order", "not TOML"],
)
def test_a_file_that_cannot_be_read_is_named(content: bytes | None, told: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        read_settings(TuneSettings, tmp_path / "x.toml")
    with pytest.raises(ConfigError, match="must be a readable TOML file of settings, got: Is a directory"):
        read_settings(TuneSettings, tmp_path)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (r'data = "C:\data\pairs.jsonl"', "line 2, column 13"),
        (r'data = "C:\users\pairs.jsonl"', "line 2"),
        (r'data = """\.x"""', "line 2"),
    ],
)
def test_a_backslash_in_double_quotes_is_told_with_the_remedy(line: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(f"[job]\n{line}\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=rf"run.toml must be TOML: .*{place}.*single quotes, or double each backslash"
    ):
        read_settings(TrainSettings, tmp_path / "run.toml")
    with pytest.raises(ConfigError, match=r"set must be a value in TOML, got \"C:.users\": .*single quotes"):
        read_settings(TrainSettings, None, [r'job.data="C:\users"'])


def test_an_escape_that_toml_knows_is_not_taken_for_a_path(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        '[job]\ndata = "C:\\new\\table.jsonl"\n[data]\ncache = "a\\u0000b"\n', encoding="utf-8"
    )
    with pytest.raises(ConfigError) as caught:
        read_settings(TrainSettings, tmp_path / "run.toml")
    assert "2 faults" in str(caught.value)
    assert "job.data must be text without control characters" in str(caught.value)
    assert "data.cache must be text without control characters" in str(caught.value)
    # Prompts may have line ends, and paths of Windows in single quotes are whole.
    (tmp_path / "run.toml").write_text(
        "[job]\ndata = 'C:\\new'\n[encoder]\nquery_prompt = \"a\\n\"\n", encoding="utf-8"
    )
    settings = read_settings(TrainSettings, tmp_path / "run.toml")
    assert (settings.job.data, settings.encoder.query_prompt) == (r"C:\new", "a\n")


DEEP = {
    "lists": f"x = {'[' * 3000}{']' * 3000}",
    "tables": f"x = {'{a = ' * 3000}1{'}' * 3000}",
    "keys": f"{'.'.join('a' * 3000)} = 1",
    "headers": f"[{'.'.join('a' * 3000)}]",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_settings_nested_3000_deep_are_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="deep.toml: settings must nest .* got hundreds"):
        read_settings(TuneSettings, tmp_path / "deep.toml")
    if " = " in text:
        key, _, value = text.partition(" = ")
        with pytest.raises(ConfigError, match="settings must nest at most a few tables"):
            read_settings(TuneSettings, None, [f"{key}={value}"])


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
        adiabat.embed(
            "demo",
            tmp_path / "c.jsonl",
            tmp_path / "out",
            settings=read_settings(EmbedSettings, None, [assignment]),
        )


def test_a_long_value_is_shown_in_short() -> None:
    assert shown("x" * 1000) == f"'{'x' * 76}..."
    assert (shown(True), shown((1, "a")), shown(2e-5)) == ("true", "[1, 'a']", "2e-05")


def test_a_model_that_was_trained_from_settings_has_them_but_for_what_code_may_run() -> None:
    assert EncoderSection(pooling="cls", blocks=2).of_saved("job") == EncoderSection()
    trusted = EncoderSection(pooling="cls", trust_remote_code="owner/name").of_saved("job")
    assert trusted == EncoderSection(trust_remote_code="job")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("8h", 28_800),
        ("90min", 5_400),
        ("7d", 604_800),
        ("1.5 h", 5_400),
        ("0.5s", 0.5),
        ("41", 41),
        ("2.5", 2.5),
    ],
)
def test_a_time_may_have_a_unit(given: str, seconds: float) -> None:
    assert (
        read_settings(TrainSettings, None, [f"train.budget_seconds={given}"]).train.budget_seconds == seconds
    )
    assert (
        read_settings(
            PlanSettings, None, [f"plan.budget_seconds={given}", "plan.runs=scaling"]
        ).plan.budget_seconds
        == seconds
    )


NO_TIME = ["soon", "8 hours", "1h30min", "-8h", f"{'9' * 310}h"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        *((text, "a number of seconds, or text with a unit") for text in NO_TIME),
        *((text, "> 0, got") for text in ("0", "0h", "-3")),
    ],
)
def test_what_is_no_time_is_refused(given: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^train.budget_seconds must be {told}"):
        read_settings(TrainSettings, None, [f"train.budget_seconds={given}"])
