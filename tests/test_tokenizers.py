"""`motet tokenize` gives the ids, offsets and texts of the packages tokenizers, tiktoken and sentencepiece.

The published tokenizers and corpora are read from ../shared/data; where that is missing, only the tokenizer that the
program trains itself is tested.
"""
import base64
import copy
import csv
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest
from conftest import MOTET, ROOT, SIZES, environment, refused, run
from hard_texts import hard_texts

tokenizers = pytest.importorskip("tokenizers")
DATA = ROOT.parent / "shared" / "data"
GOLDEN = ROOT.parent / "shared" / "golden" / "tokenizer"
needs_data = pytest.mark.skipif(not (DATA / "tokenizer").is_dir(), reason="no published tokenizers here")
TEXTS = int(os.environ.get("TEXTS", 20_000))  # of each published tokenizer; scripts/nightly: 100,000


def described(tokenizer, texts, *flags):
    """What `motet tokenize --lines` says of each text."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    command = [MOTET, "tokenize", "-m", str(tokenizer), "--lines", *flags]
    done = subprocess.run(command, input=lines.encode(), capture_output=True, env=environment())
    assert done.returncode == 0, done.stderr.decode()
    rows = [json.loads(line) for line in done.stdout.decode().rstrip("\n").split("\n")]
    assert len(rows) == len(texts)
    return rows


def character_offsets(text, offsets):
    """Offsets in bytes as offsets in characters."""
    places, at = {}, 0
    for index, character in enumerate(text):
        places[at] = index
        at += len(character.encode())
    places[at] = len(text)
    return [(places[begin], places[end]) for begin, end in offsets]


def same_as_package(path, texts, *flags):
    """Compares with the tokenizers package; texts on which that itself panics are left out."""
    reference = tokenizers.Tokenizer.from_file(str(path))
    special = "--add-special" in flags
    compared = 0
    for text, row in zip(texts, described(path, texts, *flags)):
        try:
            expected = reference.encode(text, add_special_tokens=special)
        except BaseException as error:  # pyo3's PanicException is no Exception
            if type(error).__name__ != "PanicException":
                raise
            continue
        assert row["ids"] == expected.ids, ascii(text)
        assert character_offsets(text, row["offsets"]) == expected.offsets, ascii(text)
        assert row["decoded"] == reference.decode(expected.ids, skip_special_tokens=False), ascii(text)
        compared += 1
    assert compared > len(texts) * 0.9


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A tokenizer that `motet tokenize --train` has learned."""
    out = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    text = ROOT / "motet" / "data" / "tinyshakespeare.txt"
    done = run("tokenize", "--train", "--vocab-size", 1500, "--out", out, text)
    assert done.returncode == 0, done.stderr
    return out


def test_the_speed_is_that_of_the_tokens_that_are_asked_for(trained, tmp_path):
    (tmp_path / "a").write_text("<|endoftext|>x\n" * 3)
    counts = []
    for more in ([], ["--plain"]):
        (timed,) = json.loads(run("tokenize", "-m", trained, *more, "--repeats", "1", tmp_path / "a", "-o", "json").stdout)
        assert timed["tokens"] == int(run("tokenize", "-m", trained, *more, "--count", tmp_path / "a").stdout)
        counts.append(timed["tokens"])
    assert counts[0] < counts[1]


@pytest.mark.parametrize("more", [[], ["--count"]])
def test_several_texts_are_one_list_of_json(more, tmp_path):
    for name, content in (("a", "one"), ("b", "two ä")):
        (tmp_path / name).write_text(content)
    both = [run("tokenize", "-m", "bytes", *more, tmp_path / "a", tmp_path / "b", "-o", form).stdout for form in ("json", "jsonl")]
    rows = json.loads(both[0])
    assert [row["tokens"] for row in rows] == [3, 6] and [json.loads(line) for line in both[1].splitlines()] == rows
    assert json.loads(run("tokenize", "-m", "bytes", *more, tmp_path / "b", "-o", "json").stdout) == rows[1]


def test_bytes_that_are_no_character_leave_csv_utf8(tmp_path):
    (tmp_path / "a").write_bytes("ä".encode())
    rows = list(csv.DictReader(run("tokenize", "-m", "bytes", tmp_path / "a", "-o", "csv").stdout.splitlines()))
    assert [row["piece"] for row in rows] == ["\ufffd", "\ufffd"]


