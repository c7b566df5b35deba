"""The name of `compose` in version 0.1, kept for packages that import `parse` from here."""

from extract.pipelines.compose import parse

__all__ = ["parse"]
