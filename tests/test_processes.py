"""One training by several processes: the same steps, whoever starts them, and nobody waits for one that is gone."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import MOTET, ROOT, environment, last_checkpoint, records, refused, run

SMALL = "--hidden-size 16 --num-layers 2 --num-heads 2 --ctx-size 32 --batch-size 32".split()
ONCE = ["--eval-every", "10", "--set", "train.eval_windows=7", "--set", "train.final_eval_windows=9", "-t", "1"]
TWENTY = [*SMALL, *ONCE, "--steps", "20"]
WIDE = ["--dtype", "float64"]
ENDLESS = [*SMALL, "--steps", "1000000", "--eval-every", "1000", "--set", "train.checkpoint_every=20", "-t", "1"]


def trained(folder, processes, *arguments):
    more = ["--processes", processes] if processes > 1 else []
    done = run("train", *arguments, *more, "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


def losses(folder):
    """By step, of training, validation and gradient."""
    rows = records(folder)
    return [(row["step"], key, row[key]) for row in rows for key in ("loss", "validation_loss", "gradient_norm", "standard_error", "accuracy") if key in row]


def assert_alike(folder, other, bound):
    one, two = losses(folder), losses(other)
    assert [row[:2] for row in one] == [row[:2] for row in two]
    for (step, key, a), (_, _, b) in zip(one, two):
        assert a == pytest.approx(b, abs=bound, rel=bound), (step, key)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one process with these arguments, made once."""
    made = {}

    def of(*arguments):
        if arguments not in made:
            made[arguments] = trained(tmp_path_factory.mktemp("alone") / "run", 1, *arguments)
        return made[arguments]

    return of


KINDS = {
    "float64": WIDE,
    "muon": [*WIDE, "--set", "train.optimizer=muon"],
    "dcmha in parts": [*WIDE, "--mechanism", "dcmha", "--set", "train.micro_batch_size=3", "--set", "train.recompute=block"],
    "masked": [*WIDE, "--set", "train.objective=masked", "--set", "model.causal=false", "--set", "train.loss_rows=50", "--batch-size", "4"],
    "dropout, average": [*WIDE, "--set", "train.dropout=0.1", "--set", "train.average=ema:0.9", "--mechanism", "differential_v1"],
    "task": [*WIDE, "--task", "noisy-recall", "--set", "train.final_eval_windows=50"],
}


def arguments_of(kind):
    """Flags of KINDS in place of the common ones."""
    own = KINDS[kind]
    base = TWENTY
    for flag in ("--batch-size", "--set train.final_eval_windows"):
        name = flag.split()[-1]
        if any(word == name or word.startswith(name + "=") for word in own):
            at = next(i for i, word in enumerate(base) if word == name or word.startswith(name + "="))
            base = base[: at - 1] + base[at + 1 :] if name.startswith("train.") else base[:at] + base[at + 2 :]
    if "--task" in own:  # its context is its own
        at = base.index("--ctx-size")
        base = base[:at] + base[at + 2 :]
    return [*base, *own]


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_train_as_one(kind, alone, tmp_path):
    arguments = arguments_of(kind)
    assert_alike(trained(tmp_path / "two", 2, *arguments), alone(*arguments), 1e-10)


@pytest.mark.parametrize("processes", [2, 4])
def test_float32_agrees_to_its_precision(processes, alone, tmp_path):
    assert_alike(trained(tmp_path / "run", processes, *TWENTY), alone(*TWENTY), 1e-5)


