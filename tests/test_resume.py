"""A run that is stopped goes on as if it had never been: whatever stops it, wherever."""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import pytest
import safetensors.torch
from conftest import MOTET, PEAK, ROOT, SIZES, environment, last_checkpoint, records, refused, run, slow

KILLS = int(os.environ.get("KILLS", "1"))  # for each variant; scripts/nightly sets more
STEPS = 240
WIDER = ["12" if before == "--batch-size" else word for before, word in zip(["", *SIZES], SIZES)]  # steps of some milliseconds
COMMON = [*WIDER, "--eval-every", "40", "--set", "train.checkpoint_every=25", "--set", "train.eval_windows=4"]
VARIANTS = {
    "adamw": ["--steps", STEPS],
    "dcmha in tokens": ["--tokens", STEPS * 12 * 32, "--mechanism", "dcmha"],
    "muon": ["--steps", STEPS, "--set", "train.optimizer=muon", "--set", "train.schedule=wsd"],
    "bfloat16": ["--steps", STEPS, "--dtype", "bfloat16", "--mechanism", "differential_v2"],
    "float64": ["--steps", STEPS, "--dtype", "float64"],
    "accumulation": ["--steps", STEPS, "--set", "train.micro_batch_size=5", "--set", "train.loss_rows=50"],
    "documents apart": ["--steps", STEPS, "--set", "data.documents=apart", "--set", "train.position_offset=50", "DATA"],
    "dropout, average": ["--steps", STEPS, "--set", "train.dropout=0.1", "--set", "train.average=last:3"],
    "mixture": ["--steps", STEPS, "--config", "DATA/mixture.toml"],
    "masked": ["--steps", STEPS, "--set", "train.objective=masked", "--set", "model.causal=false", "--set", "train.mask_whole_words=true",
               "--set", "model.norm_place=post", "--set", "model.positions=learned", "--set", "model.head=masked",
               "--set", "train.micro_batch_size=5", "--set", "train.loss_rows=50"],
    "outliers, asynchronous": ["--steps", STEPS, "--set", "train.skip_outliers=3", "--set", "train.async_checkpoint=true",
                               "--set", "train.optimizer=sgd", "--learning-rate", "0.3"],
}
OFTEN = ["adamw", "float64", "bfloat16", "documents apart", "masked"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Prepared data of 40 documents, a part of them for validation."""
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(5)
    words = "the king and queen of all my lord shall speak no more to thee in this night".split()
    lines = [json.dumps({"text": " ".join(rng.choice(words) for _ in range(rng.randrange(20, 200)))}) for _ in range(40)]
    (folder / "books.jsonl").write_text("\n".join(lines) + "\n")
    done = run("data", "prepare", folder / "books.jsonl", "--tokenizer", "bytes", "--validation", "0.2", "--out", folder / "tokens")
    assert done.returncode == 0, done.stderr
    text = folder / "text.txt"
    text.write_text(" ".join(rng.choice(words) for _ in range(2000)))
    mixture = [[str(folder / "tokens"), 0.7], [str(text), 0.3]]
    (folder / "tokens" / "mixture.toml").write_text(f"[data]\nmixture = {json.dumps(mixture)}\n")
    return folder / "tokens"


def command(variant, data, out, *more):
    own = [str(word).replace("DATA", str(data)) for word in VARIANTS[variant]]
    return ["train", *COMMON, *own, "--resume", "auto", "--out", out, *more]


def test_a_mixture_says_what_it_read_of_each_source(data, never_stopped, tmp_path):
    config = ["--config", data / "mixture.toml"]
    rows = STEPS * 12
    done = run("train", *COMMON, "--steps", STEPS, *config, "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.endswith("passes")]
    assert [line[1] for line in lines] == [f"{data}:", "text.txt:"]
    read = [float(line[2].rstrip("k")) * 1000 for line in lines]
    assert read == pytest.approx([rows * 0.7 * 32, rows * 0.3 * 32], rel=0.01)
    train = json.loads((data / "data.json").read_text())["splits"]["train"]["tokens"]
    assert float(lines[0][4]) == pytest.approx(read[0] / train, rel=0.05)
    plan = json.loads(run("train", *COMMON, "--steps", STEPS, *config, "--dry-run", "-o", "json").stdout)
    assert [one["name"] for one in plan["mixture"]] == [line[1].rstrip(":") for line in lines]
    minutes = {form: run("train", *COMMON, "--minutes", 1, *config, "--dry-run", "-o", form).stdout for form in ("table", "json")}
    assert "parameters" in minutes["table"] and " passes" not in minutes["table"], "nobody knows what minutes read"
    assert "mixture" not in json.loads(minutes["json"])
    ended = run("train", *COMMON, "--steps", 3, *config, "--out", tmp_path / "r")
    assert [line.split()[0] for line in ended.stderr.splitlines() if line.endswith("passes")] == [line[1] for line in lines]
    message = refused(2, "train", "--resume", tmp_path / "r", "--steps", 5, data)
    assert "data.mixture was [[" in message and "is null, want it as it was" in message


@pytest.fixture(scope="module")
def never_stopped(data, tmp_path_factory):
    """A variant's run folder, trained once."""
    made = {}

    def of(variant):
        if variant not in made:
            made[variant] = tmp_path_factory.mktemp("whole") / "run"
            done = run(*command(variant, data, made[variant]))
            assert done.returncode == 0, done.stderr
        return made[variant]

    return of


def assert_same_run(folder, whole):
    assert records(folder) == records(whole)
    for name in ("model.safetensors", "optimizer.safetensors", "config.json"):
        assert (last_checkpoint(folder) / name).read_bytes() == (last_checkpoint(whole) / name).read_bytes(), name
    own, other = (json.loads((last_checkpoint(path) / "state.json").read_text()) for path in (folder, whole))
    assert {k: v for k, v in own.items() if k != "seconds"} == {k: v for k, v in other.items() if k != "seconds"}
    assert len(list((folder / "checkpoints").iterdir())) <= 3


def stopped(arguments, folder, step, number):
    """Starts the run and sends the signal when it has made the step; its exit code and its last line."""
    process = subprocess.Popen([MOTET, *map(str, arguments)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and f'"step":{step},"tokens_per_second"' in metrics.read_text():
            process.send_signal(number)
            break
        time.sleep(0.002)
    _, errors = process.communicate(timeout=60)
    return process.returncode, (errors.splitlines() or [""])[-1]


@pytest.mark.parametrize("variant", [*OFTEN, *slow(*(name for name in VARIANTS if name not in OFTEN))])
def test_a_run_that_is_killed_anywhere_ends_as_if_it_had_not_been(variant, data, never_stopped, tmp_path):
    whole, rng = never_stopped(variant), random.Random(variant)
    for kill in range(KILLS):
        folder = tmp_path / f"run{kill}"
        for step in sorted(rng.sample(range(1, STEPS - 5), 2)):
            number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
            code, line = stopped(command(variant, data, folder), folder, step, number)
            assert code == (-9 if number == signal.SIGKILL else 143), line
        before = max((int(path.name[5:]) for path in (folder / "checkpoints").glob("step_*")), default=0)
        done = run(*command(variant, data, folder))
        assert done.returncode == 0, done.stderr
        told = re.findall(r"^step +(\d+) ", done.stderr, re.M)
        assert all(int(step) >= before for step in told), "it goes on, not anew"
        assert_same_run(folder, whole)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 138), (signal.SIGHUP, 129)])
