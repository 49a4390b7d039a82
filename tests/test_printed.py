"""The numbers that train and compare print, against those that eval computes of the models they saved, and ours."""
import json
import math

import numpy
import pytest
from conftest import ROOT, last_checkpoint, records, run
from safetensors.numpy import load_file
from test_data import shard

PLAYS = ROOT / "motet" / "data" / "tinyshakespeare.txt"
CONTEXT = 32
SIZES = f"--hidden-size 16 --num-layers 2 --num-heads 2 --ctx-size {CONTEXT} --batch-size 3 -t 1 --eval-every 5 --learning-rate 0.02".split()
MECHANISMS = ["mha", "key_size", "talking_heads", "dcmha", "differential_v1", "differential_v2", "coca"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Other texts for training and validation, in tokens of more than a byte."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "t.txt").write_text(PLAYS.read_text()[:40000])
    (folder / "v.txt").write_text(PLAYS.read_text()[-4000:])
    done = run("tokenize", "--train", "--vocab-size", 300, "--out", folder / "tok.json", folder / "t.txt")
    assert done.returncode == 0, done.stderr
    done = run("data", "prepare", folder / "t.txt", "--validation-text", folder / "v.txt", "-m", folder / "tok.json", "--out", folder / "d")
    assert done.returncode == 0, done.stderr
    return folder / "d"


def scored(model, data, *more):
    done = run("eval", "-m", model, data, "--json", "-t", "1", *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[0]


def scored_text(data):
    """How many tokens of the validation part are scored, and the bytes of text that they are: by the tokenizers package."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(data / "tokenizer.json"))
    ids = numpy.concatenate([shard(path)[0] for path in sorted(data.glob("validation-*.tokens"))]).tolist()
    windows = (len(ids) - 1) // CONTEXT
    targets = ids[1 : 1 + windows * CONTEXT]
    return len(targets), len(tokenizer.decode(targets, skip_special_tokens=True).encode())


# Of every dtype in the mechanisms with the most of their own between the projections.
RUNS = [(name, "float32") for name in MECHANISMS] + [(name, dtype) for name in ("dcmha", "differential_v1") for dtype in ("float64", "bfloat16")]
RUNS += [("dcmha", "float16")]


@pytest.mark.parametrize("average", ["ema:0.9", "last:3"])
def test_averaged_weights_are_scored_and_saved(average, data, tmp_path):
    more = ["--steps", "20", "--set", f"train.average={average}", "--set", "train.dropout=0.1"]
    done = run("train", *SIZES, *more, data, "--out", tmp_path / "r", "--json")
    assert done.returncode == 0, done.stderr
    trained, averaged = json.loads(done.stdout)
    assert trained["loss"] == pytest.approx(scored(tmp_path / "r", data)["nats_per_token"], rel=1e-5)
    assert averaged["loss"] == pytest.approx(scored(f"{tmp_path / 'r'}:average", data)["nats_per_token"], rel=1e-5)
    assert averaged["checkpoint"] == str(last_checkpoint(tmp_path / "r") / "average") and averaged["loss"] != trained["loss"]
    last = json.loads((tmp_path / "r" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["validation_loss"], last["average_validation_loss"]) == (trained["loss"], averaged["loss"])
    done = run("eval", "-m", f"{tmp_path / 'r'}:best:average", data)
    assert done.returncode == 0 and done.stderr.startswith("model: ") and "/average" in done.stderr.splitlines()[0], done.stderr
    for step in (tmp_path / "r/checkpoints").iterdir():  # the lowest loss of the averages decides, whatever the other says
        state = json.loads((step / "state.json").read_text())
        printed = {row["step"]: row["average_validation_loss"] for row in records(tmp_path / "r") if "average_validation_loss" in row}
        assert state["step"] == 20 or state.get("average_validation_loss") == printed.get(state["step"])  # 20: of more windows
        (step / "state.json").write_text(json.dumps(state | {"average_validation_loss": state["step"], "validation_loss": -state["step"]}))
    first = min((tmp_path / "r/checkpoints").iterdir())
    assert f"{first}/average" in run("inspect", f"{tmp_path / 'r'}:best:average").stdout


@pytest.mark.parametrize("mechanism, dtype", RUNS)
def test_the_loss_that_train_prints_is_that_of_eval(mechanism, dtype, data, tmp_path):
    tolerance = {"float32": 1e-5, "float64": 1e-10, "bfloat16": 1e-3, "float16": 1e-4}[dtype]
    done = run("train", *SIZES, "--steps", "20", "--mechanism", mechanism, "--dtype", dtype, data, "--out", tmp_path / "r", "--json")
    assert done.returncode == 0, done.stderr
    row, score = json.loads(done.stdout)[0], scored(tmp_path / "r", data)
    tokens, size = scored_text(data)
    assert row["loss"] == pytest.approx(score["nats_per_token"], rel=tolerance)
    assert row["tokens_scored"] == score["tokens"] == tokens
    for printed, loss in ((row, row["loss"]), (score, score["nats_per_token"])):
        assert printed["bits_per_byte"] == pytest.approx(loss / math.log(2) * tokens / size, rel=1e-9)
    last = json.loads((tmp_path / "r" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == 20 and last["validation_loss"] == row["loss"] and last["bits_per_byte"] == row["bits_per_byte"]
    config = json.loads((last_checkpoint(tmp_path / "r") / "config.json").read_text())
    assert config.get("autocast") == (dtype if dtype in ("bfloat16", "float16") else None)
    assert config["torch_dtype"] == ("float64" if dtype == "float64" else "float32")
    again = scored(tmp_path / "r", data, "--dtype", dtype)
    assert again["nats_per_token"] == score["nats_per_token"]
    if dtype == "bfloat16":
        other = scored(tmp_path / "r", data, "--dtype", "float32")["nats_per_token"]
        assert other != score["nats_per_token"] and other == pytest.approx(score["nats_per_token"], rel=1e-2)


@pytest.mark.parametrize("block", ["parallel", "sequential_layer_norm"])
def test_the_loss_of_other_blocks_is_that_of_eval(block, data, tmp_path):
    done = run("train", *SIZES, "--steps", "10", "--mechanism", "dcmha", "--set", f"model.block={block}", data, "--out", tmp_path / "r", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["loss"] == pytest.approx(scored(tmp_path / "r", data)["nats_per_token"], rel=1e-5)


def student_t(differences):
    """Mean, half of the 95 % interval and p of three paired differences: two degrees of freedom have a closed form."""
    mean = sum(differences) / 3
    error = math.sqrt(sum((x - mean) ** 2 for x in differences) / 2) / math.sqrt(3)
    t = abs(mean) / error
    quantile = 0.95 * math.sqrt(2 / (1 - 0.95**2))
    return mean, quantile * error, 1 - t / math.sqrt(2 + t * t)


def holm(p_values):
    corrected, last = {}, 0
    for rank, name in enumerate(sorted(p_values, key=p_values.get)):
        last = corrected[name] = max(last, min(1, (len(p_values) - rank) * p_values[name]))
    return corrected


@pytest.mark.parametrize("arms, match", [("talking_heads,mha,coca", "parameters"), ("coca,key_size,mha,differential_v1", "flops"), ("dcmha,mha", "parameters")])
def test_the_table_of_compare_is_that_of_its_models(arms, match, data, tmp_path):
    done = run("compare", *SIZES, "--steps", "20", "--mechanisms", arms, "--seeds", "3", "--match", match, data,
               "--margin", "0.002", "-n", "3", "--out", tmp_path / "r", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["mechanism"]: row for row in json.loads(done.stdout)}
    assert list(rows) == arms.split(",")
    assert json.loads((tmp_path / "r" / "table.json").read_text()) == json.loads(done.stdout)
    losses, models, byte_losses = {}, {}, {}
    for name in rows:
        folders = sorted((tmp_path / "r" / "models").glob(f"{name}-seed*"))
        assert [folder.name for folder in folders] == [f"{name}-seed{seed}" for seed in (1, 2, 3)]
        scores = [scored(folder, data) for folder in folders]
        losses[name], byte_losses[name] = ([score[key] for score in scores] for key in ("nats_per_token", "bits_per_byte"))
        models[name] = load_file(folders[0] / "model.safetensors")
        assert len(set(losses[name])) == 3
    tests = {name: student_t([a - b for a, b in zip(losses[name], losses["mha"])]) for name in rows if name != "mha"}
    corrected = holm({name: p for name, (_, _, p) in tests.items()})
    for name, row in rows.items():
        assert row["validation_loss"] == pytest.approx(sum(losses[name]) / 3, rel=1e-5)
        assert row["bits_per_byte"] == pytest.approx(sum(byte_losses[name]) / 3, rel=1e-5)
        assert row["parameters"] == sum(tensor.size for tensor in models[name].values())
        assert row["ffn_width"] == models[name]["model.layers.0.mlp.down_proj.weight"].shape[1]
        key = "parameters" if match == "parameters" else "flops_per_token"
        assert row[key] == pytest.approx(rows["mha"][key], rel=0.01)
        if name == "mha":
            assert row["verdict"] == "baseline" and row["difference"] == 0 and row["interval"] is None
            continue
        mean, half, _ = tests[name]
        assert row["difference"] == pytest.approx(mean, abs=2e-5)
        assert row["interval"] == pytest.approx([mean - half, mean + half], abs=5e-4)
        assert row["p"] == pytest.approx(corrected[name], rel=2e-2, abs=1e-3)
        small = row["interval"][0] <= 0.002 and row["interval"][1] >= -0.002 or row["p"] >= 0.05
        assert row["verdict"] == ("n too small" if small else "better" if mean < 0 else "worse")
    done = run("compare", "--resume", tmp_path / "r", "-n", "3", "--json")  # nothing is left: the verdicts stay, and so does their margin
    assert done.returncode == 0, done.stderr
    assert [(row["mechanism"], row["verdict"]) for row in json.loads(done.stdout)] == [(name, row["verdict"]) for name, row in rows.items()]
    refused = run("compare", "--resume", tmp_path / "r", "--margin", "0")
    assert refused.returncode == 2 and "--margin was 0.002 and is 0, want it as it was" in refused.stderr
    assert json.loads((tmp_path / "r" / "results.json").read_text())["comparison"]["margin"] == 0.002


def test_every_arm_of_a_seed_reads_the_same_batches_and_every_seed_others(data, tmp_path):
    """At a learning rate of 0 the loss of a step says which batch it read; models and batches follow seed + i."""
    more = ["--learning-rate", "0", "--mechanisms", "mha,softmax", "--seeds", "2", "--seed", "4", "--set", "train.data_seed=8"]
    done = run("compare", *SIZES[:-2], *more, "--steps", "6", data, "-n", "3", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    found = {}
    for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        found.setdefault((record["mechanism"], record["seed"]), []).append(record.get("loss", record.get("validation_loss")))
    assert set(found) == {(name, seed) for name in ("mha", "softmax") for seed in (4, 5)}
    for i, seed in enumerate((4, 5)):
        alone = tmp_path / str(seed)
        done = run("train", *SIZES[:-2], "--learning-rate", "0", "--steps", "6", "--seed", seed, "--set", f"train.data_seed={8 + i}",
                   data, "--out", alone)
        assert done.returncode == 0, done.stderr
        wanted = [row.get("loss", row.get("validation_loss")) for row in records(alone)]
        for name in ("mha", "softmax"):
            assert found[name, seed] == pytest.approx(wanted, rel=1e-6)
            saved = load_file(tmp_path / "r" / "models" / f"{name}-seed{seed}" / "model.safetensors")
            trained = load_file(last_checkpoint(alone) / "model.safetensors")
            assert all((saved[key] == trained[key]).all() for key in trained)
    assert found["mha", 4] != found["mha", 5]