def test_float16_overflows_no_earlier_in_several(tmp_path):
    """Gradients near the largest number of float16: a loss that counts as often as there are processes left out a step."""
    own = "--hidden-size 16 --num-layers 1 --num-heads 2 -c 16 -b 4 -t 1 --steps 12 --seed 3 --dtype float16 --tokenizer bytes".split()
    for option in ("model.norm_place=post", "model.initializer_range=0.5", "train.diagnose_every=0", "train.final_eval_windows=64"):
        own += ["--set", option]
    one, four = (records(trained(tmp_path / str(n), n, *own)) for n in (1, 4))
    scales = [[(row["step"], row["loss_scale"]) for row in rows if "loss_scale" in row] for rows in (one, four)]
    assert scales[0] == scales[1] != []
    last = [[row["validation_loss"] for row in rows if "validation_loss" in row][-1] for rows in (one, four)]
    assert last[0] == pytest.approx(last[1], abs=2e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "sgd"])
def test_a_shared_state_changes_nothing(optimizer, tmp_path):
    own = [*TWENTY, *WIDE, "--set", f"train.optimizer={optimizer}", "--set", "train.diagnose_every=10"]
    whole = trained(tmp_path / "whole", 4, *own)
    shared = trained(tmp_path / "shared", 4, *own, "--set", "train.shard_optimizer=true")
    assert_alike(shared, whole, 1e-7 if optimizer == "muon" else 1e-10)
    ratios = [[row["update_ratio"] for row in records(folder) if "update_ratio" in row] for folder in (whole, shared)]
    assert len(ratios[0]) == 2 and len(ratios[1]) == 2
    for a, b in zip(*ratios):
        assert a == pytest.approx(b, rel=1e-6)
    names = [(last_checkpoint(folder) / "optimizer.safetensors").stat().st_size for folder in (whole, shared)]
    assert names[0] == pytest.approx(names[1], rel=0.01)


def test_a_checkpoint_of_four_goes_on_with_two_and_one(alone, tmp_path):
    arguments = [*SMALL, *ONCE, *WIDE, "--set", "train.schedule=constant"]
    folder = trained(tmp_path / "run", 4, *arguments, "--steps", "8", "--set", "train.shard_optimizer=true")
    for processes, steps in ((2, 14), (1, 20)):
        more = ["--processes", processes] if processes > 1 else []
        done = run("train", "--resume", folder, "--steps", steps, "-t", "1", *more)
        assert done.returncode == 0, done.stderr
    own = [row for row in losses(folder) if row[1] in ("loss", "gradient_norm")]
    want = [row for row in losses(alone(*arguments, "--steps", "20")) if row[1] in ("loss", "gradient_norm")]
    assert [row[:2] for row in own] == [row[:2] for row in want]
    for (step, key, a), (_, _, b) in zip(own, want):
        assert a == pytest.approx(b, rel=1e-9), (step, key)


# -- who starts them --------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


