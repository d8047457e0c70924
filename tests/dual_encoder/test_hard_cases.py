"""What a harsh reader tried: weights that are no numbers, projections trained alone, settings without effect, launchers."""

from pathlib import Path
from typing import Any

import pytest
import torch

from adiabat.cli.options import rank as rank_of_process
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.shared import EncoderSection
from adiabat.core.errors import ConfigError, JobError, ModelError
from adiabat.dual_encoder.tower_setup import build
from adiabat.models.towers import DualEncoder
from adiabat.training.distributed import Processes
from adiabat.training.limits import Limits
from tests.dual_encoder.problem import from_memory, job_settings, model, run, settings_of, write_problem
from tests.tiny import tiny_dual
from tests.training.toy import Scripted, scripted_loop


def test_a_weight_that_is_no_number_is_refused_before_anything_is_trained() -> None:
    def damaged(name: str, section: EncoderSection) -> DualEncoder:
        towers = model()
        with torch.no_grad():
            towers.query.backbone.get_input_embeddings().weight[7, 3] = torch.nan
        return towers

    with pytest.raises(ModelError, match=r"every weight must be a finite number, got others in embeddings\.word_embeddings\.weight"):
        build(settings_of(job={"model": "tiny"}), damaged)


def test_a_projection_may_be_trained_alone() -> None:
    settings = settings_of(job={"model": "tiny"}, towers={"projection_width": 6}, train={"freeze": ["embeddings", "blocks[:]", "."]})
    tower = build(settings, from_memory).towers.query
    assert [name for name, weights in tower.named_parameters() if weights.requires_grad] == ["projections.0.linear.weight"]


def test_biases_that_were_added_count_from_zero() -> None:
    settings = settings_of(job={"model": "llama"}, train={"method": "bias"})
    built = build(settings, lambda name, section: tiny_dual(kind="llama"))
    added = {name for name in built.before if name.endswith("bias")}
    trained = {name for name, weights in built.towers.query.backbone.named_parameters() if weights.requires_grad}
    assert added == trained
    assert not any(built.before[name].any() for name in added)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"train": {"loss": "triplet"}, "memory": {"loss_tile": 8}}, "memory.loss_tile has no effect with train.loss = triplet"),
        ({"train": {"loss": {"negatives_shared": False, "negatives_per_query": 0}}}, "train.loss.negatives_shared has no effect"),
        (
            {"train": {"loss": {"guide": {"model": "self", "relative": True}}}},
            "train.loss.guide.relative has no effect without a margin",
        ),
        ({"run": {"compile": True}}, "memory.length_buckets must be given where run.compile is true"),
        ({"run": {"compile": True}, "memory": {"checkpointing": True, "length_buckets": [64]}}, "memory.checkpointing must be false"),
        ({"memory": {"length_buckets": [64, 64]}}, r"memory.length_buckets must ascend, got \[64, 64\]"),
    ],
)
def test_settings_without_effect_are_refused(tables: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        checked(TrainSettings, tables)


def test_how_a_batch_passes_may_change_when_a_job_goes_on(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    settings = {"train": {"steps": 2, "schedule": "constant", "warmup_fraction": 0.0}}
    run(job_settings(problem, tmp_path / "job", **settings))
    longer = {"train": {**settings["train"], "steps": 3}, "memory": {"cached": True, "chunk_tokens": 16, "loss_tile": 2}}
    assert run(job_settings(problem, tmp_path / "job", **longer), resume=True).training.steps == 3


@pytest.mark.parametrize(("ranked", "rank"), [({}, 0), ({"RANK": "0"}, 0), ({"RANK": "3"}, 3), ({"RANK": "x"}, 0)])
def test_the_rank_is_what_the_launcher_says(monkeypatch: pytest.MonkeyPatch, ranked: dict[str, str], rank: int) -> None:
    monkeypatch.delenv("RANK", raising=False)
    for name, value in ranked.items():
        monkeypatch.setenv(name, value)
    assert rank_of_process() == rank


class Apart(Processes):
    """Two processes of which the other one stands at another step."""

    def gather_numbers(self, numbers: torch.Tensor) -> torch.Tensor:
        return torch.cat([numbers, numbers + 6])


def test_processes_at_different_steps_are_refused(tmp_path: Path) -> None:
    loop = scripted_loop(tmp_path, Scripted([(1.0, 5)]), limits=Limits(2, None, None, max_steps=2, keep="last"))
    loop.processes = Apart()
    with pytest.raises(JobError, match=r"every process must begin at one step, got \[0, 6\]; put the job on a disk that all of them share"):
        loop.run()


def test_another_number_of_processes_is_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    for count in (2, 1):
        loop = scripted_loop(tmp_path, Scripted([(1.0, 5)]), limits=Limits(2, None, None, max_steps=2, keep="last"))
        loop.note = notes.append
        loop._surroundings = lambda count=count: f"CPU, {count} processes"  # type: ignore[method-assign]
        loop.run(resume=True)
    assert len(notes) == 1
    assert notes[0].startswith("the run so far was on CPU, 2 processes, it goes on with CPU, 1 processes:")
