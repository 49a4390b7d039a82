"""`motet data prepare`: every kind of input, stopped at any moment, and training from what it writes."""
import gzip
import json
import resource
import signal
import struct
import subprocess
import sys
import time

import numpy
import pytest
from conftest import MOTET, ROOT, TINY, environment, records, refused, run

PLAYS = ROOT / "motet" / "data" / "tinyshakespeare.txt"
SMALL = ["--shard-tokens", "500000"]


def shard(path):
    """The tokens and the document starts of a shard, read as docs/data.md says."""
    data = path.read_bytes()
    magic, version, width, vocabulary, tokens, documents, reserved, _, _ = struct.unpack("<8sIIQQQQQQ", data[:64])
    assert (magic, version, reserved) == (b"MOTETTOK", 1, 0) and width == (2 if vocabulary <= 65536 else 4)
    index = 64 + (tokens * width + 7) // 8 * 8
    assert len(data) == index + 8 * documents
    ids = numpy.frombuffer(data, f"<u{width}", tokens, 64)
    return ids, numpy.frombuffer(data, "<u8", documents, index)


def texts(folder, part="train"):
    """The documents of data prepared with the tokenizer bytes."""
    ids, starts, size = [], [], 0
    for path in sorted(folder.glob(f"{part}-*.tokens")):
        tokens, begins = shard(path)
        ids.append(tokens.astype(numpy.uint8))
        starts += list(begins + size)
        size += len(tokens)
    return [piece.tobytes().decode() for piece in numpy.split(numpy.concatenate(ids), starts[1:])] if ids else []


def prepare(out, *arguments, **more):
    done = run("data", "prepare", *arguments, "-m", "bytes", "--out", out, **more)
    assert done.returncode == 0, done.stderr
    return out


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def zstd(data):
    """A Zstandard frame of blocks that are not compressed (RFC 8878)."""
    out = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(data))
    blocks = [data[at : at + 65536] for at in range(0, len(data), 65536)]
    for block in blocks:
        out += (len(block) << 3 | (block is blocks[-1])).to_bytes(3, "little") + block
    return out


# ---- places


def test_a_file_system_without_locks_holds_data_and_runs(tmp_path):
    source = "#include <errno.h>\nint flock(int file, int operation) { errno = ENOLCK; return -1; }\n"
    library = tmp_path / "locks.so"
    made = subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    prepare(tmp_path / "data", PLAYS, LD_PRELOAD=str(library))
    done = run("train", *TINY, "--out", tmp_path / "run", LD_PRELOAD=str(library))
    assert done.returncode == 0, done.stderr


# ---- inputs


def test_texts_lines_folders_and_packed_files_give_the_same(tmp_path):
    documents = ["To be,\nor not", "Grüße, 日本", "a\n\nb\n"]
    lines = "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in documents[1:]).encode()
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "a.txt").write_text(documents[0])
    (folder / "b" / "lines.jsonl").write_bytes(lines)
    (folder / "ignored.md").write_text("no")
    (folder / ".hidden" / "c.txt").write_text("no")
    (folder / ".d.txt").write_text("no")
    assert texts(prepare(tmp_path / "plain", folder)) == documents
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"To be,\n") + gzip.compress(b"or not"))  # two members
    (tmp_path / "lines.jsonl.zst").write_bytes(zstd(lines[:20]) + zstd(lines[20:]))
    assert texts(prepare(tmp_path / "packed", tmp_path / "a.txt.gz", tmp_path / "lines.jsonl.zst")) == documents
    done = run("data", "prepare", folder / "a.txt", "--format", "jsonl", "-m", "bytes", "--out", tmp_path / "x")
    assert done.returncode == 1 and "a.txt:1: wrong JSON" in done.stderr
    stdin = lines.decode()
    assert texts(prepare(tmp_path / "stdin", "-", "--format", "jsonl", stdin=stdin)) == documents[1:]


