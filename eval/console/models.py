"""Printed output about models: pins, certificates, rechecked encodings."""

from rich.console import Console
from rich.table import Table

from eval.console.layout import new_table
from eval.run import Probed
from readers.describe import Description
from readers.encoders.recheck import ModelRecheck, Recheck

_CONDITIONS = {
    "batch": "the sample in batches, cache cold",
    "shuffled": "in batches of another order, cache cold",
    "warm": "the same batches again, cache warm",
    "run": "the sealed predictions",
}

_THINKING = {
    "off": "the template obeys its thinking switch",
    "on": "the template obeys its thinking switch",
    "no switch": "the template knows no thinking",
    "ignored": "the template ignores the thinking switch",
    None: "not tried",
}


def certificate(console: Console, result: Probed) -> None:
    """Print a determinism certificate: what the engine resolved, and how many outputs agreed under each condition."""
    found = result.certificate
    for name, value in result.environment.items():
        console.print(f"{name}: {value}", style="dim", markup=False, highlight=False)
    table = Table(title=f"{result.reader}: outputs that are the same as when read alone")
    for column in ("condition", "same", "what it means"):
        table.add_column(column)
    for condition, same in found.matched.items():
        table.add_row(condition, f"{same} of {found.probed[condition]}", _CONDITIONS[condition])
    console.print(table)
    if first := found.first:
        console.print(
            f"first divergence: {first.condition}, request {first.request[:12]}…, output token {first.token}, margin "
            f"{first.margin or 'not known'}",
            markup=False,
        )
    console.print(f"batch invariance: {found.batch_invariance}", markup=False)


def recheck(console: Console, result: Recheck) -> None:
    """Print what differed when a run's texts were encoded again."""
    if result.encoder:
        _recheck(console, result.encoder, f"{result.encoder.texts} vectors")
    if result.reranker:
        _recheck(console, result.reranker, f"{result.reranker.pairs} scores")
    table = new_table("rankings that changed", ("view",), ("rankings", "in order", "in what they show"))
    for view, count in result.rankings.items():
        table.add_row(view, str(count.rankings), str(count.order), str(count.chosen))
    console.print(table)


def _recheck(console: Console, found: ModelRecheck, outputs: str) -> None:
    console.print(
        f"{found.name}, batch size {found.batch_size} on {found.device}: {found.identical} of {outputs} "
        f"are the same to the last bit, the largest difference is {found.largest_difference:.2g}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def pin(console: Console, result: Description) -> None:
    """Print a model: description, chat template, notes, and last the line for a reader file."""
    model = result.model
    facts = {
        "model": model.repository or model.folder,
        "revision": model.revision or "a local folder",
        "fingerprint": model.fingerprint,
        "licence": result.licence or "not stated",
        "gated": result.gated or "-",
        "weights": f"{result.weights:,} bytes",
        "architecture": result.architecture,
        "dtype": result.dtype,
        "window": f"{result.window:,} tokens" if result.window > 0 else "not stated",
        "stop ids": ", ".join(map(str, result.stop_ids or ())) or "not known",
        "thinking": _THINKING[result.thinking],
        "clock": {True: "the template asks it", False: "the template does not ask it", None: "not tried"}[result.clock],
        "BOS": "not tried" if result.bos is None else f"{result.bos} at the start of an input",
    }
    for name, value in facts.items():
        console.print(f"{name:>13}  {value}", markup=False, highlight=False, soft_wrap=True)
    for finding in result.findings:
        console.print(f"{'note':>13}  {finding}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"\n{result.line}", markup=False, highlight=False, soft_wrap=True)
