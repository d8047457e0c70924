"""Two real processes on a CPU against one: every case of together.py in a single start."""

import subprocess
import sys
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
from torch import nn

from adiabat.core.errors import ConfigError, JobError
from adiabat.training.distributed import ALONE, Processes, processes
from tests.refused import Facts, one_line
from tests.training.together import CASES, COUNT, TIMEOUT

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process found; the module's shape annotations are checked there too."""
    folder = tmp_path_factory.mktemp("together")
    hook = "from tests.checking import check_shapes; check_shapes('adiabat.training.distributed')"
    code = f"{hook}; from tests.training import together; together.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "{1: 3}\n", done.stderr
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(COUNT)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_find_what_one_finds_on_the_whole_batch(found: list[dict[str, Any]], name: str) -> None:
    whole = CASES[name](ALONE)
    assert any(value.abs().max() > 1e-3 for value in whole.values())
    for part in found:
        assert part[name].keys() == whole.keys()
        for key, value in whole.items():
            torch.testing.assert_close(part[name][key], value, rtol=1e-5, atol=1e-6)

    # Both to the last bit.
    assert all(torch.equal(value, found[1][name][key]) for key, value in found[0][name].items())
    # A learned temperature is learned from all rows.
    assert found[0][name].get("temperature.log_factor") != 0


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        # Rows are joined in rank order, whatever each process brings.
        ("uneven rows", [[0, 1, 2], [10, 11, 12], [13, 14, 15]], None),
        ("rows of one process alone", [[1, 2]], None),
        ("no rows", [], None),
        ("numbers", [0, 1, 2, 1, 2], None),
        # Row i counts i times in the loss of the first process and 2 i times in that of the second: 3 i.
        ("summed gradient", [[3], [6]], [[9], [12]]),
        ("their gradient", [[3, 3]], []),
        ("spread", [[1], [1], [0], [0]], [[0], [0], [2], [2]]),
        ("mean", 1.5, None),
        ("any", [True, True, False], None),
        ("broadcast 0", [0, 0], None),
        ("broadcast 1", [[0, 0, 0], [0, 0, 0]], None),
    ],
)
def test_exchanges_by_hand(found: list[dict[str, Any]], name: str, first: Any, second: Any) -> None:
    assert [part["exchanges"][name].tolist() for part in found] == [
        first,
        first if second is None else second,
    ]


def test_a_gradient_that_a_process_lacks_is_zero_and_none_stays_none(found: list[dict[str, Any]]) -> None:
    # Process r brings 1 + n + 10 r for weight n: 0 from both, 1 from the first, 2 from the second, 3 from
    # none.
    for part in found:
        means = {name: gradient[0].item() for name, gradient in part["lopsided"].items()}
        assert {name: means[name] for name in "0124"} == {
            "0": (1 + 11) / 2,
            "1": 2 / 2,
            "2": 13 / 2,
            "4": (5 + 15) / 2,
        }
        assert all((gradient == gradient[0]).all() for gradient in part["lopsided"].values())
    # Frozen weights are passed over.
    assert [part["lopsided"]["5"][0].item() for part in found] == [6, 16]


def test_each_process_knows_itself(found: list[dict[str, Any]]) -> None:
    for rank, part in enumerate(found):
        settings = part["settings"]
        assert settings["itself"] == (rank, 2, rank == 0, CPU, (slice(0, 3), slice(3, 6))[rank])
        assert (
            settings["refused"]
            == "train.batch_size must be a multiple of the 2 processes, got 5; take 4 or 6"
        )
        assert settings["timeout"] == TIMEOUT
        # A connection that is there already is used, and left.
        assert settings["inner"]


def test_a_process_that_is_silent_is_given_up_and_one_that_dies_noticed(found: list[dict[str, Any]]) -> None:
    for event in ("silence", "death"):
        assert found[0][event].startswith("process 0 of 2 lost contact with the others: ")
        assert found[0][event].endswith("; check how they ended, then make the same call with resume=True")
        assert "/" not in found[0][event]
    assert "Timed out waiting 300ms" in found[0]["silence"]
    assert (found[1]["silence"], "death" in found[1]) == ("given up", False)


def test_one_process_exchanges_nothing_and_copies_nothing() -> None:
    embeddings, numbers, weights = (
        torch.ones(2, 3, requires_grad=True),
        torch.arange(3),
        nn.Parameter(torch.ones(2)),
    )
    weights.grad = gradient = torch.full((2,), 7.0)
    assert ALONE.gather(embeddings) is embeddings
    assert ALONE.spread(embeddings) is embeddings
    assert ALONE.gather_numbers(numbers) is numbers
    ALONE.average_gradients([weights, nn.Parameter(torch.ones(1))])
    ALONE.broadcast([weights])
    assert weights.grad is gradient
    assert weights.tolist() == [1, 1]
    assert (ALONE.any(True), ALONE.any(False), ALONE.mean(torch.tensor(2.5)).item()) == (True, False, 2.5)
    assert ALONE.is_main


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 12])
def test_shares_are_equal_parts_without_gaps(count: int) -> None:
    shares = [list(range(12)[Processes(rank, count).share(12)]) for rank in range(count)]
    assert {len(share) for share in shares} == {12 // count}
    assert list(chain.from_iterable(shares)) == list(range(12))


@pytest.mark.parametrize(("size", "choices"), [(10, "8 or 12"), (3, "4"), (0, "4")])
def test_a_batch_without_equal_parts_is_refused_with_those_near_it(size: int, choices: str) -> None:
    with one_line(ConfigError, "train.batch_size", "4 processes", f"got {size}; ", f"take {choices}"):
        Processes(1, 4).share(size)


PLACE = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
LAUNCHED = {**PLACE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def launch(monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    for name, value in {**LAUNCHED, **changes}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE"])
def test_without_a_launcher_there_is_one_process(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    launch(monkeypatch)
    monkeypatch.delenv(name)
    with processes(CPU) as together:
        assert together == ALONE


def test_a_launcher_that_starts_one_process_needs_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    with processes(torch.device("meta")) as together:
        assert together == Processes(0, 1, torch.device("meta"))


@pytest.mark.parametrize(
    ("changes", "device", "facts"),
    [
        (
            {"ACCELERATE_USE_FSDP": "true"},
            "cpu",
            ("not shard", "got ACCELERATE_USE_FSDP=true", "launch with"),
        ),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "cpu", ("not shard", "got ACCELERATE_USE_DEEPSPEED=true")),
        ({}, "cuda:1", ("run.device", "auto, cpu or cuda where", "got cuda:1")),
        ({}, "cuda", ("run.device", "a GPU for each of the 2 processes", "got 1")),
    ],
)
def test_a_launch_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], device: str, facts: Facts
) -> None:
    launch(monkeypatch, **changes)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with one_line(ConfigError, *facts), processes(torch.device(device)):
        pass


def test_others_that_cannot_be_reached_are_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, OMP_NUM_THREADS="1")
    told = one_line(JobError, "process 1 of 2 could not reach the others: ", "check how they ended")
    with told, processes(CPU, timeout=timedelta(milliseconds=1)):
        pass
    # What is left behind would make the next connection believe that it is there.
    assert not accelerate.PartialState._shared_state