def test_a_trained_tokenizer_is_the_packages_too(trained, tmp_path):
    same_as_package(trained, hard_texts(5000, 1))
    text = (ROOT / "motet" / "data" / "tinyshakespeare.txt").read_text()
    row = described(trained, [text])[0]
    reference = tokenizers.Tokenizer.from_file(str(trained))
    assert row["ids"] == reference.encode(text).ids
    assert row["decoded"] == text
    again = tmp_path / "again.json"
    run("tokenize", "--train", "--vocab-size", 1500, "--out", again, ROOT / "motet" / "data" / "tinyshakespeare.txt")
    assert again.read_bytes() == trained.read_bytes()


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(use_regex, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def cut(*steps):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


def normalize(*steps):
    return {"normalizer": {"type": "Sequence", "normalizers": list(steps)}}


def added(content, id, **flags):
    plain = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id, "content": content} | plain | flags


END = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
COMPONENTS = {
    "nfc": normalize({"type": "NFC"}),
    "nfd": normalize({"type": "NFD"}),
    "nfkc": normalize({"type": "NFKC"}),
    "nfkd, lowercase": normalize({"type": "NFKD"}, {"type": "Lowercase"}),
    "prepend, replace": normalize(
        {"type": "Replace", "pattern": {"String": "e"}, "content": "\u00e9\u00e9"},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "Prepend", "prepend": "\u2581x"},
    ),
    "llama 3": cut(split(LLAMA3), byte_level(False)),
    "o200k": cut(split(O200K), byte_level(False)),
    "smollm": cut({"type": "Digits", "individual_digits": True}, byte_level(True)),
    "digits": cut({"type": "Digits", "individual_digits": False}, byte_level(False)),
    "falcon": cut(
        {"type": "Punctuation", "behavior": "Contiguous"},
        byte_level(True),
        {"type": "Digits", "individual_digits": False},
        split("[0-9][0-9][0-9]"),
    ),
    "prefix space": {
        "pre_tokenizer": byte_level(True, prefix=True),
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
    },
    "white space": cut({"type": "Whitespace"}, byte_level(False)),
    "white space split": cut({"type": "WhitespaceSplit"}, byte_level(False)),
    "added tokens": {
        "added_tokens": [
            added("<|endoftext|>", 0, special=True),
            added("hello", 1500, single_word=True),
            added("the", 1501, special=True, lstrip=True, rstrip=True),
            added("caf\u00e9", 1502, rstrip=True, normalized=True),
        ]
    },
    "template": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [END, TEXT, END],
            "pair": [TEXT, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
        }
    },
    "metaspace": {
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True},
    },
}
for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
    COMPONENTS[f"split {behavior}"] = cut(split(r"[\s\p{P}]", behavior), byte_level(False))
    COMPONENTS[f"split inverted {behavior}"] = cut(split(r"\p{L}+", behavior, True), byte_level(False))
    COMPONENTS[f"punctuation {behavior}"] = cut({"type": "Punctuation", "behavior": behavior}, byte_level(False))


@pytest.mark.parametrize("name", COMPONENTS)
def test_components_are_the_packages(name, trained, tmp_path):
    value = copy.deepcopy(json.loads(trained.read_text())) | COMPONENTS[name]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(value))
    texts = hard_texts(2000, 2)
    same_as_package(path, texts)
    if name == "template":
        same_as_package(path, texts, "--add-special")


@needs_data
def test_gpt_neox_is_the_packages():
    same_as_package(DATA / "tokenizer" / "gpt_neox_20b.tokenizer.json", hard_texts(TEXTS, 3))


