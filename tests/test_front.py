"""What the front makes of arguments and environment: each flag reaches its key, and who wins where two say something."""
import html
import json
import re
import shlex
import tomllib

import pytest
from conftest import TINY, refused, run


def threads(*arguments, **environment):
    done = run("doctor", "--json", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return {row["what"]: row["value"] for row in json.loads(done.stdout)}["threads"]


def test_threads_come_from_the_flag_then_the_environment():
    assert threads("-t", "3") == threads("--threads", "3") == threads(MOTET_THREADS="3") == "3"
    assert threads("-t", "2", MOTET_THREADS="3") == "2"
    assert threads(MOTET_THREADS="") == threads()
    assert "MOTET_THREADS: '0' is below 1" in refused(2, "doctor", MOTET_THREADS="0")
    assert "--threads: 'x' is not an integer" in refused(2, "doctor", "-t", "x")


FLAGS = {
    "--steps": ("train", "steps", 7),
    "--hidden-size": ("model", "hidden_size", 48),
    "--num-layers": ("model", "num_layers", 3),
    "--num-heads": ("model", "attention", 6),
    "--ctx-size": ("train", "context", 40),
    "--batch-size": ("train", "batch_size", 5),
    "--learning-rate": ("train", "learning_rate", 0.25),
    "--dtype": ("train", "dtype", "bfloat16"),
    "--device": ("train", "device", "cpu"),
    "--seed": ("train", "seed", 9),
    "--tokenizer": ("data", "tokenizer", "bytes"),
    "--validation": ("data", "validation", 0.2),
    "--eval-every": ("train", "eval_every", 3),
}


def plan(*arguments):
    done = run("train", "--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    return tomllib.loads(done.stdout)


def test_each_flag_reaches_its_key():
    shown = plan(*[word for flag, (_, _, value) in FLAGS.items() for word in (flag, str(value))])
    for flag, (section, key, value) in FLAGS.items():
        found = shown[section][key]
        assert (found["num_heads"] if key == "attention" else found) == value, flag
    assert plan("--minutes", "1.5")["train"]["minutes"] == 1.5
    assert plan("--tokens", "5000")["train"]["tokens"] == 5000
    short = plan("-c", "40", "-b", "5", "-s", "9")["train"]
    assert (short["context"], short["batch_size"], short["seed"]) == (40, 5, 9)


def test_set_wins_over_flags_and_the_last_set_over_others(tmp_path):
    for arguments in (["--set", "train.seed=5", "--seed", "4"], ["--seed", "4", "--set", "train.seed=5"]):
        assert plan(*arguments)["train"]["seed"] == 5
    assert plan("--set", "train.seed=5", "--set", "train.seed=6")["train"]["seed"] == 6
    (tmp_path / "a.toml").write_text("[train]\nseed = 7\nbatch_size = 2\n")
    shown = plan("--config", tmp_path / "a.toml", "--seed", "4")["train"]
    assert shown["seed"] == 4 and shown["batch_size"] == 2


def test_behind_two_dashes_every_word_is_an_argument(tmp_path):
    (tmp_path / "-p").write_text("abc")
    done = run("tokenize", "-m", "bytes", "--count", "--", "-p", folder=tmp_path)
    assert done.stdout == "3\n", done.stderr
    assert "unexpected argument '-p'" in refused(2, "doctor", "--", "-p")
    assert run("tokenize", "-m", "bytes", "--count", "--prompt=--x").stdout == "3\n"


def test_json_is_a_format_like_others():
    assert run("convert", "--list", "--json").stdout == run("convert", "--list", "-o", "json").stdout
    assert json.loads(run("convert", "--list", "-o", "csv", "--json").stdout)


SAMPLING = {"--temp": "-1", "--top-p": "2", "--top-k": "-1", "--min-p": "-1", "--n-predict": "0", "--repeat-penalty": "0",
            "--frequency-penalty": "101", "--presence-penalty": "-101", "--typical-p": "0", "--seed": "-1", "--samples": "0",
            "--cache-type": "int9", "--weights": "float8", "--precision": "medium", "--logprobs": "-1"}  # fmt: skip


@pytest.mark.parametrize("flag", SAMPLING)
def test_a_wrong_value_names_its_flag(flag, model):
    line = refused(2, "generate", "-m", model, "-p", "a", flag, SAMPLING[flag])
    assert f"{flag}: '{SAMPLING[flag]}'" in line or f"'{SAMPLING[flag]}'" in line and flag in ("--cache-type",), line


def test_several_stop_strings_are_all_known(model):
    arguments = ["generate", "-m", model, "-p", "ROMEO:", "-n", "20", "--temp", "1", "--seed", "3"]
    text = run(*arguments).stdout.removesuffix("\n")
    first, second = text[9:11], text[14:16]
    for stops in ([first, second], [second, first]):
        done = run(*arguments, *[word for stop in stops for word in ("--stop", stop)])
        assert done.stdout == text[: min(text.find(stop, 6) for stop in stops)] + "\n"


def test_the_recorded_command_reads_back(tmp_path):
    arguments = ["compare", *TINY, "--mechanisms", "mha", "--seeds", "1", "--tokenizer", "bytes", "-p", "it's a $HOME; \"x\"", "--out", tmp_path / "r 1"]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r 1/report.html").read_text()
    (shown,) = re.findall(r'<pre[^>]* data-copy="command"[^>]*>(.*?)</pre>', page, re.S)
    line = html.unescape(re.sub(r"<[^>]*>", "", shown))
    assert shlex.split(line)[1:] == [str(word) for word in arguments]


@pytest.mark.parametrize("name", ["compare", "train", "eval", "generate", "chat", "convert", "inspect", "data", "tokenize"])
def test_every_flag_of_the_help_is_known(name):
    text = run(name, "--help").stdout
    flags = re.findall(r"^  (?:-\w, |    )--([\w-]+)(?: ([A-Z=]+))?  ", text, re.M)
    assert len(flags) > 2
    for flag, value in flags:
        given = [f"--{flag}", *(["KEY=1"] if flag == "set" else ["1"] if value else [])]
        done = run(name, *given, "--unknown-flag-last")  # what is known is passed over
        assert done.returncode == (0 if flag == "help" else 2)
        assert flag == "help" or "unknown flag '--unknown-flag-last'" in done.stderr, (flag, done.stderr)


@pytest.mark.parametrize("name", ["train", "compare"])
def test_the_help_shows_the_defaults_that_a_run_has(name):
    flags = re.findall(r"^  (?:-\w, |    )--([\w-]+).*?\(.*default: ([^)]+)\)$", run(name, "--help").stdout, re.M)
    shown = dict(flags)
    run_of = tomllib.loads(re.search(r"^\[data\].*", run(name, "--dry-run").stdout, re.M | re.S)[0])
    keys = {"num-heads": run_of["model"]["attention"]["num_heads"], "ctx-size": run_of["train"]["context"]}
    for section in ("model", "data", "train"):
        keys |= {key.replace("_", "-"): value for key, value in run_of[section].items()}
    checked = 0
    for flag, default in shown.items():
        if flag in keys:
            assert str(keys[flag]) == default or float(keys[flag]) == float(default), flag
            checked += 1
    assert checked == 16 and shown["tokens"] == {"train": "0", "compare": "120000"}[name]


def test_defaults_are_those_of_the_documents():
    """docs/training.md and the help say some of them; published results say the rest."""
    done = run("train", "--options")
    assert done.returncode == 0 and "0 to 0;" not in done.stdout
    shown = tomllib.loads(done.stdout)
    del shown["model"]["attention"]  # test_python_package.py
    assert shown == {
        "model": {"hidden_size": 64, "num_layers": 2, "embedding_size": 0, "intermediate_size": 0, "block": "sequential", "activation": "default",
                  "embedding_norm": False, "positions": "rope", "first_position": 0, "token_types": 0, "norm_place": "pre",
                  "shared_layers": False, "head": "linear", "causal": True, "norm_eps": 1e-5, "tie_embeddings": False, "initializer": "normal",
                  "initializer_range": 0.02},
        "data": {"tokenizer": "auto", "validation": 0.1, "documents": "packed"},
        "train": {"steps": 500, "tokens": 0, "minutes": 0, "objective": "next", "mask_whole_words": False, "context": 128, "batch_size": 16, "position_offset": 0,
                  "optimizer": "adamw",
                  "learning_rate": 0.003, "muon_learning_rate": 0.02, "schedule": "cosine", "final_learning_rate": 0.1,
                  "warmup": 0.05, "decay": 0.2, "decay_shape": "linear", "weight_decay": 0.1, "no_decay": "",
                  "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "momentum": 0.95, "clip": 1.0, "label_smoothing": 0.0,
                  "z_loss": 0.0, "dropout": 0.0, "average": "", "skip_outliers": 0.0, "dtype": "float32", "matmul_precision": "highest", "device": "auto", "micro_batch_size": 0,
                  "loss_rows": 0, "recompute": "none", "eval_every": 0, "eval_windows": 64, "final_eval_windows": 0,
                  "diagnose_every": 100, "checkpoint_every": 0, "keep_last": 2, "keep_best": 1, "async_checkpoint": False, "seed": 1,
                  "data_seed": 0, "shard_optimizer": False, "timeout": 60, "start_timeout": 300},
    }  # fmt: skip
    compared = tomllib.loads(re.search(r"^\[.*", run("compare", "--dry-run").stdout, re.M | re.S)[0])
    train = compared["train"]
    assert (train["tokens"], train["context"], train["batch_size"], train["steps"]) == (120000, 64, 8, 0)
    assert compared["model"]["attention"]["num_heads"] == 8
