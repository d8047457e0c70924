"""Freezing by name: the presets of every layout by hand and in every architecture, patterns, and faults."""

import itertools
import re

import pytest
import transformers as tf
from torch import nn

from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.freezing import check_patterns, freeze, frozen_parameters
from tests.architectures import ARCHITECTURES, tiny_architecture
from tests.refused import Facts, one_line

PARTS = ("attention", "intermediate", "output")
SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
BERT = {**SIZES, "intermediate_size": 64}

ENCODERS = ("bert", "xlm-roberta", "mpnet", "electra", "distilbert", "modernbert", "t5", "t5-gated", "albert")
DECODERS = ("gpt-neox", "gpt2", "llama", "mistral", "qwen3", "gemma2", "phi3")
LAYOUTS = (*ENCODERS, *DECODERS)


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    return {name: tiny_architecture(name) for name in LAYOUTS}


@pytest.fixture
def bert() -> nn.Module:
    return tf.BertModel(tf.BertConfig(**BERT))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_embeddings_and_blocks_are_disjoint_and_nearly_all(models: dict[str, nn.Module], layout: str) -> None:
    model = models[layout]
    tables, embeddings = (set(frozen_parameters(model, [name])) for name in ("embeddings.base", "embeddings"))
    blocks = set(frozen_parameters(nn.ModuleDict({"backbone": model, "more": nn.Linear(1, 1)}), ["blocks"]))
    blocks = {name.removeprefix("backbone.") for name in blocks}
    assert tables
    assert tables <= embeddings
    assert not embeddings & blocks
    rest = {name for name, _ in model.named_parameters()} - embeddings - blocks
    assert all(
        re.search(
            r"^(pooler|norm|final_norm|ln_f|final_layer_norm|encoder\.final_layer_norm)\b|relative_attention",
            name,
        )
        for name in rest
    )


SELF = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj"
GATED = "mlp.gate_proj mlp.up_proj"
BY_HAND: dict[str, tuple[str, str, str]] = {
    "bert": (
        "attention.self.query attention.self.key attention.self.value "
        "attention.output.dense attention.output.LayerNorm",
        "intermediate.dense",
        "output.dense output.LayerNorm",
    ),
    "distilbert": (
        "attention.q_lin attention.k_lin attention.v_lin attention.out_lin sa_layer_norm",
        "ffn.lin1",
        "ffn.lin2 output_layer_norm",
    ),
    "t5-gated": (
        "layer.0.SelfAttention.q layer.0.SelfAttention.k layer.0.SelfAttention.v "
        "layer.0.SelfAttention.o layer.0.layer_norm",
        "layer.1.DenseReluDense.wi_0 layer.1.DenseReluDense.wi_1 layer.1.layer_norm",
        "layer.1.DenseReluDense.wo",
    ),
    "gpt-neox": (
        "input_layernorm attention.query_key_value attention.dense",
        "post_attention_layernorm mlp.dense_h_to_4h",
        "mlp.dense_4h_to_h",
    ),
    "llama": (f"{SELF} input_layernorm", f"{GATED} post_attention_layernorm", "mlp.down_proj"),
    "qwen3": (
        f"{SELF} self_attn.q_norm self_attn.k_norm input_layernorm",
        f"{GATED} post_attention_layernorm",
        "mlp.down_proj",
    ),
    "gemma2": (
        f"{SELF} input_layernorm post_attention_layernorm",
        f"{GATED} pre_feedforward_layernorm",
        "mlp.down_proj post_feedforward_layernorm",
    ),
    "modernbert": ("attn_norm attn.Wqkv attn.Wo", "mlp_norm mlp.Wi", "mlp.Wo"),
}
"""Layout to the modules of a block by part: attention, intermediate, output."""