def test_long_packed_texts_arrive_whole(tmp_path):
    text = PLAYS.read_text() * 3
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "b.txt.zst").write_bytes(zstd(text.encode()))
    out = prepare(tmp_path / "out", tmp_path / "a.txt.gz", tmp_path / "b.txt.zst", *SMALL)
    assert texts(out) == [text, text]
    manifest = json.loads((out / "data.json").read_text())
    assert [record["bytes"] for record in manifest["inputs"]] == [len(text), len(text)]
    assert manifest["inputs"][0]["hash"] == manifest["inputs"][1]["hash"]
    assert [len(shard(path)[0]) for path in sorted(out.glob("*.tokens"))][:-1] == [500000] * (len(text) * 2 // 500000)


def test_validation_takes_every_tenth_document_or_files_of_their_own(tmp_path):
    documents = [f"document {i}\n" for i in range(30)]
    (tmp_path / "a.txt").write_text("\n".join(documents))
    (tmp_path / "v.txt").write_text("held out")
    options = ["--separator", "", "--validation", "0.1", "--validation-text", tmp_path / "v.txt"]
    out = prepare(tmp_path / "out", tmp_path / "a.txt", *options)
    held = documents[9::10]
    assert texts(out, "validation") == [*held, "held out"]
    assert texts(out) == [text for text in documents if text not in held]


def test_the_document_token_is_the_tokenizers_own(tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    assert run("tokenize", "--train", "--vocab-size", 300, "--out", tokenizer, PLAYS).returncode == 0
    (tmp_path / "a.txt").write_text("to be")
    for name, first in {"auto": [0], "none": [], "b": [1 + ord("b")]}.items():
        more = ["-m", tokenizer, "--out", tmp_path / name, "--document-token", name]
        done = run("data", "prepare", tmp_path / "a.txt", *more)
        assert done.returncode == 0, done.stderr
        ids = json.loads(run("tokenize", "-m", tokenizer, "-p", "to be", "--json").stdout)["ids"]
        tokens, starts = shard(tmp_path / name / "train-00000.tokens")
        assert list(tokens) == first + ids and list(starts) == [0]
    assert "the first there is of <|endoftext|>, <|begin_of_text|> and <s>" in " ".join(run("data", "--help").stdout.split())


# ---- bad input


def test_what_cannot_be_prepared_is_named(tmp_path):
    packed = gzip.compress(b"abc" * 1000)
    cases = [
        ("binary.txt", b"ab\0c", "a zero byte at offset 2"),
        ("short.txt.gz", packed[:-9], "the packed data ends too early"),
        ("damaged.txt.gz", packed[:12] + b"\xff\xff\xff" + packed[15:], "the gzip data is damaged"),
        ("tail.txt.gz", packed + b"tail", "the gzip data is damaged"),
        ("no.txt.gz", b"plain text", "the file is no gzip data"),
        ("no.txt.zst", packed, "the file is no zstd data"),
        ("short.txt.zst", zstd(b"abc" * 1000)[:-1], "the packed data ends too early"),
        ("damaged.txt.zst", zstd(b"abc" * 1000)[:9] + b"\xff" * 9, "the zstd data is damaged"),
        ("a.jsonl", b'{"text": "a"}\n\n{"texts": "b"}\n', "a.jsonl:3: has no text 'text'"),
        ("b.jsonl", b'{"text": 3}', "b.jsonl:1: has no text 'text'"),
        ("c.jsonl", b'{"text": "a"}\n{"text": ', "c.jsonl:2: JSON ends too early"),
        ("d.jsonl", b'{"text": "\xff"}', "d.jsonl:1: no UTF-8"),
        ("empty.txt", b"", "the texts have no documents for training"),
        ("folder", None, "the folder holds no *.txt or *.jsonl"),
        ("missing.txt", None, "No such file"),
    ]
    (tmp_path / "folder").mkdir()
    for number, (name, data, wanted) in enumerate(cases):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        line = refused(1, "data", "prepare", tmp_path / name, "-m", "bytes", "--out", tmp_path / f"out{number}")
        assert wanted in line and (name in line or data == b""), line


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        ([], "ACTION is missing"),
        (["prepair"], "nearest is 'prepare'"),
        (["prepare"], "--tokenizer is missing"),
        (["prepare", "-m", "bytes"], "--out is missing"),
        (["prepare", "-m", "bytes", "--out", "x"], "INPUT is missing"),
        (["prepare", "-m", "chars", "--out", "x", "a"], "'chars' depends on the text"),
        (["prepare", "-m", "bytes", "--out", "x", "-", "-"], "standard input is given twice"),
        (["prepare", "-m", "bytes", "--out", "x", "a", "--validation", "1"], "--validation"),
        (["prepare", "-m", "bytes", "--out", "x", "a", "--shard-tokens", "0"], "--shard-tokens"),
        (["prepare", "-m", "bytes", "--out", "x", "a", "--format", "json"], "nearest is 'jsonl'"),
        (["prepare", "-m", "bytes", "--out", "x", PLAYS, "--document-token", "<eos>"], "no token '<eos>'"),
        (["prepare", "-m", "bytes", "--out", "x", "-", "--validation-text", "-"], "standard input is given twice"),
        (["check"], "want one of prepared data"),
        *((["check", "x", flag, "1"], f"{flag}: has no meaning for data check") for flag in
          ("--tokenizer", "--out", "--validation", "--validation-text", "--separator", "--text-field", "--document-token", "--shard-tokens")),
        (["train", "--set", "data.documents=apart"], "'apart' needs documents"),
        (["train", "--documents", "appart"], "nearest is 'apart'"),
    ],
)
def test_wrong_usage_is_named(arguments, wanted, tmp_path):
    command = arguments if arguments[:1] == ["train"] else ["data", *arguments]
    assert wanted in refused(2, *command, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- ended early


def killed_while_reading(out, text, part, number, count):
    """Gives a part of the text on standard input, waits for `count` shards, and sends the signal."""
    command = [MOTET, "data", "prepare", "-", "-m", "bytes", "--out", out, *SMALL, "-t", "1"]
    process = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(text[:part])
    process.stdin.flush()
    end = time.monotonic() + 60
    while len(list(out.glob("*.tokens"))) < count and time.monotonic() < end:
        time.sleep(0.002)
    process.send_signal(number)
    error = process.stderr.read().decode()
    process.stdin.close()
    return process.wait(timeout=60), error


def test_a_name_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/b\udcffd.txt").write_text("text")
    line = refused(1, "data", "prepare", tmp_path / "in", "-m", "bytes", "--out", tmp_path / "out")
    assert line.endswith(r"/in/b\xffd.txt': its name is not UTF-8, want one that is") and not (tmp_path / "out").exists()


def test_killed_at_any_moment_it_continues_to_the_same_bytes(tmp_path):
    text = PLAYS.read_bytes() * 24
    whole = content(prepare(tmp_path / "whole", "-", *SMALL, stdin=text.decode()))
    out = tmp_path / "out"
    for count in (1, 3, 10, 14):
        code, _ = killed_while_reading(out, text, len(text) // 2, signal.SIGKILL, count)
        assert code == -signal.SIGKILL and not (out / "data.json").exists()
        shards = sorted(out.glob("*.tokens"))
        assert len(shards) >= count
        for path in shards:  # whole, whatever the moment
            assert whole[path.name] == path.read_bytes()
    before = {path: path.stat().st_mtime_ns for path in shards}
    prepare(out, "-", *SMALL, stdin=text.decode())
    assert content(out) == whole
    kept = [path for path, time_ns in before.items() if path.stat().st_mtime_ns == time_ns]
    assert len(kept) >= len(before) - 1  # the last may have been renamed but not yet recorded


def test_ctrl_c_says_how_to_go_on(tmp_path):
    text = PLAYS.read_bytes() * 24
    code, error = killed_while_reading(tmp_path / "out", text, len(text) // 2, signal.SIGINT, 2)
    assert code == 130
    assert "interrupted; " in error and "whole shards, the same command continues there" in error, error
    assert len(error.splitlines()) == 1 and not list((tmp_path / "out").glob(".*"))


def test_only_the_same_command_continues(tmp_path):
    text = PLAYS.read_bytes() * 24
    out = tmp_path / "out"
    killed_while_reading(out, text, len(text) // 2, signal.SIGKILL, 2)
    whole = lambda: {path.name: path.read_bytes() for path in out.glob("*.tokens")}  # noqa: E731
    begun = whole()
    line = refused(2, "data", "prepare", "-", "-m", "bytes", "--out", out, "--shard-tokens", "600000", stdin="x")
    assert "the shard tokens differ" in line
    for other in ("x" + text.decode()[1:], "short"):
        line = refused(1, "data", "prepare", "-", "-m", "bytes", "--out", out, *SMALL, stdin=other)
        assert "the texts are not those from which" in line
    assert whole() == begun


def test_a_full_disk_keeps_what_is_whole(tmp_path):
    """A limit on the size of files stands for the disk."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    out = tmp_path / "out"
    command = [MOTET, "data", "prepare", PLAYS, "-m", "bytes", "--out", out, "--shard-tokens", "200000"]
    done = subprocess.run(command, env=environment(), preexec_fn=limit, capture_output=True, text=True)
    assert done.returncode == 1
    assert "File too large; " in done.stderr and "keeps 0 whole shards" in done.stderr
    assert not list(out.glob("*.tokens")) and not list(out.glob(".*"))
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert texts(out) == [PLAYS.read_text()]


# ---- training


@pytest.fixture(scope="module")
def plays(tmp_path_factory):
    """Speeches of tiny Shakespeare in shards of one byte a token."""
    out = tmp_path_factory.mktemp("data") / "plays"
    return prepare(out, PLAYS, "--separator", "", "--validation", "0.1", "--shard-tokens", "200000")


def test_training_from_shards_is_training_from_the_text(plays, tmp_path):
    """Without documents and with the same tokens in the same order all numbers are the same."""
    out = prepare(tmp_path / "all", PLAYS, "--shard-tokens", "70000")
    for name, text in {"text": PLAYS, "shards": out}.items():
        done = run("train", *TINY, text, "--out", tmp_path / name, *(["--tokenizer", "bytes"] if text == PLAYS else []))
        assert done.returncode == 0, done.stderr
    assert records(tmp_path / "text") == records(tmp_path / "shards")


def test_documents_apart_train_and_evaluate_otherwise(plays, tmp_path):
    table = {}
    for how in ("packed", "apart"):
        done = run("train", *TINY, plays, "--documents", how, "--json", "--out", tmp_path / how)
        assert done.returncode == 0, done.stderr
        table[how] = json.loads(done.stdout)[0]["loss"]
        assert f'documents = "{how}"' in (tmp_path / how / "config.toml").read_text().replace("'", '"')
    assert table["packed"] != table["apart"]
    scores = {}
    for how in ("packed", "apart"):
        done = run("eval", "-m", tmp_path / "apart", plays, "--documents", how, "--json")
        assert done.returncode == 0, done.stderr
        scores[how] = json.loads(done.stdout)[0]
        assert scores[how]["text"].endswith("plays (validation)")
    assert scores["packed"]["nats_per_token"] != scores["apart"]["nats_per_token"]
    told = f"motet: warning: --validation: {plays} has a validation part of its own, which is scored whatever is given here\n"
    done = run("eval", "-m", tmp_path / "apart", plays, "--documents", "apart", "--validation", "0", "--json")
    assert (json.loads(done.stdout)[0], done.stderr) == (scores["apart"], told)
    done = run("eval", "-m", tmp_path / "apart", plays, PLAYS, "--validation", "0.1", "--json")
    assert done.returncode == 0 and told not in done.stderr
    assert abs(scores["apart"]["bits_per_byte"] - scores["apart"]["nats_per_token"] / numpy.log(2)) < 1e-9


def test_compare_takes_prepared_data(plays, tmp_path):
    done = run("compare", *TINY, plays, "--mechanisms", "mha,dcmha", "--documents", "apart", "--seeds", "1", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert "plays" in done.stdout
    # docs/environment.md says so
    assert {path.name for path in (tmp_path / "r").iterdir()} == {"config.toml", "metrics.jsonl", "report.html", "results.json", "table.json", "models"}


def test_another_tokenizer_is_refused(plays, model, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    run("tokenize", "--train", "--vocab-size", 300, "--out", tokenizer, PLAYS)
    line = refused(1, "train", *TINY, plays, "--tokenizer", tokenizer, "--out", tmp_path / "r")
    assert "was prepared with another tokenizer, of 256 tokens, not 300" in line
    line = refused(2, "train", *TINY, plays, "--tokenizer", "chars", "--out", tmp_path / "r")
    assert line == "motet: data.tokenizer: 'chars' is made of a text, and prepared data has its own, want it left out"
    assert "was prepared with another tokenizer" in refused(1, "eval", "-m", model, plays)
    assert "want it alone" in refused(2, "train", *TINY, plays, PLAYS, "--out", tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_check_finds_damage(plays, tmp_path):
    spoken = [line for line in PLAYS.read_bytes().splitlines(keepends=True) if line != b"\n"]
    done = run("data", "check", plays, "--json")
    assert [row["documents"] for row in json.loads(done.stdout)] == [6500, 722]
    assert sum(row["text_bytes"] for row in json.loads(done.stdout)) == sum(map(len, spoken))
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", plays, copy], check=True)
    path = copy / "train-00001.tokens"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    assert "train-00001.tokens: the checksum is wrong" in refused(1, "data", "check", copy)
    path.write_bytes(data[:1000])
    assert "train-00001.tokens: the file ends inside the tokens" in refused(1, "train", *TINY, copy, "--out", tmp_path / "r")
    assert "is no prepared data" in refused(1, "data", "check", tmp_path)


def llmc(path, tokens):
    header = numpy.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    path.write_bytes(header.tobytes() + numpy.asarray(tokens, "<u2").tobytes())


def test_llmc_shards_train_and_evaluate(tmp_path):
    ids = numpy.frombuffer(PLAYS.read_bytes()[:40000], numpy.uint8)
    folder = tmp_path / "llmc"
    folder.mkdir()
    llmc(folder / "plays_train_000001.bin", ids[:15000])
    llmc(folder / "plays_train_000002.bin", ids[15000:30000])
    llmc(folder / "plays_val_000000.bin", ids[30000:])
    assert "has no tokenizer, want --tokenizer" in refused(1, "train", *TINY, folder, "--out", tmp_path / "r")
    done = run("train", *TINY, folder, "--tokenizer", "bytes", "--documents", "apart", "--json", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)[0]
    assert abs(row["bits_per_byte"] - row["loss"] / numpy.log(2)) < 1e-9
    done = run("eval", "-m", tmp_path / "r", folder, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["tokens"] == 9984, done.stderr
    llmc(folder / "plays_train_000001.bin", [300, 1, 2] * 5000)
    line = refused(1, "train", *TINY, folder, "--tokenizer", "bytes", "--out", tmp_path / "s")
    assert "token" in line and "vocabulary of 256" in line


# ---- memory


def peak(*arguments):
    """Peak resident bytes of a run of the program."""
    program = "import resource, subprocess, sys\nsubprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
    program += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    command = [sys.executable, "-c", program, MOTET, *map(str, arguments)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_training_holds_no_more_of_large_data_than_of_small(tmp_path):
    """400 MB of tokens: all that grows is the order of the windows, 4 bytes each, and the pages that were read."""
    sizes = {"small": 20_000, "large": 200_000_000}
    peaks = {}
    for name, tokens in sizes.items():
        path = tmp_path / f"{name}.bin"
        llmc(path, [])
        with open(path, "r+b") as file:  # zeros that take no room on the disk
            file.seek(8)
            file.write(struct.pack("<i", tokens))
            file.truncate(1024 + 2 * tokens)
        # Evaluations map pages all over the file, which the system can take back: a few are enough here.
        few = ["--set", "train.eval_windows=4", "--set", "train.final_eval_windows=4"]
        more = ["--tokenizer", "bytes", "--ctx-size", "256", "--steps", "20", *few, "--out", tmp_path / name]
        peaks[name] = peak("train", path, *TINY[:6], "-t", "1", "-b", "2", *more)
    order = 4 * sizes["large"] // 256
    assert peaks["large"] - peaks["small"] < order + 40_000_000, peaks


def test_preparing_holds_no_more_of_large_texts_than_of_small(tmp_path):
    text = PLAYS.read_bytes()
    peaks = {}
    for name, times in {"small": 20, "large": 100}.items():
        path = tmp_path / f"{name}.txt"
        path.write_bytes(text * times)
        arguments = ["-m", "bytes", "-t", "2", "--shard-tokens", "20000000", "--out", tmp_path / name]
        peaks[name] = peak("data", "prepare", path, *arguments)
    assert peaks["large"] - peaks["small"] < 60_000_000, peaks  # the texts differ by 89 MB, tokens in memory by 357
