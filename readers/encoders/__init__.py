"""Retrieval models, run by sentence-transformers: an embedding model makes vectors, a reranker scores pairs.

Each runs in its own process (process.py), so that its memory is free again when the readers start.
"""
