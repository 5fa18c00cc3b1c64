"""What stands in for a user and a client host: a keyed BLAKE2b hash, so that equal people stay equal and nobody can be looked up.

Without the key a pseudonym cannot be tested against a list of names. With the same key file, pseudonyms agree between collectors and over
restarts; without a key file each start has a random key.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

from smartcache.config import ConfigError

#: Hexadecimal digits of a pseudonym: 64 bits, enough to tell a site's users apart (a collision among 1e6 has probability 3e-8).
DIGITS = 16
#: A key shorter than this could be guessed.
MIN_KEY_BYTES = 16
MAX_KEY_BYTES = hashlib.blake2b.MAX_KEY_SIZE


class Pseudonyms:
    """Turns identities into pseudonyms. Thread-safe; keeps nothing of what it was given."""

    def __init__(self, key: bytes) -> None:
        # A key longer than BLAKE2b takes is hashed first, as HMAC does.
        self._key = key if len(key) <= MAX_KEY_BYTES else hashlib.blake2b(key).digest()

    def of(self, identity: str) -> str:
        """The pseudonym: 16 hexadecimal digits. Host names, IPv6 and IPv6-mapped addresses are just text."""
        return hashlib.blake2b(identity.encode("utf-8", "replace"), key=self._key, digest_size=DIGITS // 2).hexdigest()


def load(key_file: str) -> Pseudonyms:
    """Pseudonyms with the key in ``key_file``, or with a random one where that is empty. ConfigError for a file that will not do."""
    if not key_file:
        return Pseudonyms(secrets.token_bytes(32))
    field = "[collector] pseudonym_key_file"
    try:
        key = Path(key_file).read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"{field}: {key_file} cannot be read ({error.strerror}); make it with `openssl rand -hex 32 > {key_file}`"
        ) from error
    if len(key) < MIN_KEY_BYTES:
        raise ConfigError(
            f"{field}: {key_file} must hold {MIN_KEY_BYTES} bytes or more, not {len(key)}; make it with `openssl rand -hex 32 > {key_file}`"
        )
    return Pseudonyms(key)
