"""Keeping the first blocks of a transformer: the same states as cutting it by hand, fewer weights, and a
directory like any other.
"""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AlbertConfig, FunnelConfig, ModernBertConfig, ModernBertModel, PreTrainedModel

from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.backbone import Trust, first_blocks, load_backbone
from adiabat.models.loading import load
from adiabat.models.saving import save
from tests.architectures import MODERN, SIZES
from tests.models.peer_directories import assert_same_vectors
from tests.refused import Facts, one_line
from tests.tiny import KINDS, Kind, edit, save_tiny, tiny_backbone, tiny_tokenizer

TEXTS = ["Where does the river rise?", "река", "a", "word " * 20]
IDS = torch.tensor([[0, 70, 71, 90, 33, 80, 75, 2], [0, 40, 41, 42, 43, 44, 45, 2]])
NORMS = {"t5": "encoder.final_layer_norm", "gpt-neox": "final_layer_norm", "llama": "norm"}
"""The final norm of those that have one."""


@torch.no_grad()
def states(backbone: PreTrainedModel) -> Tensor:
    hidden: Tensor = backbone(input_ids=IDS).last_hidden_state
    return hidden


def cut_by_hand(backbone: PreTrainedModel, blocks: int, *, of: int) -> PreTrainedModel:
    """Drop blocks from the one list of modules that has so many."""
    names = [
        name for name, part in backbone.named_modules() if isinstance(part, nn.ModuleList) and len(part) == of
    ]
    (parent, _, name) = names[0].rpartition(".")
    owner = backbone.get_submodule(parent)
    setattr(owner, name, getattr(owner, name)[:blocks])
    # Decoders count their blocks by the configuration.
    backbone.config.num_hidden_layers = blocks
    return backbone


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_blocks_are_those_of_the_whole_transformer(kind: Kind, blocks: int, tmp_path: Path) -> None:
    whole = tiny_backbone(kind, layers=3)
    whole.save_pretrained(tmp_path)
    kept = load_backbone(tmp_path, Trust(), blocks=blocks)
    assert torch.equal(states(kept), states(cut_by_hand(load_backbone(tmp_path, Trust()), blocks, of=3)))
    with torch.no_grad():
        after = whole(input_ids=IDS, output_hidden_states=True).hidden_states[blocks]
        # The last of them is listed with its norm.
        expected = whole.get_submodule(NORMS[kind])(after) if kind in NORMS and blocks < 3 else after
    torch.testing.assert_close(states(kept), expected, atol=1e-6, rtol=0)


def modern_bert(folder: Path) -> Path:
    """A backbone whose blocks differ in kind: every third attends to everything, the others to their
    neighbours.
    """
    config = ModernBertConfig(**{**SIZES, "num_hidden_layers": 5}, **{**MODERN, "local_attention": 4})
    torch.manual_seed(0)
    ModernBertModel(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def test_lists_with_an_entry_per_block_are_cut_too(tmp_path: Path) -> None:
    model = load(modern_bert(tmp_path / "whole"), blocks=4)
    assert model.query.backbone.config.layer_types == [
        "full_attention",
        *2 * ["sliding_attention"],
        "full_attention",
    ]
    by_hand = cut_by_hand(load_backbone(tmp_path / "whole", Trust()), 4, of=5)
    assert torch.equal(states(model.query.backbone), states(by_hand))
    save(model, tmp_path / "cut")
    assert load(tmp_path / "cut").fingerprint() == model.fingerprint()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "pair"])
def test_what_was_cut_is_saved_and_loaded_like_any_other(kind: Kind, shared: bool, tmp_path: Path) -> None:
    save_tiny(tmp_path / "whole", kind, layers=3, projection=9, shared=shared)
    model = load(tmp_path / "whole", blocks=2)
    save(model, tmp_path / "cut")
    again = load(tmp_path / "cut")
    assert again.shared == shared
    assert_same_vectors(again, tmp_path / "cut", TEXTS)
    assert again.fingerprint() == model.fingerprint() != load(tmp_path / "whole").fingerprint()
    assert load(tmp_path / "cut", blocks=2).fingerprint() == model.fingerprint()


@pytest.mark.parametrize("blocks", [0, 3])
def test_blocks_that_are_not_there_are_refused(blocks: int, tmp_path: Path) -> None:
    with one_line(ConfigError, "encoder.blocks", "from 1 to 2", f"got {blocks}"):
        load(save_tiny(tmp_path, layers=2), blocks=blocks)


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        (AlbertConfig(num_hidden_layers=4, num_hidden_groups=2), ("type albert", "not counted one by one")),
        (FunnelConfig(block_sizes=[2, 2]), ("type funnel", "`block_sizes`")),
    ],
    ids=["groups of blocks", "stages of blocks"],
)
def test_blocks_that_depend_on_their_number_are_refused(
    config: AlbertConfig | FunnelConfig, facts: Facts
) -> None:
    with one_line(ConfigError, "encoder.blocks must be left out", "got 1", *facts):
        first_blocks(config, 1)


def test_a_model_that_lacks_weights_of_the_blocks_kept_is_still_refused(tmp_path: Path) -> None:
    edit(save_tiny(tmp_path, layers=2), "config.json", num_hidden_layers=9)
    assert load(tmp_path, blocks=2).width == 32
    with one_line(ModelError, "; 16 are missing"):
        load(tmp_path, blocks=3)
