"""A ``.cinfo`` of version 4, byte for byte as pfc writes it, made without the parser; and what XRootD's ``xrdpfc_print`` says of one."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HIT, MISS = 1000, 500


def crc32c(data: bytes) -> int:
    """By the polynomial, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def access(attach=1_700_000_000, detach=1_700_000_005, merged=0, n_ios=1, duration=5, hit=HIT, miss=MISS, bypass=0) -> bytes:
    return struct.pack("<qqiiiiqqq", attach, detach, n_ios, duration, merged, 0, hit, miss, bypass)


def make(
    size=1 << 20,
    block=131072,
    bits=b"\xff",
    accesses=None,
    version=4,
    created=1_699_999_999,
    no_cksum=0,
    status=2,
    count=None,
    claimed=None,
) -> bytes:
    """``accesses``: one, where none are given; ``count``: accesses that the file claims; ``claimed``: access records that it claims."""
    accesses = [access()] if accesses is None else accesses
    store = struct.pack(
        "<qqqqQIi",
        block,
        size,
        created,
        no_cksum,
        len(accesses) if count is None else count,
        status,
        len(accesses) if claimed is None else claimed,
    )
    tail = bits + b"".join(accesses)
    return struct.pack("<i", version) + store + struct.pack("<I", crc32c(store)) + tail + struct.pack("<I", crc32c(tail))


def access_v2(attach=1_600_000_000, detach=1_600_000_009, hit=HIT, miss=MISS, bypass=0) -> bytes:
    return struct.pack("<qqqqq", attach, detach, hit, miss, bypass)


def make_old(version, size=1 << 20, block=131072, bits=b"\xff", accesses=(), created=1_600_000_000, count=2) -> bytes:
    """A ``.cinfo`` of version 2 or 3, as XRootD 4 wrote it."""
    head = struct.pack("<iqq", version, block, size) + bits + hashlib.md5(bits).digest()
    return head + struct.pack("<qQ", created, count) + b"".join(accesses)


def printed(path: Path) -> dict[str, Any]:
    """What the installed ``xrdpfc_print -j`` says, in UTC."""
    answer = subprocess.run(
        ["xrdpfc_print", "-j", str(path)], check=True, capture_output=True, text=True, env={"TZ": "UTC", "PATH": "/usr/bin"}
    )
    return json.loads(answer.stdout)


def as_printed(record: dict[str, Any], file: str) -> dict[str, Any]:
    """A record of ours in the words of ``xrdpfc_print -j``."""

    def day(us: int | None, form: str, never: str = "") -> str:
        return never if us is None else datetime.fromtimestamp(us / 1e6, UTC).strftime(form)

    short, long = "%y%m%d:%H%M%S", "%a %b %e %H:%M:%S %Y"
    complete = record["n_blks_done"] == record["n_blks"]
    said = {
        "accesses": [
            {
                "record": number,
                "attach": day(each["attach_us"], short),
                "detach": day(each["detach_us"], short, "------:------"),
                "duration": f"{each['duration_s'] // 3600}:{each['duration_s'] // 60 % 60:02}:{each['duration_s'] % 60:02}",
                "n_ios": each["n_ios"],
                "n_mrg": each["n_merged"],
                "B_hit": each["b_hit"],
                "B_miss": each["b_miss"],
                "B_bypass": each["b_bypass"],
            }
            for number, each in enumerate(record["accesses"], 1)
        ],
        "buffer_size": record["blk_size"],
        "cksum": record["cksum"],
        "created": day(record["created_us"], long),
        "file": file,
        "file_size": record["size"],
        "n_acc_total": record["access_cnt"],
        "n_blocks": record["n_blks"],
        "state_complete": "complete" if complete else "incomplete",
        "state_percentage": 100.0 * record["n_blks_done"] / record["n_blks"],
        "version": record["version"],
    }
    if record["no_cksum_us"] is not None:
        said["no-cksum-time"] = day(record["no_cksum_us"], long)
    return said
