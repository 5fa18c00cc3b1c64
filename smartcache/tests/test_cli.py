"""What `--help` says, of every command."""

import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from smartcache.cli import app
from smartcache.local import paths

COMMANDS = get_command(app).commands


def words(text):
    return re.findall(r"\S+", text)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_every_word(name):
    """Also those in square brackets, which are sections of smartcache.toml, and no markup."""
    done = CliRunner().invoke(app, [name, "--help"], terminal_width=120)
    assert done.exit_code == 0
    shown = " ".join(words(done.output))
    command = COMMANDS[name]
    assert command.help
    for paragraph in re.split(r"\n\s*\n", command.help):
        assert " ".join(words(paragraph)) in shown
    for parameter in command.params:
        if getattr(parameter, "help", None):
            # A long word may be broken at its hyphens.
            assert "".join(words(parameter.help)) in "".join(words(done.output)), parameter.name


def test_the_contract_names_every_command_and_those_that_take_a_configuration():
    contract = (paths.ROOT / "docs" / "contracts.md").read_text()
    section = contract.partition("## 7. Command line\n")[2].partition("\n## ")[0]
    configured, plain = (set(re.findall(r"[a-z-]+", group)) for group in re.findall(r"`((?:smartcache )?[a-z-]+ \|[^`]*)`", section))
    takes = {name for name, command in COMMANDS.items() if any("--config" in parameter.opts for parameter in command.params)}
    assert configured - {"smartcache"} == takes
    assert plain == COMMANDS.keys() - takes
