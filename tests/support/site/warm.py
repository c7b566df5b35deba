"""What a process that loads a retrieval model imports first, for a server that forks such processes (conftest's `warm`)."""

import os

# As each of these processes sets it, but before the libraries read it.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import sentence_transformers  # noqa: F401
from transformers.models.qwen3 import modeling_qwen3  # noqa: F401
from transformers.models.xlm_roberta import modeling_xlm_roberta  # noqa: F401

import readers.encoders.embedding
import readers.encoders.reranking  # noqa: F401
