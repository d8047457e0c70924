"""The card of a model with two towers: which of them reads what, in sentence-transformers and in the libraries that call it."""

from adiabat.model.similarity import IN_WORDS, NAMES
from adiabat.model.towers import DualEncoder

QUERY_ARGUMENTS = '{"task": "query", "prompt_name": "query"}'

_CARD = """\
---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
---

# Query tower and document tower

Vectors have {width} numbers and are compared by {similarity}. Documents and queries go through different weights:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("PATH")
documents = model.encode_document(["a document"])
queries = model.encode_query(["a question"])
```

Plain `encode` takes the document tower, so that whoever adds documents to an index by it adds the right vectors. LangChain, LlamaIndex and
Haystack call plain `encode`; ask them for the query tower where they embed queries:

```python
HuggingFaceEmbeddings(model_name="PATH", query_encode_kwargs={arguments})  # langchain-huggingface
SentenceTransformersTextEmbedder(model="PATH", encode_kwargs={arguments})  # sentence-transformers-haystack
SentenceTransformersDocumentEmbedder(model="PATH")


class TunedQueries(HuggingFaceEmbedding):  # llama-index-embeddings-huggingface
    def _get_query_embedding(self, query):
        return self._model.encode_query(query, normalize_embeddings=self.normalize).tolist()


TunedQueries({llama})
```

Made with adiabat.
"""


def model_card(model: DualEncoder) -> str:
    """Tell how a saved Router is used."""
    # LlamaIndex sets the prompts of both sides itself, and brings vectors to unit length unless told otherwise.
    prompts = {"query_instruction": model.query.settings.query_prompt, "text_instruction": model.document.settings.document_prompt}
    llama = ['"PATH"', *(f"{name}={prompt!r}" for name, prompt in prompts.items() if prompt)]
    if not model.unit:
        llama.append("normalize=False")
    return _CARD.format(
        width=model.width,
        similarity=f"{IN_WORDS[model.similarity]} (`{NAMES[model.similarity]}`)",
        arguments=QUERY_ARGUMENTS,
        llama=", ".join(llama),
    )
