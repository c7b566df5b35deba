"""Labels, scores, coverage, replay, and the whole run: the only package that may know an answer."""
