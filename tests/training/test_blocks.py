"""Blocks found, a frozen prefix reused, and blocks checkpointed, against passes that do neither."""

import weakref

import pytest
import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, BertConfig, MPNetConfig, MPNetModel
from transformers.modeling_outputs import BaseModelOutput

from adiabat.core.errors import ModelError
from adiabat.models.adapters import add_lora
from adiabat.models.compilation import blocks_of
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.training import passes as passes_module
from adiabat.training.blocks import RandomState, draws, frozen_prefix
from adiabat.training.gradient_cache import Chunking, training_copies
from adiabat.training.passes import Passes, side_passes
from tests.refused import one_line
from tests.tiny import KINDS, PAD, POSITIONS, VOCABULARY, Kind, tiny_backbone, tiny_encoder, tiny_tokenizer
from tests.training.worlds import PICKED, Gradients, assert_alike, passed, table_of

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
PLACES = {"max_position_embeddings": POSITIONS, "pad_token_id": PAD}


def encoder_of(backbone: nn.Module) -> Encoder:
    return Encoder(backbone, tiny_tokenizer(), EncoderSettings(max_tokens=128)).eval()


def train_from(encoder: Encoder, first: int) -> Encoder:
    """Freeze all but the blocks from one on, and what comes after them."""
    encoder.requires_grad_(False)
    for block in blocks_of(encoder.backbone)[first:]:
        block.requires_grad_(True)
    encoder.projections.requires_grad_(True)
    return encoder


def forwards(encoder: Encoder, chunking: Chunking, *, precision: str = "fp32") -> tuple[list[int], Gradients]:
    """How often each block computed, and the gradients; counted inside the blocks, whose own forward may be
    put aside.
    """
    computed: list[int] = []
    torch.manual_seed(7)
    torch.set_num_threads(1 if encoder.training else 2)
    with side_passes(encoder, precision=precision, chunking=chunking) as passes:
        # Looks for a prefix now, so that the token it passes is not counted.
        passes._manner(passes._towers[0])
        for copy in passes._towers[0].copies:
            for number, block in enumerate(blocks_of(copy.backbone)):
                inner = next(part for part in block.modules() if isinstance(part, nn.Linear))
                inner.register_forward_hook(
                    lambda module, given, output, number=number: computed.append(number)
                )
        _, gradients = passed(encoder, passes)
    return [computed.count(number) for number in range(len(blocks_of(encoder.backbone)))], gradients


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_blocks_of_every_family_are_found_packed_or_adapted(kind: Kind, adapted: bool):
    encoder = tiny_encoder(kind, layers=3)
    if adapted:
        add_lora(encoder.backbone, rank=2)
    ((copy,),) = training_copies([encoder], 1, Chunking(), "fp32")
    for backbone in (encoder.backbone, copy.backbone):
        blocks = blocks_of(backbone)
        assert len(blocks) == 3
        assert len({type(block) for block in blocks}) == 1


def test_of_nested_lists_the_outermost_holds_the_blocks():
    # A T5 block holds a list of its own, which with one block has all the parameters that the blocks have.
    (block,) = blocks_of(tiny_backbone("t5"))
    assert type(block).__name__ == "T5Block"


@pytest.mark.parametrize("kind", KINDS)
def test_the_prefix_ends_at_the_first_block_that_is_trained(kind: Kind):
    encoder = tiny_encoder(kind, layers=3)
    blocks = blocks_of(encoder.backbone)
    assert frozen_prefix(encoder, blocks) == 0
    for first in range(4):
        assert frozen_prefix(train_from(encoder, first), blocks) == first
    encoder.backbone.get_input_embeddings().requires_grad_(True)
    assert frozen_prefix(encoder, blocks) == 0


