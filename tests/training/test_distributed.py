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
from tests.training.together import CASES, COUNT, TIMEOUT

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process found; the module's shape annotations are checked there too."""
    folder = tmp_path_factory.mktemp("together")
    hook = "from tests.checking import check_shapes; check_shapes('adiabat.training.distributed')"
    code = f"{hook}; from tests.training import together; together.main()"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "{1: 3}\n", done.stderr
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(COUNT)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_find_what_one_finds_on_the_joined_batch(found: list[dict[str, Any]], name: str) -> None:
    whole = CASES[name](ALONE)
    assert any(value.abs().max() > 1e-3 for value in whole.values())
    for part in found:
        assert part[name].keys() == whole.keys()
        for key, value in whole.items():
            torch.testing.assert_close(part[name][key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_both_processes_find_the_same_to_the_last_bit(found: list[dict[str, Any]], name: str) -> None:
    one, other = (part[name] for part in found)
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("transformer")])
def test_the_learned_temperature_is_learned_from_all_rows(found: list[dict[str, Any]], name: str) -> None:
    assert found[0][name]["temperature.log_factor"] != 0


def test_rows_are_joined_in_rank_order_whatever_each_process_brings(found: list[dict[str, Any]]) -> None:
    for part in found:
        exchanged = part["exchanges"]
        assert exchanged["uneven rows"].tolist() == [[0, 1, 2], [10, 11, 12], [13, 14, 15]]
        assert exchanged["rows of one process alone"].tolist() == [[1, 2]]
        assert exchanged["no rows"].shape == (0, 3)
        assert exchanged["numbers"].tolist() == [0, 1, 2, 1, 2]


def test_the_gradient_of_a_row_is_the_sum_over_processes(found: list[dict[str, Any]]) -> None:
    # Row i counts i times in the loss of the first process and 2 i times in that of the second: 3 i.
    assert [part["exchanges"]["summed gradient"].flatten().tolist() for part in found] == [[3, 6], [9, 12]]
    assert [part["exchanges"]["their gradient"].tolist() for part in found] == [[[3, 3]], []]


def test_spread_rows_stand_where_they_belong_among_zeros(found: list[dict[str, Any]]) -> None:
    assert [part["exchanges"]["spread"].flatten().tolist() for part in found] == [[1, 1, 0, 0], [0, 0, 2, 2]]


def test_processes_agree(found: list[dict[str, Any]]) -> None:
    for part in found:
        assert part["exchanges"]["mean"].item() == 1.5
        assert part["exchanges"]["any"].tolist() == [True, True, False]
        assert not part["exchanges"]["broadcast 0"].any()
        assert not part["exchanges"]["broadcast 1"].any()


def test_a_gradient_that_a_process_lacks_counts_as_zero_and_none_anywhere_stays_none(found: list[dict[str, Any]]) -> None:
    # Process r brings 1 + n + 10 r for weight n: 0 from both, 1 from the first, 2 from the second, 3 from none.
    for part in found:
        means = {name: gradient[0].item() for name, gradient in part["lopsided"].items()}
        assert {name: means[name] for name in "0124"} == {"0": (1 + 11) / 2, "1": 2 / 2, "2": 13 / 2, "4": (5 + 15) / 2}
        assert all((gradient == gradient[0]).all() for gradient in part["lopsided"].values())


def test_frozen_weights_are_passed_over(found: list[dict[str, Any]]) -> None:
    assert [part["lopsided"]["5"][0].item() for part in found] == [6, 16]


def test_each_process_knows_itself(found: list[dict[str, Any]]) -> None:
    for rank, part in enumerate(found):
        told = part["settings"]
        assert (told["rank"], told["count"], told["main"], told["device"]) == (rank, 2, rank == 0, CPU)
        assert told["share"] == (slice(0, 3), slice(3, 6))[rank]
        assert told["refused"] == "train.batch_size must be a multiple of the 2 processes, got 5; take 4 or 6"
        assert told["timeout"] == TIMEOUT


def test_a_connection_that_is_there_already_is_used_and_left(found: list[dict[str, Any]]) -> None:
    assert all(part["settings"]["inner"] for part in found)


def test_a_process_that_stays_silent_is_given_up(found: list[dict[str, Any]]) -> None:
    assert found[0]["silence"] == (
        "process 0 of 2 must hear from all others, got: Timed out waiting 300ms for recv operation to complete; "
        "see how the others ended, then run the same command with --resume"
    )
    assert found[1]["silence"] == "given up"


def test_a_process_that_dies_is_noticed(found: list[dict[str, Any]]) -> None:
    said = found[0]["death"]
    assert said.startswith("process 0 of 2 must hear from all others, got: ")
    assert said.endswith("; see how the others ended, then run the same command with --resume")
    assert "/" not in said
    assert "death" not in found[1]


def test_one_process_exchanges_nothing_and_copies_nothing() -> None:
    embeddings, numbers, weights = torch.ones(2, 3, requires_grad=True), torch.arange(3), nn.Parameter(torch.ones(2))
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
    with pytest.raises(ConfigError, match=rf"^train\.batch_size must be a multiple of the 4 processes, got {size}; take {choices}$"):
        Processes(1, 4).share(size)


LAUNCHED = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


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


@pytest.mark.parametrize("name", ["ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"])
def test_sharding_that_the_launcher_was_told_to_do_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    launch(monkeypatch, **{name: "true"})
    with pytest.raises(ConfigError, match=rf"^accelerate launch must leave weights whole, got {name}=true; launch with"), processes(CPU):
        pass


def test_several_processes_on_one_numbered_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch)
    with (
        pytest.raises(ConfigError, match=r"^run\.device must be auto, cpu or cuda where .*, got cuda:1; leave"),
        processes(torch.device("cuda:1")),
    ):
        pass


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with (
        pytest.raises(ConfigError, match=r"^run\.device must have a GPU for each of the 2 processes, got 1; start"),
        processes(torch.device("cuda")),
    ):
        pass


def test_others_that_cannot_be_reached_are_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, OMP_NUM_THREADS="1")
    with (
        pytest.raises(JobError, match=r"^process 1 of 2 must reach the others, got: .*; see how they ended") as caught,
        processes(CPU, timeout=timedelta(milliseconds=1)),
    ):
        pass
    assert "\n" not in str(caught.value)
    # What is left behind would make the next connection believe that it is there.
    assert not accelerate.PartialState._shared_state
