"""The models of motet.huggingface compute what the engine does: folders both ways, logits, gradients, continuations."""
import json
import shutil
import subprocess
import sys

import pytest
from conftest import FEW_WINDOWS, ROOT, environment, last_checkpoint, run

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

from hf_models import ALL, ENCODERS, SMALL, ids, made  # noqa: E402
from motet import huggingface, options  # noqa: E402
from motet.block import ACTIVATIONS  # noqa: E402
from motet.huggingface.cache import CACHE  # noqa: E402
from motet.huggingface.config import _READ_PAST, KEYS  # noqa: E402

NEW = 12  # tokens of a continuation


def record(model, folder, continues):
    """expected.safetensors of a folder: what `motet verify` computes again."""
    input_ids, config = ids(2, 20), model.config
    mask = config.attention_options["window_mask"]
    spec = {"program": "model", "window_mask": dict.fromkeys(("logits", "loss", "grad_norm"), mask),
            "logits_from_position": 0}
    made_by = model(input_ids, output_hidden_states=True)
    loss = torch.nn.functional.cross_entropy(made_by.logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())
    model.zero_grad()
    loss.backward()
    outputs = {"logits": made_by.logits, "loss": loss}
    # The last of transformers' hidden states is normed, the engine's is not.
    mids = {f"hidden.{number}": state[0] for number, state in enumerate(made_by.hidden_states[:-1])}
    gradients = {f"grad_norm.{name}": p.grad.norm() for name, p in model.named_parameters()}
    inputs = {"input_ids": input_ids}
    if continues:
        inputs["prompt"] = input_ids[0, :7]
        # Dynamic scaling goes by the tokens so far, as in the recorded papers: a cache of no planned length.
        options = dict(max_new_tokens=NEW, do_sample=False, **{CACHE: huggingface.MotetCache(config)})
        outputs["greedy.ids"] = model.generate(inputs["prompt"].unsqueeze(0), **options)[0, 7:]
        cache, parts = huggingface.MotetCache(config), [inputs["prompt"], *outputs["greedy.ids"][:-1].split(1)]
        steps = [model(part.unsqueeze(0), cache=cache).logits[0, -1] for part in parts]
        outputs["greedy.logits"] = torch.stack(steps)
        how = {"path": "cached", "prefill_window_mask": mask}
        spec["greedy"] = {"prompt": "prompt", "new_tokens": NEW, "greedy.ids": how,
                          "greedy.logits": {"of": "greedy.ids", "rows": list(range(NEW))}}
    tensors = {name: tensor.detach().clone() for name, tensor in {**outputs, **mids, **gradients, **inputs}.items()}
    roles = {**dict.fromkeys(outputs, "output"), **dict.fromkeys(mids, "mid"), **dict.fromkeys(gradients, "grad"),
             **dict.fromkeys(inputs, "input")}
    metadata = {"spec": json.dumps(spec), "roles": json.dumps(roles), "grad_of": json.dumps("loss")}
    safetensors.torch.save_file(tensors, folder / "expected.safetensors", metadata)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of all models in float64, as save_pretrained writes them, with what they compute."""
    root = tmp_path_factory.mktemp("models")
    for name in ALL:
        model, folder = made(name, torch.float64), root / str(name).replace(", ", "-").replace(" ", "-")
        model.save_pretrained(folder)
        record(model, folder, name not in ENCODERS)
    return root


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 1e-5)])
def test_the_engine_computes_what_a_saved_model_does(folders, dtype, tolerance):
    done = run("verify", folders, "--dtype", dtype, "--tolerance", tolerance, "--json")
    rows = json.loads(done.stdout)
    assert done.returncode == 0, rows
    assert len(rows) == len(ALL)
    for row in rows:  # nothing that is recorded is left out: logits, continuations, layers, a norm of each gradient
        assert row["outputs"] and row["mids"] and row["gradients"], row


FIRST_VALUES = {"initializer", "initializer_range", "start", "dynamic_std", "lambda_std"}


def test_every_option_of_the_engine_is_compared():
    """What is written twice, in C++ and in Python, is compared above in a model that sets it."""
    models = [huggingface.MotetConfig(**{**SMALL, **given}) for given in ALL.values()]

    def compared(option, seen):
        words = set(option.allowed) if isinstance(option.default, str) else set()
        return option.name in FIRST_VALUES or (seen >= words and seen != {option.default})

    for option in options.MODEL:
        seen = {getattr(model, KEYS.get(option.name, option.name)) for model in models}
        if option.name == "activation":
            seen = {ACTIVATIONS[word] for word in seen} | {"default"}
        assert compared(option, seen), option
    for mechanism, table in {**options.MECHANISMS, None: options.COMMON}.items():
        own = [model.attention_options for model in models if mechanism in (None, model.attention_mechanism)]
        for option in table:
            assert compared(option, {given[option.name] for given in own}), (mechanism, option)


@pytest.mark.parametrize("folder", sorted((ROOT / "tests/golden/model").iterdir()), ids=lambda folder: folder.name)
def test_a_converted_published_model_gives_the_original_logits(folder, tmp_path):
    done = run("convert", folder, "--to", "motet", "--out", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    with safetensors.safe_open(folder / "expected.safetensors", "pt") as recorded:
        want, input_ids = recorded.get_tensor("logits"), recorded.get_tensor("input_ids")
        mask = json.loads(recorded.metadata()["spec"])["window_mask"]["logits"]
    config = huggingface.MotetConfig.from_pretrained(tmp_path / "ours")
    config.attention_options["window_mask"] = mask
    model = huggingface.MotetForCausalLM.from_pretrained(tmp_path / "ours", config=config, dtype=torch.float64).eval()
    logits = model(input_ids.long()).logits[:, -want.shape[1] :]
    assert (logits - want).abs().max() <= 1e-9 * want.abs().max()


TRAIN = "--hidden-size 16 --num-layers 2 --num-heads 4 --ctx-size 48 --batch-size 2 --steps 2 -t 1 --tokenizer bytes".split() + FEW_WINDOWS
TRAINED = {
    "dcmha": [],
    "coca": ["model.block=parallel", "model.attention.rope_scaling=dynamic", "model.attention.rope_factor=4",
             "model.attention.rope_trained_length=8", "model.initializer_range=0.5"],
    "softmax": ["model.block=parallel", "model.causal=false", "model.head=masked", "train.objective=masked"],
    "mha": ["train.dtype=bfloat16"],
}


@pytest.fixture(scope="module")
def trained(request, tmp_path_factory):
    """A checkpoint of the engine, of a name in TRAINED."""
    out = tmp_path_factory.mktemp("trained") / "run"
    sets = [word for option in TRAINED[request.param] for word in ("--set", option)]
    done = run("train", *TRAIN, "--mechanism", request.param, *sets, "--out", out)
    assert done.returncode == 0, done.stderr
    return last_checkpoint(out)


def loaded(folder):
    """By the class that config.json names, through the Auto classes."""
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    auto = transformers.AutoModelForMaskedLM if "Masked" in name else transformers.AutoModelForCausalLM
    model = auto.from_pretrained(folder).eval()
    assert type(model).__name__ == name
    return model


@pytest.mark.parametrize("trained", TRAINED, indirect=True)
def test_a_checkpoint_of_the_engine_loads_and_goes_back(trained, tmp_path):
    model = loaded(trained)
    config = json.loads((trained / "config.json").read_text())
    text = (ROOT / "LICENSE").read_bytes()[500 : 500 + 97]
    (tmp_path / "text.txt").write_bytes(text)
    name = type(model).__name__
    if name == "LlamaForCausalLM":  # plain attention is LLaMA's; ours computes under the autocast that config.json tells
        model = huggingface.MotetForCausalLM.from_pretrained(trained).eval()
    model.save_pretrained(tmp_path / "saved")
    shutil.copy(trained / "tokenizer.json", tmp_path / "saved")
    if name == "MotetForMaskedLM":
        model.double()
        record(model, tmp_path / "saved", continues=False)
        done = run("verify", tmp_path / "saved", "--dtype", "float32", "--tolerance", "1e-5")
        assert done.returncode == 0, done.stdout
        return
    tokens = torch.tensor(list(text))
    logits = model(tokens[:96].view(2, 48)).logits.float()
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[1:]).item()
    for folder in (trained, tmp_path / "saved"):
        scored = run("eval", "-m", folder, tmp_path / "text.txt", "--json", "-t", "1")
        assert scored.returncode == 0, scored.stderr
        tolerance = 2e-3 if "autocast" in config else 1e-6
        assert loss == pytest.approx(json.loads(scored.stdout)[0]["nats_per_token"], rel=tolerance)
    assert ("autocast" in config) == (model(tokens[:4].view(1, 4)).logits.dtype == torch.bfloat16)


@pytest.mark.parametrize("trained", ["mha"], indirect=True)
def test_a_plain_model_comes_back_from_transformers(trained, tmp_path):
    """LLaMA's class adds keys of its own to config.json, which say nothing new, and leaves rope_theta out."""
    transformers.AutoModelForCausalLM.from_pretrained(trained).save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved/config.json").read_text())
    assert config["rope_parameters"]["rope_theta"] == 10000 and "attention_dropout" in config
    shutil.copy(trained / "tokenizer.json", tmp_path / "saved")
    (tmp_path / "text.txt").write_bytes((ROOT / "LICENSE").read_bytes()[:2000])
    scores = [run("eval", "-m", folder, tmp_path / "text.txt", "--json", "-t", "1").stdout for folder in (trained, tmp_path / "saved")]
    assert scores[0] == scores[1] != ""
    tokens = ids(1, 20) % 256
    logits = [huggingface.MotetForCausalLM.from_pretrained(folder).eval()(tokens).logits for folder in (trained, tmp_path / "saved")]
    assert torch.equal(*logits)
    (tmp_path / "saved/config.json").write_text(json.dumps(config | dict.fromkeys(set(_READ_PAST) - {"model_type", "quantization_config"}, 3)))
    assert run("inspect", tmp_path / "saved").returncode == 0
    for key, value in (("attention_dropout", 0.1), ("mlp_bias", True), ("rope_parameters", {"rope_type": "default", "rope_theta": 5e5})):
        (tmp_path / "saved/config.json").write_text(json.dumps(config | {key: value}))
        done = run("inspect", tmp_path / "saved")
        assert done.returncode == 1 and f"{key} is " in done.stderr
        with pytest.raises((TypeError, ValueError), match="rope_theta" if key == "rope_parameters" else key):
            huggingface.MotetConfig.from_pretrained(tmp_path / "saved")