def test_adapters_repeated_blocks_and_what_blocks_read_from_outside_count():
    adapted = tiny_encoder(layers=3)
    add_lora(adapted.backbone, rank=2)
    assert frozen_prefix(adapted, blocks_of(adapted.backbone)) == 0
    blocks_of(adapted.backbone)[0].requires_grad_(False)
    assert frozen_prefix(adapted, blocks_of(adapted.backbone)) == 1
    repeated = encoder_of(AlbertModel(AlbertConfig(**SIZES, **PLACES, embedding_size=16))).requires_grad_(
        False
    )
    assert frozen_prefix(repeated, blocks_of(repeated.backbone)) == 0
    reading = train_from(encoder_of(MPNetModel(MPNetConfig(**SIZES, **PLACES))), 2)
    assert frozen_prefix(reading, blocks_of(reading.backbone)) == 2
    reading.backbone.encoder.relative_attention_bias.requires_grad_(True)
    assert frozen_prefix(reading, blocks_of(reading.backbone)) == 0


class Wrapped(nn.Module):
    """A block that gives its states inside something else, as SqueezeBERT's (a mapping) and the first GPT's
    (a list) do.
    """

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(4, 4), kind

    def forward(self, states: object) -> object:
        inner = (
            states
            if isinstance(states, Tensor)
            else next(iter(states.values() if self.kind is dict else states))
        )
        return {"states": self.linear(inner)} if self.kind is dict else [self.linear(inner)]


