"""Low-rank adapters, and biases alone: which weights are trained, what is computed, and that a saved model is
a plain one.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers as tf
from torch import Tensor, nn

from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.adapters import add_lora, merge_adapters, train_biases_only
from adiabat.models.device import autocast
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import freeze, frozen_parameters
from adiabat.models.loading import load
from adiabat.models.packing import is_packable
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder
from adiabat.training.gradient_cache import Chunking
from adiabat.training.passes import Passes, side_passes
from tests.architectures import tiny_architecture
from tests.models.peer_directories import assert_same_vectors
from tests.refused import one_line
from tests.tiny import KINDS, Kind, tiny_backbone, tiny_encoder
from tests.training.worlds import TEXTS as SIX_TEXTS
from tests.training.worlds import assert_alike, passed

# Sentence-transformers has no vector for an empty text of a decoder.
TEXTS = [text or "b" for text in SIX_TEXTS]


def embed(encoder: Encoder) -> Tensor:
    """One pass in this thread, with its graph."""
    return encoder(encoder.collate(encoder.tokenize(TEXTS, side="query"), side="query"))


def with_lora(kind: Kind = "bert", *, rank: int = 4, alpha: float | None = None) -> Encoder:
    torch.manual_seed(3)
    encoder = tiny_encoder(kind, layers=2)
    add_lora(encoder.backbone, rank=rank, alpha=alpha)
    return encoder


def trained(encoder: Encoder, *, rate: float = 0.05) -> Encoder:
    """A few steps of SGD, after which the embeddings are clearly others."""
    before = embed(encoder).detach()
    target = torch.randn(before.shape, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD([one for one in encoder.parameters() if one.requires_grad], lr=rate)
    for _ in range(4):
        optimizer.zero_grad()
        (-(embed(encoder) * target).sum()).backward()
        optimizer.step()
    assert (embed(encoder) - before).abs().max() > 0.01
    return encoder


def plain(encoder: Encoder) -> Encoder:
    return Encoder(merge_adapters(encoder.backbone), encoder.tokenizer, encoder.settings)


def trainable_names(backbone: nn.Module) -> set[str]:
    return {name for name, weights in backbone.named_parameters() if weights.requires_grad}


def assert_saved_as_a_plain_model(encoder: Encoder, folder: Path) -> None:
    """What is saved gives these embeddings in transformers, sentence-transformers and here, under one
    digest.
    """
    save(DualEncoder(encoder, encoder), folder)
    assert_same_vectors(DualEncoder(encoder, encoder), folder, TEXTS)
    loaded = load(folder)
    assert_same_vectors(loaded, folder, TEXTS)
    kind = type(encoder.backbone)
    bare, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert list(dict(bare.named_parameters())) == list(dict(encoder.backbone.named_parameters()))
    assert encoder.weights_digest() == loaded.query.weights_digest()


@pytest.mark.parametrize("kind", KINDS)
def test_with_new_adapters_a_backbone_computes_what_it_did_bit_for_bit(kind: Kind) -> None:
    encoder = tiny_encoder(kind, layers=2)
    family, packs = type(encoder.backbone), is_packable(encoder.backbone)
    # Without a graph: which kernel torch takes for attention can depend on whether a table of positions is
    # trained.
    with torch.no_grad():
        before = embed(encoder)
        add_lora(encoder.backbone, rank=4)
        assert torch.equal(embed(encoder), before)
    assert type(encoder.backbone) is family
    assert is_packable(encoder.backbone) is packs
    assert not any(part.training for part in encoder.modules())


def test_adapters_of_layers_in_training_are_in_training() -> None:
    backbone = tiny_backbone(layers=2).train()
    add_lora(backbone, rank=2)
    assert all(part.training for part in backbone.modules())


def test_how_many_numbers_are_trained_is_as_counted_by_hand() -> None:
    # Two blocks, each with four layers of 32 to 32, one of 32 to 64 and one back.
    assert add_lora(tiny_backbone("bert", layers=2), rank=3) == 2 * 3 * (4 * (32 + 32) + 2 * (32 + 64))
    # Queries and output 32 to 32, keys and values 32 to 16, and three layers between 32 and 64.
    widths = 2 * (32 + 32) + 2 * (32 + 16) + 3 * (32 + 64)
    assert add_lora(tiny_backbone("llama", layers=2), rank=3) == 2 * 3 * widths


@pytest.mark.parametrize("kind", [*KINDS, "gpt2"])
@pytest.mark.parametrize("alpha", [None, 6.0])
def test_merged_weights_are_those_of_the_formula(kind: str, alpha: float | None) -> None:
    backbone = tiny_architecture("gpt2") if kind == "gpt2" else tiny_backbone(kind, layers=2)
    weights = {name: one.detach().clone() for name, one in backbone.named_parameters()}
    add_lora(backbone, rank=4, alpha=alpha)
    low: dict[str, dict[str, Tensor]] = {}
    for name, one in backbone.named_parameters():
        if found := re.fullmatch(r"(.+)\.lora_([AB])\.default\.weight", name):
            nn.init.normal_(one)
            low.setdefault(f"{found[1]}.weight", {})[found[2]] = one.detach().clone()
    assert low
    merged = dict(merge_adapters(backbone).named_parameters())
    for name, before in weights.items():
        if name in low:
            change = (alpha or 4) / 4 * low[name]["B"] @ low[name]["A"]
            torch.testing.assert_close(merged[name], before + (change.T if kind == "gpt2" else change))
        else:
            assert torch.equal(merged[name], before)


def test_a_merge_worked_by_hand() -> None:
    backbone = tiny_backbone(layers=2)
    before = backbone.get_parameter("encoder.layer.0.output.dense.weight").detach().clone()
    add_lora(backbone, rank=2, alpha=3.0)
    for name, weights in backbone.named_parameters():
        if "lora_" in name:
            nn.init.ones_(weights)
    after = merge_adapters(backbone).get_parameter("encoder.layer.0.output.dense.weight")
    # Each number of B A is 1 + 1, times 3 / 2.
    torch.testing.assert_close(after - before, torch.full_like(before, 3.0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_backbone_computes_the_same_and_holds_no_trace_of_adapters(kind: Kind) -> None:
    untouched = tiny_backbone(kind, layers=2)
    encoder = trained(with_lora(kind))
    kept = {name: weights.detach().clone() for name, weights in encoder.named_parameters()}
    merged = plain(encoder)
    torch.testing.assert_close(embed(merged), embed(encoder), rtol=0, atol=1e-5)
    types, wanted = (
        [(name, type(part)) for name, part in each.named_modules()] for each in (merged.backbone, untouched)
    )
    assert types == wanted
    assert list(dict(merged.backbone.named_parameters())) == list(dict(untouched.named_parameters()))
    # A tower keeps no keys and values.
    assert merged.backbone.config.to_dict() == {**untouched.config.to_dict(), "use_cache": False}
    assert not hasattr(merged.backbone, "peft_config")
    assert all(weights.requires_grad for weights in merged.parameters())
    assert all(torch.equal(weights, kept[name]) for name, weights in encoder.named_parameters())
    assert trainable_names(encoder.backbone) == {
        name.removeprefix("backbone.") for name in kept if "lora_" in name
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_after_merging_is_a_plain_model(kind: Kind, tmp_path: Path) -> None:
    assert_saved_as_a_plain_model(plain(trained(with_lora(kind))), tmp_path)


def test_merging_heeds_no_autocast() -> None:
    encoder = trained(with_lora())
    wanted = merge_adapters(encoder.backbone).state_dict()
    with autocast(torch.device("cpu"), "bf16"):
        found = merge_adapters(encoder.backbone).state_dict()
    assert all(torch.equal(found[name], weights) for name, weights in wanted.items())


def test_adapters_that_transformers_added_are_merged_too(tmp_path: Path) -> None:
    from peft import LoraConfig

    encoder = tiny_encoder(layers=2)
    encoder.backbone.add_adapter(LoraConfig(r=2, target_modules=["query"], init_lora_weights=False))
    assert_saved_as_a_plain_model(plain(encoder), tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.usefixtures("two_threads")
def test_two_threads_give_the_gradients_of_one_pass(kind: Kind, cached: bool) -> None:
    encoder = trained(with_lora(kind))
    _, wanted = passed(encoder, Passes(encoder, precision="fp32"), texts=TEXTS)
    with side_passes(encoder, precision="fp32", chunking=Chunking(12, cached)) as passes:
        assert passes._threads == 2
        _, found = passed(encoder, passes, texts=TEXTS)
    assert found.keys() == {f"0 {name}" for name in trainable_names(encoder)}
    assert_alike(found, wanted, atol=1e-5)


def test_a_rank_beyond_a_layers_width_is_refused_and_changes_nothing() -> None:
    backbone = tiny_backbone("llama", layers=2)
    with one_line(ConfigError, "rank", "<= 16", "layers.0.self_attn.k_proj (16 by 32)", "got 17", "lower it"):
        add_lora(backbone, rank=17)
    assert list(backbone.state_dict()) == list(tiny_backbone("llama", layers=2).state_dict())
    assert all(weights.requires_grad for weights in backbone.parameters())
    assert add_lora(backbone, rank=16) > 0


# Freezing by name, with adapters.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "pattern",
    ["embeddings", "blocks[0:1]", "blocks[-1].attention", "intermediate", "output.dense", r"1\..*weight$"],
)
def test_a_pattern_that_names_a_dense_layer_names_its_adapter(kind: Kind, pattern: str) -> None:
    backbone = tiny_backbone(kind, layers=2)
    before = frozen_parameters(backbone, [pattern])
    add_lora(backbone, rank=2)
    adapted = {
        name.removesuffix("lora_A.default.weight")
        for name, _ in backbone.named_parameters()
        if "lora_A" in name
    }
    wanted = set()
    for name in before:
        layer, _, last = name.rpartition(".")
        inside = (
            ["base_layer.weight", "lora_A.default.weight", "lora_B.default.weight"]
            if last == "weight"
            else ["base_layer.bias"]
        )
        wanted |= {f"{layer}.{own}" for own in inside} if f"{layer}." in adapted else {name}
    assert set(frozen_parameters(backbone, [pattern])) == wanted


def test_frozen_adapters_get_no_gradient() -> None:
    encoder = with_lora()
    report = freeze(encoder.backbone, ["blocks[0:1]", r"attention\.self\.query\.weight"])
    embed(encoder).square().sum(dim=0)[0].backward()
    trained_names = {
        name for name, weights in encoder.backbone.named_parameters() if weights.grad is not None
    }
    attention = [f"attention.{name}" for name in ("self.key", "self.value", "output.dense")]
    assert trained_names == trainable_names(encoder.backbone)
    assert trained_names == {
        f"encoder.layer.1.{layer}.lora_{factor}.default.weight"
        for layer in (*attention, "intermediate.dense", "output.dense")
        for factor in "AB"
    }
    assert report.trainable == 4 * (3 * (32 + 32) + 2 * (32 + 64))


def test_adapters_beside_weights_are_merged_on_loading_and_saved_with_the_whole(tmp_path: Path) -> None:
    encoder = trained(with_lora())
    whole = plain(encoder)
    save(DualEncoder(whole, whole), tmp_path / "model")
    base = tiny_encoder(layers=2)
    assert not embed(whole).allclose(embed(base), atol=1e-3)
    # Written as transformers writes a model that has adapters: the adapters alone, here beside the weights
    # that they belong to.
    base.backbone.save_pretrained(tmp_path / "model")
    encoder.backbone._hf_peft_config_loaded = True
    encoder.backbone.save_pretrained(tmp_path / "model")
    loaded = load(tmp_path / "model").query
    assert not any("lora" in name for name, _ in loaded.named_parameters())
    torch.testing.assert_close(embed(loaded), embed(whole), atol=1e-5, rtol=0)
    save(DualEncoder(loaded, loaded), tmp_path / "again")
    torch.testing.assert_close(embed(load(tmp_path / "again").query), embed(whole), atol=1e-5, rtol=0)


WITH_BIASES: tuple[Kind, ...] = ("bert", "xlm-roberta", "gpt-neox", "llama")


@pytest.mark.parametrize("kind", WITH_BIASES)
def test_only_biases_are_trained(kind: Kind) -> None:
    encoder = tiny_encoder(kind, layers=2)
    count = train_biases_only(encoder.backbone)
    embed(encoder).square().sum(dim=0)[0].backward()
    with_gradient = {
        name: weights for name, weights in encoder.backbone.named_parameters() if weights.grad is not None
    }
    assert set(with_gradient) == trainable_names(encoder.backbone)
    assert all(name.endswith(".bias") and not name.startswith("pooler.") for name in with_gradient)
    assert count == sum(weights.numel() for weights in with_gradient.values())
    if kind == "bert":
        # Norm of the embeddings; per block four of attention, 64 and 32 of the feed-forward, two norms.
        assert count == 32 + 2 * (4 * 32 + 64 + 32 + 2 * 32)


def test_biases_of_any_name_are_biases() -> None:
    backbone = tiny_backbone(layers=2)
    backbone.encoder.register_parameter("q_bias", nn.Parameter(torch.zeros(3)))
    backbone.encoder.register_parameter("bias_table", nn.Parameter(torch.zeros(3)))
    train_biases_only(backbone)
    assert "encoder.q_bias" in trainable_names(backbone)
    assert "encoder.bias_table" not in trainable_names(backbone)


def test_llama_is_given_zero_biases_and_computes_what_it_did_bit_for_bit() -> None:
    encoder = tiny_encoder("llama", layers=2)
    before, names, state = (
        embed(encoder),
        {name for name, _ in encoder.backbone.named_parameters()},
        torch.get_rng_state(),
    )
    count = train_biases_only(encoder.backbone)
    added = {name for name, _ in encoder.backbone.named_parameters()} - names
    layers = [f"self_attn.{one}_proj" for one in "qkvo"] + [
        f"mlp.{one}_proj" for one in ("gate", "up", "down")
    ]
    assert added == {f"layers.{block}.{layer}.bias" for block in range(2) for layer in layers}
    assert count == 2 * (32 + 16 + 16 + 32 + 64 + 64 + 32)
    assert torch.equal(embed(encoder), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert encoder.backbone.config.attention_bias
    assert encoder.backbone.config.mlp_bias


@pytest.mark.parametrize(
    ("name", "ends"), [("qwen3", {"_proj"}), ("modernbert", {"Wqkv", "Wo", "Wi", "norm"})]
)
def test_other_families_get_the_biases_that_their_configuration_knows(name: str, ends: set[str]) -> None:
    backbone = tiny_architecture(name)
    tokens = torch.arange(5, 15).reshape(2, 5)
    before = backbone(input_ids=tokens).last_hidden_state
    assert train_biases_only(backbone) > 0
    assert torch.equal(backbone(input_ids=tokens).last_hidden_state, before)
    assert {name for name, _ in backbone.named_parameters()} == {
        name for name, _ in type(backbone)(backbone.config).named_parameters()
    }
    stems = {name.removesuffix(".bias") for name in trainable_names(backbone)}
    assert {end for end in ends if any(stem.endswith(end) for stem in stems)} == ends


@pytest.mark.parametrize("kind", ["t5", "mistral"])
def test_a_family_without_biases_says_what_to_do_instead(kind: str) -> None:
    backbone = tiny_architecture(kind)
    with one_line(ModelError, "biases alone", f"got type {kind}", "; use LoRA"):
        train_biases_only(backbone)
    assert all(weights.requires_grad for weights in backbone.parameters())


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((kind, train_biases_only) for kind in WITH_BIASES),
        ("bert", lambda backbone: add_lora(backbone, rank=2)),
    ],
)
def test_freezing_first_or_last_is_the_same(kind: Kind, method: Callable[[tf.PreTrainedModel], int]) -> None:
    first, last = tiny_backbone(kind, layers=2), tiny_backbone(kind, layers=2)
    patterns = ["embeddings", "blocks[0]", "output.dense"]
    freeze(first, patterns)
    count = method(first)
    method(last)
    assert count == freeze(last, patterns).trainable > 0
    assert trainable_names(first) == trainable_names(last)
