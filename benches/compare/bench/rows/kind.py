"""What a row is before it has been measured."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class RowKind:
    name: str
    title: str
    # How it is measured, for the docs.
    method: str
    # Fills a `Row`, of which it is given an empty one.
    measure: Callable
    # Debian packages that it needs.
    packages: tuple = ()
    needs_root: bool = False
    # Which page of the docs it is on.
    page: str = "engine"
