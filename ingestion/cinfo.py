"""pfc's ``.cinfo``, the file beside each cached file: one becomes one ``xcache.cinfo.v1`` record.

The bytes are parsed by the core (:func:`smartcache._core.parse_cinfo`), the same code that the plugin reads them with; here they get names,
units and a ``record_id``. That id is made from the cache, the LFN and every byte of the ``.cinfo``: a state that was sent before has the id
that it had then. Pure functions: thread-safe.
"""

from __future__ import annotations

import hashlib

from smartcache import _core

from .errors import ParseError
from .jsontext import INT64_MAX
from .output import Record

STREAM = "cinfo"
SUFFIX = b".cinfo"
#: Access records sent of one file, the last ones: more than `pfc.acchistorysize` allows (200), and a message stays below 256 kB.
MAX_ACCESSES = 1000
#: What the blocks were checked against: pfc's CkSumCheck_e.
CHECKSUMS = ("none", "cache", "net", "both")

_MAX_TIME_S = 2**40
_CAUSES = (("version", "version"), ("checksum", "checksum"), ("cut off", "truncated"))


def parse(lfn: bytes, content: bytes, cache: str, recv_us: int) -> Record:
    """The record of the file ``lfn``, whose ``.cinfo`` holds ``content``.

    :class:`ParseError` where that is no ``.cinfo`` of a known version with right checksums: cause ``version``, ``checksum``, ``truncated``
    or ``record``. Bytes of the LFN that are not UTF-8 become U+FFFD.
    """
    try:
        cinfo = _core.parse_cinfo(content)
    except ValueError as error:
        text = str(error)
        raise ParseError(next((cause for word, cause in _CAUSES if word in text), "record"), text) from None
    if cinfo["accesses"] > INT64_MAX:
        raise ParseError("record", f"its number of accesses {cinfo['accesses']} is out of range")
    digest = hashlib.blake2b(lfn + b"\0" + content, digest_size=16).hexdigest()
    checksums = cinfo["checksums"]
    return {
        "record_id": f"{cache}/cinfo/{digest}",
        "cache": cache,
        "lfn": lfn.decode("utf-8", "replace"),
        "version": cinfo["version"],
        "size": cinfo["file_bytes"],
        "blk_size": cinfo["block_bytes"],
        "n_blks": cinfo["blocks"],
        "n_blks_done": cinfo["blocks_present"],
        "access_cnt": cinfo["accesses"],
        "created_us": _us(cinfo["created_s"]),
        "no_cksum_us": _us(cinfo["no_checksum_s"]),
        "cksum": CHECKSUMS[checksums] if checksums < len(CHECKSUMS) else "unknown",
        "n_accesses": len(cinfo["records"]),
        "accesses": [
            {
                "attach_us": _us(access["attach_s"]),
                "detach_us": _us(access["detach_s"]),
                "duration_s": access["duration_s"],
                "n_ios": access["clients"],
                "n_merged": access["times"] - 1,
                "b_hit": access["hit"],
                "b_miss": access["missed"],
                "b_bypass": access["bypassed"],
            }
            for access in cinfo["records"][-MAX_ACCESSES:]
        ],
        "recv_us": recv_us,
    }


def _us(seconds: int) -> int | None:
    """pfc writes 0 for a time that has not come; what cannot be a time is none either."""
    return seconds * 1_000_000 if 0 < seconds <= _MAX_TIME_S else None