def test_a_signal_saves_the_step_and_says_how_to_go_on(number, code, data, never_stopped, tmp_path):
    if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("these tests were started by nohup, and so is what they start")
    folder = tmp_path / "a run"
    returned, line = stopped(command("adamw", data, folder), folder, 33, number)
    at = json.loads((last_checkpoint(folder) / "state.json").read_text())["step"]
    assert 33 <= at < STEPS
    assert (returned, line) == (code, f"motet: stopped at step {at} of {STEPS}; to go on: motet train --resume '{folder}'")
    assert len(records(folder)) == at + at // 40 and [path for path in tmp_path.rglob("*") if ".tmp-" in path.name] == []
    done = run("train", "--resume", folder, "-t", "1")
    assert done.returncode == 0, done.stderr
    whole = never_stopped("adamw")
    assert records(folder) == records(whole)
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (last_checkpoint(folder) / name).read_bytes() == (last_checkpoint(whole) / name).read_bytes()
    again = run("train", "--resume", folder)
    assert (again.returncode, again.stdout) == (0, "") and "has all of its 240 steps; a larger budget goes on" in again.stderr


def cut_at(whole, folder, step):
    """A copy of a run as it was at a checkpoint in its middle."""
    shutil.copytree(whole, folder)
    for path in (folder / "checkpoints").iterdir():
        if int(path.name[5:]) > step:
            shutil.rmtree(path)
    return folder


