"""Models of retrieval, run by sentence-transformers: an embedding model makes vectors, a reranker scores pairs.

Each runs in a process of its own (process.py), so that its memory is free again when the readers start.
"""
