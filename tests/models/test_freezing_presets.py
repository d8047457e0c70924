"""Presets of freezing: the rows of the source's table, and what each preset covers in every architecture."""

import itertools

import pytest
from torch import nn

from adiabat.models.freezing import frozen_parameters
from tests.architectures import ARCHITECTURES, tiny_architecture

PARTS = ("attention", "intermediate", "output")


# --- The rows of Vasilyev et al. 2024, table 1 ---


def test_no_two_rows_of_the_sources_table_freeze_the_same() -> None:
    bert = tiny_architecture("bert")
    below = ["embeddings", "blocks[0].attention", "blocks[0].intermediate", "blocks[0].output.dense"]
    rows = [[], ["embeddings.base"], *(below[:count] for count in range(1, 5)), ["embeddings", "blocks[0]"]]
    frozen = [set(frozen_parameters(bert, row)) for row in rows]
    assert all(less < more for less, more in itertools.pairwise(frozen))
    assert frozen[-1] - frozen[-2] == {f"encoder.layer.0.output.LayerNorm.{kind}" for kind in ("weight", "bias")}


# --- Every architecture ---


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_presets_mean_what_they_say_in_every_architecture(name: str) -> None:
    model = tiny_architecture(name)
    parts = [set(frozen_parameters(model, [part])) for part in PARTS]
    assert set.union(*parts) == set(frozen_parameters(model, ["blocks"]))
    assert sum(map(len, parts)) == len(set.union(*parts))
    attention, intermediate, output = parts
    assert any(model.get_parameter(one).ndim == 2 for one in attention)
    assert any(model.get_parameter(one).ndim == 2 for one in intermediate)

    way_down = set(frozen_parameters(model, ["output.dense"]))
    assert way_down <= output
    assert all(model.get_parameter(one).ndim == 1 and "norm" in one.lower() for one in output - way_down)
    weights = frozen_parameters(model, ["output.dense.weight"])
    # ALBERT has one group of layers for all blocks.
    assert len(weights) == (1 if name == "albert" else 2)
    assert {model.get_parameter(one).ndim for one in weights} == {2}
    assert {one.removesuffix("weight") + "bias" for one in weights} >= way_down - set(weights)

    tables = [model.get_submodule(one.removesuffix(".weight")) for one in frozen_parameters(model, ["embeddings.base"])]
    assert all(isinstance(table, nn.Embedding) for table in tables)
    assert model.get_input_embeddings() in tables
