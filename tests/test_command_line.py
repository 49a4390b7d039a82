"""The front of the program: help, wrong usage, and one clear line for each kind of bad input."""
import json
import math
import pathlib
import re
import shutil
import signal
import statistics
import struct
import subprocess
import tempfile
import time
import tomllib

import pytest
from conftest import ENDLESS, MOTET, ROOT, SIZES, TINY, environment, refused, run

SUBCOMMANDS = ["compare", "train", "eval", "generate", "chat", "convert", "inspect", "doctor", "bench", "verify", "tokenize", "data"]


def checkpoint_of(model):
    """The folder inside a run that holds model.safetensors."""
    return sorted(model.rglob("model.safetensors"))[-1].parent


# ---- help and version


def test_help_names_every_subcommand():
    done = run("--help")
    assert done.returncode == 0 and done.stderr == ""
    assert all(f"\n  {name} " in done.stdout for name in SUBCOMMANDS)
    assert run("-h").stdout == done.stdout


def test_version_is_that_of_cmake():
    done = run("--version")
    assert done.returncode == 0
    assert f"VERSION {done.stdout.split()[1]} " in (ROOT / "CMakeLists.txt").read_text()
    assert run("-v").stdout == done.stdout


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_of_a_subcommand_ends_with_examples(name):
    done = run(name, "--help")
    assert done.returncode == 0 and done.stderr == ""
    examples = done.stdout.split("\nExamples:\n")[1].splitlines()
    assert len(examples) in (2, 3)
    assert all(example.startswith(f"  {MOTET} {name}") for example in examples)
    assert done.stdout == run(name, "-h").stdout


def test_help_loads_no_torch_and_its_time_is_shown(capsys):
    assert "torch" not in subprocess.run(["ldd", MOTET], capture_output=True, text=True, check=True).stdout
    for arguments in (["--help"], ["--version"], ["compare", "--help"]):
        times = []
        for _ in range(15):
            begin = time.perf_counter()
            run(*arguments)
            times.append(time.perf_counter() - begin)
        with capsys.disabled():
            print(f"\n  motet {' '.join(arguments)}: {statistics.median(times) * 1000:.1f} ms (want below 30)", end="")


