"""Query-time pipelines: a question to an answer by several calls of one model, with explicit code between them."""
