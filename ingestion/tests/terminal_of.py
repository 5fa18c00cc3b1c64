"""What a command shows a person: its standard error on a real terminal (a pty)."""

import os
import pty
import re
import subprocess
from collections.abc import Sequence

_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def shown_on_a_terminal(argv: Sequence[str]) -> tuple[int, str]:
    """Run it to its end; its exit status, and the text without the terminal's sequences."""
    terminal, ours = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}
    came = b""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=ours, env=environment) as process:
        os.close(ours)
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # how a pty says that nobody writes to it any more
                break
            if not part:
                break
            came += part
    os.close(terminal)
    return process.returncode, _SEQUENCE.sub("", came.decode(errors="replace"))
