"""The command in this process: a new one each time would take seconds, for torch alone."""

import contextlib
import io
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from bcnn.cli import main


def run_command(*arguments: object, cwd: Path | None = None, stdin: str | bytes = "") -> CompletedProcess[str]:
    """What ``python -m bcnn ARGUMENTS`` would do and say."""
    command = ["bcnn", *map(str, arguments)]
    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape") for _ in range(2))
    code = 0
    before = Path.cwd()
    try:
        os.chdir(cwd or before)
        with (
            mock.patch.object(sys, "argv", command),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), errors="surrogateescape")),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        os.chdir(before)
        out.flush()
        err.flush()
    texts = (stream.buffer.getvalue().decode(errors="replace") for stream in (out, err))
    return CompletedProcess(command, code, *texts)