@pytest.mark.parametrize("layout", BY_HAND)
def test_each_layout_has_the_parts_written_down_by_hand(models: dict[str, nn.Module], layout: str) -> None:
    model = models[layout]
    inside = {
        name: re.sub(r"^.*?(layer|layers|block)\.1\.", "", name)
        for name in frozen_parameters(model, ["blocks[1]"])
    }
    for part, written in zip(PARTS, BY_HAND[layout], strict=True):
        expected = [name for name, inner in inside.items() if inner.rpartition(".")[0] in written.split()]
        assert len({inside[name].rpartition(".")[0] for name in expected}) == len(written.split())
        assert frozen_parameters(model, [f"blocks[1].{part}"]) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_embedding_presets_of_each_layout_are_those_by_hand(
    models: dict[str, nn.Module], layout: str
) -> None:
    bert_like = ["embeddings.word_embeddings", "embeddings.position_embeddings"]
    tables = {
        **{
            key: [*bert_like, "embeddings.token_type_embeddings"]
            for key in ("bert", "xlm-roberta", "electra", "albert")
        },
        **dict.fromkeys(("mpnet", "distilbert"), bert_like),
        "modernbert": ["embeddings.tok_embeddings"],
        **{key: ["shared"] for key in ("t5", "t5-gated")},
        "gpt-neox": ["embed_in"],
        "gpt2": ["wte", "wpe"],
    }.get(layout, ["embed_tokens"])
    norm = {"modernbert": ["embeddings.norm.weight"]}.get(
        layout, ["embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"]
    )
    projection = {"electra": "embeddings_project", "albert": "encoder.embedding_hidden_mapping_in"}.get(
        layout
    )
    extra = [f"{projection}.weight", f"{projection}.bias"] if projection else []
    rest = norm + extra if tables[0].startswith("embeddings.") else []
    model = models[layout]
    assert sorted(frozen_parameters(model, ["embeddings.base"])) == sorted(
        f"{table}.weight" for table in tables
    )
    assert sorted(frozen_parameters(model, ["embeddings"])) == sorted(
        [f"{table}.weight" for table in tables] + rest
    )


def numbers_of(model: nn.Module, pattern: str) -> int:
    return sum(model.get_parameter(name).numel() for name in frozen_parameters(model, [pattern]))


def test_counts_worked_by_hand_for_bert(bert: nn.Module) -> None:
    tables = (50 + 512 + 2) * 32  # token, position and token-type tables
    attention = 4 * (32 * 32 + 32) + 2 * 32
    intermediate = 32 * 64 + 64
    output = 64 * 32 + 32 + 2 * 32
    pooler = 32 * 32 + 32
    total = tables + 2 * 32 + 3 * (attention + intermediate + output) + pooler
    patterns = ["embeddings", "blocks[0].attention", "blocks[1:].output", "intermediate"]
    assert {pattern: numbers_of(bert, pattern) for pattern in patterns} == {
        "embeddings": tables + 2 * 32,
        "blocks[0].attention": attention,
        "blocks[1:].output": 2 * output,
        "intermediate": 3 * intermediate,
    }
    report = freeze(bert, patterns)
    assert report.frozen == tables + 2 * 32 + attention + 2 * output + 3 * intermediate
    assert report.trainable == total - report.frozen
    assert report.names == tuple(name for name, weight in bert.named_parameters() if not weight.requires_grad)


def test_the_feed_forwards_output_dense_is_not_attentions(bert: nn.Module) -> None:
    own = [f"encoder.layer.{index}.output.dense.{kind}" for index in range(3) for kind in ("weight", "bias")]
    assert frozen_parameters(bert, ["output.dense"]) == own
    assert frozen_parameters(bert, ["output.dense.weight"]) == own[::2]
    assert frozen_parameters(bert, ["blocks[1:].output.dense.bias"]) == own[3::2]
    assert frozen_parameters(bert, [r"attention\.output\.dense\.bias"]) == [
        f"encoder.layer.{index}.attention.output.dense.bias" for index in range(3)
    ]


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("blocks", {0, 1, 2}),
        ("blocks[:]", {0, 1, 2}),
        ("blocks[0]", {0}),
        ("blocks[-1]", {2}),
        ("blocks[-3]", {0}),
        ("blocks[0:2]", {0, 1}),
        ("blocks[1:]", {1, 2}),
        ("blocks[:-1]", {0, 1}),
        ("blocks[ 0 : 3 ]", {0, 1, 2}),
        ("blocks[2].intermediate", {2}),
        ("blocks.attention", {0, 1, 2}),
        ("attention", {0, 1, 2}),
    ],
)
def test_blocks_are_counted_as_python_counts(bert: nn.Module, pattern: str, numbers: set[int]) -> None:
    names = frozen_parameters(bert, [pattern])
    assert {int(name.split(".")[2]) for name in names} == numbers
    blocks = tuple(f"encoder.layer.{number}." for number in numbers)
    whole = {name for name, _ in bert.named_parameters() if name.startswith(blocks)}
    if "." not in pattern and pattern != "attention":
        assert set(names) == whole
    else:
        assert set(names) < whole


