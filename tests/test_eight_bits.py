"""`convert --weights int8`: folders whose matrices are mapped, with the answers of quantising at load, to the bit."""
import hashlib
import json
import re
import subprocess
import sys

import pytest
from conftest import ROOT, environment, last_checkpoint, refused, run
from serving import ANSWERS, serving, small_model

sys.path.insert(0, str(ROOT / "python"))
TEXT = ROOT / "LICENSE"
MODELS = {
    "mha": ["--mechanism", "mha", "--set", "model.tie_embeddings=true"],
    "grouped windows": ["--mechanism", "mha", "--set", "model.attention.num_kv_heads=1", "--set", "model.attention.window=8"],
    "dcmha": ["--mechanism", "dcmha", "--set", "model.tie_embeddings=true", "--set", "model.attention.window=8"],
    "differential": ["--mechanism", "differential_v2"],
    "talking heads": ["--mechanism", "talking_heads"],
    "coca": ["--mechanism", "coca", "--set", "model.tie_embeddings=true"],
}


@pytest.fixture(scope="module", params=MODELS, ids=[name.replace(" ", "-") for name in MODELS])
def pair(request, tmp_path_factory):
    """A model in float32 and the same in 8 bits."""
    folder = tmp_path_factory.mktemp("pair")
    model = small_model(folder, *MODELS[request.param], context=64)
    done = run("convert", model, "--weights", "int8", "--out", folder / "int8")
    assert done.returncode == 0, done.stderr
    return model, folder / "int8"


def digest(*arguments):
    done = run(*arguments, "-t", "2")
    assert done.returncode == 0 and done.stdout, done.stderr
    return hashlib.sha256(done.stdout.encode()).hexdigest()


def test_answers_are_those_of_quantising_at_load(pair):
    """Texts with every token's probability, and the nats of a text by position: sha256 of what is printed."""
    model, narrow = pair
    for flags in ANSWERS:
        wanted = digest(*flags, "-m", model, "--weights", "int8")
        assert wanted == digest(*flags, "-m", narrow) == digest(*flags, "-m", narrow, "--weights", "int8")
        assert wanted != digest(*flags, "-m", model)  # else nothing is compared


def test_scores_of_endings_too(pair, tmp_path):
    model, narrow = pair
    questions = tmp_path / "q.jsonl"
    lines = [{"query": f"The {word} is", "choices": ["good", "a licence", "not"], "gold": i % 3} for i, word in enumerate("abcdef")]
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = [tmp_path / "loaded", tmp_path / "mapped"]
    for file, folder, more in zip(files, (model, narrow), (["--weights", "int8"], []), strict=True):
        done = run("eval", "multiple-choice", "-m", folder, questions, "--items", file, *more)
        assert done.returncode == 0, done.stderr
    assert files[0].read_text() == files[1].read_text()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    model = small_model(folder, "--mechanism", "dcmha")
    done = run("convert", model, "--weights", "int8", "--out", folder / "int8", "--json")
    assert done.returncode == 0, done.stderr
    assert {row["what"]: row["value"] for row in json.loads(done.stdout)}["weights"] == "int8"
    return model, folder / "int8"


def test_the_server_answers_alike(small):
    asked = {"model": "m", "prompt": "Licensed", "max_tokens": 20, "seed": 3, "logprobs": 2}
    answers = []
    for folder, flags in zip(small, (["--weights", "int8"], []), strict=True):
        with serving(folder, "--name", "m", *flags) as server:
            answers.append(server.post("/v1/completions", asked)["choices"])
    assert answers[0] == answers[1]


def test_chat_and_bench_read_it(small):
    model, narrow = small
    said = [run("chat", "-m", folder, "-n", "8", "--temp", "0", *more, stdin="Who?\n") for folder, more in ((model, ["--weights", "int8"]), (narrow, []))]
    assert said[0].returncode == said[1].returncode == 0 and said[0].stdout == said[1].stdout, said
    shape = "--shape prompt=8,generate=4,depth=0".split()
    rows = json.loads(run("bench", "infer", "-m", narrow, *shape, "--repeats", "2", "--json").stdout)
    assert {row["program"] for row in rows} == {"motet model int8"}
    assert "--rivals: llama_cpp of a folder in 8 bits, want none" in refused(2, "bench", "infer", "-m", narrow, *shape, "--rivals", "llama_cpp")


