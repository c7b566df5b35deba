"""Runs as an insider could forge them: files changed, every manifest and seal made to fit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from offline.canonical import encode, file_digest, write_record
from offline.run.manifest import Manifest, make_manifest, read_manifest
from readers.records import Seal
from readers.seal import close


def reseal(run: Path) -> None:
    """Forge: make every manifest and the seal fit the files as they are now, as an insider could."""

    def remake(folder: Path, beside: tuple[str, ...] = (), **inputs: str) -> Manifest:
        old = read_manifest(folder)
        names = [e.name for e in old.files]
        made = make_manifest(folder, old.step, {**old.inputs, **inputs}, names)
        write_record(folder / "manifest.json", made)
        return made

    data = remake(run / "data")
    labels = remake(run / "labels", data=data.digest)
    extraction = remake(run / "extraction", data=data.digest)
    packets = remake(run / "packets", data=data.digest, extraction=extraction.digest)
    reads = run / "reads" / "tiny"
    requests, tokenizer = remake(reads / "requests", packets=packets.digest), remake(reads / "tokenizer")
    seal = msgspec.json.decode((reads / "seal.json").read_bytes(), type=Seal)
    seal = close(
        msgspec.structs.replace(
            seal,
            data=data.digest,
            extraction=extraction.digest,
            packets=packets.digest,
            requests=requests.digest,
            tokenizer=tokenizer.digest,
            predictions=file_digest(reads / "predictions.jsonl"),
            labels=file_digest(run / "labels" / "labels.jsonl"),
        )
    )
    write_record(reads / "seal.json", seal)
    remake(reads, seal=seal.root)
    remake(run / "scores", labels=labels.digest, seal_tiny=seal.root)


def edit_line(path: Path, number: int, change: Callable[[dict[str, Any]], None]) -> None:
    lines = path.read_bytes().splitlines()
    record = json.loads(lines[number])
    change(record)
    lines[number] = encode(record)
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def append(path: Path) -> None:
    """Bytes that are no line."""
    path.write_bytes(path.read_bytes() + b"x")


def add_file(folder: Path) -> None:
    """A file that no step writes, which the manifest lists."""
    (folder / "stranger").write_bytes(b"")
    old = read_manifest(folder)
    names = [entry.name for entry in old.files]
    write_record(folder / "manifest.json", make_manifest(folder, old.step, old.inputs, [*names, "stranger"]))