@needs_data
def test_gpt2_is_tiktokens():
    tiktoken = pytest.importorskip("tiktoken")
    lines = (DATA / "tokenizer" / "gpt2.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    reference = tiktoken.Encoding(
        "gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )
    texts = hard_texts(TEXTS, 4)
    for file, count in (("gpt2.tiktoken", TEXTS), ("gpt2_vocab.bpe", TEXTS // 5)):
        path = DATA / "tokenizer" / file
        for text, row in zip(texts, described(path, texts[:count], "--plain")):
            assert row["ids"] == reference.encode_ordinary(text), ascii(text)
            assert row["decoded"] == text
        for text, row in zip(texts, described(path, texts[:2000])):
            assert row["ids"] == reference.encode(text, allowed_special="all"), ascii(text)


@needs_data
def test_llama2_is_sentencepieces():
    sentencepiece = pytest.importorskip("sentencepiece")
    path = DATA / "tokenizer" / "llama2_tokenizer.model"
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    texts = hard_texts(TEXTS, 5)
    rows = described(path, texts)
    for text, row in zip(texts, rows):
        assert row["ids"] == reference.encode(text), ascii(text)
        assert row["decoded"] == reference.decode(row["ids"]), ascii(text)
    for text, row in zip(texts[:10_000], rows):
        pieces = reference.encode(text, return_type="proto").pieces
        assert row["offsets"] == [[piece.begin, piece.end] for piece in pieces], ascii(text)


@needs_data
@pytest.mark.parametrize("name", ["llama2_tokenizer.model", "collapsing.model", "tok512.bin"])
def test_a_sentencepiece_tokenizer_keeps_its_ids_as_tokenizer_json(name, tmp_path):
    if name == "collapsing.model":  # that of LLaMA 2, with remove_extra_whitespaces
        model = (DATA / "tokenizer" / "llama2_tokenizer.model").read_bytes()
        at = model.index(b"\x20\x00", model.rindex(b"identity"))
        path = tmp_path / name
        path.write_bytes(model[:at] + b"\x20\x01" + model[at + 2 :])
    else:
        path = DATA / ("model" if name == "tok512.bin" else "tokenizer") / name
    keeps_its_ids_as_json(path, ["  a  b ", "   ", "\n a  \n", *hard_texts(2000, 6)], tmp_path)


def keeps_its_ids_as_json(path, texts, tmp_path):
    (tmp_path / "text.txt").write_text("To be, or not to be.\n")
    done = run("data", "prepare", tmp_path / "text.txt", "-m", path, "--out", tmp_path / "data", "--validation", "0")
    assert done.returncode == 0, done.stderr
    written = tmp_path / "data" / "tokenizer.json"
    ids = [row["ids"] for row in described(path, texts, "--add-special")]
    assert [row["ids"] for row in described(written, texts, "--add-special")] == ids
    reference = tokenizers.Tokenizer.from_file(str(written))
    assert [reference.encode(text).ids for text in texts] == ids


@pytest.fixture(scope="session")
def sentences(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    lines = ["hello world, how are  you", "a <s>pan of 0x41 and  more", "the world says hello to you [there]"]
    path.write_text("".join(f"{random.Random(i).choice(lines)} {i % 7}\n" for i in range(400)))
    return path


@pytest.mark.parametrize("collapse", [True, False])
@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("fallback", [True, False])
def test_user_defined_pieces_are_sentencepieces(collapse, prefix, fallback, sentences, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    symbols = ["[X]", "[X]]", ".*", "\u2581\u2581\u2581", "<0x"]
    sentencepiece.SentencePieceTrainer.train(
        input=str(sentences), model_prefix=str(tmp_path / "tiny"), model_type="bpe", vocab_size=400, hard_vocab_limit=False,
        normalization_rule_name="identity", user_defined_symbols=symbols, byte_fallback=fallback, minloglevel=2,
        remove_extra_whitespaces=collapse, add_dummy_prefix=prefix)  # fmt: skip
    path = tmp_path / "tiny.model"
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    parts = [*symbols, *symbols, " ", "  ", "hello", " world", "\u2581", "<s>", "</s>", "<unk>", "<0x41>", "a", "\u00e9", "\n"]
    draw = random.Random(1)
    texts = ["hello [X] world", "[X]hello", "a[X][X] b", " [X] a", "[X]", "x [X]", " [X] ", "", " ", "\u2581", "<s>", "<0x41>"]
    texts += ["".join(draw.choices(parts, k=draw.randint(1, 8))) for _ in range(3000)]
    for text, row in zip(texts, described(path, texts)):
        assert row["ids"] == reference.encode(text), ascii(text)
        assert row["decoded"] == reference.decode(row["ids"]), ascii(text)
    keeps_its_ids_as_json(path, texts, tmp_path)


def flags(content, special):
    return {"content": content, "special": special, "normalized": not special, "lstrip": False, "rstrip": False, "single_word": False}


ADDED = ["<|im_start|>", "<tool>"]
ADDED_FILES = {  # by name: added_tokens.json, tokenizer_config.json; N is the size of the vocabulary
    "list": lambda n: ({ADDED[0]: n, ADDED[1]: n + 1}, {"eos_token": ADDED[0]}),
    "list and legacy": lambda n: ({ADDED[0]: n, ADDED[1]: n + 1}, {"legacy": True}),
    "decoder": lambda n: ({"<other>": 0}, {"added_tokens_decoder": {str(n + i): flags(t, i == 0) for i, t in enumerate(ADDED)}}),
    "begin and end": lambda n: ({ADDED[0]: n, ADDED[1]: n + 1}, {"add_bos_token": True, "add_eos_token": True}),
}


@pytest.mark.parametrize("files", ADDED_FILES)
@pytest.mark.parametrize("symbols", [[], ["[X]"]])
def test_added_tokens_beside_a_sentencepiece_model_are_those_of_transformers(files, symbols, sentences, tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "m"
    folder.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        input=str(sentences), model_prefix=str(folder / "tokenizer"), model_type="bpe", vocab_size=400, hard_vocab_limit=False,
        normalization_rule_name="identity", user_defined_symbols=symbols, byte_fallback=True, minloglevel=2,
        remove_extra_whitespaces=False)  # fmt: skip
    model = folder / "tokenizer.model"
    size = sentencepiece.SentencePieceProcessor(model_file=str(model)).get_piece_size()
    added, config = ADDED_FILES[files](size)
    (folder / "added_tokens.json").write_text(json.dumps(added))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", **config}))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    draw = random.Random(2)
    parts = [*ADDED, *ADDED, "[X]", " ", "  ", "hello", " world", "<s>", "</s>", "<unk>", "a", "\u00e9", "\n"]
    texts = ["", " hello", "hello<|im_start|>hello  world", "<|im_start|>hello <tool> world ", "<s> hello"]
    texts += ["".join(draw.choices(parts, k=draw.randint(1, 8))) for _ in range(2000)]
    for path in (folder, model):
        for text, row in zip(texts, described(path, texts)):
            assert row["ids"] == reference.encode(text, add_special_tokens=False), ascii(text)
            assert row["decoded"] == reference.decode(row["ids"], clean_up_tokenization_spaces=False), ascii(text)
        for text, row in zip(texts[:9], described(path, texts[:9], "--add-special")):
            assert row["ids"] == reference.encode(text), ascii(text)
    keeps_its_ids_as_json(folder, texts, tmp_path)
    for name, wrong, message in (
        ("tokenizer_config.json", {"add_bos_token": "yes"}, """tokenizer_config.json: add_bos_token is '"yes"', want true or false"""),
        ("tokenizer_config.json", {"add_eos_token": True, "eos_token": "<q>"}, "tokenizer_config.json: add_eos_token is true and eos_token is '<q>', which is no piece"),
        ("added_tokens.json", {"<x>": -1}, "added_tokens.json: the added token '<x>' has the id -1, want a text and an id from 0"),
    ):
        (folder / "tokenizer_config.json").write_text("{}")
        (folder / name).write_text(json.dumps(wrong))
        assert message in refused(1, "tokenize", "-m", folder, "-p", "ab")


MERGES_CLASSES = [
    {"tokenizer_class": "GPT2Tokenizer"},
    {"tokenizer_class": "GPT2TokenizerFast", "add_bos_token": True},
    {"tokenizer_class": "CodeGenTokenizer"},
    {"add_bos_token": True, "add_eos_token": True, "eos_token": "<|endoftext|>"},
    {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": True},
    {"tokenizer_class": "Qwen2TokenizerFast", "bos_token": None, "eos_token": "<|im_end|>"},
]


@pytest.mark.parametrize("own", MERGES_CLASSES, ids=lambda own: " ".join(map(str, own.values())))
def test_added_tokens_beside_vocab_json_are_those_of_transformers(own, trained, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = json.loads(trained.read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("".join(" ".join(merge) + "\n" for merge in model["merges"]))
    added, config = ADDED_FILES["list"](len(model["vocab"]))
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **own}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    reference = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["To be<|im_start|>or <tool> not", "<|endoftext|>a", "e\u0301 12345 I'LL\n\nx", *hard_texts(500, 7)]
    for path in (tmp_path, tmp_path / "merges.txt"):
        for text, row in zip(texts, described(path, texts)):
            assert row["ids"] == reference.encode(text, add_special_tokens=False), ascii(text)
        for text, row in zip(texts[:9], described(path, texts[:9], "--add-special")):
            assert row["ids"] == reference.encode(text), ascii(text)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"tokenizer_class": "RobertaTokenizerFast"}, "vocab.json and merges.txt of tokenizer_class 'RobertaTokenizer' are not read, want GPT2Tokenizer, CodeGenTokenizer or Qwen2Tokenizer, or a tokenizer.json"),
        ({"add_prefix_space": True}, "add_prefix_space is true, want false beside vocab.json, or a tokenizer.json"),
    ],
)
def test_merges_that_transformers_would_read_otherwise_are_refused(config, message, tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2}))
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert f"tokenizer_config.json: {message}" in refused(1, "tokenize", "-m", tmp_path, "-p", "ab")


@pytest.mark.parametrize(
    "added, message",
    [
        ({"ab": 1}, "'ab' has the id 1, and 2 in the vocabulary"),
        ({"<x>": 1}, "'<x>' has the id 1, which belongs to 'b'"),
        ({"<x>": 5}, "'<x>' has the id 5, want 3, the next one"),
        ({"<x>": "5"}, "the id of '<x>' is '\"5\"', want an integer of its own"),
    ],
)
def test_added_tokens_that_contradict_the_vocabulary_are_refused(added, message, tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2}))
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    assert "added_tokens.json: " in (said := refused(1, "tokenize", "-m", tmp_path, "-p", "ab")) and message in said


