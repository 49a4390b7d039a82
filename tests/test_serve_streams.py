"""Streams of `motet serve`: put together they are the whole answer, and each event by itself can be shown."""
import concurrent.futures
import json

import pytest
from serving import serving, small_model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def server(small):
    with serving(small, "-t", 2) as running:
        yield running


def events(server, path, body):
    """What comes behind each data:, each of which is UTF-8 by itself."""
    status, headers, answer = server.ask("POST", path, body | {"stream": True})
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream"), answer
    return [line[6:].decode() for line in answer.split(b"\n") if line.startswith(b"data: ")]


def together(chunks):
    """The whole answer that chunks are parts of: choices in their order, usage, and what names the answer."""
    choices, usage = {}, None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for part in chunk["choices"]:
            whole = choices.setdefault(part["index"], {"text": "", "finish_reason": None, "logprobs": None})
            assert whole["finish_reason"] is None, "a part of a choice that has ended"
            whole["text"] += part["text"] if "text" in part else part["delta"].get("content", "")
            whole["finish_reason"] = part["finish_reason"]
            if part["logprobs"]:
                lists = whole["logprobs"] = whole["logprobs"] or {name: [] for name in part["logprobs"]}
                for name, entries in part["logprobs"].items():
                    lists[name] += entries
    assert sorted(choices) == list(range(len(choices)))
    return [choices[i] for i in range(len(choices))], usage


HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": "Hello", "max_tokens": 20}),
        ("/v1/completions", {"prompt": ["one", "two", "three"], "n": 2, "max_tokens": 12}),
        ("/v1/completions", {"prompt": ["one", [116, 119, 111]], "n": 2, "max_tokens": 9, "echo": True, "logprobs": 2}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 60, "logprobs": 0, "stop": ["e", "a", "o"]}),
        ("/v1/completions", {"prompt": ["one", "two"], "max_tokens": 0}),
        ("/v1/completions", {"prompt": ["one", "two"], "max_tokens": 0, "n": 2, "echo": True, "logprobs": 1}),
        ("/v1/chat/completions", HELLO | {"max_tokens": 50}),
        ("/v1/chat/completions", HELLO | {"max_tokens": 30, "n": 3, "logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", HELLO | {"max_tokens": 60, "stop": "e", "n": 2}),
    ],
)
def test_a_stream_put_together_is_the_whole_answer(server, path, asked):
    asked = asked | {"seed": 4, "temperature": 1.5}
    whole = server.post(path, asked)
    *parts, last = events(server, path, asked | {"stream_options": {"include_usage": True}})
    assert last == "[DONE]"
    chunks = [json.loads(part) for part in parts]
    assert len({(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    choices, usage = together(chunks)
    assert [choice["text"] for choice in choices] == [c["text"] if "text" in c else c["message"]["content"] for c in whole["choices"]]
    for name in ("finish_reason", "logprobs"):
        assert [choice[name] for choice in choices] == [choice[name] for choice in whole["choices"]]
    # what was computed before is taken over, so only that figure may differ
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage[name] == whole["usage"][name]
    assert chunks[-1]["choices"] == [] and all(chunk["usage"] is None for chunk in chunks[:-1])
    if "messages" in asked:
        first = {}
        for chunk in chunks[:-1]:
            first.setdefault(chunk["choices"][0]["index"], chunk["choices"][0]["delta"])
        assert all(delta["role"] == "assistant" for delta in first.values())
    without = [json.loads(part) for part in events(server, path, asked)[:-1]]
    assert together(without)[0] == choices and not any("usage" in chunk for chunk in without)


def test_a_stream_holds_whole_characters_and_no_byte_of_a_stop_string(server):
    """Bytes at a high temperature are half characters mostly; each event is UTF-8 and the stop string is never shown."""
    asked = {"prompt": "x", "max_tokens": 60, "seed": 5, "temperature": 2}
    whole = server.post("/v1/completions", asked)["choices"][0]["text"]
    stop = whole[20:24]
    *parts, last = events(server, "/v1/completions", asked | {"stop": [stop]})
    assert last == "[DONE]" and len(parts) > 2
    (choice,), _ = together(json.loads(part) for part in parts)
    assert choice["text"] == whole[: whole.index(stop)] and choice["finish_reason"] == "stop"


def test_a_stream_that_fails_says_so_and_ends_without_done(small):
    """One that began before its time was over: an event with the error, nothing behind it, and the server goes on."""
    with serving(small, "-t", 1, "--request-seconds", 3) as server:
        asked = {"prompt": ["a"] * 32, "n": 16, "max_tokens": 500, "ignore_eos": True}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(events, server, "/v1/completions", asked)
            parts = [json.loads(part) for part in running.result()]
        assert "choices" in parts[0] and all("error" not in part for part in parts[:-1])
        assert parts[-1]["error"]["message"] == "the request took more than 3 seconds"
        assert server.wait_idle()["motet:num_requests_running"] == 0
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 3})["usage"]["completion_tokens"] == 3