def test_torchrun_starts_them(alone, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2", "--master-port", free_port(),
               MOTET, "train", *TWENTY, *WIDE, "--out", tmp_path / "run"]
    done = subprocess.run([str(word) for word in command], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert_alike(tmp_path / "run", alone(*TWENTY, *WIDE), 1e-10)


def test_mpirun_starts_them(alone, tmp_path):
    mpirun = shutil.which("mpirun")
    if not mpirun:
        pytest.skip("mpirun is not installed")
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", MOTET, "train", *TWENTY, *WIDE, "--out", tmp_path / "run"]
    env = environment(MASTER_PORT=str(free_port()))
    done = subprocess.run([str(word) for word in command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert_alike(tmp_path / "run", alone(*TWENTY, *WIDE), 1e-10)


def test_variables_of_slurm_bring_them_together(alone, tmp_path):
    command = [str(word) for word in [MOTET, "train", *TWENTY, *WIDE, "--out", tmp_path / "run"]]
    own = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NODELIST": "localhost", "SLURM_JOB_ID": str(free_port() - 20000)}
    started = [
        subprocess.Popen(command, cwd=ROOT, env=environment(SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), **own),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    assert said[1] == ("", "")  # the first one prints
    assert_alike(tmp_path / "run", alone(*TWENTY, *WIDE), 1e-10)


# -- what goes wrong --------------------------------------------------------------------------------------------------


def wait_for_step(folder, step, process):
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and re.search(rf'"step":{step},"tokens_per_second"', metrics.read_text()):
            return
        time.sleep(0.005)
    raise AssertionError((process.poll(), process.communicate(timeout=5)))


def by_rank(process):
    """The pids of the processes that one started."""
    found = {}
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        variables = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found[int(next(v for v in variables if v.startswith(b"RANK="))[5:])] = int(child)
    return found


def started_by(process, count):
    """Likewise of one that has just begun."""
    while True:
        try:
            found = by_rank(process)
            if len(found) == count:
                return found
        except (StopIteration, FileNotFoundError):  # it does not run this program yet
            assert process.poll() is None, process.communicate()
        time.sleep(0.001)


@pytest.fixture
def four(tmp_path):
    """Four processes that would train for ever, at step 30 at least."""
    started = []

    def begin(*more):
        folder = tmp_path / "run"
        command = [MOTET, "train", *ENDLESS, "--processes", 4, "--out", folder, *more]
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        wait_for_step(folder, 30, process)
        return folder, process, by_rank(process)

    yield begin
    for process in started:
        process.kill()


@pytest.mark.parametrize("rank", [0, 3])
def test_a_dead_process_ends_the_others(rank, four):
    folder, process, pids = four()
    os.kill(pids[rank], signal.SIGKILL)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - begin < 10
    assert process.returncode == (137 if rank == 0 else 1)
    last = errors.splitlines()[-1]
    assert re.fullmatch(rf"motet: rank {rank} \(host \S+, pid {pids[rank]}\) is gone since step \d+; to go on: motet train --resume {folder}", last), errors
    if rank == 3:  # the first one had all of the state, and kept it
        steps = [row["step"] for row in records(folder) if "loss" in row]
        assert json.loads((last_checkpoint(folder) / "state.json").read_text())["step"] == steps[-1]


def test_who_looks_late_does_not_take_the_first_one_for_dead(tmp_path):
    folder = tmp_path / "run"
    command = [str(word) for word in [MOTET, "train", *ENDLESS, "--set", "train.batch_size=3", "--out", folder]]
    own = dict(WORLD_SIZE="3", LOCAL_WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    started = [
        subprocess.Popen(command, cwd=ROOT, env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **own),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    try:
        wait_for_step(folder, 2, started[0])
        started[2].kill()
        time.sleep(0.005)  # the first one's exchange breaks off
        started[1].send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # the first one would have ended by now
        started[1].send_signal(signal.SIGCONT)
        errors = [process.communicate(timeout=30)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    told = [re.findall("^motet: .*", text, re.M) for text in errors]
    assert [len(lines) for lines in told] == [1, 0, 0] and told[0][0].startswith("motet: rank 2 (host "), errors
    assert [process.returncode for process in started] == [1, 1, -9]


def test_a_stopped_process_is_gone_after_the_timeout(four):
    folder, process, pids = four("--set", "train.timeout=5")
    os.kill(pids[2], signal.SIGSTOP)
    begin = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - begin < 40  # the stopped one is ended by who started it
    assert process.returncode == 1
    assert re.search(rf"motet: rank 2 \(host \S+, pid {pids[2]}\) is gone since step \d+; to go on: ", errors), errors


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_one_stops_all_at_one_step(number, code, four):
    folder, process, pids = four()
    os.kill(pids[1], number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    line = errors.splitlines()[-1]
    found = re.fullmatch(rf"motet: stopped at step (\d+) of 1000000; to go on: motet train --resume {folder}", line)
    assert found and sum("stopped at" in each for each in errors.splitlines()) == 1, errors
    assert json.loads((last_checkpoint(folder) / "state.json").read_text())["step"] == int(found[1])
    assert [row["step"] for row in records(folder) if "loss" in row][-1] == int(found[1])


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_who_waits_for_the_others_hears_a_signal(number, code, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    alone = environment(WORLD_SIZE="2", RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    process = subprocess.Popen([MOTET, "train", *SMALL, "--out", tmp_path / "run"], env=alone, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    time.sleep(0.5)  # it listens before it waits
    process.send_signal(number)
    try:
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, errors) == (code, "motet: interrupted\n") and not (tmp_path / "run").exists()


def test_a_signal_to_who_started_them_stops_all(four):
    folder, process, _ = four()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 143
    assert errors.splitlines()[-1].startswith("motet: stopped at step "), errors


def test_who_dies_before_it_meets_the_others_ends_them(tmp_path):
    process = subprocess.Popen([MOTET, "train", *map(str, ENDLESS), "--processes", "2", "--out", tmp_path / "run"], env=environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        os.kill(started_by(process, 2)[1], signal.SIGKILL)  # long before it has loaded what it needs
        _, errors = process.communicate(timeout=100)  # train.start_timeout is 300
    finally:
        process.kill()
    assert process.returncode == 137, errors
    assert errors.splitlines()[0] == "motet: a process ended with exit code 137 and others still run, which are ended too", errors
    assert not (tmp_path / "run").exists()


def test_who_ignores_that_children_end_may_start_them(tmp_path):
    process = subprocess.Popen([MOTET, "train", *SMALL, *ONCE, "--steps", "2", "--processes", "2", "--out", tmp_path / "run"],
                               env=environment(), preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, errors


def test_the_dry_run_of_the_documents_works():
    commands = re.findall(r"^motet (train .*--dry-run) TEXT", (ROOT / "docs/scale.md").read_text(), re.MULTILINE)
    assert len(commands) == 1
    done = run(*commands[0].split())
    assert done.returncode == 0 and "# 64 processes of 1 examples each" in done.stdout, done.stderr


def test_what_is_wrong_is_told_once(tmp_path):
    message = refused(2, "train", *SMALL, "--steps", "2", "--processes", "3", "--out", tmp_path / "run")
    assert message == "motet: train.batch_size: 32 examples for 3 processes, want a multiple of 3"
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").touch()
    message = refused(2, "train", *SMALL, "--steps", "2", "--processes", "2", "--out", tmp_path / "run")
    assert message == f"motet: --out: {tmp_path / 'run'} already holds a run, want a new folder"
    message = refused(2, "train", *SMALL, "--processes", "2", "--set", "train.step=3")
    assert message.startswith("motet: unknown key 'train.step'"), message
    for more in (["-t", "x"], ["--device", "tpu"], ["-o", "xml"], ["--shape", "width=3"], ["--repeats", "1"], ["--soak", "3"]):
        refused(2, "bench", "processes", "--processes", "2", *more)
    assert refused(2, "train", *SMALL, "--processes", "2", "-t", "0") == "motet: --threads: '0' is below 1"
    message = refused(2, "train", "--processes", "2", RANK="0", WORLD_SIZE="4", MASTER_ADDR="127.0.0.1")
    assert message == "motet: --processes: 2 inside torchrun, which started 4 already, want it left out"
    message = refused(1, "train", "--steps", "1", RANK="1")
    assert message == "motet: RANK is set without WORLD_SIZE, want both or neither"


def test_a_training_that_diverges_keeps_the_step_before(tmp_path):
    wild = ["--learning-rate", "10", "--set", "train.optimizer=sgd", "--set", "train.clip=0", "--set", "train.warmup=0"]
    done = run("train", *SMALL, *ONCE, *wild, "--steps", "400", "--processes", "2", "--out", tmp_path / "run")
    assert done.returncode == 1, done.stderr
    found = re.fullmatch(r"motet: step (\d+): the .* is (nan|inf); the first number that is not finite appears in .*; the batch has tokens .*; "
                         r"the step before it is (.*)", done.stderr.splitlines()[-1])
    assert found and sum(line.startswith("motet: ") for line in done.stderr.splitlines()) == 1, done.stderr
    assert json.loads((last_checkpoint(tmp_path / "run") / "state.json").read_text())["step"] == int(found[1]) - 1


def test_a_full_disk_is_told_once(tmp_path):
    done = run("train", *SMALL, *ONCE, "--steps", "20", "--processes", "2", "--out", tmp_path / "run", largest_file=20000)
    told = [line for line in done.stderr.splitlines() if line.startswith("motet: ")]
    assert done.returncode == 1 and len(told) == 1 and "is not written: cannot write" in told[0], done.stderr
    assert not list((tmp_path / "run" / "checkpoints").glob("step_*"))


def test_who_is_missing_is_told(tmp_path):
    alone = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(free_port())}
    message = refused(1, "train", *SMALL, "--steps", "2", "--set", "train.start_timeout=2", **alone)
    assert message == ("motet: rank 0: not all of the 2 processes came within 2 s (torchrun's variables say 2), want all of them, "
                       "or a larger train.start_timeout")
    alone["RANK"] = "1"
    message = refused(1, "train", *SMALL, "--steps", "2", "--set", "train.start_timeout=2", **alone)
    assert message.startswith(f"motet: rank 1 of 2 found nobody at 127.0.0.1:{alone['MASTER_PORT']} in 2 s"), message
    begun = trained(tmp_path / "run", 1, *SMALL, *ONCE, "--steps", "2", "--set", "train.start_timeout=2")
    for more in (["--resume", begun], ["--resume", "auto", "--out", begun]):
        message = refused(1, "train", *more, "--steps", "4", **alone | {"MASTER_PORT": str(free_port())})
        assert message.startswith("motet: rank 1 of 2 found nobody at ") and "in 2 s" in message, message


def test_the_benchmark_counts_what_it_times():
    small = "hidden=16,layers=1,heads=2,vocab=100,T=16,B=4"
    done = run("bench", "processes", "--processes", "2", "-t", "1", "--shape", small, "--repeats", "7", "-o", "json")
    assert done.returncode == 0, done.stderr
    one, two, sharded = json.loads(done.stdout)
    assert [row["processes"] for row in (one, two, sharded)] == [1, 2, 2]
    weights = 4 * one["parameters"]
    assert [row["exchanged_bytes"] for row in (one, two, sharded)] == [0, weights, 3 * weights // 2]
    assert two["state_bytes"] == one["state_bytes"] and sharded["state_bytes"] == pytest.approx(weights, rel=0.05)
    for row in (one, two, sharded):
        assert row["tokens_per_second"] * row["wall_ms"] == pytest.approx(1000 * 4 * 16)
        assert row["ratio"] == pytest.approx(one["wall_ms"] / row["wall_ms"]) and row["threads"] == 1
        assert "--processes 2" in row["command"]
    lines = {"alone": [], "3": ["--processes", "3"]}
    said = {name: refused(2, "bench", "processes", "--shape", small, *more) for name, more in lines.items()}
    assert said["alone"] == "motet: bench processes: one process has nobody to share with, want --processes 2 or more"
    assert said["3"] == "motet: train.batch_size: 4 examples for 3 processes, want a multiple of 3"
    assert "--processes is given for memory, want it for processes" in refused(2, "bench", "memory", "--processes", "2")


def test_a_plan_for_many_processes_needs_one():
    own = ["--hidden-size", "256", *SMALL[2:-1], "64", "--steps", "2", "--set", "train.shard_optimizer=true"]
    done = run("train", *own, "--processes", "64", "--dry-run")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if "64 processes" in line)
    weights = float(re.search(r"weights ([\d.]+) MB", done.stdout)[1])
    exchanged = float(re.search(r"receives ([\d.]+) MB", line)[1])
    assert "64 processes of 1 examples each" in line
    assert exchanged == pytest.approx(3 * 63 / 64 * weights, rel=0.01)
