"""Which datasets lie under paths that have a person's name in them: [privacy] user_paths.

What is published and what is shown leaves those out: in the side table a plugin could not look such a name up by anything else, and a
statistic needs none. The access table and training sets keep every path as it is: it is what is opened, and what features are made from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def expression(user_paths: Sequence[str]) -> str:
    """What finds one of the patterns in a dataset's name, a regular expression of Java's and Python's; empty where there are none."""
    return "|".join((r"\A" if each.startswith("/") else r"(?:\A|[/:])") + _part(each) for each in user_paths)


def of_a_user(dataset: Column, user_paths: Sequence[str]) -> Column:
    """Whether that is in the name; null where there is no name."""
    from pyspark.sql import functions as F

    found = expression(user_paths)
    return dataset.rlike(found) if found else F.lit(False)


def _part(pattern: str) -> str:
    # Any star is at least one character of one level; a path means the same with more slashes between its levels.
    return "[^/]+".join("/+".join(map(re.escape, each.split("/"))) for each in pattern.split("*"))
