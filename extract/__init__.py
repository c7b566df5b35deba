"""Frontends turn statements into triples and never see a question; pipelines answer questions. None sees a label."""
