"""Settings of adiabat 0.1 become those of today, in files of users with their comments."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import adiabat
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked, read_settings
from adiabat.config.shared import EvaluateSettings
from adiabat.config.tuning import RateSearchSection, TuneSettings
from adiabat.core.errors import ConfigError
from adiabat.upgrading.settings import present_settings, with_comments

FORMER = """# My run.
[tune]   # how
loss = "in_batch_softmax"   # as in the paper
temperature = 0.02
margin = 0.3
method = "lora"
rank = 8
negatives_per_query = 2
pull = 0.1

[guard]
use = true
most = 0.1  # of overlap

[rehearsal]
use = false
weight = 3.0
"""
PRESENT = """# My run.
[tune]   # how
loss.kind = "in_batch_softmax"   # as in the paper
loss.temperature = 0.02
# left out by adiabat upgrade: margin = 0.3
method.kind = "lora"
method.rank = 8
negatives.per_query = 2
l2_to_start = 0.1

[guard]
# left out by adiabat upgrade: use = true
limit = 0.1  # of overlap

# left out by adiabat upgrade: [rehearsal]
# left out by adiabat upgrade: use = false
# left out by adiabat upgrade: weight = 3.0
"""


def test_a_settings_file_is_converted_in_place_with_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(FORMER, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"unknown key guard\.most.* adiabat\.upgrade\(.*run\.toml"):
        read_settings(TuneSettings, path)
    done = adiabat.upgrade(path)
    assert "tune.pull is now tune.l2_to_start" in done.converted[path]
    assert path.read_text(encoding="utf-8") == PRESENT
    assert path.with_name("run.toml.before-upgrade").read_text(encoding="utf-8") == FORMER
    settings = read_settings(TuneSettings, path)
    tune = settings.tune
    assert (tune.loss.kind, tune.l2_to_start, tune.negatives.per_query) == ("in_batch_softmax", 0.1, 2)
    assert settings.guard is not None
    assert settings.guard.limit == 0.1
    assert settings.rehearsal is None
    assert adiabat.upgrade(path).converted == {}


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("1 %", {"margin": 0.01}),
        ("2.5%", {"margin": 0.025}),
        ("0.02", {"margin": 0.02}),
        ("0.01 nDCG", {"margin_absolute": 0.01}),
        ("1e-3 RR@10", {"margin_absolute": 0.001}),
        (0.03, {"margin": 0.03}),
    ],
)
def test_a_margin_that_was_a_text_becomes_a_share_or_a_difference(former: object, present: dict) -> None:
    assert present_settings({"measure": {"margin": former}}).tables == {"measure": present}


def test_a_file_with_a_margin_is_converted_in_place(tmp_path: Path) -> None:
    path = tmp_path / "evaluate.toml"
    path.write_text('# Mine.\n[measure]\nmargin = "0.01 nDCG"  # strict\nresamples = 200\n', encoding="utf-8")
    adiabat.upgrade(path)
    read = read_settings(EvaluateSettings, path).measure
    assert (read.margin, read.margin_absolute, read.resamples) == (0.01, 0.01, 200)
    written = path.read_text(encoding="utf-8")
    assert written.startswith("# Mine.\n")
    assert 'margin_absolute = 0.01  # was margin = "0.01 nDCG"  # strict' in written
    share = tmp_path / "share.toml"
    share.write_text('[measure]\nmargin = "2 %"\n', encoding="utf-8")
    adiabat.upgrade(share)
    assert read_settings(EvaluateSettings, share).measure.margin == 0.02


FORMER_SAMTONE = {"loss": "samtone", "same_tower": "both", "negatives_seen_by": "own"}
SAMTONE = {"kind": "samtone", "same_tower": "both", "negatives_shared": False}


def tempered(**temperature: Any) -> dict[str, Any]:
    """Tables of a loss with this temperature."""
    return {"train": {"loss": {"temperature": temperature}}}


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (
            {"tune": {"loss": "triplet", "margin": 0.2}},
            {"tune": {"loss": {"kind": "triplet", "margin": 0.2}}},
        ),
        # Without a loss, the margin was that of the default one.
        (
            {"tune": {"margin": 0.2, "recipe": "paper"}},
            {"tune": {"loss": {"margin": 0.2}, "recipe": "paper"}},
        ),
        # What is the recipe `paper` today was the default.
        ({"tune": {"pull": 0.2}}, {"tune": {"l2_to_start": 0.2, "recipe": "paper"}}),
        (
            {"train": {**FORMER_SAMTONE, "temperature": 0.1}},
            {"train": {"loss": {**SAMTONE, "temperature": {"value": 0.1}}}},
        ),
        (
            {
                "train": {
                    **{"temperature": 0.1, "temperature_schedule": "scheduled"},
                    **{"first_temperature": 0.5, "temperature_steps": 9},
                }
            },
            tempered(value=0.1, kind="scheduled", first=0.5, steps=9),
        ),
        (
            {"train": {"guide": "self", "guide_margin": 0.1}},
            {"train": {"loss": {"guide": {"model": "self", "margin": 0.1}}}},
        ),
        ({"data": {"stream": True, "window": 9}}, {"data": {"stream": {"shard_size": 9}}}),
        ({"data": {"stream": False, "window": 9}}, {"data": {}}),
        (
            {"batches": {"group": "topic", "random_share": 0.2}},
            {"batches": {"group": {"kind": "topic", "random_share": 0.2}}},
        ),
        ({"mixture": {"rule": "equal", "temperature": 2.0}}, {"mixture": {"rule": {"kind": "equal"}}}),
        (
            {"static": {"dims": 64, "weighting": "zipf", "sif": 1e-3, "corpus": "c.jsonl"}},
            {"static": {"reduction": {"dims": 64}, "weighting": {"kind": "zipf", "corpus": "c.jsonl"}}},
        ),
        ({"probes": {"use": False, "depth": 5}}, {"probes": False}),
        ({"guard": {"use": True}}, {"guard": {}}),
        ({"ladder": {"looks": 3, "low": 1e-8}}, {"rate_search": {"checks": 3, "low": 1e-8}}),
        ({"sweep": {"budgets": [1e9], "seeds": [0]}}, {"scaling": {"budgets": [1e9], "seeds": [0]}}),
        ({"study": {"seeds": [0]}}, {"sweep": {"seeds": [0]}}),
        # Of 0.2 before its release.
        ({"tune": {"learning_rate": "range"}}, {"tune": {}, "rate_search": {"kind": "range"}}),
        (
            {"tune": {"recipe": "paper", "learning_rate": 1e-3}, "rate_search": {"low": 1e-8}},
            {"tune": {"recipe": "paper", "learning_rate": 1e-3}},
        ),
        (tempered(kind="learned", first=0.1), tempered(kind="learned", value=0.1)),
        (
            {"common": tempered(kind="scheduled", first=0.5, last=0.1)},
            {"common": tempered(kind="scheduled", first=0.5, value=0.1)},
        ),
        ({"tasks": [{"kind": "sts", "measures": ["RR"]}]}, {"tasks": [{"kind": "sts", "report": ["RR"]}]}),
        (
            {"grid": {"tune": {"margin": [0.1, 0.2], "pull": [0.0]}}},
            {"grid": {"tune": {"loss": {"margin": [0.1, 0.2]}, "l2_to_start": [0.0]}}},
        ),
        (
            {"variants": [{"name": "a", "guard": {"most": 0.1}}]},
            {"variants": [{"name": "a", "guard": {"limit": 0.1}}]},
        ),
    ],
)
def test_each_former_setting_has_its_present_place(former: dict[str, Any], present: dict[str, Any]) -> None:
    converted = present_settings(former)
    assert converted.tables == present
    # What is of today stays.
    again = present_settings(converted.tables)
    assert (again.tables, again.moved) == (present, {})


def test_a_word_for_a_rate_becomes_a_search_beside_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    mine = "# Mine.\n[rate_search]  # short\n"
    path.write_text(f'{mine}count = 3\n[tune]\nlearning_rate = "range"  # of three\n')
    adiabat.upgrade(path)
    moved = '# now rate_search.kind: learning_rate = "range"  # of three\n'
    assert path.read_text() == f'{mine}kind = "range"\ncount = 3\n[tune]\n{moved}'
    search = read_settings(TuneSettings, path).rate_search
    assert search is not None
    assert (search.kind, search.count) == ("range", 3)
    path.write_text('[tune]\nlearning_rate = "safe"\n')
    adiabat.upgrade(path)
    assert read_settings(TuneSettings, path).rate_search == RateSearchSection(kind="safe")


def test_a_table_that_an_empty_one_would_switch_on_stays_on_or_off(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[data]\nstream = true\n[train]\nsteps = 3\npair_weight = 0.1\n")
    adiabat.upgrade(path)
    assert tomllib.loads(path.read_text())["data"] == {"stream": {}}


def test_a_whole_file_of_training_is_read_today() -> None:
    text = """
