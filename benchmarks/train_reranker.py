"""Train a small cross-encoder from the weights of an encoder, for `adiabat label` where no published one is
at hand.

    python benchmarks/train_reranker.py OUT MINED.jsonl... [--base demo] [--layers 6] [--steps 600]
        [--queries 8] [--negatives 3] [--rate 5e-5] [--max-tokens 128] [--seed 0]

Each MINED has rows with texts in ``query``, ``pos`` and ``neg``, as `adiabat mine` writes them with
``mine.write=texts``. The loss of a step is the cross-entropy of the positive among its negatives, averaged
over queries (Gao et al. 2021). OUT is a directory that transformers and sentence-transformers read. The last
line has the share of held-out queries, 200 of them, whose positive scores above all of their negatives.
"""

import argparse
import random
import time
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerBase

from adiabat.config.shared import DataSection
from adiabat.data.records import Example, ExampleSet
from adiabat.mining.mining_queries import read_queries
from adiabat.models.model_paths import directory_of

HELD_OUT = 200


def main() -> None:
    """Read, train, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("mined", nargs="+")
    parser.add_argument("--base", default="demo")
    parser.add_argument("--layers", type=int, default=6, help="first layers of the encoder to take")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--queries", type=int, default=8, help="queries of a step")
    parser.add_argument("--negatives", type=int, default=3, help="negatives of a query in a step")
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    folder = directory_of(given.base)
    tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=given.max_tokens)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=1, num_hidden_layers=given.layers
    )
    examples: list[Example] = []
    for path in given.mined:
        read = read_queries(path, DataSection())
        assert isinstance(read, ExampleSet)
        examples += read.examples
    order = random.Random(given.seed)
    order.shuffle(examples)
    held_out, trained = examples[:HELD_OUT], examples[HELD_OUT:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, Ramp(given.steps))
    begun, running = time.monotonic(), 0.0
    model.train()
    for step in range(given.steps):
        batch = order.sample(trained, given.queries)
        scores = scores_of(model, tokenizer, [drawn(each, given.negatives, trained, order) for each in batch])
        loss = torch.nn.functional.cross_entropy(scores, torch.zeros(len(batch), dtype=torch.long))
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        running += loss.item()
        if (step + 1) % 25 == 0:
            seconds = time.monotonic() - begun
            print(f"step {step + 1} of {given.steps}, loss {running / 25:.3f}, {seconds:.0f} s", flush=True)
            running = 0.0
    model.eval()
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    with torch.no_grad():
        ranked = [
            scores_of(model, tokenizer, [drawn(each, given.negatives, held_out, order)]) for each in held_out
        ]
    first = [bool((scores[0, 0] > scores[0, 1:]).all()) for scores in ranked]
    print(f"positive first among {given.negatives} negatives: {sum(first) / len(first):.3f}")


class Ramp:
    """Factor of the rate: up to 1 within a tenth of the steps, and down to 0 at the last."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, step: int) -> float:
        """The factor of a step."""
        warmup = max(1, self.steps // 10)
        return min((step + 1) / warmup, (self.steps - step) / (self.steps - warmup))


def drawn(
    example: Example, negatives: int, others: list[Example], order: random.Random
) -> tuple[str, list[str]]:
    """A query, a positive of it and negatives: half of them listed ones, the others positives of other
    queries.

    Listed negatives alone are so near that a model without any training does not begin to learn.
    """
    listed = order.choices(example.negatives, k=negatives // 2) if example.negatives else []
    further = [order.choice(order.choice(others).positives) for _ in range(negatives - len(listed))]
    return example.query, [order.choice(example.positives), *listed, *further]


def scores_of(
    model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, lists: list[tuple[str, list[str]]]
) -> torch.Tensor:
    """The score of each document of each list, a row for each query."""
    queries = [query for query, documents in lists for _ in documents]
    documents = [document for _, documents in lists for document in documents]
    batch = tokenizer(queries, documents, padding=True, truncation="longest_first", return_tensors="pt")
    scores: torch.Tensor = model(**batch).logits
    return scores.view(len(lists), -1)


if __name__ == "__main__":
    main()
