"""What the captured packets say, read without the parsers: `python ingestion/tests/golden_records.py CAPTURES` writes golden/*.jsonl anew.

One record a line, in the order of their ids, without the moment of receipt. It is plain where the parsers are careful: it takes every
packet to be whole, every open to have its close, every name to be harmless, as it is in these captures.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

from smartcache.ingestion.pseudonym import Pseudonyms

FOLDER = Path(__file__).parent / "golden"
#: Of tests: what it makes of a name is the same each time.
PSEUDONYMS = Pseudonyms(b"k" * 32)
CAPTURES = {"gstream-5.5.3": "gstream", "gstream-6.2.1": "gstream", "fstream-5.5.3": "fstream"}
Record = dict[str, Any]


def datagrams(path: Path) -> list[bytes]:
    """The packets of one capture file."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [bytes.fromhex(row["hex"]) if "hex" in row else row["raw"].encode() for row in rows if "marker" not in row]


def _gstream(packets: list[bytes]) -> list[Record]:
    records = []
    for raw in packets:
        head, *lines = (json.loads(line) for line in raw.decode().rstrip("\0").split("\n"))
        for index, line in enumerate(lines):
            source = head["src"]
            cache = f"{source['host']}:{source['port']}"
            counts = {name: value for name, value in line.items() if name not in ("event", "attach_t", "detach_t")}
            records.append(
                {
                    "b_todisk": None,
                    "b_prefetch": None,
                    **counts,
                    "record_id": f"{cache}/{head['stod']}/{head['sid']}/{head['gs']['tbeg']}/{head['pseq']}/{index}",
                    "cache": cache,
                    "attach_us": line["attach_t"] * 1_000_000,
                    "detach_us": line["detach_t"] * 1_000_000,
                    "server_start_us": head["stod"] * 1_000_000,
                    "instance": source["inst"],
                    "version": source["ver"],
                    "site": source["site"],
                }
            )
    return records


def _fstream(packets: list[bytes]) -> list[Record]:
    caches: dict[Any, str] = {}
    users: dict[Any, dict[str, str]] = {}
    opens: dict[Any, Record] = {}
    records = []
    for raw in packets:
        life = raw[4:8]
        if raw[:1] == b"=":
            host, port = re.search(rb"@(.*)\n.*&port=(\d+)", raw).groups()  # type: ignore[union-attr]
            caches[life] = f"{host.decode()}:{port.decode()}"
        elif raw[:1] == b"u":
            login, host, app = re.search(rb"/(.*)\.\d+:\d+@(.*)\n.*&x=([^&]*)", raw[12:]).groups()  # type: ignore[union-attr]
            of = lambda name: PSEUDONYMS.of(name.decode())  # noqa: E731
            users[life, raw[8:12]] = {"user": of(login), "client_host": of(host), "app": app.decode()}
        elif raw[:1] == b"f":
            begin_s, end_s, sid = struct.unpack(">IIQ", raw[16:32])
            at = 32
            while at < len(raw):
                kind, flags, size, file_id = raw[at], raw[at + 1], struct.unpack(">H", raw[at + 2 : at + 4])[0], raw[at + 4 : at + 8]
                body, at = raw[at + 8 : at + size], at + size
                forced = bool(flags & 1)
                span = begin_s * 1_000_000, end_s * 1_000_000 + 999_999
                if kind == 1:
                    opens[life, file_id] = {
                        "lfn": body[12:].rstrip(b"\0").decode(),
                        "size": struct.unpack(">q", body[:8])[0],
                        "open_lo_us": span[0],
                        "open_hi_us": span[1],
                        "who": body[8:12],
                        "id": f"{int.from_bytes(life)}/{sid & (2**48 - 1)}/{int.from_bytes(file_id)}",
                    }
                elif kind == 0:
                    one = opens.pop((life, file_id))
                    read, readv, write, n_read, n_readv = struct.unpack(">qqqii", body[:32])
                    records.append(
                        {
                            **{name: one[name] for name in ("lfn", "size", "open_lo_us", "open_hi_us")},
                            "record_id": f"{caches[life]}/{one['id']}",
                            "cache": caches[life],
                            "close_lo_us": span[0],
                            "close_hi_us": span[1],
                            "b_read": read,
                            "b_readv": readv,
                            "b_write": write,
                            "n_read": n_read,
                            "n_readv": n_readv,
                            "forced": forced,
                            **users[life, one["who"]],
                        }
                    )
    return records


def _main(captures: Path) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, stream in CAPTURES.items():
        records = {"gstream": _gstream, "fstream": _fstream}[stream](datagrams(captures / f"{name}.jsonl"))
        records.sort(key=lambda record: record["record_id"])
        (FOLDER / f"{name}.jsonl").write_text("".join(json.dumps(each, sort_keys=True) + "\n" for each in records))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