@needs_data
@pytest.mark.parametrize(
    "corpus", ["tinyshakespeare.txt", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("wikitext2.valid.txt", "books.valid.txt"))]
)
def test_whole_files_are_the_packages(corpus):
    sentencepiece = pytest.importorskip("sentencepiece")
    text = (DATA / "corpus" / corpus).read_bytes().decode("utf-8", "replace")
    folder = DATA / "tokenizer"
    row = described(folder / "gpt_neox_20b.tokenizer.json", [text])[0]
    reference = tokenizers.Tokenizer.from_file(str(folder / "gpt_neox_20b.tokenizer.json"))
    assert row["ids"] == reference.encode(text, add_special_tokens=False).ids
    llama = sentencepiece.SentencePieceProcessor(model_file=str(folder / "llama2_tokenizer.model"))
    row = described(folder / "llama2_tokenizer.model", [text])[0]
    assert row["ids"] == llama.encode(text)
    assert row["decoded"] == llama.decode(row["ids"])


@needs_data
def test_verify_finds_the_recorded_cases():
    done = run("verify", GOLDEN, "--tokenizers", DATA / "tokenizer", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)
    assert {row["tokenizer"] for row in rows} == {"gpt_neox_20b", "gpt2", "llama2"}
    assert sum(row["cases"] for row in rows) >= 1104 and all(row["result"] == "pass" for row in rows)


