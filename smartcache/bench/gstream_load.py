"""A site's caches as one program: g-stream packets over UDP at a steady rate (``python -m smartcache.bench.gstream_load``).

Packets are made beforehand, of the size that XCache sends (8 kB, 20 records), numbered as a server numbers them; those due are sent each
millisecond, all at once. Prints how many were sent and how long that took.
"""

from __future__ import annotations

import json
import socket
import sys
import time

RECORDS_PER_PACKET = 20
#: Made beforehand, and sent over and over: two rounds of the server's numbers.
PACKETS = 2000
_TURN_S = 0.001


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


def send(host: str, port: int, first: int, packets_per_s: float, seconds: float) -> tuple[int, float]:
    """Send packets number ``first`` and on for so long; how many there were, and how long it took."""
    made = packets(PACKETS)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
        to.connect((host, port))
        put, total = to.send, round(packets_per_s * seconds)
        sent, begin = 0, time.monotonic()
        while sent < total:
            due = min(total, int((time.monotonic() - begin) * packets_per_s) + 1)
            for number in range(first + sent, first + due):
                put(made[number % PACKETS])
            sent = due
            time.sleep(_TURN_S)
        return sent, time.monotonic() - begin


def main() -> None:
    """``HOST PORT FIRST PACKETS_PER_S SECONDS``; prints one JSON line."""
    host, port, first, rate, seconds = sys.argv[1:]
    sent, took_s = send(host, int(port), int(first), float(rate), float(seconds))
    print(json.dumps({"sent": sent, "seconds": took_s}))


if __name__ == "__main__":
    main()
