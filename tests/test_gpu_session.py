"""scripts/gpu_session on a machine without a GPU, and with programs that say that there is one."""
import os
import re
import subprocess
import tarfile

import pytest
from conftest import ROOT, environment

SESSION = ROOT / "scripts/gpu_session"
STAGES = "doctor sanitize tests operators goals-2048 goals-8192 decode step train goals-4096 wide race sanitize-all sanitize-decode run verify".split()


def session(*arguments, script=SESSION, **extra):
    return subprocess.run([script, *arguments], env=environment(**extra), capture_output=True, text=True, timeout=60)


def test_each_stage_says_that_there_is_no_gpu(tmp_path):
    if "GPU                    none" not in subprocess.run([ROOT / "build/motet", "doctor"], capture_output=True, text=True).stdout:
        pytest.skip("there is a GPU")
    done = session("-o", tmp_path / "out")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("what ") and "CUDA kernels" in done.stdout, "doctor says why"
    assert lines[-len(STAGES) :] == [f"{stage}: there is no GPU" for stage in STAGES]
    assert not (tmp_path / "out").exists()
    assert session("train", "doctor").stdout.splitlines()[-2:] == ["train: there is no GPU", "doctor: there is no GPU"]


def test_all_stages_fit_twenty_five_minutes():
    shown = session("--help").stdout
    limits = re.findall(r"^  (\S+) +(\d+) s$", shown, re.M)
    assert [name for name, _ in limits] == STAGES
    assert sum(int(limit) for _, limit in limits) <= 25 * 60


def test_an_unknown_stage_is_wrong_usage():
    done = session("goals")
    assert done.returncode == 2 and done.stderr.startswith("gpu_session: unknown stage 'goals', want one of doctor sanitize")
    assert session("-t").stderr == "gpu_session: -t wants a name\n"
    for limit in ("doctor=", "doctor=x", "doctor=0"):
        done = session(limit)
        assert done.returncode == 2 and done.stderr == f"gpu_session: '{limit}', want doctor=SECONDS\n"


@pytest.fixture
def there(tmp_path):
    """A tree whose program says that there is a GPU, answers its arguments, and fails or waits when it is asked to."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "build").mkdir()
    script = tmp_path / "scripts/gpu_session"
    script.write_text(SESSION.read_text().replace("verify 120", "verify 1"))
    motet = tmp_path / "build/motet"
    motet.write_text(
        "#!/bin/sh\ncase $1 in doctor) echo 'GPU    CUDA' ;; verify) exec sleep 20 ;; compare) exit 3 ;;\n"
        '*) echo "said" >&2; echo "[\\"$*\\"]" ;; esac\n'
    )
    for path in (script, motet):
        path.chmod(0o755)
    return script


def test_a_benchmark_leaves_its_json_and_what_it_said(there, tmp_path):
    done = session("-o", tmp_path / "out", "-t", tmp_path / "out.tgz", "goals-2048", script=there, PYTHON="py")
    assert done.returncode == 0, done.stdout
    with tarfile.open(tmp_path / "out.tgz") as packed:
        assert sorted(packed.getnames()) == ["out", "out/goals-2048.log", "out/goals-cuda-2048.json", "out/gpus.txt"]
    assert (tmp_path / "out/goals-cuda-2048.json").read_text() == '["bench attention --goals --device cuda --python py -o json --shape T=2048"]\n'
    assert (tmp_path / "out/goals-2048.log").read_text() == "said\n"


def test_a_stage_that_fails_or_lasts_too_long_is_told_and_the_next_runs(there, tmp_path):
    done = session("-o", tmp_path / "out", "verify", "run", "doctor", script=there)
    assert done.returncode == 1
    assert "verify: stopped after 1 s" in done.stdout
    assert "== run: exit code 3" in done.stdout
    assert "== doctor: exit code 0" in done.stdout and "CUDA" in (tmp_path / "out/doctor.log").read_text()


def test_the_program_gets_one_signal_and_shows_what_it_has(there, tmp_path):
    """`timeout` signals its command and then the group with it; a second one ends `motet` at once."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "timeout").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/limits\necho "GPU CUDA"\n')
    (tools / "timeout").chmod(0o755)
    session("-o", tmp_path / "out", "goals-2048", "tests", script=there, PYTHON="sh", PATH=f"{tools}:{os.environ['PATH']}")
    limits = [line for line in (tmp_path / "limits").read_text().splitlines() if "--signal INT" in line]
    assert [line.startswith("--foreground") for line in limits] == [True, False], limits


def test_the_sanitizer_sees_single_tensors_and_each_stage_gets_its_words(there, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "compute-sanitizer").write_text('#!/bin/sh\nfor word; do printf "<%s>" "$word"; done\necho " $PYTORCH_NO_CUDA_MEMORY_CACHING"\n')
    (tools / "compute-sanitizer").chmod(0o755)
    done = session("-o", tmp_path / "out", "sanitize=7", "race", "sanitize-decode", script=there, PYTHON="py", PATH=f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 0 and "== sanitize (at most 7 s)" in done.stdout
    said = [(tmp_path / f"out/{stage}.log").read_text().strip() for stage in ("sanitize", "race", "sanitize-decode")]
    assert said[0].endswith("<T=128,H=16,D=64,mechanism=dcmha> 1") and said[2].endswith("<tests/test_cuda.py><-k><parts> 1")
    assert said[1].startswith("<--tool><racecheck>") and said[1].endswith("mechanism=dcmha>"), "races are of memory that lies as ever"


def test_a_tool_that_is_missing_is_told(there, tmp_path):
    done = session("-o", tmp_path / "out", "tests", "doctor", script=there, PYTHON="no-such-python")
    assert done.stdout.startswith("tests: no-such-python is not installed\n== doctor")
    assert done.returncode == 1