def test_a_regular_expression_is_searched_anywhere_in_the_name(bert: nn.Module) -> None:
    assert frozen_parameters(bert, [r"self\.key\.bias$"]) == [
        f"encoder.layer.{index}.attention.self.key.bias" for index in range(3)
    ]
    assert frozen_parameters(bert, ["^pooler"]) == ["pooler.dense.weight", "pooler.dense.bias"]


def test_patterns_unite_in_the_models_order_whatever_their_own(bert: nn.Module) -> None:
    patterns = ["blocks[1]", "embeddings", r"LayerNorm"]
    names = frozen_parameters(bert, patterns)
    assert names == frozen_parameters(bert, patterns[::-1])
    assert set(names) == set().union(*(frozen_parameters(bert, [pattern]) for pattern in patterns))
    assert names == [name for name, _ in bert.named_parameters() if name in set(names)]


def test_what_was_frozen_before_stays_frozen_and_is_counted(bert: nn.Module) -> None:
    first = freeze(bert, ["embeddings"])
    second = freeze(bert, ["blocks[0]"])
    assert second.frozen == first.frozen + numbers_of(bert, "blocks[0]")


def test_a_tied_table_is_reached_by_its_second_name(models: dict[str, nn.Module]) -> None:
    assert frozen_parameters(models["t5"], [r"encoder\.embed_tokens"]) == ["shared.weight"]


def test_relative_positions_of_t5_belong_to_the_attention_of_block_0(models: dict[str, nn.Module]) -> None:
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    assert name in frozen_parameters(models["t5"], ["blocks[0].attention"])
    assert name not in frozen_parameters(models["t5"], ["blocks[1:]"])


@pytest.mark.parametrize(
    ("pattern", "facts"),
    [
        ("atention", ("near names: attention", "3 blocks")),
        ("encoder.layer.0.attention.self.querry", ("near names: encoder.layer.0.attention.self.query",)),
        (
            "zzzzzz",
            (
                "got no match; this model knows embeddings.base, embeddings, blocks, "
                "attention, intermediate, output, output.dense, ",
            ),
        ),
        ("blocks[2:2]", ("must match a parameter",)),
        *(
            (pattern, ("stay within the blocks of this model", "has 3 blocks"))
            for pattern in ("blocks[3]", "blocks[-4]", "blocks[0:4]", "blocks[-9:]", "blocks[7].attention")
        ),
    ],
)
def test_a_pattern_without_a_match_names_near_ones(bert: nn.Module, pattern: str, facts: Facts) -> None:
    with one_line(ModelError, f'"{pattern}" must ', *facts):
        frozen_parameters(bert, [pattern])


def test_every_fault_is_reported_at_once(bert: nn.Module) -> None:
    with one_line(ModelError, "2 faults: ", '"blocks[5]"', '; freeze pattern "wrong"'):
        frozen_parameters(bert, ["blocks[5]", "embeddings", "wrong"])
    with one_line(ConfigError, "2 faults: ", '"("', '"blocks[x]"'):
        frozen_parameters(bert, ["(", "blocks[x]"])


@pytest.mark.parametrize(
    ("pattern", "facts"),
    [
        ("(unclosed", ("presets or regular expressions", 'got "(unclosed"', "missing )")),
        ("", ("got an empty text",)),
        ("  ", ("got an empty text",)),
        *(
            (pattern, (f'"{pattern}"', "must use blocks[i]"))
            for pattern in ("blocks[]", "blocks[1:2:3]", "blocks[0,1]", "blocks[0", "blocks[1 2]")
        ),
        ("blocks[0].atention", ("must use blocks[i]", ".attention, .intermediate, .output, .output.dense")),
    ],
)
def test_a_malformed_pattern_is_a_config_error_without_a_model(pattern: str, facts: Facts) -> None:
    with one_line(ConfigError, *facts):
        check_patterns([pattern])


def test_a_bare_text_is_not_taken_for_a_list_of_letters(bert: nn.Module) -> None:
    with one_line(ConfigError, "a list of patterns", 'got "embeddings"', 'write ["embeddings"]'):
        freeze(bert, "embeddings")


@pytest.mark.parametrize(
    "patterns", [["."], ["embeddings", "blocks"], ["embeddings", "attention", "intermediate", "output"]]
)
def test_leaving_nothing_but_an_unused_pooler_is_refused(bert: nn.Module, patterns: list[str]) -> None:
    with one_line(ModelError, "must leave something to train"):
        freeze(bert, patterns)
    assert all(weight.requires_grad for weight in bert.parameters())


def test_a_projection_on_top_may_be_all_that_is_trained(bert: nn.Module) -> None:
    encoder = nn.ModuleDict({"backbone": bert, "projection": nn.Linear(32, 8)})
    assert freeze(encoder, ["^backbone"]).trainable == 32 * 8 + 8


def test_two_stacks_of_blocks_need_a_regular_expression() -> None:
    both = tf.T5Model(tf.T5Config(d_model=32, d_ff=64, d_kv=16, num_layers=1, num_heads=2, vocab_size=50))
    with one_line(ModelError, "one stack of blocks", "decoder.block., encoder.block."):
        frozen_parameters(both, ["blocks[0]"])
    assert all(
        name.startswith("encoder.block.0.") for name in frozen_parameters(both, [r"^encoder\.block\.0\."])
    )


def test_a_model_without_blocks_says_so() -> None:
    static = nn.ModuleDict({"embedding": nn.Embedding(5, 2), "top": nn.Linear(2, 2)})
    for pattern in ("blocks[0]", "blocks"):
        with one_line(ModelError, "has 0 blocks"):
            frozen_parameters(static, [pattern])


def test_block_ten_comes_after_block_nine() -> None:
    deep = tf.BertModel(tf.BertConfig(**{**BERT, "num_hidden_layers": 11, "hidden_size": 2}))
    assert {name.split(".")[2] for name in frozen_parameters(deep, ["blocks[-1]"])} == {"10"}
    assert {name.split(".")[2] for name in frozen_parameters(deep, ["blocks[2:10]"])} == {
        str(number) for number in range(2, 10)
    }


def test_a_wrapping_module_does_not_matter(bert: nn.Module) -> None:
    wrapped = nn.Sequential(nn.ModuleDict({"model": bert}), nn.Linear(32, 8))
    for pattern in ("embeddings", "embeddings.base", "blocks[1:3].output.dense", "blocks[0]"):
        assert frozen_parameters(wrapped, [pattern]) == [
            f"0.model.{name}" for name in frozen_parameters(bert, [pattern])
        ]


# --- The rows of Vasilyev et al. 2024, table 1 ---


def test_no_two_rows_of_the_sources_table_freeze_the_same() -> None:
    bert = tiny_architecture("bert")
    below = ["embeddings", "blocks[0].attention", "blocks[0].intermediate", "blocks[0].output.dense"]
    rows = [[], ["embeddings.base"], *(below[:count] for count in range(1, 5)), ["embeddings", "blocks[0]"]]
    frozen = [set(frozen_parameters(bert, row)) for row in rows]
    assert all(less < more for less, more in itertools.pairwise(frozen))
    assert frozen[-1] - frozen[-2] == {
        f"encoder.layer.0.output.LayerNorm.{kind}" for kind in ("weight", "bias")
    }


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

    tables = [
        model.get_submodule(one.removesuffix(".weight"))
        for one in frozen_parameters(model, ["embeddings.base"])
    ]
    assert all(isinstance(table, nn.Embedding) for table in tables)
    assert model.get_input_embeddings() in tables
