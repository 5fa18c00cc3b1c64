"""The usual ``file_close`` record, from the server's text to ours without a look at each value: faster by far than through a dictionary.

One regular expression describes what XRootD writes when nothing is out of the ordinary: all fields, in its order, the LFN in printable
ASCII without quote and backslash, integers in JSON's own form that fit 64 bits. Such text is JSON as it stands, so whole stretches of the
line are taken over. Whatever does not match is left to the parser in :mod:`.gstream`; a test holds both to the same answers.
"""

from __future__ import annotations

import re

from .jsontext import encode

_COUNT = rb"(?:0|[1-9][0-9]{0,17}+)"
_TIME = rb"([1-9][0-9]{0,11}+)"
#: Printable ASCII that stands for itself in a JSON string.
_TEXT = rb"[ !#-\[\]-~]"


def _counts(*names: bytes) -> bytes:
    return b",".join(b'"%b":%b' % (name, _COUNT) for name in names)


_MATCH = re.compile(
    rb'\{"event":"file_close","lfn":"('
    + _TEXT
    + rb'++)",('
    + _counts(b"size", b"blk_size", b"n_blks", b"n_blks_done", b"access_cnt")
    + rb'),"attach_t":'
    + _TIME
    + rb',"detach_t":'
    + _TIME
    + rb',("remotes":\[(?:"'
    + _TEXT
    + rb'*+"(?:,"'
    + _TEXT
    + rb'*+")*+)?\],'
    + _counts(b"b_hit", b"b_miss", b"b_bypass")
    + rb")(,"
    + _counts(b"b_todisk", b"b_prefetch")
    + rb")?(,"
    + _counts(b"n_cks_errs")
    + rb")\}"
).fullmatch

_NO_NEW_COUNTS = b',"b_todisk":null,"b_prefetch":null'


class UsualRecords:
    """The records of one packet: what they have in common, as JSON, and how one line is put into it."""

    __slots__ = ("_cache", "_head", "_middle", "_tail")

    def __init__(self, prefix: str, cache: str, start_us: int, instance: str, version: str, site: str, recv_us: int) -> None:
        """``prefix`` is what the records' ids begin with; the rest are fields of ``xcache.pfc.v1``."""
        self._cache = f"{cache}|".encode()
        self._head = f'{{"record_id":{encode(prefix)[:-1]}'.encode()
        self._middle = f'","cache":{encode(cache)},"lfn":"'.encode()
        fields = {"server_start_us": start_us, "instance": instance, "version": version, "site": site, "recv_us": recv_us}
        self._tail = f",{encode(fields)[1:]}".encode()

    def encode(self, line: bytes, index: int) -> tuple[bytes, bytes] | None:
        """Key and value of the message for this line, the packet's record number ``index``; None where the line is not a usual one."""
        found = _MATCH(line)
        if found is None:
            return None
        lfn, counts, attach_s, detach_s, bytes_read, new_counts, errors = found.groups()
        return self._cache + lfn, b'%b%d%b%b",%b,"attach_us":%b000000,"detach_us":%b000000,%b%b%b%b' % (
            self._head,
            index,
            self._middle,
            lfn,
            counts,
            attach_s,
            detach_s,
            bytes_read,
            new_counts or _NO_NEW_COUNTS,
            errors,
            self._tail,
        )