@pytest.fixture(scope="module")
def half(data, tmp_path_factory):
    """A run whose first 100 steps are done."""
    folder = tmp_path_factory.mktemp("half") / "run"
    code, line = stopped(command("documents apart", data, folder), folder, 110, signal.SIGTERM)
    assert code == 143, line
    return cut_at(folder, folder.parent / "cut", 100)


@pytest.fixture
def copy(half, tmp_path):
    return shutil.copytree(half, tmp_path / "copy")


@pytest.mark.parametrize("change", [["-t", "2"], ["-t", "1", "--set", "train.micro_batch_size=5"], ["-t", "1", "--set", "train.eval_every=7", "--set", "train.keep_last=0"]])
def test_what_may_change_leaves_the_losses_as_they_were(change, copy, never_stopped):
    done = run("train", "--resume", copy, *change)
    assert done.returncode == 0, done.stderr
    own, other = ([row["loss"] for row in records(folder) if "loss" in row] for folder in (copy, never_stopped("documents apart")))
    assert len(own) == STEPS and max(abs(a - b) for a, b in zip(own, other)) < 1e-5
    assert own[:100] == other[:100]


def test_what_may_change_is_what_the_documents_say():
    table = re.search(r"kFree\{(.*?)\};", (ROOT / "motet/train/resume.cpp").read_text(), re.DOTALL)[1]
    sentence = re.search(r"^A resumed run may have a larger budget (.*?)\. ?\n?Anything else", (ROOT / "docs/training.md").read_text(), re.DOTALL | re.MULTILINE)
    said = {word if "." in word else f"train.{word}" for word in re.findall(r"`([^`]+)`", sentence[1])}
    assert set(re.findall(r'"([^"]+)"', table)) == said | {"train.steps", "train.tokens", "train.minutes"}


def test_a_larger_budget_goes_on_and_the_rates_follow_it(copy):
    done = run("train", "--resume", copy, "-t", "1", "--steps", "300")
    assert done.returncode == 0, done.stderr
    rates = [row["learning_rate"] for row in records(copy) if "loss" in row]
    assert len(rates) == 300 and rates[-1] == pytest.approx(3e-4) and rates[100] > rates[99]
    assert "steps = 300" in (copy / "config.toml").read_text()


@pytest.mark.parametrize(
    "change, message",
    [
        (["--batch-size", "4"], "train: --resume: train.batch_size was 12 and is 4, want it as it was"),
        (["--set", "model.num_layers=2"], "train: --resume: model.num_layers was 1 and is 2, want it as it was"),
        (["--mechanism", "dcmha"], 'train: --resume: model.attention.mechanism was "softmax" and is "dcmha", want it as it was'),
        (["--steps", "200"], "train: --resume: train.steps was 240 and is 200, want at least that"),
        (["--tokens", "99999"], "train: --resume: the budget was train.steps = 240, want it in the same unit"),
        (["--freeze", "*.mlp.*"], 'train: --resume: --freeze was [] and is ["*.mlp.*"], want it as it was'),
        (["--out", "x"], "--resume and --out: want one of them"),
        (["--init", "x"], "--resume and --init: want one of them"),
    ],
)
def test_anything_else_is_refused(change, message, copy):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert refused(2, "train", "--resume", copy, *change) == f"motet: {message}"
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_other_data_is_refused_by_the_name_of_what_differs(copy, data, tmp_path):
    other = tmp_path / "other"
    (tmp_path / "other.jsonl").write_text(json.dumps({"text": "another text altogether " * 50}) + "\n" + json.dumps({"text": "no " * 60}) + "\n")
    done = run("data", "prepare", tmp_path / "other.jsonl", "--tokenizer", "bytes", "--validation", "0.5", "--out", other)
    assert done.returncode == 0, done.stderr
    line = refused(2, "train", "--resume", copy, other)
    assert line.startswith(f"motet: {other}: is not the data of the run (") and line.endswith(".tokens)")
    moved = shutil.copytree(data, tmp_path / "moved")  # the same data elsewhere
    assert run("train", "--resume", copy, moved, "-t", "1").returncode == 0


def test_what_is_no_run_or_an_earlier_one_is_said_in_a_line(copy, tmp_path):
    assert refused(2, "train", "--resume", tmp_path / "none") == f"motet: --resume: {tmp_path / 'none'} holds no run"
    assert refused(2, "train", "--resume", "auto") == "motet: --resume auto: want --out with the run that goes on or begins"
    checkpoint = last_checkpoint(copy)
    (checkpoint / "state.json").unlink()
    assert refused(1, "train", "--resume", copy) == (
        f"motet: --resume: {checkpoint}: holds weights alone, as earlier versions wrote them; want --init with it"
    )
    shutil.rmtree(copy / "checkpoints")
    assert "has no checkpoint yet, want the command that began it with --resume auto" in refused(1, "train", "--resume", copy)


