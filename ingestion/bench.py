"""How fast g-stream records go through one core: ``python -m smartcache.ingestion.bench``.

Measures, on made-up packets of the size that XCache sends (8 kB, 20 records or so), what the collector's one thread does for a packet:
parsing alone, and parsing with encoding and handing over to librdkafka's queue, its own threads running against no broker.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from smartcache.config import load

from .counters import Counters
from .gstream import GStreamHandler
from .output import Output, Record
from .sink import KafkaSink

RECORDS_PER_PACKET = 20
PACKETS = 10_000


class _Nowhere:
    """An output that forgets."""

    def record(self, stream: str, record: Record) -> None:
        """Forget."""

    def dead_letter(self, stream: str, reason: str, raw: bytes, recv_us: int) -> None:
        """Forget."""


def packets(count: int, records: int = RECORDS_PER_PACKET) -> list[bytes]:
    """``count`` packets of one cache, numbered as the server does."""
    source = '{"site":"T2_XX_Site","host":"cache01.example.org","port":1094,"inst":"cache","pgm":"xrootd","ver":"v5.7.3"}'
    made = []
    for number in range(count):
        header = (
            f'{{"code":"g","pseq":{number % 1000:3d},"stod":1795242093,"sid":38009399717061,"src":{source},'
            f'"gs":{{"type":"C","tbeg":{1795242126 + number},"tend":{1795242126 + number}}}}}'
        )
        lines = [
            f'{{"event":"file_close","lfn":"/store/mc/RunIII/Primary/NANOAODSIM/v1-v{index}/250000/{number:08x}-{index:04x}.root",'
            '"size":2147483648,"blk_size":131072,"n_blks":16384,"n_blks_done":5120,"access_cnt":4,"attach_t":1795242126,'
            '"detach_t":1795242926,"remotes":["xrootd-origin.example.org:1094"],"b_hit":536870912,"b_miss":134217728,"b_bypass":0,'
            '"b_todisk":134217728,"b_prefetch":0,"n_cks_errs":0}'
            for index in range(records)
        ]
        made.append("\n".join((header, *lines)).encode() + b"\0")
    return made


def _rate(work: Callable[[bytes], None], datagrams: list[bytes]) -> float:
    begin = time.process_time()
    for raw in datagrams:
        work(raw)
    return len(datagrams) * RECORDS_PER_PACKET / (time.process_time() - begin)


def main() -> None:
    """Print one JSON line: records per second of processor time."""
    datagrams = packets(PACKETS)
    sink = KafkaSink(load().kafka, Counters(), lambda _: None)
    outputs: dict[str, Output] = {"parse": _Nowhere(), "parse_encode_queue": sink}
    result: dict[str, float] = {"records_per_packet": RECORDS_PER_PACKET, "packet_bytes": len(datagrams[0])}
    for name, output in outputs.items():
        handler = GStreamHandler(output, Counters())

        def work(raw: bytes, handler: GStreamHandler = handler) -> None:
            handler.handle(raw, "127.0.0.1", 1)

        result[f"{name}_per_s"] = round(_rate(work, datagrams))
    print(json.dumps(result), file=sys.stdout)


if __name__ == "__main__":
    main()
