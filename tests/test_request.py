"""What the front hands to the engine, flag by flag: an engine that prints its request stands in libmotet.so's place."""
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess

import pytest
from conftest import MOTET, environment

ENGINE = r"""
#include <stdio.h>
#include <stdlib.h>
static const char* of(const char* name) { return getenv(name) ? getenv(name) : ""; }
int motet_run(const char* subcommand, const char* request) {
  printf("{\"subcommand\": \"%s\", \"OMP_NUM_THREADS\": \"%s\", \"OMP_WAIT_POLICY\": \"%s\", \"request\": %s}\n",
         subcommand, of("OMP_NUM_THREADS"), of("OMP_WAIT_POLICY"), request);
  return 0;
}
"""
LEAST = {"inspect": ["x"], "bench": ["x"], "verify": ["x"], "data": ["x"]}  # arguments that must be there
ARGUMENTS = {"compare": ("texts", 2), "train": ("texts", 2), "eval": ("arguments", 2), "convert": ("path", 1),
             "inspect": ("path", 1), "bench": ("what", 1), "verify": ("paths", 2), "tokenize": ("texts", 2),
             "data": ("arguments", 2)}  # fmt: skip
# Keys of the configuration; every other flag is a field of its own name.
KEYS = {
    "steps": "train.steps", "tokens": "train.tokens", "minutes": "train.minutes", "ctx-size": "train.context",
    "batch-size": "train.batch_size", "learning-rate": "train.learning_rate", "dtype": "train.dtype",
    "device": "train.device",
    "seed": "train.seed", "eval-every": "train.eval_every", "hidden-size": "model.hidden_size",
    "num-layers": "model.num_layers", "num-heads": "model.attention.num_heads", "tokenizer": "data.tokenizer",
    "validation": "data.validation", "documents": "data.documents", "mechanism": "model.attention.mechanism",
    "task": "data.task.name",
}  # fmt: skip
LISTS = {("generate", "stop"), ("chat", "stop"), ("train", "freeze"), ("data", "validation-text")}
SHORT = {"model": "m", "prompt": "p", "n-predict": "n", "ctx-size": "c", "batch-size": "b", "seed": "s", "threads": "t",
         "output": "o"}  # fmt: skip
SUBCOMMANDS = ["compare", "train", "eval", "generate", "chat", "convert", "inspect", "doctor", "bench", "verify", "tokenize", "data"]


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    """The program beside an engine that prints what it is given."""
    folder = tmp_path_factory.mktemp("front")
    (folder / "engine.c").write_text(ENGINE)
    command = ["cc", "-shared", "-fPIC", "-o", folder / "libmotet.so", folder / "engine.c"]
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    subprocess.run(command, check=True)
    return pathlib.Path(shutil.copy(MOTET, folder / "motet"))