# ---- wrong usage: exit 2


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        ([], "no subcommand"),
        (["comprae"], "nearest is 'compare'"),
        (["-x"], "unknown flag '-x'"),
        (["compare", "--hiden-size", "3"], "nearest is --hidden-size"),
        (["compare", "--hidden-size"], "--hidden-size wants a value"),
        (["compare", "--steps", "1", "--steps", "2"], "--steps is given twice"),
        (["compare", "--dry-run=no"], "--dry-run takes no value"),
        (["compare", "--set", "abc"], "want KEY=VALUE"),
        (["inspect"], "PATH is missing"),
        (["inspect", "a", "b"], "unexpected argument 'b'"),
        (["doctor", "-t", "0"], "--threads: '0' is below 1"),
        (["doctor", "-o", "jsom"], "nearest is 'json'"),
        (["compare", "--mechanisms", "mha,dcmah"], "nearest is 'dcmha'"),
        (["train", "--mechanism", "dcmah"], "nearest is 'dcmha'"),
        (["train", "--set", "train.learning_rat=1"], "nearest is 'train.learning_rate'"),
        (["train", "--set", "trian.steps=1"], "nearest is"),
        (["train", "--set", "model.attention.rnk=2", "--mechanism", "dcmha"], "rank"),
        (["train", "--set", "train.learning_rate=abc"], "train.learning_rate: 'abc' is not a number"),
        (["train", "--set", "train.steps=1.5"], "train.steps: '1.5' is not an integer"),
        (["train", "--set", "train.momentum=0.5"], "train.momentum: 0.5 has no effect, want optimizer = sgd or muon"),
        (["train", "--set", "train.muon_learning_rate=0.5"], "train.muon_learning_rate: 0.5 has no effect, want optimizer = muon"),
        (["train", "--set", "train.optimizer=sgd", "--set", "train.beta1=0.5"], "train.beta1: 0.5 has no effect, want optimizer = adamw or adam or muon"),
        (["train", "--set", "train.decay=0.5"], "train.decay: 0.5 has no effect, want schedule = wsd"),
        (["compare", "--set", "train.decay_shape=sqrt"], "train.decay_shape: 'sqrt' has no effect, want schedule = wsd"),
        (["train", "--set", "train.schedule=constant", "--set", "train.final_learning_rate=0.5"], "train.final_learning_rate: 0.5 has no effect"),
        (["compare", "--set", "model.attention.mechanism=coca"], "model.attention.mechanism: a comparison takes --mechanisms instead"),
        (["train", "--hidden-size", "-3"], "model.hidden_size: '-3' is below"),
        (["train", "--batch-size", "0"], "train.batch_size: '0' is below"),
        (["train", "--hidden-size", "30", "--num-heads", "4"], "30"),
        (["compare", "--seeds", "-1"], "seeds"),
        (["compare", "--sweep", "train.learning_rate=1e-3,2e-3", "--seeds", "1"], "--sweep: --seeds is 1, want at least 2"),
        (["compare", "--sweep", "train.tokens=1e5,2e5"], "--sweep: train.tokens is no number, or changes the data, the budget"),
        (["compare", "--sizes", "64"], "--sizes: '64' is one size, want at least 2"),
        (["compare", "--sizes", "64,30"], "--sizes 30: "),
        (["compare", "--match", "params"], "nearest is 'parameters'"),
        (["compare", "--validation", "1.5"], "validation"),
        (["compare", "--prompt", ""], "--prompt is empty"),
        (["bench", "memory", "--repeats", "3"], "--repeats is given for memory, want it for attention, train, checkpoint, processes, infer or serve"),
        (["bench", "checkpoint", "--python", "x"], "--python is given for checkpoint, want it for attention, train, infer or serve"),
        (["bench", "attention", "--python", "x"], "--python: has no meaning for bench attention without --goals"),
        (["compare", "--prompt=", "--dry-run"], "--prompt is empty"),
        (["train", "--out=", "--dry-run", "--steps", "-1"], "train.steps"),
        (["train", "--out", ""], "--out is empty, want a folder"),
        (["train", "--options", "-o", "json"], "--options: prints TOML, want it without --output"),
        (["train", "--out", "a\udcff", "--steps", "1"], r"train: 'a\xff' is not UTF-8, want text that is"),
        (["inspect", "x", "--probe", "d\udcff"], r"inspect: 'd\xff' is not UTF-8"),
        (["train", "b\udcff.txt"], r"train: 'b\xff.txt' is not UTF-8"),
        (["eval", "-m", "c\udcff/run"], r"eval: 'c\xff/run' is not UTF-8"),
        (["compare", "--set", "model.attention=3"], "'model.attention' is a section"),
        (["compare", "--mechanisms", "dcmha:mechanism=coca"], "before the first colon"),
        (["compare", "--mechanisms", "mha,key_size:key_dim=4096", "--hidden-size", "16"], "--match none"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(arguments, wanted, tmp_path):
    assert wanted in refused(2, *arguments, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        (["train", "--set", "train.no_decay=zzz"], "train.no_decay: 'zzz' names no parameter"),
        (["train", "--freeze", "zzz"], "names no parameter"),
        (["train", "--set", "model.positions=learned", "--set", "train.position_offset=3"], "with a table of positions"),
        (["train", "--processes", "2", "-b", "4", "--set", "model.shared_layers=true", "--set", "train.recompute=block"], "several processes"),
        (["train", "a.jsonl", "--tokenizer", "bytes", "--set", "train.objective=masked", "--set", "model.causal=false"], "a.jsonl has examples"),
        (["compare", "--set", "train.no_decay=zzz"], "mha: train.no_decay: 'zzz' names no parameter"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(arguments, wanted, tmp_path):
    """No folder is made either way."""
    (tmp_path / "a.jsonl").write_text('{"prompt": "to be", "completion": " or not"}\n' * 30)
    for more in (["--dry-run"], []):
        assert wanted in refused(2, *arguments, "--steps", "1", "-c", "16", *more, folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_an_unknown_level_of_messages_is_refused():
    assert "unknown level in MOTET_LOG 'foo'" in refused(2, "doctor", MOTET_LOG="foo")


def test_attention_in_a_file_must_be_a_section(tmp_path):
    (tmp_path / "a.toml").write_text("[model]\nattention = 3\n")
    for more in ([], ["--num-heads", "2"], ["--mechanism", "dcmha"]):
        line = refused(2, "train", "--config", tmp_path / "a.toml", *more, folder=tmp_path)
        assert "a.toml: model.attention: want a section" in line


def test_an_unknown_key_in_a_file_names_the_file_and_the_nearest(tmp_path):
    (tmp_path / "a.toml").write_text("[train]\nstep = 3\n")
    line = refused(2, "train", "--config", tmp_path / "a.toml", folder=tmp_path)
    assert "train.step" in line and "nearest is 'train.steps'" in line
    (tmp_path / "b.toml").write_text("[train\n")
    assert "b.toml: wrong TOML at line 1" in refused(1, "train", "--config", tmp_path / "b.toml", folder=tmp_path)


# ---- bad files: exit 1


def test_texts_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "binary.txt").write_bytes(b"ab\0c" * 1000)
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "latin.txt").write_bytes("Grüße ".encode("latin-1") * 1000)
    (tmp_path / "folder").mkdir()
    out = tmp_path / "out"
    for name, wanted in {
        "none.txt": "No such file",
        "empty.txt": "the file is empty",
        "binary.txt": "a zero byte at offset 2",
        "short.txt": "token",
        "folder": "holds no *.txt",
    }.items():
        for subcommand in ("train", "compare"):
            line = refused(1, subcommand, *TINY, "--out", out, tmp_path / name)
            assert wanted in line and (name in line or name == "short.txt")
    latin = refused(1, "train", *TINY, "--tokenizer", "chars", "--out", out, tmp_path / "latin.txt")
    assert "no UTF-8 at offset 2" in latin
    assert not out.exists()


def test_a_folder_that_cannot_be_written_is_refused_before_training():
    # pytest's own folders have names so long that a message shows both their ends alone.
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "file"
        file.write_text("")
        for out in (file, file / "run", "/proc/motet/run"):
            for subcommand in ("train", "compare"):
                line = refused(1, subcommand, *TINY, "--out", out)
                assert f"cannot write '{out}" in line


@pytest.mark.parametrize("subcommand", ["train", "compare"])
def test_a_prompt_that_cannot_be_continued_is_refused_before_training(subcommand, tmp_path):
    out = tmp_path / "out"
    assert "has 100 tokens" in refused(1, subcommand, *ENDLESS, "--out", out, "--prompt", "a" * 100)
    assert "'日'" in refused(1, subcommand, *ENDLESS, "--out", out, "--prompt", "日")
    assert not out.exists()


def test_results_that_cannot_be_written_are_no_success(model):
    for arguments in (["inspect", model], ["doctor"], ["generate", "-m", model, "-p", "a", "-n", "3"], ["--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([MOTET, *arguments], env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "cannot write the results" in done.stderr, (arguments, done.stderr)


def test_the_doctor_says_what_a_named_kernel_does_not_run():
    shown = {row["what"]: row["value"] for row in json.loads(run("doctor", "--json", MOTET_KERNEL="sdpa").stdout)}
    assert shown["plain attention runs"].startswith("sdpa") and shown["MOTET_KERNEL"] == "sdpa"
    assert shown["mixed heads run"] == "MOTET_KERNEL=sdpa cannot run this problem: heads are mixed"


def test_inspect_counts_what_is_not_finite_and_shows_what_is_derived(model, tmp_path):
    shown = lambda path: {row["what"]: row["value"] for row in json.loads(run("inspect", path, "--json").stdout)}  # noqa: E731
    folder = tmp_path / "m"
    shutil.copytree(checkpoint_of(model), folder)
    good = shown(folder)
    assert good["attention.head_dim"] == 8 and good["attention.num_kv_heads"] == 2
    assert good["non_finite"] == 0 and "non_finite.first" not in good
    weights = bytearray((folder / "model.safetensors").read_bytes())
    header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    first, second = "model.layers.0.mlp.up_proj.weight", "model.norm.weight"
    for name, values in {second: [math.nan], first: [math.inf, -math.inf]}.items():
        at = 8 + int.from_bytes(weights[:8], "little") + header[name]["data_offsets"][0]
        weights[at : at + 4 * len(values)] = struct.pack(f"<{len(values)}f", *values)
    (folder / "model.safetensors").write_bytes(weights)
    for path in (folder, folder / "model.safetensors"):
        assert shown(path)["non_finite"] == 3 and shown(path)["non_finite.first"] == first


def test_a_damaged_model_is_refused(model, tmp_path):
    good = checkpoint_of(model)
    weights = (good / "model.safetensors").read_bytes()

    def damaged(name, file, content):
        folder = tmp_path / name
        shutil.copytree(good, folder)
        if content is None:
            (folder / file).unlink()
        else:
            (folder / file).write_bytes(content)
        lines = {refused(1, "generate", "-m", folder, "-p", "a"), refused(1, "inspect", folder)}
        assert all(str(folder) in line or file in line for line in lines), lines
        return " ".join(lines)

    assert "cut short" in damaged("header", "model.safetensors", weights[:100])
    assert "outside of the file" in damaged("data", "model.safetensors", weights[:-4])
    assert "follow the last tensor" in damaged("longer", "model.safetensors", weights + b"1234")
    assert "No such file" in damaged("no_weights", "model.safetensors", None)
    assert "No such file" in damaged("no_config", "config.json", None)
    assert "ends too early" in damaged("half_config", "config.json", (good / "config.json").read_bytes()[:20])
    config = json.loads((good / "config.json").read_text())
    config["hidden_size"] = -16
    damaged("negative", "config.json", json.dumps(config).encode())
    config["hidden_size"] = 64
    damaged("other_size", "config.json", json.dumps(config).encode())
    tokenizer = json.loads((good / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["\u00e9"] = len(vocabulary)
    shutil.copytree(good, tmp_path / "tokens")
    (tmp_path / "tokens" / "tokenizer.json").write_text(json.dumps(tokenizer))
    line = refused(1, "generate", "-m", tmp_path / "tokens", "-p", "a")
    assert f"the tokenizer has {len(vocabulary)} tokens, want at most the {len(vocabulary) - 1}" in line


def test_a_missing_model_is_refused(tmp_path):
    for arguments in (["generate", "-p", "a", "-m"], ["eval", "-m"], ["inspect"]):
        assert "none" in refused(1, *arguments, tmp_path / "none")
    assert "--model" in refused(2, "generate", "-p", "a")
    assert "--model" in refused(2, "eval")


def test_a_prompt_longer_than_the_context_is_refused(model):
    line = refused(1, "generate", "-m", model, "-p", "a" * 100, "-n", "5")
    assert "100" in line and "32" in line


def test_a_prompt_with_an_unknown_character_is_refused(model):
    assert "'日'" in refused(1, "generate", "-m", model, "-p", "a日", "-n", "5")


def test_verify_fails_on_files_that_are_no_golden_files(model, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"1234")
    assert "4 bytes are no safetensors file" in refused(1, "verify", tmp_path / "a.safetensors")
    assert "no such file or folder" in refused(1, "verify", tmp_path / "none")


# ---- what works


def test_generate_is_the_same_for_the_same_seed(model):
    arguments = ["generate", "-m", model, "-p", "ROMEO:", "-n", "20", "--temp", "1", "--seed", "3"]
    first, second = run(*arguments), run(*arguments)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert run(*arguments[:-1], "4").stdout != first.stdout


def test_samples_do_not_depend_on_their_number(model):
    arguments = ["generate", "-m", model, "-p", "ROMEO:", "-n", "12", "--temp", "1", "--seed", "3", "-o", "json"]
    three = json.loads(run(*arguments, "--samples", "3").stdout)
    assert [row["sample"] for row in three] == [0, 1, 2]
    assert json.loads(run(*arguments).stdout) == three[:1]
    assert len({row["text"] for row in three}) > 1
    assert all(row["finish_reason"] == "length" for row in three)


def test_logprobs_come_with_the_likeliest_tokens(model):
    arguments = ["generate", "-m", model, "-p", "ROMEO:", "-n", "4", "--temp", "0", "--logprobs", "3"]
    assert "--logprobs needs -o json" in refused(2, *arguments)
    tokens = json.loads(run(*arguments, "-o", "json").stdout)[0]["tokens"]
    assert len(tokens) == 4
    for token in tokens:
        assert len(token["top"]) == 3 and token["top"][0]["id"] == token["id"]  # greedy
        assert token["top"][0]["logprob"] == token["logprob"] <= 0
        assert sum(math.exp(other["logprob"]) for other in token["top"]) <= 1 + 1e-9


def test_cache_and_weight_types_leave_the_text_nearly_as_it_is(model):
    arguments = ["generate", "-m", model, "-p", "ROMEO:", "-n", "12", "--temp", "0"]
    plain = run(*arguments)
    assert re.search(r"prompt: \d+ tokens in .* s \(.*/s\); then 12 tokens in .* s \(.*/s\); cache .* MiB for 17 tokens", plain.stderr), plain.stderr
    for flags in (["--cache-type", "int8"], ["--cache-type", "bfloat16", "--weights", "bfloat16"], ["--weights", "int8"],
                  ["--frequency-penalty", "0.0", "--presence-penalty", "0"]):
        done = run(*arguments, *flags)
        assert done.returncode == 0 and len(done.stdout) == len(plain.stdout), done.stderr
    assert run(*arguments, "--presence-penalty", "100").stdout != plain.stdout  # no character twice


def with_template(run_folder, folder, template="{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"):
    shutil.copytree(checkpoint_of(run_folder), folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


def test_chat_answers_each_line_in_the_form_of_the_template(model, tmp_path):
    folder = with_template(model, tmp_path / "chatty")
    arguments = ["chat", "-m", folder, "-n", "8", "--temp", "0"]
    done = run(*arguments, stdin="Who is it?\nSpeak\n")
    assert done.returncode == 0, done.stderr
    said = run("generate", "-m", folder, "-p", "user: Who is it?\n", "-n", "8", "--temp", "0").stdout
    assert done.stdout.startswith(said.removeprefix("user: Who is it?\n"))
    assert run(*arguments, stdin="").stdout == ""


def test_chat_without_a_template_says_what_is_missing(model):
    assert "no chat template, want chat_template.jinja" in refused(1, "chat", "-m", model)


def test_of_named_templates_the_default_is_taken(model, tmp_path):
    folder = with_template(model, tmp_path / "chatty")
    wanted = run("chat", "-m", folder, "-n", "8", "--temp", "0", stdin="Who is it?\n").stdout
    form = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    config = json.loads(path.read_text()) if (path := folder / "tokenizer_config.json").exists() else {}
    config["chat_template"] = [{"name": "rag", "template": "{{ 1 + }}"}, {"name": "default", "template": form}]
    path.write_text(json.dumps(config))
    done = run("chat", "-m", folder, "-n", "8", "--temp", "0", stdin="Who is it?\n")
    assert done.returncode == 0 and done.stdout == wanted, done.stderr
    config["chat_template"][1]["name"] = "tool_use"
    path.write_text(json.dumps(config))
    done = run("chat", "-m", folder, stdin="Who is it?\n")
    assert done.returncode == 1 and "no template named default, only: rag, tool_use" in done.stderr
    assert "no chat template, want" in done.stderr
    config["chat_template"] = [{"name": "rag"}]
    path.write_text(json.dumps(config))
    assert "want a name and a template" in refused(1, "chat", "-m", folder)


def test_a_stop_string_in_the_first_token_leaves_the_prompt(model):
    arguments = ["generate", "-m", model, "-p", "ROMEO:", "-n", "20", "--temp", "0"]
    first = run(*arguments).stdout[len("ROMEO:")]
    done = run(*arguments, "--stop", first)
    assert done.returncode == 0 and done.stdout == "ROMEO:\n"


def test_compare_continues_a_text_without_line_breaks(tmp_path):
    (tmp_path / "a.txt").write_text("the quick brown fox " * 200)
    done = run("compare", *TINY, "--mechanisms", "mha", "--seeds", "1", "-n", "5", "--out", tmp_path / "r", tmp_path / "a.txt")
    assert done.returncode == 0, done.stderr
    assert "Text by mha:" in done.stdout


def test_an_arm_that_diverges_leaves_the_others(tmp_path):
    arms = ["--mechanisms", "mha,differential_v1:lambda_std=10", "--set", "model.num_layers=4"]
    done = run("compare", *arms, *TINY, "--seeds", "1", "--match", "none", "--json", "--out", tmp_path / "r")
    assert done.returncode == 1
    assert "differential_v1:lambda_std=10 diverged: seed 1, step 1: the loss is" in done.stderr.splitlines()[-1]
    mha, diverged = json.loads(done.stdout)
    assert mha["validation_loss"] > 0 and mha["verdict"] == "baseline"
    assert diverged["validation_loss"] is None and diverged["verdict"] == "diverged"
    assert json.loads((tmp_path / "r" / "table.json").read_text()) == [mha, diverged]
    assert (tmp_path / "r" / "report.html").exists()


def test_a_budget_of_the_command_line_wins_over_the_file(tmp_path):
    (tmp_path / "a.toml").write_text("[train]\ntokens = 300\n")
    done = run("train", "--config", tmp_path / "a.toml", "--steps", "2", "--dry-run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\nsteps = 2\n" in done.stdout and "\ntokens = 0\n" in done.stdout
    (tmp_path / "b.toml").write_text("[model]\nhidden_size = 32\n")
    done = run("train", "--config", tmp_path / "b.toml", "--dry-run", folder=tmp_path)
    assert "\nsteps = 500\n" in done.stdout, done.stderr


def test_the_written_configuration_reads_as_it_would_be_written(tmp_path):
    done = run("compare", "--dry-run", "--num-heads", "2", folder=tmp_path)
    assert "\nnum_heads = 2\n" in done.stdout and "\nvalidation = 0.1\n" in done.stdout


def test_runs_that_begin_together_get_folders_of_their_own(tmp_path):
    arguments = [MOTET, "train", *TINY]
    started = [subprocess.Popen(arguments, cwd=tmp_path, env=environment()) for _ in range(3)]
    assert [process.wait(timeout=300) for process in started] == [0, 0, 0]
    assert len(list((tmp_path / "runs").glob("train-*/config.toml"))) == 3


def test_results_have_every_format(model):
    for form in ("table", "csv", "md", "json", "jsonl"):
        done = run("inspect", model, "-o", form)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
    assert json.loads(run("inspect", model, "--json").stdout)


@pytest.mark.parametrize("subcommand", ["train", "compare"])
def test_dry_run_writes_nothing(subcommand, tmp_path):
    done = run(subcommand, "--dry-run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hidden_size" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_is_one_json_object_too(tmp_path):
    sizes = ["--dry-run", "--steps", "7", "--num-layers", "2"]
    told = json.loads(run("train", *sizes, "-o", "json", folder=tmp_path).stdout)
    assert run("train", *sizes, "-o", "jsonl", folder=tmp_path).stdout == json.dumps(told, separators=(",", ":"), sort_keys=True) + "\n"
    written = run("train", *sizes, folder=tmp_path).stdout
    assert told["configuration"] == tomllib.loads(written)
    assert f"# parameters {told['parameters']}, weights {told['weight_bytes'] / 1e6:.2f} MB, with gradients and optimiser {told['training_bytes'] / 1e6:.2f} MB" in written
    for form in ("csv", "md"):
        assert "want -o table, json or jsonl" in run("train", *sizes, "-o", form, folder=tmp_path).stderr


def test_the_resolved_configuration_trains_the_same_model_again(model, tmp_path):
    done = run("train", "-t", "1", "--config", model / "config.toml", "--out", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    weights = [(checkpoint_of(folder) / "model.safetensors").read_bytes() for folder in (model, tmp_path / "again")]
    assert weights[0] == weights[1]


# ---- Ctrl-C


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_shows_what_had_finished(number, tmp_path):
    sizes = [*SIZES, "--steps", "30", "--mechanisms", "mha,coca", "--seeds", "500", "-n", "3"]
    pipe = subprocess.PIPE
    process = subprocess.Popen([MOTET, "compare", *sizes, "--out", tmp_path / "run"], env=environment(), stdout=pipe, stderr=pipe, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(tmp_path.glob("run/models/coca-seed*"))) < 2 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert errors.splitlines()[-1] == (
        f"motet: compare: stopped; what had finished is shown; to go on: motet compare --resume {tmp_path / 'run'}"
    )
    rows = {row["mechanism"]: row for row in json.loads((tmp_path / "run" / "table.json").read_text())}
    assert list(rows) == ["mha", "coca"] and all(2 < row["validation_loss"] < 5 for row in rows.values())
    assert "Stopped before all seeds had finished: mha (" in out and "of 500" in out and "Report: " in out
    saved = list(tmp_path.glob("run/models/*"))
    assert saved and [path for path in tmp_path.rglob("*") if ".tmp-" in path.name] == []
    for folder in saved[:4]:
        assert run("inspect", folder).returncode == 0


# ---- the examples of --help


def test_the_examples_of_help_work_as_printed(tmp_path):
    """In the order of the subcommands, which is the order a reader tries them in; compare runs in test_readme.py."""
    (tmp_path / "motet").symlink_to(ROOT / "motet")
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    for name in SUBCOMMANDS[1:]:
        if name == "chat":
            with_template(tmp_path / "runs/first", tmp_path / "smollm2")
        examples = run(name, "--help").stdout.split("\nExamples:\n")[1].splitlines()
        for example in examples:
            command = ["bash", "-ec", example]
            done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, (example, done.stderr)