[job]
model = "m"
data = "d.jsonl"
[train]
loss = "pair"
pair_weight = 0.2      # of the second term
negatives_seen_by = "own"
schedule = "exponential"
gamma = 0.9
final_fraction = 0.1   # had no effect
"""
    conversion = present_settings(tomllib.loads(text))
    written = with_comments(text, conversion)
    assert written is not None
    assert "loss.weight = 0.2      # of the second term" in written
    settings = checked(TrainSettings, tomllib.loads(written))
    loss, schedule = settings.train.loss, settings.train.schedule
    assert (loss.kind, loss.negatives_shared, schedule.kind) == ("pair", False, "exponential")


def test_a_file_that_cannot_be_changed_line_by_line_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("guard = { use = true, most = 0.1 } # a comment\ntune = { pull = 0.2 }\n")
    assert "comments are lost" in adiabat.upgrade(path, dry_run=True).converted[path]
    adiabat.upgrade(path)
    settings = read_settings(TuneSettings, path)
    assert settings.tune.l2_to_start == 0.2


@pytest.mark.parametrize(
    ("table", "name"), [({"compare": {"seeds": [0]}}, "compare"), ({"study": {"lanes": 4}}, r"study\.lanes")]
)
def test_settings_without_a_counterpart_are_named(table: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be left out, got a setting of adiabat 0\.1"):
        present_settings(table)


def test_a_file_of_today_stays(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[tune]\nlearning_rate = 1e-5\nloss = "triplet"\n', encoding="utf-8")
    assert adiabat.upgrade([path]).summary().startswith("nothing to upgrade")
    assert path.read_text(encoding="utf-8").startswith("[tune]")
