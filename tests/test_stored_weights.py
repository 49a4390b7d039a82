"""Folders in bfloat16 or float16 are run as they lie: mapped, with the answers of float32 to the bit."""
import json
from pathlib import Path

import pytest
from conftest import ROOT, refused, run
from serving import ANSWERS, serving, small_model

TEXT = ROOT / "LICENSE"


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def stored(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model = small_model(folder, "--mechanism", "dcmha", "--set", "model.tie_embeddings=true", context=64)
    done = run("convert", model, "--dtype", request.param, "--out", folder / "half")
    assert done.returncode == 0, done.stderr
    return folder / "half", request.param


def printed(*arguments):
    done = run(*arguments, "-t", "2")
    assert done.returncode == 0 and done.stdout, done.stderr
    return done.stdout


def test_texts_and_scores_are_those_of_float32(stored):
    folder, dtype = stored
    for flags in ANSWERS:
        wide = printed(*flags, "-m", folder, "--weights", "float32")
        assert printed(*flags, "-m", folder) == printed(*flags, "-m", folder, "--weights", dtype) == wide
        assert printed(*flags, "-m", folder, "--weights", "int8") != wide  # else nothing is compared


def mapped(server):
    return "model.safetensors" in Path(f"/proc/{server.process.pid}/maps").read_text()


def test_the_server_maps_the_file_and_answers_alike(stored):
    folder, _ = stored
    asked = {"model": "m", "prompt": "Licensed", "max_tokens": 20, "seed": 3, "logprobs": 2}
    answers = {}
    for weights in ("auto", "float32"):
        with serving(folder, "--name", "m", "--weights", weights) as server:
            answers[weights] = server.post("/v1/completions", asked)["choices"]
            assert mapped(server) == (weights == "auto")
    assert answers["auto"] == answers["float32"]


def test_computing_in_another_type_reads_float32(stored):
    """As before the folder was kept as it lies: nats of float64 and of autocast."""
    folder, dtype = stored
    score = lambda *more: json.loads(printed("eval", "-m", folder, *more, TEXT, "--json"))[0]["nats_per_token"]  # noqa: E731
    exact = score()
    float64 = score("--dtype", "float64")
    assert float64 != exact and float64 == pytest.approx(exact, abs=1e-6)
    autocast = score("--dtype", "bfloat16")
    assert autocast == score("--dtype", "bfloat16", "--weights", "float32") != exact
    assert autocast == pytest.approx(exact, abs=0.01)
    words = f"--dtype: bfloat16 of weights in {dtype}, want float32 or --weights float32"
    assert words in refused(2, "eval", "-m", folder, "--dtype", "bfloat16", "--weights", dtype, TEXT)


def test_bench_measures_it_as_it_lies(stored):
    folder, dtype = stored
    shape = "--shape prompt=8,generate=4,depth=0 --repeats 2 --rivals none".split()
    rows = json.loads(printed("bench", "infer", "-m", folder, *shape, "--json"))
    assert [row["program"] for row in rows if row["case"] == "tg4"] == [f"motet model {dtype}", "motet model int8"]
    assert "--rivals: transformers, which computes in float32, want that among --weights" in refused(
        2, "bench", "infer", "-m", folder, "--rivals", "transformers"
    )
    parameters = next(row["value"] for row in json.loads(printed("inspect", folder, "--json")) if row["what"] == "parameters")
    assert {row["model_bytes"] < 3 * parameters for row in rows} == {True}  # few numbers are in no matrix


def test_items_go_on_whatever_keeps_the_weights(stored, tmp_path):
    """Scores are those of float32, so a file of one is the other's."""
    folder, dtype = stored
    questions, items = tmp_path / "q.jsonl", tmp_path / "items"
    questions.write_text("".join(json.dumps({"query": f"The {word} is", "choices": ["good", "a licence"], "gold": 0}) + "\n" for word in "abc"))
    score = lambda *more: printed("eval", "multiple-choice", "-m", folder, questions, "--items", items, *more)  # noqa: E731
    score("--weights", "float32")
    wide = items.read_bytes()
    score()
    assert items.read_bytes() == wide
    other = refused(1, "eval", "multiple-choice", "-m", folder, questions, "--items", items, "--weights", "int8")
    assert "belongs to another evaluation" in other


def test_a_number_that_float16_lacks_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    model = small_model(tmp_path, "--mechanism", "mha")
    weights = load_file(model / "model.safetensors")
    weights["lm_head.weight"][3, 4] = torch.finfo(torch.float16).max * 2
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    words = refused(1, "generate", "-m", model, "-p", "a", "-n", "1", "--weights", "float16")
    assert "weights of up to 131008 cannot be kept in float16, want bfloat16" in words
    printed("generate", "-m", model, "-p", "a", "-n", "1", "--weights", "bfloat16")
