"""The data section of an experiment: a tagged union of the kinds that offline/loaders defines."""

from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING

from offline.loaders import KINDS, DataSection

for _kind in KINDS:
    import_module(f"offline.loaders.{_kind}")

if TYPE_CHECKING:
    Data = DataSection
else:  # msgspec decodes tagged records through a closed union
    Data = reduce(or_, DataSection.__subclasses__())
