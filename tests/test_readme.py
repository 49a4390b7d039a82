"""Every block of README.md: sh is executed, console is output, nothing else appears."""
import json
import os
import re
import subprocess

import pytest
from conftest import ROOT, environment

BLOCK = re.compile(r"^```(\S*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
README = ROOT / "README.md"


def blocks():
    return BLOCK.findall(README.read_text(encoding="utf-8")) if README.exists() else []


def scripts():
    """The sh blocks without the line that runs these tests."""
    out = []
    for language, text in blocks():
        lines = [line for line in text.splitlines() if line.strip() != "make test"]
        if language == "sh" and any(lines):
            out.append("\n".join(lines))
    return out


def test_every_block_is_sh_or_console():
    assert blocks(), "README.md has no blocks"
    assert {language for language, _ in blocks()} <= {"sh", "console"}


@pytest.mark.parametrize("script", scripts())
def test_block_runs(script):
    variables = environment(PATH=f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}")
    done = subprocess.run(
        ["bash", "-e"], input=script, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    if script.strip() == "make run":
        check_losses(sorted((ROOT / "runs").glob("compare-*/table.json"), key=os.path.getmtime)[-1])


def check_losses(table):
    """The default run learns: frequencies of characters alone give 3.3 nats a token, of pairs 2.5."""
    losses = {row["mechanism"]: row["validation_loss"] for row in json.loads(table.read_text())}
    assert len(losses) == 7 and all(loss <= 2.6 for loss in losses.values()), losses