def test_auto_begins_again_where_there_is_no_checkpoint_and_spares_comparisons(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step":1,"loss":3.0}\n')
    assert run("train", *SIZES, "--steps", "3", "--resume", "auto", "--out", tmp_path / "run").returncode == 0
    assert [row["step"] for row in records(tmp_path / "run") if "loss" in row] == [1, 2, 3]
    compared = tmp_path / "compared"
    compared.mkdir()
    (compared / "results.json").write_text("{}")
    (compared / "metrics.jsonl").write_text("kept")
    line = refused(2, "train", *SIZES, "--steps", "3", "--resume", "auto", "--out", compared)
    assert line == f"motet: --resume auto: {compared} holds a comparison, want the folder of a training"
    assert (compared / "metrics.jsonl").read_text() == "kept"


def test_damaged_state_is_refused(copy):
    state = last_checkpoint(copy) / "state.json"
    saved = json.loads(state.read_text())
    state.write_text(json.dumps(saved | {"version": 99}))
    assert refused(1, "train", "--resume", copy) == f"motet: {state}: is of another version of Motet, want version 1"
    state.write_text(json.dumps(saved | {"seconds": "long"}))
    assert refused(1, "train", "--resume", copy).startswith(f"motet: {state}: is damaged: ")
    state.write_text(json.dumps(saved))
    shutil.copy(last_checkpoint(copy) / "model.safetensors", last_checkpoint(copy) / "optimizer.safetensors")
    assert ": tensor exp_avg." in refused(1, "train", "--resume", copy)


def test_lines_of_metrics_that_are_lost_or_damaged_are_told_of(copy):
    path = copy / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole.replace('"seconds":', '"secoods":', 1))
    assert refused(1, "train", "--resume", copy).startswith(f"motet: {path}: is damaged: ")
    lines = whole.splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) // 2]) + '{"step":"x"}\n')
    done = run("train", "--resume", copy, "-t", "1")
    assert done.returncode == 0, done.stderr
    told = re.findall(r"^motet: warning: (.*): ends at step (\d+) and the checkpoint is of step (\d+)", done.stderr, re.MULTILINE)
    assert [(one[0], one[2]) for one in told] == [(str(path), "100")] and 0 < int(told[0][1]) < 100


def test_a_key_that_nothing_reads_is_not_in_the_way_of_an_earlier_run(copy):
    config, state = copy / "config.toml", last_checkpoint(copy) / "state.json"
    config.write_text(re.sub(r"^momentum = .*", "momentum = 0.5", config.read_text(), flags=re.MULTILINE))
    was = json.loads(state.read_text())
    was["run"]["train"]["momentum"] = 0.5
    state.write_text(json.dumps(was))
    done = run("train", "--resume", copy, "-t", "1")
    assert done.returncode == 0, done.stderr
    assert "train.momentum: 0.25 has no effect" in refused(2, "train", "--resume", copy, "--set", "train.momentum=0.25")


def test_a_run_that_diverges_as_it_goes_on_names_the_checkpoint_that_it_began_with(copy):
    checkpoint = last_checkpoint(copy)
    with safetensors.safe_open(checkpoint / "model.safetensors", "pt") as stored:
        tensors, metadata = {name: stored.get_tensor(name) for name in stored.keys()}, stored.metadata()
    tensors["model.norm.weight"].fill_(1e38)
    safetensors.torch.save_file(tensors, checkpoint / "model.safetensors", metadata)
    done = run("train", "--resume", copy, "-t", "1")
    assert done.returncode == 1 and done.stderr.rstrip().endswith(f"; the step before it is {checkpoint}"), done.stderr


