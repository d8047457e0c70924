"""The scripts that measure a GPU: models that travel in 8 bits, rows and their table, and the table in
RESULTS.md.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks import gpu_rows
from scripts import pack_model

ROOT = Path(__file__).resolve().parents[1]


def test_a_packed_model_comes_back_row_by_row_within_half_a_step(tmp_path: Path) -> None:
    model, folder = tmp_path / "model", tmp_path / "back"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "1_Pooling" / "config.json").write_text("{}")
    (model / "README.md").write_text("left out")
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(5, 7, generator=generator) * torch.logspace(-3, 3, 5)[:, None]
    matrix[2] = 0
    weights = {"matrix": matrix, "vector": torch.randn(7, generator=generator), "ids": torch.arange(4)}
    save_file(weights, model / "model.safetensors")
    pack_model.pack(model, tmp_path / "model.npz")
    pack_model.unpack(tmp_path / "model.npz", folder)
    back = load_file(folder / "model.safetensors")
    assert torch.equal(back["vector"], weights["vector"])
    assert torch.equal(back["ids"], weights["ids"])
    assert ((back["matrix"] - matrix).abs() <= 0.501 * matrix.abs().amax(dim=1, keepdim=True) / 127).all()
    assert (folder / "1_Pooling" / "config.json").read_text() == "{}"
    assert not (folder / "README.md").exists()


def test_a_model_too_large_to_travel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"matrix": torch.ones(3, 3)}, tmp_path / "model.safetensors")
    monkeypatch.setattr(pack_model, "LARGEST", 100)
    with pytest.raises(SystemExit, match="at most"):
        pack_model.pack(tmp_path, tmp_path / "model.npz")


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of rows of a run, as on a machine with a GPU."""
    monkeypatch.setenv("GPU_ROWS", str(tmp_path / "rows.jsonl"))
    monkeypatch.setattr(gpu_rows, "SMALL", False)
    return tmp_path / "rows.jsonl"


def test_rows_are_kept_as_they_come_and_stand_beside_their_targets(rows: Path) -> None:
    gpu_rows.append("tune fp32", 260.0, "first")
    gpu_rows.append("tune fp32", 249.0, "249")
    gpu_rows.append("process embed", 8.5, "8.5")
    gpu_rows.append_failure("encode minilm, unpadded peer", "no flash-attn")
    # A run that is cut leaves whole rows.
    assert [json.loads(line)["words"] for line in rows.read_text().splitlines()] == [
        "first",
        "249",
        "8.5",
        "no flash-attn",
    ]
    found = gpu_rows.measured(rows)
    assert gpu_rows.now_of("tune fp32", found) == "249, **below the target**"
    assert gpu_rows.now_of("process embed", found) == "8.5"
    assert gpu_rows.now_of("encode minilm, unpadded peer", found) == "not measured: no flash-attn"
    assert "part failed" in gpu_rows.now_of("tune bf16", found)
    assert len(gpu_rows.table(found).splitlines()) == len(gpu_rows.ROWS)
    with pytest.raises(KeyError):
        gpu_rows.append("unknown", 1.0, "1")


@pytest.mark.parametrize(
    ("printed", "resumed", "cpu"),
    [
        ("Writing model shards\nequal\n", 1.0, 1.0),
        ("tune, resumed: 1 of 1 weights, or the file written, changed\n", 0.0, 1.0),
        ("train: weights changed by more than 1 %\ntune: note: 1 numbers lost\n", 1.0, 0.0),
    ],
)
def test_verdicts_of_golden_jobs_become_two_rows(
    rows: Path, printed: str, resumed: float, cpu: float
) -> None:
    gpu_rows.of_golden(printed, 0)
    found = gpu_rows.measured(rows)
    assert [found[key]["value"] for key in ("golden resumed", "golden cpu")] == [resumed, cpu]
    with pytest.raises(SystemExit):
        gpu_rows.of_golden("Traceback (most recent call last):\n", 1)


def test_the_share_of_kernels_counts_overlapping_ones_once() -> None:
    assert gpu_rows.union_share([(0.0, 2.0), (1.0, 3.0), (1.5, 1.6), (8.0, 9.0)], wall=10.0) == pytest.approx(
        40.0
    )
    assert gpu_rows.union_share([], wall=10.0) == 0.0


def test_results_hold_every_row_with_its_figures() -> None:
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    cells = {line[0].removeprefix("| "): [cell.removesuffix(" |") for cell in line] for line in lines}
    for row in gpu_rows.ROWS.values():
        assert cells[row.claim][1:5] == [row.script, row.before, row.prototype, row.target]
    assert gpu_rows.BEFORE in " ".join(text.split())


def test_a_row_reaches_its_target_on_the_right_side() -> None:
    at_least, at_most, none = (gpu_rows.ROWS[key] for key in ("tune fp32", "process tune", "tune bf16"))
    assert [
        at_least.holds(250),
        at_least.holds(249.9),
        at_most.holds(12),
        at_most.holds(12.1),
        none.holds(1),
    ] == [
        True,
        False,
        True,
        False,
        None,
    ]
    numbers = {
        key: row for key, row in gpu_rows.ROWS.items() if row.target not in ("none", "equal", "to 1 %")
    }
    for row in numbers.values():
        stated = float(row.target.removesuffix(" %").split()[1].replace(",", ""))
        assert stated == (row.at_least if row.target.startswith(">=") else row.at_most)