class WrappedBackbone(nn.Module):
    """Blocks between a table and what reads the last of them."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.config = BertConfig(hidden_size=4)
        self.table, self.blocks = nn.Embedding(VOCABULARY, 4), nn.ModuleList(Wrapped(kind) for _ in range(3))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> BaseModelOutput:
        states = self.table(input_ids)
        for block in self.blocks:
            states = block(states)
        return BaseModelOutput(
            last_hidden_state=next(iter(states.values() if isinstance(states, dict) else states))
        )


@pytest.mark.parametrize("kind", [dict, list])
def test_states_inside_a_mapping_or_a_list_count(kind: type):
    encoder = encoder_of(WrappedBackbone(kind))
    blocks = blocks_of(encoder.backbone)
    assert frozen_prefix(encoder, blocks) == 0
    assert frozen_prefix(train_from(encoder, 2), blocks) == 2


def test_random_numbers_are_drawn_again_and_replays_and_looking_for_a_prefix_leave_them_as_they_were():
    state = RandomState.now(torch.device("cpu"))
    first = torch.rand(3)
    before = torch.get_rng_state()
    with state.replayed():
        assert torch.equal(torch.rand(3), first)
    encoder = train_from(tiny_encoder(layers=3), 1).train()
    assert frozen_prefix(encoder, blocks_of(encoder.backbone)) == 1
    assert torch.equal(torch.get_rng_state(), before)
    state.restore()
    assert torch.equal(torch.rand(3), first)


def test_a_tower_draws_where_any_part_trains():
    encoder = tiny_encoder(layers=2).eval()
    assert not draws(encoder)
    encoder.projections.train()
    assert draws(encoder)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_prefix_passes_once_with_the_same_gradients(
    kind: Kind, dropout: bool, monkeypatch: pytest.MonkeyPatch
):
    encoder = train_from(tiny_encoder(kind, layers=3, projection=8), 2).train(dropout)
    counts, found = forwards(encoder, Chunking(12, cached=True))
    monkeypatch.setattr(passes_module, "frozen_prefix", lambda encoder, blocks: 0)
    twice, wanted = forwards(encoder, Chunking(12, cached=True))
    chunks = counts[0]
    assert chunks >= 3
    assert counts == [chunks, chunks, 2 * chunks]
    assert twice == [2 * chunks] * 3
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_where_only_a_projection_is_trained_every_block_passes_once(precision: str):
    encoder = train_from(tiny_encoder(layers=2, projection=8), 2).train(precision == "fp32")
    counts, found = forwards(encoder, Chunking(12, cached=True), precision=precision)
    plain, wanted = forwards(encoder, Chunking(12), precision=precision)
    assert counts == plain
    torch.testing.assert_close(found, wanted)


def test_what_is_unfrozen_between_steps_shortens_the_prefix():
    encoder = train_from(tiny_encoder(layers=3), 2)
    table = table_of(encoder)
    with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached=True)) as passes:
        assert passes._manner(passes._towers[0]).prefix == 2
        blocks_of(encoder.backbone)[0].requires_grad_(True)
        embeddings = passes.embed(table, PICKED)
        assert passes._manner(passes._towers[0]).prefix == 0
        embeddings.square()[:, 0].sum().backward()
    assert any(weights.grad is not None for weights in blocks_of(encoder.backbone)[0].parameters())


@pytest.mark.parametrize("differentiated", [True, False])
def test_a_record_lives_until_its_chunk_has_its_gradient_or_nobody_can_ask_for_it(differentiated: bool):
    encoder = train_from(tiny_encoder(layers=2), 1)
    table = table_of(encoder)
    torch.set_num_threads(1)
    alive: list[int] = []
    with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached=True)) as passes:
        embeddings = passes.embed(table, PICKED)
        records = [
            weakref.ref(output.value) for chunk in embeddings.grad_fn.shares[0] for output in chunk._record
        ]
        (copy,) = passes._towers[0].copies
        copy.register_forward_pre_hook(
            lambda module, given: alive.append(sum(record() is not None for record in records))
        )
        assert len(records) > 1
        assert all(record() is not None for record in records)
        if differentiated:
            embeddings.sum().backward()
        else:
            del embeddings
        assert all(record() is None for record in records)
    assert alive == (list(range(len(records), 0, -1)) if differentiated else [])


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_checkpointed_blocks_compute_again_and_change_no_gradient(kind: Kind, cached: bool, dropout: bool):
    encoder = tiny_encoder(kind, layers=2).train(dropout)
    once, wanted = forwards(encoder, Chunking(12, cached))
    again, found = forwards(encoder, Chunking(12, cached, checkpointed=True))
    chunks = once[0] // (2 if cached else 1)
    assert again == [count + chunks for count in once]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("cached", [False, True])
def test_blocks_of_a_frozen_prefix_are_not_computed_again_by_checkpointing(cached: bool):
    encoder = train_from(tiny_encoder(layers=3), 2).train()
    counts, found = forwards(encoder, Chunking(12, cached, checkpointed=True))
    _, wanted = forwards(encoder, Chunking(12))
    assert counts == [counts[0], counts[0], (3 if cached else 2) * counts[0]]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", ["gpt-neox", "llama"])
def test_a_checkpointed_decoder_keeps_no_keys_for_later_tokens_where_it_pads(kind: Kind):
    encoder = tiny_encoder(kind, layers=2)
    _, found = forwards(encoder, Chunking(64, checkpointed=True, buckets=(16, 64)))
    _, wanted = forwards(encoder, Chunking(64))
    assert_alike(found, wanted)


def test_a_checkpointed_pass_keeps_less():
    encoder = tiny_encoder(layers=4)
    table = table_of(encoder)
    kept = []
    for checkpointed in (False, True):
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, sizes=sizes: (sizes.append(tensor.numel()), tensor)[1], lambda kept: kept
        ):
            Passes(encoder, precision="fp32", chunking=Chunking(checkpointed=checkpointed)).embed(
                table, PICKED
            )
        kept.append(sum(sizes))
    assert kept[1] < kept[0] / 4


def test_checkpointing_a_backbone_without_blocks_is_refused():
    encoder = tiny_encoder(layers=2)
    encoder.backbone.encoder.layer = nn.ModuleList()
    chunking = Chunking(12, checkpointed=True)
    with (
        one_line(ModelError, "checkpointed", "must be False", "BertModel", "no blocks"),
        side_passes(encoder, precision="fp32", chunking=chunking),
    ):
        pass
