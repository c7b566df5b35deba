"""Make a golden run: `python tests/golden/make.py OUT`. For a new format only; an old one is never made again."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tiny import coldread, make_model, write_experiment, write_rows
from tiny_retrieval import make_cross_encoder, make_encoder

VIEWS = ["cmc", "fact_dense", "fact_hybrid", "fact_dense_matched", "chunk_dense_rerank"]


def main() -> None:
    """Read the hand-made histories with a tiny model, in a folder of its own so that no path of the machine is kept."""
    out = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_model(Path("model"))
        models = {"encoder": make_encoder(Path("encoder")), "reranker": make_cross_encoder(Path("reranker"))}
        retrieval = {kind: {"name": kind, "model": {"folder": str(path)}} for kind, path in models.items()}
        analysis = {"contrasts": [{"a": "cmc", "b": "fact_dense"}]}
        more = {"views": VIEWS, "retrieval": {**retrieval, "chunk_tokens": 50, "chunk_k": 2}, "analysis": analysis}
        experiment, rows = write_experiment(Path(), Path("model"), **more), write_rows(Path())
        coldread("run", str(experiment), "--data", str(rows), "--out", str(out))


if __name__ == "__main__":
    main()