def test_verify_fails_where_ids_differ(trained, tmp_path):
    (tmp_path / "small.json").write_bytes(trained.read_bytes())
    case = {"tokenizer": "small", "text": "the", "ids": [1], "decoded": "the"}
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    done = run("verify", tmp_path, "--tokenizers", tmp_path)
    assert done.returncode == 1 and "cases.jsonl:1: " in done.stdout and "fail" in done.stdout


def test_tokenize_shows_counts_and_decodes(trained):
    shown = json.loads(run("tokenize", "-m", trained, "-p", "To be", "--json").stdout)
    assert shown["tokens"] == len(shown["ids"]) == len(shown["pieces"]) == len(shown["offsets"])
    assert run("tokenize", "-m", trained, "-p", "To be", "--count").stdout == f"{shown['tokens']}\n"
    assert run("tokenize", "-m", trained, "-p", str(shown["ids"]), "--decode").stdout == "To be"
    assert "5 bytes, 5 characters" in run("tokenize", "-m", "bytes", "-p", "To be").stdout


def test_tokenize_refuses_in_one_line(trained, tmp_path):
    assert "--model: is missing" in refused(1 + 1, "tokenize", "-p", "x")
    assert "cannot read" in refused(1, "tokenize", "-m", tmp_path / "none.json", "-p", "x")
    assert "outside of the vocabulary" in refused(1, "tokenize", "-m", trained, "-p", "99999", "--decode")
    assert "is no token id" in refused(1, "tokenize", "-m", trained, "-p", "1 x", "--decode")
    assert "--vocab-size" in refused(2, "tokenize", "--train", "-p", "x")
    assert "is below 257" in refused(2, "tokenize", "--train", "--vocab-size", "3", "-p", "x")
    assert "want one of them" in refused(2, "tokenize", "-m", "bytes", "-p", "x", trained)
    assert "gives the text alone" in refused(2, "tokenize", "-m", "bytes", "-p", "97", "--decode", "--count")
    assert "--decode: has no meaning for --lines" in refused(2, "tokenize", "-m", "bytes", "--lines", "--decode")
    assert "'x.txt': has no meaning for --lines" in refused(2, "tokenize", "-m", "bytes", "--lines", "x.txt")
    assert "--prompt: has no meaning for --chat-template" in refused(2, "tokenize", "--chat-template", trained, "-p", "x")
    assert "--plain: has no meaning for --chat-template" in refused(2, "tokenize", "--chat-template", trained, "--plain")
    assert "--output: has no meaning for --lines, which writes lines of JSON" in refused(2, "tokenize", "-m", "bytes", "--lines", "-o", "csv")
    assert "--repeats: has no meaning for --decode" in refused(2, "tokenize", "-m", "bytes", "-p", "97", "--decode", "--repeats", "2")
    assert "--add-special: has no meaning for --decode" in refused(2, "tokenize", "-m", "bytes", "-p", "97", "--decode", "--add-special")
    assert "--count: has no meaning for --repeats" in refused(2, "tokenize", "-m", "bytes", "-p", "97", "--count", "--repeats", "2")
    assert "--output: csv of 2 texts, want one, or -o table, json or jsonl" in refused(2, "tokenize", "-m", "bytes", "-o", "csv", trained, trained)
    out = tmp_path / "new.json"
    train = ["tokenize", "--train", "--vocab-size", "300", "--out", out]
    for flag in (["--count"], ["--decode"], ["--lines"], ["--add-special"], ["--plain"], ["--repeats", "2"], ["--chat-template", "x"]):
        assert f"{flag[0]}: has no meaning for --train" in refused(2, *train, *flag)
    for name, what in ("a.jsonl", "lines of JSON"), ("a.txt.gz", "a packed file"):
        (tmp_path / name).write_text('{"text": "a"}')
        assert f"cannot use '{tmp_path / name}': {what}, want plain text" in refused(1, *train, tmp_path / name)
    assert "--prompt" in refused(2, *train, "-p", "x")
    assert "the text is empty" in refused(1, *train, stdin="")
    assert not out.exists()
    before = trained.read_bytes()
    assert f"--out: {trained} exists, want --out with a new file" in refused(2, "tokenize", "--train", "--vocab-size", "300", "--out", trained, stdin="x")
    assert trained.read_bytes() == before


