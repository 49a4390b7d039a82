"""The lines of `motet serve` on stderr, and how it stops."""
import json
import re
import signal
import socket
import time

import pytest
from serving import serving, small_model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("log"))


def begun(server, **asked):
    """A connection on which an answer to this request has begun."""
    data = json.dumps({"prompt": "a", "stream": True, **asked}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return connection


@pytest.mark.parametrize("silent", [False, True])
def test_a_request_is_one_line_without_its_text(small, silent):
    with serving(small, "-t", 1, *(["--no-request-log"] if silent else []), MOTET_LOG="info") as server:
        server.post("/v1/completions", {"prompt": ["secret", "secret"], "max_tokens": 3, "n": 2})
        server.post("/v1/completions", {"prompt": "secret", "n": 17}, status=400)
        with begun(server, prompt="secret", max_tokens=500) as connection:
            told = b""
            while b"data: " not in told:  # until then its prompt may not have been counted
                told += connection.recv(1000) or pytest.fail("the stream ended")
        server.wait_idle()
        server.get("/nowhere", status=404)
        server.process.send_signal(signal.SIGTERM)
        lines = server.process.stderr.read().splitlines()
    assert "serves small" in lines[0] and "secret" not in "".join(lines)
    told = [line.split(": ", 2) for line in lines[1:]]
    assert [row[0] for row in told] == ([] if silent else ["serve"] * 4), lines
    if silent:
        return
    assert told[0][1].startswith("cmpl-") and told[0][2].startswith("answered, 12 tokens of prompt (0 kept), 12 of answer, ")
    assert told[1][1:] == ["/v1/completions", "refused with 400 for n"]
    assert told[2][1].startswith("cmpl-") and re.fullmatch(r"left by its client, 6 tokens of prompt \(0 kept\), [1-9]\d* of answer, \d+ ms", told[2][2])
    assert told[3][1:] == ["'/nowhere'", "refused with 404"]


def test_who_reads_its_lines_may_go_before_it(small):
    with serving(small, "-t", 1, MOTET_LOG="info") as server:
        server.process.stderr.close()
        for _ in range(2):
            assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})["usage"]["completion_tokens"] == 2


def test_what_has_no_meaning_is_told_of_once(small):
    with serving(small, "-t", 1, "--no-request-log") as server:
        for _ in range(2):
            server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "beams": 2})
            server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a", "name": "b"}], "max_tokens": 1})
            server.post("/tokenize", {"messages": [{"role": "user", "content": "a", "name": "b"}], "tools": []})
            server.post("/detokenize", {"tokens": [65], "skip": 1})
        server.process.send_signal(signal.SIGTERM)
        lines = server.process.stderr.read().splitlines()
    told = [line.partition("are ignored: ")[2] for line in lines if "have no meaning here" in line]
    assert [name.strip("'") for name in told] == ["beams", "messages[].name", "tools", "skip"], lines


def test_a_second_signal_ends_at_once_whichever_it_is(small):
    for first, second in ((signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)):
        with serving(small, "-t", 1, "--waiting-bytes", 1024) as server, begun(server, max_tokens=500, n=16, logprobs=20):
            while server.metrics()["motet:num_requests_running"] == 0:
                time.sleep(0.005)
            server.process.send_signal(first)
            time.sleep(0.5)
            assert server.process.poll() is None, "it waits for the client, which reads nothing"
            server.process.send_signal(second)
            server.process.wait(timeout=5)
            server.code = 128 + second


def test_what_is_computed_is_sent_before_the_end(small):
    with serving(small, "-t", 2) as server, begun(server, stream=False, max_tokens=500, n=16, logprobs=20) as connection:
        whole = connection.recv(1000)
        server.process.send_signal(signal.SIGTERM)
        size = int(whole.split(b"Content-Length: ")[1].split(b"\r\n")[0]) + whole.index(b"\r\n\r\n") + 4
        time.sleep(2)
        while len(whole) < size:
            part = connection.recv(1 << 16)
            assert part, f"{len(whole)} of {size} bytes came"
            whole += part
        server.process.wait(timeout=20)


def test_another_origin_may_send_what_its_client_sends(small):
    with serving(small, "--cors-origin", "http://page.example") as server:
        asked = {"Origin": "http://page.example", "Access-Control-Request-Headers": "authorization,x-stainless-os"}
        status, headers, _ = server.ask("OPTIONS", "/v1/completions", headers=asked)
        assert status == 204 and headers["Access-Control-Allow-Headers"] == "authorization,x-stainless-os"
        assert headers["Access-Control-Expose-Headers"] == "Retry-After"
        assert "Access-Control-Request-Headers" in headers["Vary"]


def test_more_prompts_than_may_ever_wait_are_refused_for_good(small):
    with serving(small, "--queue", 3) as server:
        error = server.post("/v1/completions", {"prompt": ["a"] * 4, "max_tokens": 1}, status=400)["error"]
        assert error["message"] == "prompt: 4 prompts, want at most the 3 of --queue" and error["param"] == "prompt"
        assert len(server.post("/v1/completions", {"prompt": ["a"] * 3, "max_tokens": 1})["choices"]) == 3


def test_a_blank_before_a_types_parameters_is_no_part_of_it(small):
    with serving(small) as server:
        body = {"prompt": "a", "max_tokens": 1}
        for kind, status in (("application/json ; charset=utf-8", 200), ("application/json;charset=utf-8", 200), ("application/jsonl", 415)):
            assert server.ask("POST", "/v1/completions", body, {"Content-Type": kind})[0] == status, kind
