"""`motet serve` with a tokenizer whose words begin with a blank (SentencePiece, as llama's): a text's beginning lacks it, a continuation's does not."""
import json
import shutil

import pytest
from conftest import run
from serving import serving, small_model

LETTERS = "abcdefghij"


def words():
    """tokenizer.json of 256 tokens: letters, the letters behind a blank, and numbers that are never written."""
    pieces = ["<unk>", "<s>", "</s>", "\u2581", *LETTERS, *("\u2581" + letter for letter in LETTERS)]
    pieces += [chr(0x400 + i) for i in range(256 - len(pieces))]
    special = [{"id": i, "content": pieces[i], "special": True} | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) for i in range(3)]
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    return pieces, {
        "version": "1.0", "added_tokens": special, "pre_tokenizer": None,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, blank]},
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "vocab": {piece: i for i, piece in enumerate(pieces)},
                  "merges": ["\u2581 " + letter for letter in LETTERS]},
    }  # fmt: skip


PIECES, TOKENIZER = words()
A, WORD_A, WORD_B = (PIECES.index(piece) for piece in ("a", "\u2581a", "\u2581b"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    made = small_model(folder, context=128)
    shutil.copytree(made, folder / "words")
    (folder / "words/tokenizer.json").write_text(json.dumps(TOKENIZER))
    return folder / "words"


@pytest.fixture(scope="module")
def server(model):
    with serving(model, "-t", 1) as running:
        yield running


def answer(server, **asked):
    return server.post("/v1/completions", {"temperature": 0, **asked})["choices"][0]


def test_a_completion_keeps_the_blank_between_the_prompt_and_it(server, model):
    asked = {"prompt": "a b a", "max_tokens": 3, "logit_bias": {str(WORD_A): 100}}
    assert answer(server, **asked)["text"] == " a a a"
    assert answer(server, **asked, echo=True)["text"] == "a b a a a a"
    assert answer(server, **asked, stop=" a")["text"] == ""
    plain = answer(server, **asked, logprobs=0)
    assert plain["logprobs"]["tokens"] == [" a", " a", " a"] and plain["logprobs"]["text_offset"] == [0, 2, 4]
    whole = answer(server, **asked, logprobs=0, echo=True)
    assert whole["logprobs"]["text_offset"] == [0, 0, 1, 3, 5, 7, 9] and len(whole["text"]) == 11
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "logit_bias": {str(WORD_A): 100}}
    assert server.post("/v1/chat/completions", chat)["choices"][0]["message"]["content"] == "a a", "an answer begins a text"


def test_generate_keeps_it_too(model):
    made = run("generate", "-m", model, "-p", "a b a", "-n", 4, "--temp", 0, "-o", "json", "-t", 1)
    with_it = run("generate", "-m", model, "-p", "a b a", "-n", 4, "--temp", 0, "-o", "json", "-t", 1, "--logprobs", 0)
    (sample,) = json.loads(with_it.stdout)
    assert json.loads(made.stdout)[0]["text"] == sample["text"]
    ids = [token["id"] for token in sample["tokens"]]
    assert sample["text"] == "".join(PIECES[id] for id in ids).replace("\u2581", " ")


def test_tokens_of_one_letter_are_told_apart(server):
    """lm-eval asks whether a token is the likeliest: it is not where another one of its letter is."""
    scored = answer(server, prompt=[A, WORD_A], max_tokens=0, echo=True, logprobs=20)["logprobs"]
    assert scored["tokens"][1] == " a"
    for bias, token in ((WORD_A, " a"), (A, "a"), (1, "<s>")):
        chosen = answer(server, prompt=[A], max_tokens=1, logprobs=5, logit_bias={str(bias): 100}, ignore_eos=True)["logprobs"]
        assert chosen["tokens"] == [token]
        assert chosen["top_logprobs"][0][token] == chosen["token_logprobs"][0] and len(chosen["top_logprobs"][0]) in (5, 6)
    asked = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "logprobs": True, "logit_bias": {str(WORD_A): 100}}
    (entry,) = server.post("/v1/chat/completions", asked)["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == (" a", [32, 97])


@pytest.fixture(scope="module")
def bytes_server(tmp_path_factory):
    """Of a tokenizer that has every byte and, beside them, pieces of letters: `<0x65>` and `e` are one text."""
    folder = tmp_path_factory.mktemp("bytes")
    pieces = [*(f"<0x{byte:02X}>" for byte in range(256)), *(chr(byte) for byte in range(33, 127))]
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
    model = {"type": "BPE", "byte_fallback": True, "vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "decoder": decoder, "model": model}))
    made = small_model(folder, context=128, tokenizer=folder / "tokenizer.json")
    with serving(made, "-t", 1) as running:
        yield running, pieces


def test_a_letter_and_its_byte_are_two_entries(bytes_server):
    """The likeliest token was left out where the scored one is its byte, which lm-eval took for the likeliest then."""
    server, pieces = bytes_server
    post = lambda prompts, **asked: [one["logprobs"] for one in server.post("/v1/completions", {"prompt": prompts, "temperature": 0, **asked})["choices"]]
    likeliest = post([[i] for i in range(100)], max_tokens=1, logprobs=20)
    assert {len(one["top_logprobs"][0]) for one in likeliest} == {20}
    twins = [(i, f"<0x{ord(token):02X}>", token) for i, one in enumerate(likeliest) for token in one["tokens"] if token in pieces[256:]]
    assert twins
    for i, *both in twins:
        scored = post([[i, pieces.index(piece)] for piece in both], max_tokens=0, echo=True, logprobs=1)
        less, most = sorted(scored, key=lambda one: one["token_logprobs"][1])
        letter = less["tokens"][1]
        assert letter == most["tokens"][1] and most["top_logprobs"][1] == {letter: most["token_logprobs"][1]}
        assert len(less["top_logprobs"][1]) == 2 and max(less["top_logprobs"][1], key=less["top_logprobs"][1].get) != letter


def test_tokens_have_their_places_in_the_text_that_was_given(model, tmp_path):
    """A normalizer makes one character of two: what is decoded is shorter than what is echoed."""
    shutil.copytree(model.parent / "small", tmp_path / "nfc")
    file = tmp_path / "nfc/tokenizer.json"
    read = json.loads(file.read_text()) | {"normalizer": {"type": "NFC"}}
    read["model"]["vocab"] |= {"!": 34, '"': 33}  # in their own order they are bytes, whatever stands before them
    file.write_text(json.dumps(read))
    with serving(tmp_path / "nfc", "-t", 1) as server:
        prompt = 3 * "e\u0301" + "x"
        asked = {"prompt": prompt, "max_tokens": 2, "logit_bias": {"65": 100}, "echo": True, "logprobs": 0}
        made = answer(server, **asked)
        assert made["text"] == prompt + "AA" and made["logprobs"]["text_offset"] == [0, 0, 2, 2, 4, 4, 6, 7, 8]
        events = server.ask("POST", "/v1/completions", {"temperature": 0, **asked, "stream": True})[2].decode().split("\n\n")
        parts = [json.loads(event[6:])["choices"] for event in events if event.startswith("data: {")]
        assert [place for (part,) in parts for place in part["logprobs"]["text_offset"]] == made["logprobs"]["text_offset"]


def test_special_tokens_are_no_part_of_the_text_unless_they_are_asked_for(server):
    asked = {"prompt": [A], "max_tokens": 1, "logit_bias": {"1": 100}, "ignore_eos": True, "logprobs": 0}
    for more, text, place in ({}, "", 0), ({"skip_special_tokens": True}, "", 0), ({"skip_special_tokens": False}, "<s>", 0):
        made = answer(server, **asked | more)
        assert (made["text"], made["logprobs"]["tokens"], made["logprobs"]["text_offset"]) == (text, ["<s>"], [place])
    ended = answer(server, **asked | {"stop": ["<s>"], "max_tokens": 9})
    assert (ended["text"], ended["finish_reason"], len(ended["logprobs"]["tokens"])) == ("", "stop", 1)
    echoed = answer(server, prompt=[1, A], max_tokens=0, echo=True, logprobs=0)
    assert echoed["text"][echoed["logprobs"]["text_offset"][1]:].strip() == "a", "what a prompt holds stays"


def test_a_prompt_stands_behind_what_the_tokenizer_puts_before_texts(server, model):
    scored = {"max_tokens": 2, "echo": True, "logprobs": 0}
    for words, ids, asked in (
        ("a b", [1, WORD_A, WORD_B], {}),
        ("<s>a b", [1, WORD_A, WORD_B], {}),
        ("a b", [WORD_A, WORD_B], {"add_special_tokens": False}),
    ):
        of_text, of_ids = (server.post("/v1/completions", {"temperature": 0, "prompt": p, **scored, **asked}) for p in (words, ids))
        assert of_text["usage"] == of_ids["usage"], "usage counts the token"
        told = of_text["choices"][0]
        assert told["logprobs"]["token_logprobs"] == of_ids["choices"][0]["logprobs"]["token_logprobs"]
        assert told["logprobs"]["tokens"][: len(ids)] == [PIECES[i].replace("\u2581", " ") for i in ids]
        assert told["text"].startswith(words), "echo is the prompt as it was given"
        behind = told["text"][len(words) :]
        flags = ["--no-special-tokens"] if asked else []
        made = run("generate", "-m", model, "-p", words, "-n", 2, "--temp", 0, *flags, "-o", "json", "-t", 1)
        assert json.loads(made.stdout)[0]["text"] == behind
    assert told["logprobs"]["text_offset"] == [0, 1, 3, 3 + len(told["logprobs"]["tokens"][2])]
    hidden = answer(server, prompt="a b", **scored)
    assert hidden["logprobs"]["text_offset"][:3] == [0, 0, 1], "the token has no place in the text"
    chat = {"messages": [{"role": "user", "content": "a"}], "add_special_tokens": True}
    assert "a template writes its own" in server.post("/v1/chat/completions", chat, status=400)["error"]["message"]


def test_tokens_around_a_text_come_as_of_a_prompt_or_of_messages(server):
    ids = server.post("/tokenize", {"prompt": "a b", "messages": None})["tokens"]
    assert ids == [1, WORD_A, WORD_B]
    assert server.post("/tokenize", {"prompt": "a b", "add_special_tokens": False})["tokens"] == ids[1:]
    asked = {"messages": [{"role": "user", "content": "a"}]}
    plain, around = (server.post("/tokenize", asked | {"add_special_tokens": flag})["tokens"] for flag in (False, True))
    assert server.post("/tokenize", asked)["tokens"] == plain and around == [1, *plain]
    generation, without = (server.post("/tokenize", asked | {"add_generation_prompt": flag})["tokens"] for flag in (True, False))
    assert generation[: len(without)] == without and len(generation) > len(without)
    assert "add_special_tokens: want true or false" in server.post("/tokenize", {"prompt": "a", "add_special_tokens": 1}, status=400)["error"]["message"]


def test_what_is_drawn_is_said_with_its_blanks(server):
    drawn = server.post("/motet/attention", {"text": "a b"})
    assert drawn["tokens"] == ["<s>", " a", " b"] and drawn["tokens_cut"] == 0
