"""Every block of README.md: sh is executed, console is output, nothing else appears."""
import json
import os
import re
import subprocess
import sys

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
    built = {name: os.environ[name] for name in ["MOTET_CUDA_ARCHITECTURES"] if name in os.environ}  # or it is built anew
    variables = environment(PATH=f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}", **built)
    done = subprocess.run(
        ["bash", "-e"], input=script, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    if script.strip() == "make run":
        run = sorted((ROOT / "runs").glob("compare-*/table.json"), key=os.path.getmtime)[-1].parent
        check = subprocess.run([sys.executable, ROOT / "scripts/readme_table.py", "--against", run], capture_output=True, text=True)
        assert check.returncode == 0, check.stderr


def test_a_table_with_another_story_is_noticed(tmp_path):
    """DCMHA at 2.48 where 2.21 is right passed once."""
    rows = json.loads((ROOT / "bench/results/make_run.json").read_text())["rows"]
    dcmha = next(row for row in rows if row["mechanism"] == "dcmha")
    for key, value in {"validation_loss": dcmha["validation_loss"] + 0.2746, "ffn_width": dcmha["ffn_width"] + 1}.items():
        changed = [row | {key: value} if row is dcmha else row for row in rows]
        (tmp_path / "table.json").write_text(json.dumps(changed))
        check = subprocess.run([sys.executable, ROOT / "scripts/readme_table.py", "--against", tmp_path], capture_output=True, text=True)
        assert check.returncode == 1 and "dcmha has" in check.stderr
    (tmp_path / "table.json").write_text(json.dumps(rows))
    subprocess.run([sys.executable, ROOT / "scripts/readme_table.py", "--against", tmp_path], check=True)
