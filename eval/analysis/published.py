"""Accuracies that others published, to stand beside a run's own."""

from typing import Annotated

import msgspec

from offline.config.yaml import configs_folder, load_yaml
from offline.errors import ConfigurationError
from offline.records import HopClass

Percent = Annotated[str, msgspec.Meta(pattern=r"^\d{1,3}\.\d\d$")]


class PublishedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published result; hop classes that it does not give are left out. `where`: its place in the source."""

    view: str
    reader: str
    extraction: str
    percent: dict[HopClass, Percent]
    where: str


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one source says of a benchmark: each row is of so many `questions` of a hop class."""

    source: str
    questions: dict[HopClass, int]
    rows: tuple[PublishedRow, ...]


def published(kind: str) -> Published:
    """The published rows of a kind of data; ConfigurationError if there are none."""
    shipped = {path.stem: path for path in sorted((configs_folder() / "published").glob("*.yaml"))}
    if kind not in shipped:
        raise ConfigurationError(
            f"no published figures of {kind!r} data are known, only of {', '.join(shipped)}; leave out --published"
        )
    return load_yaml(shipped[kind], Published)