def test_ctrl_c_is_not_the_end_of_the_input(tmp_path):
    new = tmp_path / "new.json"
    for arguments in (["--train", "--vocab-size", "300", "--out", new], ["-m", "bytes"], ["-m", "bytes", "--lines"]):
        process = subprocess.Popen([MOTET, "tokenize", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment())  # fmt: skip
        wait_until_reading(process)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        assert process.returncode == 130 and out == b"" and b"interrupted" in error, (arguments, error)
    assert not new.exists()


def wait_until_reading(process):
    """Until the process sleeps in a read of its standard input."""
    for _ in range(600):
        try:
            if pathlib.Path(f"/proc/{process.pid}/syscall").read_text().startswith("0 0x0 "):
                return
        except OSError:  # not to be seen here
            time.sleep(2)
            return
        time.sleep(0.05)
    raise AssertionError("the process does not read its standard input")


def test_train_and_eval_take_a_tokenizer_file(trained, tmp_path):
    out = tmp_path / "run"
    done = run("train", *SIZES, "--steps", "2", "--tokenizer", trained, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)[0]
    assert 0 < row["bits_per_byte"] < row["loss"]  # a token has more than a byte
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 20)
    scored = json.loads(run("eval", "-m", out, text, "--json").stdout)[0]
    assert scored["tokens"] < len(text.read_text()) / 2
    assert run("generate", "-m", out, "-p", "To be", "-n", "5").returncode == 0