def asked(front, *arguments, **extra):
    clean = {name: value for name, value in environment().items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run([front, *arguments], env=clean | extra, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def flags_of(front, name):
    """(letter or '', flag, whether it takes a value) of the help, without those of the whole program."""
    text = subprocess.run([front, name, "--help"], env=environment(), capture_output=True, text=True, check=True).stdout
    flags = re.findall(r"^  (?:-(\w), |    )--([\w-]+)( [A-Z=]+)?  ", text, re.M)
    return [(letter, flag, bool(value)) for letter, flag, value in flags if flag not in ("help", "json", "set", "threads")]


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_each_flag_becomes_the_field_of_its_name(name, front):
    configured = name in ("train", "compare")
    for number, (letter, flag, takes) in enumerate(flags_of(front, name)):
        assert letter == ("m" if (name, flag) == ("data", "tokenizer") else SHORT.get(flag, "")), flag
        value = f"value{number}"
        request = asked(front, name, *LEAST.get(name, []), f"--{flag}", *([value] if takes else []))["request"]
        if configured and flag in KEYS:
            assert request.pop("set") == [[KEYS[flag], value]], flag
        else:
            wanted = [value] if (name, flag) in LISTS else value if takes else True
            assert request.pop(flag.replace("-", "_")) == wanted, flag
        assert set(request) - {ARGUMENTS.get(name, ("",))[0]} == {"command", "color"}, flag
        if letter:
            short = asked(front, name, *LEAST.get(name, []), f"-{letter}", value)["request"]
            long = asked(front, name, *LEAST.get(name, []), f"--{flag}", value)["request"]
            assert {**short, "command": ""} == {**long, "command": ""}, flag


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_arguments_without_dashes_have_their_field(name, front):
    field, most = ARGUMENTS.get(name, ("", 0))
    if most:
        assert asked(front, name, "x")["request"][field] == (["x"] if most > 1 else "x")
    if most > 1:
        assert asked(front, name, "x", "y", "z")["request"][field] == ["x", "y", "z"]
    else:
        done = subprocess.run([front, name, *["x"] * (most + 1)], env=environment(), capture_output=True, text=True)
        assert done.returncode == 2 and "unexpected argument 'x'" in done.stderr
    assert asked(front, name, *LEAST.get(name, []))["subcommand"] == name


def test_lists_grow_and_sets_come_last(front):
    assert asked(front, "generate", "--stop", "a", "--stop", "b")["request"]["stop"] == ["a", "b"]
    given = ["--set", "a.b=1=2", "--seed", "3", "--set", "c="]
    assert asked(front, "train", *given)["request"]["set"] == [["train.seed", "3"], ["a.b", "1=2"], ["c", ""]]


def test_the_recorded_command_is_read_back_by_a_shell(front):
    words = ["-p", *[f"a{character}b" for character in " '\"$`\\\\*?[]{}()<>|&;!#~=^\n"], "a%@:,./+-_b", ""]
    line = asked(front, "tokenize", "-m", "bytes", "--", *words)["request"]["command"]
    shell = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True)
    assert shell.stdout.split("\0")[1:-1] == ["tokenize", "-m", "bytes", "--", *words]
    assert " a%@:,./+-_b ''" in line  # what needs no quotes has none


def test_threads_reach_request_and_openmp(front):
    alone, given = asked(front, "doctor"), asked(front, "doctor", "-t", "3")
    assert "threads" not in alone["request"] and alone["OMP_NUM_THREADS"] == ""
    assert given["request"]["threads"] == 3 and given["OMP_NUM_THREADS"] == "3"
    assert asked(front, "doctor", MOTET_THREADS="5")["request"]["threads"] == 5
    assert asked(front, "doctor", MOTET_THREADS="4096")["request"]["threads"] == 4096  # the most
    assert alone["OMP_WAIT_POLICY"] == "passive"
    own = asked(front, "doctor", "-t", "3", OMP_WAIT_POLICY="active", OMP_NUM_THREADS="2")
    assert (own["OMP_WAIT_POLICY"], own["OMP_NUM_THREADS"]) == ("active", "2")  # the user's win


def test_colours_are_for_terminals(front):
    assert asked(front, "doctor")["request"]["color"] is False
    plain = {name: value for name, value in environment(TERM="xterm").items() if name != "NO_COLOR"}
    main, other = pty.openpty()
    done = subprocess.run([front, "doctor"], env=plain, stdout=other)
    os.close(other)
    shown = json.loads(os.read(main, 65536))
    os.close(main)
    assert done.returncode == 0 and shown["request"]["color"] is True


def test_bytes_that_are_no_text_reach_the_engine_as_text(front):
    assert asked(front, "generate", "-p", b"a\xffb")["request"]["prompt"] == "a\ufffdb"


@pytest.mark.parametrize("place", [".", "../lib", "../lib64", "../lib/x86_64-linux-gnu", "../lib/aarch64-linux-gnu"])
def test_the_engine_stands_beside_the_program_or_in_lib(place, front, tmp_path):
    (tmp_path / "bin").mkdir()
    program = shutil.copy(front, tmp_path / "bin" / "motet")
    done = subprocess.run([program, "doctor"], env=environment(), capture_output=True, text=True)
    assert done.returncode == 1 and "libmotet.so is neither in" in done.stderr
    (tmp_path / "bin" / place).mkdir(parents=True, exist_ok=True)
    shutil.copy(front.parent / "libmotet.so", tmp_path / "bin" / place / "libmotet.so")
    (tmp_path / "link").symlink_to(program)
    assert asked(program, "doctor")["subcommand"] == asked(tmp_path / "link", "doctor")["subcommand"] == "doctor"


def test_json_is_an_output(front):
    assert asked(front, "doctor", "--json")["request"]["output"] == "json"
    assert asked(front, "doctor", "-o", "csv")["request"]["output"] == "csv"
