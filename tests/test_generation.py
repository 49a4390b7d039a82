"""Where texts end: as transformers ends them, and with what a model brings along wherever it goes."""
import json
import shutil

import pytest
from conftest import SIZES, last_checkpoint, refused, run

FORM = "{% for m in messages %}{{ m.content }}|{% endfor %}{{ eos_token }}"


@pytest.fixture(scope="module")
def wild(tmp_path_factory):
    """A model whose greedy text visits many characters: drawn weights, as transformers loads them."""
    folder = tmp_path_factory.mktemp("wild")
    done = run("train", *SIZES, "--steps", "1", "--learning-rate", "0", "--tokenizer", "chars", "--out", folder / "run",
               "--set", "model.initializer_range=0.3", "--seed", "2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = run("convert", folder / "run", "--to", "llama", "--out", folder / "llama")
    assert done.returncode == 0, done.stderr
    return folder / "llama"


def with_ids(model, folder, config=None, **files):
    """A copy whose config.json has more keys, and with more files of JSON."""
    shutil.copytree(model, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | (config or {})))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def continued(model, *more, prompt="ROMEO:"):
    done = run("generate", "-m", model, "-p", prompt, "--temp", "0", "-n", "24", "-o", "json", "--logprobs", "0", *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ids_of(sample):
    return [token["id"] for token in sample["tokens"]]


@pytest.fixture(scope="module")
def greedy(wild):
    """The ids without an end, and one that comes for the first time in the middle."""
    ids = ids_of(continued(wild)[0])
    assert len(ids) == 24
    at = next(i for i in range(6, 20) if ids[i] not in ids[:i])
    return ids, ids[at], at


@pytest.mark.parametrize("place", ["config", "list", "generation_config", "generation_config wins"])
def test_texts_end_where_transformers_ends_them(place, wild, greedy, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    ids, end, at = greedy
    other = next(i for i in range(60) if i not in ids)
    folder = {
        "config": lambda f: with_ids(wild, f, {"eos_token_id": end}),
        "list": lambda f: with_ids(wild, f, {"eos_token_id": [other, end]}),
        "generation_config": lambda f: with_ids(wild, f, generation_config={"eos_token_id": [end, other]}),
        "generation_config wins": lambda f: with_ids(
            wild, f, {"eos_token_id": ids[0]}, generation_config={"eos_token_id": end}
        ),
    }[place](tmp_path / "m")
    (sample,) = continued(folder)
    assert sample["finish_reason"] == "stop" and ids_of(sample) == ids[:at]
    prompt = torch.tensor([json.loads(run("tokenize", "-m", folder, "-p", "ROMEO:", "--json").stdout)["ids"]])
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        made = theirs.generate(prompt, max_new_tokens=24, do_sample=False, pad_token_id=0)[0, prompt.shape[1] :]
    assert made.tolist() == [*ids[:at], end]
    (whole,) = continued(folder, "--ignore-eos")
    assert ids_of(whole) == ids and whole["finish_reason"] == "length"


def test_the_tokenizers_name_of_the_end_counts_where_no_id_is_given(wild, greedy, tmp_path):
    ids, end, at = greedy
    piece = run("tokenize", "-m", wild, "-p", str(end), "--decode").stdout
    folder = with_ids(wild, tmp_path / "m", tokenizer_config={"eos_token": {"content": piece}})
    assert ids_of(continued(folder)[0]) == ids[:at]


def test_samples_end_each_in_its_place(wild, tmp_path):
    more = ["--temp", "1.5", "--top-k", "0", "--samples", "8", "--seed", "2"]
    whole = json.loads(run("generate", "-m", wild, "-p", "A", "-n", "24", "-o", "json", "--logprobs", "0", *more).stdout)
    ends = [ids_of(whole[0])[3], ids_of(whole[1])[10]]
    folder = with_ids(wild, tmp_path / "m", {"eos_token_id": ends})
    cut = json.loads(run("generate", "-m", folder, "-p", "A", "-n", "24", "-o", "json", "--logprobs", "0", *more).stdout)
    for long, short in zip(whole, cut, strict=True):
        ids = ids_of(long)
        at = min([ids.index(end) for end in ends if end in ids], default=None)
        assert ids_of(short) == ids[:at] and short["finish_reason"] == ("length" if at is None else "stop")
    assert len({len(row["tokens"]) for row in cut}) > 2


def test_an_id_that_is_none_is_named(wild, tmp_path):
    folder = with_ids(wild, tmp_path / "m", {"eos_token_id": "</s>"})
    line = refused(1, "generate", "-m", folder, "-p", "A")
    assert "config.json: eos_token_id is '\"</s>\"', want the id of a token or a list of them" in line


def test_answers_end_at_the_models_end_and_the_template_knows_it(wild, greedy, tmp_path):
    ids, end, at = greedy
    piece = run("tokenize", "-m", wild, "-p", str(end), "--decode").stdout
    folder = with_ids(wild, tmp_path / "m", {"eos_token_id": end})
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    chat = ["chat", "-m", folder, "--temp", "0", "-n", "8"]
    said = run(*chat, stdin="ROMEO:\n")
    assert said.returncode == 0, said.stderr
    text = run("tokenize", "-m", wild, "-p", " ".join(map(str, ids[:8])), "--decode").stdout
    assert said.stdout == text[:at] + "\n"
    assert run(*chat, "--ignore-eos", stdin="ROMEO:\n").stdout == text + "\n"
    (folder / "chat_template.jinja").write_text("{{ eos_token }}ROMEO:")  # the end stands in the prompt
    direct = continued(folder, prompt=piece + "ROMEO:")[0]["text"][:8]
    assert run(*chat, stdin="x\n").stdout == direct + "\n"


# ---- what travels


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer's folder that names its tokens and has a chat template."""
    folder = tmp_path_factory.mktemp("tokenizer") / "folder"
    folder.mkdir()
    text = folder.parent / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 100)
    done = run("tokenize", "--train", "--vocab-size", "280", "--out", folder / "tokenizer.json", text)
    assert done.returncode == 0, done.stderr
    (folder / "chat_template.jinja").write_text(FORM)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>", "bos_token": "T"}))
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.6}))
    return folder, text