def test_weights_that_diverged_are_no_checkpoint(copy, tmp_path):
    broken = [*SIZES, *"--set train.beta1=0 --set train.beta2=0 --set train.epsilon=0".split()]  # what has no gradient is 0 / 0
    line = refused(1, "train", *broken, "--steps", 5, "--eval-every", 1, "--out", tmp_path / "evaluated")
    assert line.startswith("motet: step 1: the validation loss is nan; ") and line.endswith("; there is no checkpoint")
    line = refused(1, "train", *broken, "--steps", 100, "--eval-every", 50, "--out", tmp_path / "stepped")
    assert line.startswith("motet: step 2: the loss is nan; ") and line.endswith("; there is no checkpoint")
    for folder in ("evaluated", "stepped"):
        assert not list((tmp_path / folder).glob("checkpoints/step_*"))
        assert "The run stopped after step 1: step " in (tmp_path / folder / "report.html").read_text()
    checkpoint, before = last_checkpoint(copy), sorted((copy / "checkpoints").iterdir())
    with safetensors.safe_open(checkpoint / "optimizer.safetensors", "pt") as stored:
        tensors, metadata = {name: stored.get_tensor(name) for name in stored.keys()}, stored.metadata()
    for name in tensors:
        if name.startswith("exp_avg."):
            tensors[name].fill_(3e38)
    safetensors.torch.save_file(tensors, checkpoint / "optimizer.safetensors", metadata)
    line = refused(1, "train", "--resume", copy, "-t", "1", "--eval-every", 1)
    assert re.match("motet: step 101: the validation loss is (nan|inf); ", line) and line.endswith(f"; the last checkpoint is {checkpoint}")
    assert sorted((copy / "checkpoints").iterdir()) == before


def test_two_processes_do_not_train_one_run(copy):
    before = records(copy)[-1]["step"]
    running = subprocess.Popen([MOTET, "train", "--resume", copy, "--steps", "1000000", "-t", "1"], env=environment(), stderr=subprocess.PIPE)
    while records(copy)[-1]["step"] <= before and running.poll() is None:
        time.sleep(0.01)
    assert refused(1, "train", "--resume", copy) == f"motet: {copy}: another process trains this run"
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 143


def test_resume_auto_leaves_a_run_alone_that_another_process_trains(tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", *SIZES, "--steps", "1000000", "--set", "train.checkpoint_every=1000000", "--resume", "auto", "--out", folder]
    running = subprocess.Popen([MOTET, *map(str, arguments)], env=environment(), stderr=subprocess.PIPE)
    while not (folder / "metrics.jsonl").exists() or len(records(folder)) < 5:
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.01)
    gone = subprocess.Popen(["true"])  # a number that nobody has here, as that of a process in another container
    gone.wait()
    written = folder / "checkpoints" / f".step_00000005.tmp-{gone.pid}-0"
    written.mkdir(parents=True)
    assert refused(1, *arguments) == f"motet: {folder}: another process trains this run"
    assert written.exists() and len(records(folder)) >= 5
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 143


def test_a_full_disk_leaves_the_checkpoint_before(copy):
    before = {path: path.read_bytes() for path in (copy / "checkpoints").rglob("*") if path.is_file()}
    size = (last_checkpoint(copy) / "optimizer.safetensors").stat().st_size
    done = run("train", "--resume", copy, "-t", "1", "--set", "train.keep_last=0", largest_file=size - 1)
    lines = [line for line in done.stderr.splitlines() if line.startswith("motet: ")]
    assert done.returncode == 1 and len(lines) == 1, done.stderr
    assert f"{copy}/checkpoints/step_00000125: the checkpoint of " in lines[0] and " bytes is not written: cannot write " in lines[0]
    assert {path: path.read_bytes() for path in (copy / "checkpoints").rglob("*") if path.is_file()} == before
    assert run("train", "--resume", copy, "-t", "1").returncode == 0


def test_a_run_of_minutes_goes_on_with_the_time_that_is_left(tmp_path):
    folder = tmp_path / "run"
    arguments = ["train", *SIZES, "--minutes", "0.02", "--resume", "auto", "--out", folder]
    code, line = stopped(arguments, folder, 20, signal.SIGTERM)
    assert code == 143, line
    spent = json.loads((last_checkpoint(folder) / "state.json").read_text())["seconds"]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert 0 < spent < 1.2 <= json.loads((last_checkpoint(folder) / "state.json").read_text())["seconds"] < 3


