"""The id of a cache as a person gives it to a command: HOST:PORT, as XRootD names the server."""

from __future__ import annotations

import re

#: The stream takes an id of visible ASCII that can name a folder; `|` parts it from the LFN in a record's key.
_ID = re.compile(r"[!-{}~]+:\d{1,5}", re.ASCII)
#: Octets of a folder's name, and what of it Spark writes with three: `cache=host%3A1094`. As preprocessing/records.py has them.
LONGEST_NAME = 255
ESCAPED = "[\"#%'*/:=?\\\\\\[\\]^{]"


def problem(cache: str) -> str:
    """What is wrong with it, to stand behind the option's name; empty where nothing is."""
    if not _ID.fullmatch(cache):
        return f"HOST:PORT, as XRootD names the server, of visible ASCII without |, not {cache!r}"
    octets = len("cache=" + re.sub(ESCAPED, "%00", cache))
    if octets > LONGEST_NAME:
        return f"shorter: its folder in the access table would have a name of {octets} octets, more than {LONGEST_NAME}"
    return ""