def trained(out, *more):
    sizes = SIZES if "--init" not in more else ["--ctx-size", "32", "--batch-size", "2", "-t", "1"]
    done = run("train", *sizes, "--steps", "2", "--out", out, *more)
    assert done.returncode == 0, done.stderr
    return last_checkpoint(out)


def brings_along(folder, source):
    for name in ("chat_template.jinja", "tokenizer_config.json", "generation_config.json"):
        assert (folder / name).read_bytes() == (source / name).read_bytes(), (folder, name)
    assert (folder / "tokenizer.json").exists()
    return json.loads((folder / "config.json").read_text())


def test_a_model_brings_its_ends_and_its_template_wherever_it_goes(tokenizer, tmp_path):
    source, text = tokenizer
    first = trained(tmp_path / "first", "--tokenizer", source, text)
    config = brings_along(first, source)
    letter = json.loads(run("tokenize", "-m", first, "-p", "T", "--json").stdout)["ids"]
    assert config["eos_token_id"] == 0 and [config["bos_token_id"]] == letter and "pad_token_id" not in config
    path = first / "config.json"
    path.write_text(json.dumps(config | {"eos_token_id": [0, 5], "pad_token_id": 7}))
    wanted = {"bos_token_id": letter[0], "eos_token_id": [0, 5], "pad_token_id": 7}

    made = [trained(tmp_path / "second", "--init", tmp_path / "first", text)]
    for name, more in {"llama": ["--to", "llama"], "ours": [], "retrofit": ["--retrofit", "dcmha"]}.items():
        done = run("convert", made[0], "--out", tmp_path / name, *more)
        assert done.returncode == 0, done.stderr
        made.append(tmp_path / name)
    done = run("convert", tmp_path / "llama", "--out", tmp_path / "back")
    made += [tmp_path / "back", trained(tmp_path / "third", "--init", tmp_path / "retrofit", text)]
    for folder in made:
        config = brings_along(folder, source)
        assert {key: config.get(key) for key in wanted} == wanted, folder
    assert run("chat", "-m", made[-1], "-n", "3", stdin="To be\n").returncode == 0


def test_prepared_data_brings_the_template_and_the_token_between_documents(tokenizer, tmp_path):
    source, text = tokenizer
    done = run("data", "prepare", text, "--tokenizer", source, "--out", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    config = brings_along(trained(tmp_path / "run", tmp_path / "data"), source)
    assert config["eos_token_id"] == config["bos_token_id"] == 0
    done = run("data", "prepare", text, "--tokenizer", source / "tokenizer.json", "--document-token", "none", "--out",
               tmp_path / "plain")  # fmt: skip
    assert done.returncode == 0, done.stderr
    config = json.loads((trained(tmp_path / "none", tmp_path / "plain") / "config.json").read_text())
    assert config["eos_token_id"] == 0 and config["bos_token_id"] != 0  # by their names


def test_tokenizers_of_letters_have_no_ends(tmp_path):
    for name in ("chars", "bytes"):
        folder = trained(tmp_path / name, "--tokenizer", name)
        config = json.loads((folder / "config.json").read_text())
        assert not [key for key in config if key.endswith("_token_id")]
        saved = {"config.json", "model.safetensors", "tokenizer.json", "optimizer.safetensors", "state.json"}
        assert {path.name for path in folder.iterdir()} == saved


def test_the_text_after_training_ends_too(model, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(last_checkpoint(model), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": list(range(config["vocab_size"]))}))
    done = run("train", "-c", "16", "-b", "2", "-t", "1", "--steps", "1", "--init", folder, "-p", "ROMEO:", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n\nROMEO:\n")
