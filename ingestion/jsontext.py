"""JSON as strict as RFC 8259, from text that may be hostile, to text that any consumer reads."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from .errors import ParseError

#: Numbers leave as 64-bit integers: what is larger breaks a consumer.
INT64_MAX = 2**63 - 1


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_decode = _DECODER.decode
encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode


def decode_object(text: str) -> dict[str, Any]:
    """The JSON object in ``text``; :class:`ParseError` (cause ``json``) for anything else, deep nesting and endless digits included."""
    try:
        value = _decode(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("json", str(error)) from None
    if type(value) is not dict:
        raise ParseError("json", f"an object was expected, not {type(value).__name__}")
    return value


def is_text(value: object) -> bool:
    """Whether this is a string that can be written as UTF-8 (an escaped lone surrogate cannot)."""
    if type(value) is not str:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
