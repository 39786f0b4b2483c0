"""The whole command, within the process of a test."""

import pytest
from ringside.cli import commands as cli


@pytest.fixture
def run(capsys, monkeypatch):
    """run(*arguments): exit code, standard output, standard error of the whole command."""

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["ringside", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return call