def test_the_best_checkpoint_stays_and_has_a_name(never_stopped, data, tmp_path):
    whole = never_stopped("outliers, asynchronous")

    def losses(folder):
        return {row["step"]: row["validation_loss"] for row in records(folder) if "validation_loss" in row}

    # The last evaluation scores more windows than those before it: all are compared by as many.
    assert run(*command("outliers, asynchronous", data, tmp_path / "few", "--set", "train.final_eval_windows=4")).returncode == 0
    scores = losses(tmp_path / "few")
    assert scores[STEPS] != losses(whole)[STEPS]
    kept = {int(path.name[5:]): json.loads((path / "state.json").read_text())["validation_loss"] for path in (whole / "checkpoints").iterdir()}
    best = min((step for step in scores if step % 25 == 0 or step == STEPS), key=scores.get)
    assert best in kept and len(kept) <= 3 and STEPS in kept
    assert all(loss == scores.get(step) for step, loss in kept.items())  # none where there was no evaluation
    done = run("inspect", f"{whole}:best")
    assert done.returncode == 0 and f"step_{best:08}" in done.stdout, done.stderr
    done = run("inspect", f"{whole}:bset")
    assert done.returncode == 1 and f"{whole}:bset: ':bset' stands behind a run, want :best, :average or :best:average" in done.stderr
    assert f"there is no folder '{whole}:bset', want that of a run" in run("inspect", f"{whole}:bset:best").stderr
    earlier = shutil.copytree(whole, tmp_path / "run") / f"checkpoints/step_{min(kept):08}"  # as if an earlier one were the best
    state = json.loads((earlier / "state.json").read_text())
    (earlier / "state.json").write_text(json.dumps(state | {"validation_loss": scores[best] / 2}))
    assert min(kept) != STEPS and earlier.name in run("inspect", f"{tmp_path / 'run'}:best").stdout