@pytest.mark.parametrize("trained", ["dcmha", "coca"], indirect=True)
def test_generate_is_motet_generate(trained):
    model, tokenizer = loaded(trained), transformers.AutoTokenizer.from_pretrained(trained)
    prompt = "To be, or not"
    given = tokenizer(prompt, return_tensors="pt")
    assert given["input_ids"][0].tolist() == list(prompt.encode())
    options = dict(max_new_tokens=30, do_sample=False, return_dict_in_generate=True, output_logits=True)
    made_by = model.generate(**given, **options)
    new = made_by.sequences[0, len(prompt) :]
    done = run("generate", "-m", trained, "-p", prompt, "-n", 30, "--temp", "0", "-o", "json", "--logprobs", "1", "-t", "1")
    assert done.returncode == 0, done.stderr
    tokens = json.loads(done.stdout)[0]["tokens"]
    assert [token["id"] for token in tokens] == new.tolist()
    likelihoods = torch.cat(made_by.logits).log_softmax(-1).gather(1, new.unsqueeze(1)).flatten()
    assert [token["logprob"] for token in tokens] == pytest.approx(likelihoods.tolist(), abs=1e-4)


TASK = """
task: lines
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{query}}"
doc_to_target: gold
doc_to_choice: choices
metric_list: [{metric: acc}, {metric: acc_norm}]
"""
LM_EVAL = "import motet.huggingface; from lm_eval.__main__ import cli_evaluate; cli_evaluate()"