def test_inspect_shows_the_same_model(small):
    model, narrow = ({row["what"]: row["value"] for row in json.loads(run("inspect", folder, "--json").stdout)} for folder in small)
    differ = {key for key in model | narrow if model.get(key) != narrow.get(key)}
    assert differ == {"folder", "stored.F32", "stored.I8"}
    assert narrow["stored.I8"] + narrow["stored.F32"] == model["stored.F32"] == model["parameters"]


@pytest.mark.parametrize("pair, apart", [("mha", 1e-6), ("dcmha", 1e-3)], indirect=["pair"])
def test_weights_by_hand_are_widened(pair, apart):
    """To the numbers that the bits stand for, which are not those of the source; and 16 bits are not 8. DCMHA's generator is
    stored as it was, and rounded as it is loaded."""
    model, narrow = pair
    score = lambda folder, *more: json.loads(run("eval", "-m", folder, *more, TEXT, "--json").stdout)[0]["nats_per_token"]  # noqa: E731
    nats = {kind: score(narrow, "--weights", kind) for kind in ("auto", "int8", "float32", "bfloat16")}
    assert nats["auto"] == nats["int8"] == pytest.approx(nats["float32"], abs=apart)
    assert len({nats["float32"], nats["bfloat16"], score(model)}) == 3
    assert score(narrow, "--dtype", "float64", "--weights", "float32") == pytest.approx(nats["float32"], abs=1e-6)
    assert "--dtype: bfloat16 of weights in int8, want float32 or --weights float32" in refused(2, "eval", "-m", narrow, "--dtype", "bfloat16", TEXT)


def test_it_goes_back_and_trains_as_numbers(small, tmp_path):
    _, narrow = small
    wide = tmp_path / "wide"
    assert run("convert", narrow, "--out", wide).returncode == 0
    assert "quantization_config" not in (wide / "config.json").read_text()
    score = lambda folder: run("eval", "-m", folder, "--weights", "float32", TEXT, "--json").stdout  # noqa: E731
    assert json.loads(score(wide)) == json.loads(score(narrow))
    flags = "--steps 2 --batch-size 1 -t 1 --ctx-size 64".split()
    for source, out in ((wide, "a"), (narrow, "b")):
        done = run("train", "--init", source, *flags, "--out", tmp_path / out, TEXT)
        assert done.returncode == 0, done.stderr
    assert (last_checkpoint(tmp_path / "a") / "model.safetensors").read_bytes() == (last_checkpoint(tmp_path / "b") / "model.safetensors").read_bytes()


def test_what_convert_refuses(small, tmp_path):
    model, narrow = small
    out = ["--out", tmp_path / "never"]
    for source, flags, words in (
        (model, ["--to", "llama"], "--weights: int8 in the layout llama, want --to motet"),
        (model, ["--dtype", "bfloat16"], "--dtype: has no meaning for --weights int8"),
        (model, ["--allow-overflow"], "--allow-overflow: has no meaning for --weights int8"),
        (narrow, [], "whose weights are in 8 bits, want --dtype float32 or a copy of it"),
    ):
        assert words in refused(2, "convert", source, "--weights", "int8", *flags, *out)
    assert not (tmp_path / "never").exists()


def test_python_refuses_it_in_a_line(small):
    pytest.importorskip("torch")
    program = "import sys, motet; motet.attention_layer(sys.argv[1], 0)"
    wanted = r"config\.json is of a folder whose weights are in 8 bits, want one with float32: `motet convert FOLDER --dtype float32 --out DIR` makes it"
    done = subprocess.run([sys.executable, "-c", program, small[1] / "config.json"], env=environment(PYTHONPATH=str(ROOT / "python")), capture_output=True, text=True)
    assert re.fullmatch("ValueError: attention_layer: " + wanted, done.stderr.splitlines()[-1]), done.stderr
    pytest.importorskip("transformers")
    program = "import sys, motet.huggingface, transformers as t; t.AutoModelForCausalLM.from_pretrained(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, small[1]], env=environment(PYTHONPATH=str(ROOT / "python")), capture_output=True, text=True)
    assert re.fullmatch("ValueError: MotetConfig: " + wanted, done.stderr.splitlines()[-1]), done.stderr