def test_a_run_that_goes_on_elsewhere_says_what_it_misses(tmp_path):
    (tmp_path / "text.txt").write_text("the king and queen of all my lord " * 200)
    done = run("train", *COMMON, "--steps", 5, "text.txt", "--out", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    line = refused(1, "train", "--resume", ".", "--steps", 6, folder=tmp_path / "run")
    assert "cannot read 'text.txt'" in line and line.endswith("want them from the same folder, or named anew behind --resume")
    assert run("train", "--resume", ".", "--steps", 6, "../text.txt", folder=tmp_path / "run").returncode == 0


def test_a_report_says_what_ended_the_run(tmp_path):
    done = run("train", *COMMON, "--steps", 200, "--set", "train.skip_outliers=0.5", "--out", tmp_path / "run")
    assert done.returncode == 1 and "were outliers, more than 1 %" in done.stderr
    why = re.search(r"step \d+: \d+ steps were outliers, more than 1 %", done.stderr)[0]
    assert re.search(rf"The run stopped after step \d+: {why}", (tmp_path / "run/report.html").read_text())


def test_tensorboard_reads_the_numbers_of_metrics(never_stopped, copy):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert run("train", "--resume", copy, "-t", "1").returncode == 0
    for folder in (never_stopped("adamw"), copy):
        events = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
        events.Reload()
        written = {}
        for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
            kind = "train" if "loss" in row else "machine" if PEAK in row else "diagnosis" if "layers" in row else "validation"
            parts = [(f"{key}/layer_{i}", value) for i, layer in enumerate(row.get("layers", [])) for key, value in layer.items()]
            parts += [(f"update_ratio/{key}", value) for key, value in row.get("update_ratio", {}).items()]
            for key, value in [*row.items(), *parts]:
                if key != "step" and type(value) in (int, float):
                    written.setdefault(f"{kind}/{key.removeprefix('validation_')}", []).append((row["step"], value))
        shown = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        assert {tag: [step for step, _ in values] for tag, values in shown.items()} == {tag: [step for step, _ in values] for tag, values in written.items()}
        for tag, values in written.items():
            assert [value for _, value in shown[tag]] == pytest.approx([value for _, value in values], rel=1e-6), tag
        step_keys = {"loss", "gradient_norm", "learning_rate", "seconds", "data_seconds", "tokens_per_second", "utilization", "peak_bytes", "tokens_seen"}
        assert {tag.split("/")[1] for tag in shown if tag.startswith("train/")} == step_keys
        assert all(len(shown[f"train/{key}"]) == STEPS for key in step_keys) and len(shown["validation/loss"]) == STEPS // 40
        assert [step for step, _ in shown["diagnosis/entropy/layer_0"]] == [100, 200] == [step for step, _ in shown["diagnosis/update_ratio/attention"]]
        times = [event.wall_time for event in events.Scalars("train/loss")]
        assert times == sorted(times)


def test_metrics_say_what_a_step_took_of_the_machine(copy):
    assert run("train", "--resume", copy, "-t", "1").returncode == 0
    rows = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    machines = [row for row in rows if PEAK in row]
    assert [row["step"] for row in machines] == [0, 100]  # of each process, before its first step
    assert all((row["device"], row["threads"]) == ("cpu", 1) and 1e8 < row[PEAK] < 1e13 for row in machines)
    steps = [row for row in rows if "loss" in row]
    for row in steps:
        machine = machines[row["step"] > 100]
        assert row["tokens_seen"] == row["step"] * 12 * 32
        assert 0 < row["data_seconds"] < row["seconds"]
        assert row["tokens_per_second"] == pytest.approx(12 * 32 / row["seconds"])
        assert row["utilization"] == pytest.approx(row["tokens_per_second"] * machine["flops_per_token"] / machine[PEAK])
    peaks = [row["peak_bytes"] for row in steps if row["step"] > 100]
    assert peaks == sorted(peaks) and 1e7 < peaks[-1] < 4e9
    dry = run("train", "--resume", copy, "--dry-run").stdout
    assert f"training {machines[0]['flops_per_token'] / 1e3:.1f}k" in dry
    assert machines[0]["flops_per_token"] == machines[1]["flops_per_token"]


def without_times(results):  # nor the commands, which are others
    return {**results, "commands": [], "measured": [], "runs": [{**row, "seconds": 0} for row in results["runs"]]}


SWEEP = ["--sweep", "train.learning_rate=1e-3,4e-3"]


@pytest.mark.parametrize("more", [SWEEP, *slow(["--sizes", "16x1,32x2"], [*SWEEP, "--sizes", "16x1,32x2"])])
def test_a_sweep_and_sizes_that_are_killed_end_as_if_they_had_not_been(more, tmp_path):
    sizes = [*WIDER, "--steps", "40", "--mechanisms", "mha,coca", "--seeds", "3", "-n", "3", "--eval-every", "20", "--jobs", "1", *more]
    assert run("compare", *sizes, "--out", tmp_path / "whole").returncode == 0
    folder = tmp_path / "killed"
    results, arguments = folder / "results.json", ["compare", *sizes, "--out", folder]
    every = len(json.loads((tmp_path / "whole" / "results.json").read_text())["runs"])
    assert every == 2 * (2 if "--sizes" in more else 1) * (4 if "--sweep" in more else 3)
    for least in (1, 6):  # runs that have ended
        process = subprocess.Popen([MOTET, *map(str, arguments)], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while (not results.exists() or len(json.loads(results.read_text())["runs"]) < least) and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        assert process.returncode == -9 and len(json.loads(results.read_text())["runs"]) < every
        arguments = ["compare", "--resume", folder, "-t", "1", "--jobs", "1", "-n", "3"]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    own, other = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("killed", "whole"))
    assert without_times(own) == without_times(other) and ("sweep" in own, "scaling" in own) == ("--sweep" in more, "--sizes" in more)
    rows = [sorted(map(str, records(tmp_path / name))) for name in ("killed", "whole")]
    assert rows[0] == rows[1]
    line = refused(2, "compare", "--resume", folder, "--sweep", "train.learning_rate=1e-3,5e-3")
    was = "train.learning_rate=0.001,0.004" if "--sweep" in more else "not given"
    assert line == f"motet: compare: --resume: --sweep was {was}, want it as it was"
    if "--sizes" in more:
        grown = run("compare", "--resume", folder, "--sizes", "24x1", "-t", "1", "-n", "3", "-o", "json")
        assert grown.returncode == 0, grown.stderr
        assert [row["size"] for row in json.loads(grown.stdout)] == ["16x1", "16x1", "32x2", "32x2", "24x1", "24x1"]


def test_a_comparison_by_minutes_trains_one_model_at_a_time(tmp_path):
    two_threads = ["2" if before == "-t" else word for before, word in zip(["", *WIDER], WIDER)]
    sizes = ["compare", *two_threads, "--mechanisms", "mha,coca", "--seeds", "1", "--minutes", "0.005", "-n", "3"]
    want = "want 1: with train.minutes models train one after the other"
    assert refused(2, *sizes, "--jobs", "2", "--out", tmp_path / "two") == f"motet: --jobs: 2, {want}"
    folder = tmp_path / "one"
    done = run(*sizes, "--out", folder)
    assert done.returncode == 0, done.stderr
    results = json.loads((folder / "results.json").read_text())
    assert results["comparison"]["jobs"] == 1 and {row["threads"] for row in results["measured"]} == {2}
    line = refused(2, "compare", "--resume", folder, "--seeds", "2", "-t", "1")
    assert line == "motet: compare: --resume: --threads was 2 and is 1, want it as it was: train.minutes is the budget"


def test_a_comparison_that_is_killed_goes_on(tmp_path):
    sizes = [*WIDER, "--steps", "60", "--mechanisms", "mha,coca", "--seeds", "2", "--match", "none", "-n", "3", "--eval-every", "20"]
    arguments = {name: ["compare", *sizes, "--out", tmp_path / name] for name in ("whole", "killed")}
    done = run(*arguments["whole"])
    assert done.returncode == 0, done.stderr
    process = subprocess.Popen([MOTET, *map(str, arguments["killed"])], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    results = tmp_path / "killed" / "results.json"
    while (not results.exists() or not json.loads(results.read_text())["runs"]) and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    process.communicate()
    ended = json.loads(results.read_text())["runs"]
    assert process.returncode == -9 and 1 <= len(ended) < 4
    done = run("compare", "--resume", tmp_path / "killed", "-t", "1", "-n", "3")
    assert done.returncode == 0, done.stderr
    own, other = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("killed", "whole"))
    assert ended[0] in own["runs"]  # to the second that it took
    began, went_on = own["commands"]
    assert began == other["commands"][0].replace("whole", "killed") and went_on == f"{MOTET} compare --resume {tmp_path / 'killed'} -t 1 -n 3"
    assert f"{began}\n{went_on}".replace(",", ",<wbr>") in (tmp_path / "killed/report.html").read_text()
    assert [{**row, "seconds": 0} for row in own["runs"]] == [{**row, "seconds": 0} for row in other["runs"]]
    assert own["comparison"] == other["comparison"]
    rows = [{tuple(sorted(row.items())) for row in records(tmp_path / name)} for name in ("killed", "whole")]
    assert rows[0] == rows[1]
    more = run("compare", "--resume", tmp_path / "killed", "--seeds", "3", "--mechanisms", "dcmha", "-t", "1", "-n", "3", "-o", "json")
    assert more.returncode == 0, more.stderr
    assert [row["mechanism"] for row in json.loads(more.stdout)] == ["mha", "coca", "dcmha"]
    grown = json.loads((tmp_path / "killed" / "results.json").read_text())["runs"]
    assert len(grown) == 9 and all(row in grown for row in own["runs"])
    line = refused(2, "compare", "--resume", tmp_path / "killed", "--learning-rate", "1e-2")
    assert line == "motet: compare: --resume: train.learning_rate was 0.003 and is 0.01, want it as it was"
    assert refused(2, "compare", "--resume", tmp_path / "killed", "--seeds", "1") == "motet: compare: --resume: --seeds was 3 and is 1, want at least that"
    line = refused(2, "compare", "--resume", tmp_path / "killed", "--seeds", "4", "--set", "model.attention.window=16")
    assert line == "motet: compare: --resume: model.attention.window was not given and is 16, want it as it was"


BOOKS = ROOT.parent / "shared" / "data" / "corpus" / "books10M.train.txt"


@pytest.mark.nightly
def test_a_model_of_135_million_is_killed_twice(smollm_folder, tmp_path):
    """SmolLM2-135M goes on to train on books, 50 steps of 1024 tokens in bfloat16: the curve, the report and the model
    are those of the run that was never stopped."""
    if not BOOKS.exists():
        pytest.skip("shared/data is absent")
    done = run("data", "prepare", BOOKS, "-m", smollm_folder, "--validation", "0.02", "--out", tmp_path / "books", timeout=900)
    assert done.returncode == 0, done.stderr
    common = ["train", "--init", smollm_folder, tmp_path / "books", "--steps", 50, "-b", 4, "-c", 256, "-t", 2, "--dtype", "bfloat16",
              "--learning-rate", "1e-4", "--eval-every", 25, "--set", "train.eval_windows=8", "--set", "train.final_eval_windows=16",
              "--set", "train.checkpoint_every=10", "--set", "train.keep_last=1", "--set", "train.keep_best=0"]  # fmt: skip
    done = run(*common, "--out", tmp_path / "whole", timeout=3600)
    assert done.returncode == 0, done.stderr
    metrics = tmp_path / "killed" / "metrics.jsonl"
    for step in (17, 36):
        process = subprocess.Popen([MOTET, *map(str, [*common, "--resume", "auto", "--out", tmp_path / "killed"])], env=environment())
        while process.poll() is None and not (metrics.exists() and f'"step":{step},"tokens' in metrics.read_text()):
            time.sleep(0.2)
        assert process.poll() is None
        process.kill()
        process.wait()
    done = run(*common, "--resume", "auto", "--out", tmp_path / "killed", timeout=3600)
    assert done.returncode == 0, done.stderr
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
    curves = []
    for folder in ("whole", "killed"):
        page = (tmp_path / folder / "report.html").read_text()
        drawn = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])["curves"]
        curves.append([{key: value for key, value in curve.items() if key != "seconds"} for curve in drawn])
    assert curves[0] and curves[0] == curves[1]
