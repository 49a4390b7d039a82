"""Input without an end, pipes, signals and readers that go away: one line, and the exit code of other programs."""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

import pytest
from conftest import MOTET, TINY, environment, last_checkpoint, refused, run

ENDS = [signal.SIGINT, signal.SIGTERM]
PIPE = subprocess.PIPE
LIMIT = "more than 1073741824 bytes, want at most that many"


def started(*arguments, **more):
    return subprocess.Popen([MOTET, *map(str, arguments)], env=environment(), stdout=PIPE, stderr=PIPE, **more)


def ended(process, number):
    """The one line of a process that the signal ends, and what it had written."""
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert errors.decode().splitlines()[-1] == "motet: interrupted"
    return out


def wait_for(process, path):
    """Until the process has this file open, or so long that it may wait in open() itself."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and str(path) not in map(os.path.realpath, pathlib.Path(f"/proc/{process.pid}/fd").iterdir()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


def full_disk():
    """Before the program begins: no file of it may be large, and writing fails."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def writer_of(fifo, process):
    """The writing end, once the process has opened the other."""
    for _ in range(1200):
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads yet
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
    raise AssertionError("the process does not read the pipe")


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


# ---- Ctrl-C and SIGTERM


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_ends_generation(number, model):
    process = started("generate", "-m", model, "-p", "ROMEO:", "-n", 10**9, "-t", "1")
    begun = process.stdout.read(100)
    text = (begun + ended(process, number)).decode()  # whole characters
    assert text.startswith("ROMEO:") and len(text) >= 100


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_ends_a_chat(number, model, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(last_checkpoint(model), folder)
    (folder / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    process = started("chat", "-m", folder, "-n", 10**9, stdin=PIPE)
    process.stdin.write(b"ROMEO:\n")
    process.stdin.flush()
    assert process.stdout.read(50)
    ended(process, number)


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("arguments", [["tokenize", "-m", "bytes"], ["eval", "perplexity", "-m", "MODEL"], ["train", *TINY]])
def test_a_signal_ends_the_wait_for_a_pipe(arguments, number, model, fifo, tmp_path):
    arguments = [model if word == "MODEL" else word for word in arguments]
    process = started(*arguments, fifo, cwd=tmp_path)
    writer = writer_of(fifo, process)
    os.write(writer, b"To be, or not to be")
    assert ended(process, number) == b""
    os.close(writer)
    assert list(tmp_path.iterdir()) == [fifo]


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("megabytes", [0, 9])
def test_a_signal_ends_the_wait_for_the_writer_of_a_pipe(megabytes, number, fifo, tmp_path):
    """Which is waited for by the first thread, or behind more than a batch of text by a second one."""
    (tmp_path / "a.txt").write_text("To be, or not to be\n" * (megabytes * 50_000 + 1))
    process = started("data", "prepare", tmp_path / "a.txt", fifo, "-m", "bytes", "-t", "1", "--out", tmp_path / "out")
    wait_for(process, fifo)
    process.send_signal(number)
    try:
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 128 + number, errors
    assert errors.decode().splitlines()[-1].startswith("motet: interrupted; "), errors


def test_a_full_disk_is_told_while_standard_input_waits(tmp_path):
    command = [MOTET, "data", "prepare", "-", "-m", "bytes", "-t", "1", "--shard-tokens", "1000000", "--out", tmp_path / "out"]
    process = subprocess.Popen(command, env=environment(), stdin=PIPE, stdout=PIPE, stderr=PIPE, preexec_fn=full_disk)
    try:
        process.stdin.write(b"To be, or not to be\n" * 450_000)  # more than a batch
        process.stdin.flush()
        code = process.wait(timeout=60)
    finally:
        process.kill()
    lines = [line for line in process.stderr.read().decode().splitlines() if line.startswith("motet: ")]
    assert code == 1 and len(lines) == 1 and "cannot write" in lines[0] and "whole shard" in lines[0], lines


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_ends_an_evaluation_between_its_items(number, model, tmp_path):
    items, questions = tmp_path / "items", tmp_path / "a.jsonl"
    one = json.dumps({"query": "Question: who", "choices": ["a king", "the queen"], "gold": 0}) + "\n"
    questions.write_text(one * 3000)
    process = started("eval", "arc_easy", "-m", model, questions, "--items", items, "-b", "1", "-t", "1")
    while (not items.exists() or items.read_bytes().count(b"\n") < 5) and process.poll() is None:
        time.sleep(0.01)
    assert ended(process, number) == b""
    lines = items.read_text().splitlines()
    assert 5 <= len(lines) < 3001 and all(json.loads(line) for line in lines)


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_before_the_engine_is_loaded_ends_the_program(number, tmp_path):
    shutil.copy(MOTET, tmp_path / "motet")
    os.mkfifo(tmp_path / "libmotet.so")  # loading it waits for ever
    process = subprocess.Popen([tmp_path / "motet", "doctor"], env=environment(), stdout=PIPE, stderr=PIPE)
    writer = writer_of(tmp_path / "libmotet.so", process)
    process.send_signal(number)
    assert process.communicate(timeout=60) == (b"", b"") and process.returncode == 128 + number
    os.close(writer)


# ---- nobody reads


@pytest.mark.parametrize("form", [[], ["-o", "jsonl"]])
def test_a_full_disk_ends_generation_at_once(form, model):
    with open("/dev/full", "w") as full:
        count = 10**9 if not form else 5
        arguments = [MOTET, "generate", "-m", model, "-p", "ROMEO:", "-n", str(count), *form]
        done = subprocess.run(arguments, env=environment(), stdout=full, stderr=PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "motet: cannot write the results to standard output"


@pytest.mark.parametrize("ignored, code", [(True, 1), (False, -signal.SIGPIPE)])
def test_a_reader_that_goes_away_ends_generation(ignored, code, model):
    """By the signal, as of cat; or, where that is ignored, with the line and exit code of a failed write."""
    process = started("generate", "-m", model, "-p", "ROMEO:", "-n", 10**9,
                      preexec_fn=(lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN)) if ignored else None)  # fmt: skip
    assert process.stdout.read(20)
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait(timeout=60) == code
    assert errors == ("motet: cannot write the results to standard output\n" if ignored else "")


# ---- no end


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        (["train", *TINY, "/dev/zero"], LIMIT),
        (["eval", "-m", "MODEL", "/dev/zero"], LIMIT),
        (["tokenize", "-m", "bytes", "/dev/zero"], LIMIT),
        (["tokenize", "--train", "--vocab-size", "300", "--out", "t.json", "/dev/zero"], "a zero byte at offset 0"),
        (["tokenize", "-m", "zero.json", "-p", "a"], "more than 100000000 bytes"),
        (["tokenize", "-m", "zero.model", "-p", "a"], LIMIT),
        (["tokenize", "-m", "zero.gguf", "-p", "a"], "no regular file"),
        (["tokenize", "-m", "/dev/zero", "-p", "a"], "as a tokenizer: want"),
        (["tokenize", "--chat-template", "/dev/zero"], LIMIT),
        (["train", "--config", "/dev/zero"], "more than 16777216 bytes"),
        (["inspect", "/dev/zero"], "is no regular file"),
        (["inspect", "folder"], "more than 100000000 bytes"),
        (["inspect", "weights"], "model.safetensors': no regular file"),
        (["generate", "-m", "zero.gguf", "-p", "a"], "is no regular file"),
        (["verify", "/dev/zero"], "no regular file"),
        (["data", "prepare", "/dev/zero", "--tokenizer", "bytes", "--out", "d"], "a zero byte at offset 0"),
    ],
)
def test_endless_input_is_refused_in_one_line(arguments, wanted, model, tmp_path):
    for name in ("zero.json", "zero.model", "zero.gguf", "folder/config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to("/dev/zero")
    shutil.copytree(last_checkpoint(model), tmp_path / "weights")
    (tmp_path / "weights/model.safetensors").unlink()
    (tmp_path / "weights/model.safetensors").symlink_to("/dev/zero")
    before = sorted(tmp_path.rglob("*"))
    assert wanted in refused(1, *[model if word == "MODEL" else word for word in arguments], folder=tmp_path, timeout=100)
    left = {path.name for path in tmp_path.rglob("*") if path not in before and path.is_file()}
    assert left <= {"tokenizer.json", "progress.json"}  # of data prepare, which can be tried again


def test_endless_lines_are_refused():
    with open("/dev/zero") as zero:
        arguments = [MOTET, "tokenize", "-m", "bytes", "--lines"]
        done = subprocess.run(arguments, env=environment(), stdin=zero, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "motet: standard input: a line of more than 100000000 bytes, want a shorter one\n"


def test_a_pipe_is_read_to_its_end_and_said_to_be_waited_for(model, fifo, tmp_path):
    text = "To be, or not to be, that is the question.\n" * 20
    (tmp_path / "text.txt").write_text(text)
    wanted = run("eval", "-m", model, tmp_path / "text.txt", "-o", "csv")
    process = started("eval", "-m", model, fifo, "-o", "csv")
    writer = writer_of(fifo, process)
    os.write(writer, text.encode())
    os.close(writer)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert errors.decode() == f"waiting for the end of '{fifo}', a pipe\n" + wanted.stderr
    assert out.decode().replace("pipe,", "text.txt,") == wanted.stdout


# ---- what -m names


def test_a_comparison_and_an_unfinished_run_say_what_to_name(tmp_path):
    out = tmp_path / "compare"
    done = run("compare", *TINY, "--mechanisms", "mha,coca", "--seeds", "1", "--out", out)
    assert done.returncode == 0, done.stderr
    models = f"{out}: a comparison, want one of its models: {out}/models/coca-seed1, {out}/models/mha-seed1"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").write_text("{}\n")
    for arguments in (["generate", "-p", "a", "-m"], ["eval", "-m"], ["inspect"], ["train", "--init"], ["convert", "--out", "x"]):
        assert refused(1, *arguments, out, folder=tmp_path) == f"motet: {models}"
        assert "run: a run that has no checkpoint yet, want" in refused(1, *arguments, tmp_path / "run", folder=tmp_path)
    assert run("inspect", out / "models/mha-seed1").returncode == 0


def test_of_several_checkpoints_the_last_is_taken(tmp_path):
    done = run("train", *TINY, "--set", "train.keep_last=0", "--tokenizer", "chars", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    steps = sorted((tmp_path / "run/checkpoints").iterdir())
    assert len(steps) == 4
    (tmp_path / "a.txt").write_text("To be, or not to be, that is the question.\n" * 9)
    scores = [run("eval", "-m", folder, tmp_path / "a.txt", "--json").stdout for folder in (tmp_path / "run", *steps)]
    assert scores[0] == scores[-1] and len(set(scores)) == 4
