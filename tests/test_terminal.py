"""`motet chat` in the hands of a person: it asks, an error or Ctrl-C ends an answer and not the conversation."""
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import time

import pytest
from conftest import MOTET, environment, run

LONG = "a" * 60  # more than the context


class Terminal:
    """The program with a terminal for standard input; what it prints comes through pipes."""

    def __init__(self, *arguments):
        self.main, other = pty.openpty()
        pipe = subprocess.PIPE
        own = dict(stdin=other, stdout=pipe, stderr=pipe, env=environment(), start_new_session=True)
        self.process = subprocess.Popen([MOTET, *map(str, arguments)], **own)
        os.close(other)
        self.read = {self.process.stdout: b"", self.process.stderr: b""}

    def says(self, stream, wanted):
        """Waits for the bytes on the stream; returns what came before them since the last call."""
        deadline = time.monotonic() + 30
        while wanted not in self.read[stream] and time.monotonic() < deadline:
            for ready in select.select(list(self.read), [], [], 1)[0]:
                self.read[ready] += os.read(ready.fileno(), 65536)
        assert wanted in self.read[stream], self.read
        before, _, self.read[stream] = self.read[stream].partition(wanted)
        return before

    def asks(self):
        return self.says(self.process.stderr, b"\n> ")

    def type(self, line):
        os.write(self.main, line.encode() + b"\n")

    def close(self):
        os.write(self.main, b"\x04")  # Ctrl-D
        out, errors = self.process.communicate(timeout=60)
        os.close(self.main)
        return out, errors


@pytest.fixture(scope="module")
def chatty(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chatty") / "model"
    shutil.copytree(sorted(model.rglob("model.safetensors"))[-1].parent, folder)
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    return folder


def test_a_person_is_asked_and_an_error_ends_no_conversation(chatty):
    chat = Terminal("chat", "-m", chatty, "-n", "4", "--temp", "0")
    assert b"Ctrl-C stops an answer, Ctrl-D ends the chat." in chat.asks()
    chat.type("")  # nothing said, nothing answered
    chat.asks()
    chat.type(LONG)
    assert b"motet: chat: the message has 61 tokens with its form, want at most 28" in chat.asks()
    chat.type("Who is it?")
    chat.asks()
    out, errors = chat.close()
    assert chat.process.returncode == 0 and errors == b""
    said = run("generate", "-m", chatty, "-p", "Who is it?\n", "-n", "4", "--temp", "0").stdout
    answer = (chat.read[chat.process.stdout] + out).decode()
    assert answer == "\n" + said.removeprefix("Who is it?\n")  # one line for the refused message, none for the empty


def test_ctrl_c_ends_an_answer_and_sigterm_the_chat(chatty):
    chat = Terminal("chat", "-m", chatty, "-n", "1000000000", "--temp", "1", "--ignore-eos")
    chat.asks()
    chat.type("Who is it?")
    answer = chat.process.stdout.fileno()
    assert os.read(answer, 1)  # it has begun
    os.kill(chat.process.pid, signal.SIGINT)
    chat.asks()
    chat.read[chat.process.stdout] = b""
    chat.type("And now?")
    assert os.read(answer, 1)
    os.kill(chat.process.pid, signal.SIGTERM)  # not a person's key: it ends the chat
    chat.process.communicate(timeout=60)
    os.close(chat.main)
    assert chat.process.returncode == 143


def test_without_a_terminal_the_first_error_ends_the_chat(chatty):
    done = run("chat", "-m", chatty, "-n", "4", "--temp", "0", stdin=f"{LONG}\nWho is it?\n")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("motet: chat: the message has 61 tokens") and ">" not in done.stderr


def test_the_system_prompt_stands_first(chatty):
    said = run("generate", "-m", chatty, "-p", "Be brief.\nWho is it?\n", "-n", "4", "--temp", "0").stdout
    done = run("chat", "-m", chatty, "-n", "4", "--temp", "0", "--system", "Be brief.", stdin="Who is it?\n")
    assert done.stdout == said.removeprefix("Be brief.\nWho is it?\n"), done.stderr


# ---- narrowing


def test_convert_refuses_numbers_that_a_narrower_type_cannot_hold(model, tmp_path):
    folder = tmp_path / "large"
    shutil.copytree(sorted(model.rglob("model.safetensors"))[-1].parent, folder)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    size = int.from_bytes(weights[:8], "little")
    header = json.loads(weights[8 : 8 + size])
    at = 8 + size + header["model.norm.weight"]["data_offsets"][0]
    weights[at : at + 4] = bytes.fromhex("00007047")  # 61440 in float32: float16 holds it
    (folder / "model.safetensors").write_bytes(weights)
    convert = lambda out, *more: run("convert", folder, "--to", "llama", "--out", tmp_path / out, *more)  # noqa: E731
    assert convert("fits", "--dtype", "float16").returncode == 0
    weights[at : at + 4] = bytes.fromhex("00008047")  # 65536: it does not
    (folder / "model.safetensors").write_bytes(weights)
    refused = convert("refused", "--dtype", "float16")
    assert refused.returncode == 1 and "model.norm.weight" in refused.stderr and "--allow-overflow" in refused.stderr
    assert not (tmp_path / "refused").exists()
    assert convert("wide", "--dtype", "bfloat16").returncode == 0
    assert convert("allowed", "--dtype", "float16", "--allow-overflow").returncode == 0
    inspect = lambda out: {row["what"]: row["value"] for row in json.loads(run("inspect", tmp_path / out, "--json").stdout)}  # noqa: E731
    assert inspect("allowed")["non_finite"] == 1 and inspect("wide")["non_finite"] == 0
