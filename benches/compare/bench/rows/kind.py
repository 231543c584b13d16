"""Kinds of rows: the description of a row before it has been measured."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class RowKind:
    name: str
    title: str
    # The way in which it is measured, for the docs.
    method: str
    # Fills in a `Row`, of which it is given an empty one.
    measure: Callable
    # Debian packages that the row needs.
    packages: tuple = ()
    needs_root: bool = False
    # The page of the docs on which the row appears.
    page: str = "engine"
    # TCP's congestion control; that of the run without one.
    congestion: str = ""