@pytest.mark.parametrize("trained", ["dcmha"], indirect=True)
def test_lm_eval_gives_the_scores_of_motet_eval(trained, tmp_path):
    pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install lm_eval")
    lines = [line for line in (ROOT / "LICENSE").read_text().split("\n") if 20 < len(line.strip()) < 60]
    items = [
        {"query": line.strip()[:10], "choices": [other.strip()[10 : 10 + 3 * n] for n, other in enumerate(lines[i : i + 4], 2)],
         "gold": i % 4}
        for i, line in enumerate(lines[:30])
    ]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (tmp_path / "task.yaml").write_text(TASK.replace("FILE", str(tmp_path / "items.jsonl")))
    scored = run("eval", "multiple-choice", "-m", trained, tmp_path / "items.jsonl", "--items", tmp_path / "ours", "--json")
    assert scored.returncode == 0, scored.stderr
    given = f"pretrained={trained},prefix_token_id=10"  # lm_eval wants a first token, and bytes have none
    options = ["--model", "hf", "--model_args", given, "--tasks", "lines", "--include_path", tmp_path, "--device", "cpu",
               "--batch_size", "4", "--log_samples", "--output_path", tmp_path / "out"]
    variables = environment(PYTHONPATH=str(ROOT / "python"), HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "cache"))
    command = [sys.executable, "-c", LM_EVAL, *map(str, options)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (results,) = (json.loads(path.read_text())["results"]["lines"] for path in (tmp_path / "out").rglob("results*.json"))
    ours = json.loads(scored.stdout)[0]
    for metric in ("acc", "acc_norm"):
        assert results[f"{metric},none"] == pytest.approx(ours[metric]), metric
    (theirs,) = ([json.loads(line) for line in path.open()] for path in (tmp_path / "out").rglob("samples*.jsonl"))
    theirs = {row["doc_id"]: [float(pair[0]) for pair in row["filtered_resps"]] for row in theirs}
    rows = [json.loads(line) for line in (tmp_path / "ours").read_text().splitlines()]
    rows = {row["item"]: row["log_likelihood"] for row in rows if "item" in row}
    assert len(rows) == 30
    for item, likelihoods in rows.items():
        assert theirs[item] == pytest.approx(likelihoods, abs=1e-3)
