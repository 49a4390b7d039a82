"""What the tests of the whole program share."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOTET = ROOT / "build" / "motet"

# The smallest model that shows everything; seconds to train. Another that never ends.
SIZES = "--hidden-size 16 --num-layers 1 --num-heads 2 --ctx-size 32 --batch-size 2 -t 1".split()
TINY = [*SIZES, "--steps", "4", "--eval-every", "2"]
ENDLESS = [*SIZES, "--steps", "1000000", "--eval-every", "20"]


def environment(**extra):
    """The environment without our own variables and colours."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MOTET_")}
    return clean | {"NO_COLOR": "1"} | extra


def run(*arguments, folder=ROOT, timeout=300, stdin="", **extra):
    """Runs build/motet with a text as its stdin; stdout and stderr as text."""
    command = [MOTET, *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=environment(**extra), input=stdin, capture_output=True, text=True, timeout=timeout
    )


def refused(code, *arguments, **more):
    """The one line on stderr of a call that must end with `code` and write nothing to stdout."""
    done = run(*arguments, **more)
    lines = done.stderr.splitlines()
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert len(lines) == 1 and lines[0].startswith("motet: "), done.stderr
    assert done.stdout == ""
    return lines[0]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The run folder of a trained tiny model."""
    folder = tmp_path_factory.mktemp("model") / "run"
    done = run("train", *TINY, "--tokenizer", "chars", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder
