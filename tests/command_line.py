"""The command line in this process: as quick as the work is, and of a width that does not depend on the terminal."""

from typer.testing import CliRunner

from homophily.cli import app


def run(*arguments, code=0):
    """Result of a command that is to end with that exit code."""
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result
