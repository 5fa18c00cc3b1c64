"""Job monitoring: one JSON document of a batch job becomes one ``xcache.job.v1`` record.

Two layouts are known, told apart by their keys; both may be wrapped as ``{"data": …}`` (MonIT's archive) or ``{"_source": …}``
(OpenSearch):

- CMS's HTCondor documents (``GlobalJobId``, ``RecordTime``; hours and gigabytes);
- PanDA's jobs (``pandaid``, ``modificationtime``; seconds and bytes).

Names of users are in these documents in several places, also within names of workflows and of users' own datasets. So the user and the
workflow leave as pseudonyms, a user's dataset as :func:`_public`, the job's own name as a hash, and nothing of a document that does not
parse is quoted but the value that is wrong. Pure: thread-safe.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from smartcache.traces import unix_us

from .errors import ParseError
from .jsontext import INT64_MAX, decode_object, is_text
from .output import Record
from .pseudonym import Pseudonyms
from .trace import EARLIEST_US, LATEST_US, MOST_BYTES, check_past, quoted

STREAM = "job"
#: Unix seconds stay below it until the year 5138; milliseconds have been above it since 1973.
_MILLISECONDS_FROM = 1e11
_HOUR_S, _GB = 3600.0, 1e9


class Layout(NamedTuple):
    """Where a document has what: names of keys, the first that is there counts. Numbers with what makes them seconds or bytes."""

    job: str
    time: str
    site: tuple[str, ...]
    user: tuple[str, ...]
    workflow: tuple[str, ...]
    datasets: Mapping[str, tuple[str, ...]]
    texts: Mapping[str, tuple[str, ...]]
    numbers: Mapping[str, tuple[str, float]]
    counts: Mapping[str, tuple[str, ...]]
    #: Says `Onsite` where the job ran at a site that has its input, `Offsite` where it read from another.
    input_local: str = ""


CMS = Layout(
    job="GlobalJobId",
    time="RecordTime",
    site=("Site", "CMSSite", "MATCH_GLIDEIN_CMSSite"),
    user=("CRAB_UserHN", "x509userproxysubject"),
    workflow=("CRAB_Workflow", "WMAgent_RequestName", "Workflow"),
    datasets={"dataset": ("DESIRED_CMSDataset",), "block": ("CRAB_DataBlock",)},
    texts={"type": ("Type", "CMS_JobType"), "status": ("Status",)},
    numbers={
        "cpu_s": ("CpuTimeHr", _HOUR_S),
        "wall_s": ("WallClockHr", _HOUR_S),
        "queue_s": ("QueueHrs", _HOUR_S),
        "read_s": ("ReadTimeHrs", _HOUR_S),
        "b_input": ("InputGB", _GB),
    },
    counts={"cores": ("RequestCpus",), "exit_code": ("ExitCode",)},
    input_local="InputData",
)
PANDA = Layout(
    job="pandaid",
    time="modificationtime",
    site=("computingsite",),
    user=("produsername", "produserid"),
    workflow=("jeditaskid",),
    datasets={"dataset": ("proddblock",)},
    texts={"type": ("prodsourcelabel",), "status": ("jobstatus",)},
    numbers={"cpu_s": ("cpuconsumptiontime", 1.0), "b_input": ("inputfilebytes", 1.0)},
    counts={"cores": ("actualcorecount", "corecount"), "exit_code": ("transexitcode",)},
)
#: What the stream takes: of bytes no more than any file has, and no fewer cores than none.
_MOST = {"b_input": MOST_BYTES}
_LEAST = {"cores": 0}
_INPUT_LOCAL = {"Onsite": True, "Offsite": False}
#: A dataset that a user has made: CMS's data tier USER (``/primary/user-name-hash/USER``, a block has ``#block`` behind it), Rucio's scope
#: ``user.NAME``.
_CMS_USERS = re.compile(r"/([^/]+)/([^/]+)/USER(#.*)?", re.DOTALL)
_RUCIO_USERS = re.compile(r"(?:^|[.:])user\.", re.DOTALL)
_WRAPPERS = ("data", "_source")
_FIELDS = ("dataset", "block", "type", "status", "cpu_s", "wall_s", "queue_s", "read_s", "b_input", "cores", "exit_code")


def parse(line: bytes, pseudonyms: Pseudonyms, recv_us: int) -> Record:
    """The record in one line; :class:`ParseError` names the key, the rule and the value. What a document does not say is null."""
    document = decode_object(line.decode("utf-8", "replace"))
    for wrapper in _WRAPPERS:
        if type(inner := document.get(wrapper)) is dict:
            document = inner
            break
    layout = next((each for each in (CMS, PANDA) if each.job in document), None)
    if layout is None:
        raise ParseError("field", f"it is no job: neither {CMS.job} (CMS) nor {PANDA.job} (PanDA) is in it")
    job = document[layout.job]
    if (type(job) is not int and not is_text(job)) or job == "":
        raise ParseError("field", f"{layout.job} must name the job")
    site = _text(document, layout.site)
    if site is None:
        raise ParseError("field", f"{layout.site[0]} must be text that is not empty")
    record_us = _moment(document, layout.time)
    if record_us is None:
        raise ParseError("field", f"{layout.time} is missing")
    check_past(layout.time, record_us, document[layout.time], recv_us)
    job_id = hashlib.blake2b(f"{layout.job} {job}".encode("utf-8", "replace"), digest_size=16).hexdigest()
    user, workflow = _text(document, layout.user), _text(document, layout.workflow)
    record: Record = {
        "record_id": f"job/{job_id}/{record_us}",
        "job_id": job_id,
        "record_us": record_us,
        "site": site,
        "user": None if user is None else pseudonyms.of(user),
        "workflow": None if workflow is None else pseudonyms.of(workflow),
        **dict.fromkeys(_FIELDS),
        "input_local": _INPUT_LOCAL.get(str(document.get(layout.input_local))),
        "recv_us": recv_us,
    }
    record |= {name: _public(_text(document, keys), pseudonyms) for name, keys in layout.datasets.items()}
    record |= {name: _text(document, keys) for name, keys in layout.texts.items()}
    record |= {name: _number(document, key, factor, _MOST.get(name)) for name, (key, factor) in layout.numbers.items()}
    record |= {name: _integer(document, keys, _LEAST.get(name)) for name, keys in layout.counts.items()}
    if record["b_input"] is not None:
        record["b_input"] = round(record["b_input"])
    if layout is PANDA:
        start, end = _moment(document, "starttime"), _moment(document, "endtime")
        record["wall_s"] = None if start is None or end is None or end < start else (end - start) / 1e6
    return record


def _public(dataset: str | None, pseudonyms: Pseudonyms) -> str | None:
    """A dataset's name without its user's: equal names stay equal, what kind it is stays; whose it is and how they called it is gone."""
    if dataset is None:
        return None
    if cms := _CMS_USERS.fullmatch(dataset):
        return f"/{pseudonyms.of(cms[1])}/{pseudonyms.of(cms[2])}/USER{cms[3] or ''}"
    if _RUCIO_USERS.search(dataset):
        return f"user.{pseudonyms.of(dataset)}"
    return dataset


def _first(document: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, Any]:
    return next(((key, document[key]) for key in keys if document.get(key) not in (None, "")), (keys[0], None))


def _text(document: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    key, value = _first(document, keys)
    if value is None:
        return None
    if type(value) is int:
        return str(value)
    if not is_text(value):
        raise ParseError("field", f"{key} must be text")  # not quoted: it may be a name
    return str(value)


def _number(document: Mapping[str, Any], key: str, factor: float, most: int | None) -> float | None:
    value = document.get(key)
    if value is None:
        return None
    # Compared before it is multiplied: an integer of JSON may have a thousand digits.
    if type(value) not in (int, float) or not 0 <= value <= INT64_MAX or value * factor > INT64_MAX:
        raise ParseError("field", f"{key} must be a number of 0 or more, not {quoted(value)}")
    if most is not None and value * factor > most:
        raise ParseError("field", f"{key} must be no more than {most} bytes, not {quoted(value)}")
    return float(value * factor)


def _integer(document: Mapping[str, Any], keys: tuple[str, ...], least: int | None) -> int | None:
    key, value = _first(document, keys)
    if value is None:
        return None
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or abs(value) > INT64_MAX:
        raise ParseError("field", f"{key} must be an integer, not {quoted(value)}")
    if least is not None and not least <= value <= MOST_BYTES:
        raise ParseError("field", f"{key} must be an integer of {least} to 2^50, not {quoted(value)}")
    return value


def _moment(document: Mapping[str, Any], key: str) -> int | None:
    value = document.get(key)
    if value is None or value == "":
        return None
    if type(value) in (int, float) and _MILLISECONDS_FROM <= value <= INT64_MAX:
        value = value / 1000
    moment = unix_us(value)
    if moment is None or not EARLIEST_US <= moment <= LATEST_US:
        raise ParseError("field", f"{key} must be a time in the years 2000 to 2100, not {quoted(value)}")
    return moment
