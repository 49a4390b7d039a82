"""`motet serve` as its clients see it: every route, streams, errors, limits, and the same text in any company."""
import concurrent.futures
import hashlib
import http.client
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import time

import openai
import pytest
from conftest import MOTET, ROOT, environment, refused, run
from prometheus_client.parser import text_string_to_metric_families
from serving import serving, small_model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def server(small):
    with serving(small, "-t", 2) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


# ---- what an answer is ---------------------------------------------------------------------------------------------


def test_a_completion_is_what_generate_prints(client, small):
    made = run("generate", "-m", small, "-p", "ROMEO:", "-n", 40, "--temp", 0, "-o", "json", "-t", 1)
    (sample,) = json.loads(made.stdout)
    answer = client.completions.create(model="small", prompt="ROMEO:", max_tokens=40, temperature=0)
    assert answer.choices[0].text == sample["text"]
    assert answer.choices[0].finish_reason == sample["finish_reason"]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 40)


def test_a_chat_renders_the_models_template(client, server):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    answer = client.chat.completions.create(model="small", messages=messages, temperature=0, max_tokens=30)
    same = client.completions.create(model="small", prompt="<system>s\n<user>Hello\n<a>", temperature=0, max_tokens=30)
    assert answer.choices[0].message.content == same.choices[0].text
    assert answer.choices[0].message.role == "assistant"
    ids = server.post("/tokenize", {"messages": messages})["tokens"]
    assert bytes(ids).decode() == "<system>s\n<user>Hello\n<a>"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_stream_is_the_answer_in_parts(client, seed):
    asked = dict(model="small", messages=[{"role": "user", "content": "Hello"}], max_tokens=50, seed=seed, temperature=1.5)
    whole = client.chat.completions.create(**asked).choices[0]
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == whole.message.content
    assert [c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason] == [whole.finish_reason]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 50
    text = list(client.completions.create(model="small", prompt="Hello", max_tokens=20, seed=seed, stream=True))
    same = client.completions.create(model="small", prompt="Hello", max_tokens=20, seed=seed)
    assert "".join(c.choices[0].text for c in text) == same.choices[0].text


def test_choices_of_prompts_and_samples_are_numbered(client):
    asked = dict(model="small", max_tokens=8, temperature=1.2, seed=3)
    together = client.completions.create(prompt=["one", "two"], n=3, **asked)
    assert [c.index for c in together.choices] == list(range(6))
    for i, prompt in enumerate(["one", "two"]):
        alone = client.completions.create(prompt=prompt, n=3, **asked)
        assert [c.text for c in alone.choices] == [c.text for c in together.choices[3 * i : 3 * i + 3]]
        assert len({c.text for c in alone.choices}) > 1
    by_ids = client.completions.create(prompt=[list(b"one"), list(b"two")], n=3, **asked)
    assert [c.text for c in by_ids.choices] == [c.text for c in together.choices]
    assert together.usage.prompt_tokens == 6 and together.usage.completion_tokens == 48


def test_echo_and_logprobs_score_the_prompt(client, small, tmp_path):
    prompt = "To be, or not to be"
    answer = client.completions.create(model="small", prompt=prompt, max_tokens=5, temperature=0, echo=True, logprobs=3)
    (choice,) = answer.choices
    scores = choice.logprobs
    assert choice.text.startswith(prompt)
    assert len(scores.tokens) == len(prompt) + 5 and scores.tokens[: len(prompt)] == list(prompt)
    assert scores.token_logprobs[0] is None and scores.top_logprobs[0] is None
    assert scores.text_offset[: len(prompt)] == list(range(len(prompt)))
    for token, score, top in list(zip(scores.tokens, scores.token_logprobs, scores.top_logprobs))[1:]:
        assert top[token] == score and max(top.values()) >= score
        assert len(top) in (3, 4)
    plain = client.completions.create(model="small", prompt=prompt, max_tokens=5, temperature=0, logprobs=3)
    assert plain.choices[0].logprobs.token_logprobs == scores.token_logprobs[len(prompt) :]
    alone = client.completions.create(model="small", prompt=prompt, max_tokens=0, echo=True, logprobs=0)
    assert alone.choices[0].logprobs.token_logprobs == scores.token_logprobs[: len(prompt)]
    assert alone.choices[0].text == prompt and alone.usage.completion_tokens == 0
    # what motet eval makes of the same text
    text = tmp_path / "text.txt"
    text.write_text(prompt)
    done = run("eval", "perplexity", text, "-m", small, "-o", "json", "-t", 1)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    known = [s for s in alone.choices[0].logprobs.token_logprobs if s is not None]
    loss = next(row[name] for name in ("nats_per_token", "loss", "nll") if name in row)
    assert abs(-sum(known) / len(known) - float(loss)) < 1e-4


def test_the_token_that_ends_a_text_is_scored(small, tmp_path):
    """A harness drops the last number, that of the one token it asked for: it must be there though it ended the text."""
    shutil.copytree(small, tmp_path / "m")
    (tmp_path / "m/generation_config.json").write_text(json.dumps({"eos_token_id": list(range(256))}))
    with serving(tmp_path / "m") as server:
        body = {"prompt": "abc", "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
        (choice,) = server.post("/v1/completions", body)["choices"]
        assert choice["text"] == "abc" and choice["finish_reason"] == "stop"
        assert len(choice["logprobs"]["token_logprobs"]) == 4


def test_logprobs_of_a_chat(client):
    answer = client.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "a"}], max_tokens=6, temperature=0, logprobs=True, top_logprobs=2
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == 6
    for one in content:
        assert len(one.top_logprobs) == 2 and one.top_logprobs[0].logprob == one.logprob
        assert len(one.bytes) == 1


def test_bias_and_penalties_choose(client):
    only = client.completions.create(model="small", prompt="a", max_tokens=6, logit_bias={"65": 100})
    assert only.choices[0].text == "A" * 6
    asked = dict(model="small", prompt="a", max_tokens=60, temperature=0, logit_bias={"65": 100, "66": 85})
    plain, frequent = (client.completions.create(**asked, **more).choices[0].text for more in ({}, {"frequency_penalty": 2}))
    assert len(set(plain)) == 1 and set(frequent) == {"A", "B"}, "a letter that came often makes room for the other"


# ---- the same bits in any company ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], ["--weights", "int8", "--cache-type", "int8"]])
def test_a_request_with_a_seed_is_the_same_text_alone_and_among_others(small, flags):
    """200 requests, shuffled, one and 16 at a time, on one and two threads, with and without kept prefixes."""
    draw = random.Random(1)
    source = (ROOT / "motet/data/tinyshakespeare.txt").read_text()
    requests = []
    for i in range(200):
        at, length = draw.randrange(1000), draw.choice([1, 5, 63, 64, 65, 130, 200])
        requests.append(
            {"model": "small", "prompt": source[at : at + length], "max_tokens": draw.randrange(1, 24), "seed": i, "temperature": draw.choice([0, 1]), "n": draw.choice([1, 1, 2]), "logprobs": 1}
        )

    def digests(server, order, clients):
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            answers = pool.map(lambda i: server.post("/v1/completions", requests[i])["choices"], order)
            return {i: hashlib.sha256(json.dumps(a).encode()).hexdigest() for i, a in zip(order, answers)}

    order = list(range(200))
    with serving(small, "-t", 1, "--no-prefix-cache", *flags) as server:
        alone = digests(server, order, 1)
    draw.shuffle(order)
    with serving(small, "-t", 2, *flags) as server:
        assert digests(server, order, 16) == alone
        assert server.metrics()["motet:prefix_cache_hits_total"] > 0


def test_a_prefix_is_computed_once(server):
    prompt = "".join(chr(97 + i * i % 26) for i in range(300))
    first = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 4, "seed": 1, "logprobs": 2})
    again = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 4, "seed": 1, "logprobs": 2})
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 256
    assert again["choices"] == first["choices"]


# ---- routes and errors ---------------------------------------------------------------------------------------------


def test_a_model_is_found_by_its_name(client):
    assert client.models.retrieve("small") == client.models.list().data[0]
    with pytest.raises(openai.NotFoundError, match="model: 'other' is not served, want 'small'"):
        client.models.retrieve("other")


def test_names_in_paths(server):
    assert "there is no '/v1/models/' here" in server.ask("GET", "/v1/models/")[2].decode()
    assert "model: 'a/b' is not served" in server.ask("GET", "/v1/models/a%2Fb")[2].decode()
    status, headers, body = server.ask("POST", "/v1/models/small", {})
    assert status == 405 and headers["Allow"] == "GET" and b"takes GET" in body


def test_a_checkpoint_has_the_name_of_its_run(small, tmp_path):
    shutil.copytree(small, tmp_path / "first/checkpoints/step_00000010")
    shutil.copytree(small, tmp_path / "first/checkpoints/step_00000010/average")
    shutil.copytree(small, tmp_path / "checkpoints/small")  # no run's
    for folder, name in [("first", "first"), ("first:average", "first"), ("checkpoints/small", "small")]:
        with serving(tmp_path / folder) as server:
            assert server.get("/v1/models")["data"][0]["id"] == name


def test_every_route_answers(server, small):
    assert server.get("/health") == {"status": "ok"}
    assert server.get("/v1/models")["data"][0]["id"] == "small"
    assert server.get("/version").keys() == {"version"}
    ids = server.post("/tokenize", {"prompt": "ab\u00e9"})
    assert ids == {"tokens": [97, 98, 0xC3, 0xA9], "count": 4, "max_model_len": 512}
    assert server.post("/detokenize", {"tokens": ids["tokens"], "model": "small"}) == {"prompt": "ab\u00e9"}
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": []})):
        assert server.post(path, body | {"model": "large"}, status=404)["error"]["param"] == "model"
    info = server.get("/tokenizer_info")
    assert "chat_template" in info and "tokenizer_class" in info
    status, headers, body = server.ask("HEAD", "/health")
    assert (status, body) == (200, b"")


def test_the_metrics_are_prometheus_text(server):
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 3})
    families = {f.name: f for f in text_string_to_metric_families(server.ask("GET", "/metrics")[2].decode())}
    assert {"motet:num_requests_running", "motet:num_requests_waiting", "motet:cache_usage_perc", "motet:request_success"} <= families.keys()
    for name in ("time_to_first_token_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds"):
        assert families["motet:" + name].type == "histogram"
        counts = [s.value for s in families["motet:" + name].samples if s.name.endswith("_bucket")]
        assert counts == sorted(counts) and counts[-1] > 0
    assert families["motet:generation_tokens"].samples[0].value >= 3


@pytest.mark.parametrize(
    "path, body, status, message",
    [
        ("/v1/completions", {"prompt": ""}, 400, "prompt: is empty, want at least one token"),
        ("/v1/completions", {"prompt": "a", "n": 10**6}, 400, "n: 1000000 is above 16"),
        ("/v1/completions", {"prompt": "a" * 500, "max_tokens": 13}, 400, "prompt: 500 tokens and 13 of max_tokens are more than the context of 512"),
        ("/v1/completions", {"prompt": "a", "model": "other"}, 404, "model: 'other' is not served, want 'small'"),
        ("/v1/completions", {"prompt": [300]}, 400, "prompt: 300 is above 255"),
        ("/v1/completions", "{", 400, "the body: JSON ends too early, after 1 bytes"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a" * 600}]}, 400, "messages: 610 tokens and 1 to come are more than the context of 512"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages: want a list of at least one message"),
        ("/v1/embeddings", {}, 404, "there is no '/v1/embeddings' here"),
    ],
)
def test_an_error_names_what_was_wrong(server, path, body, status, message):
    got, _, text = server.ask("POST", path, body)
    error = json.loads(text)["error"]
    assert (got, error["message"], error["code"]) == (status, message, status)
    assert server.get("/health") == {"status": "ok"}


def test_an_answer_tells_so_many_logarithmic_probabilities(server):
    asked = {"prompt": ["ab"] * 4, "max_tokens": 500, "n": 16, "logprobs": 20}
    error = server.post("/v1/completions", asked, status=400)["error"]
    assert (error["param"], error["message"]) == ("logprobs", f"logprobs: up to {4 * 16 * 500 * 21} with these prompts, n and max_tokens, want at most {2**19}: fewer of any")
    asked |= {"prompt": ["ab"] * 4, "max_tokens": 8, "echo": True}
    choices = server.post("/v1/completions", asked)["choices"]
    assert len(choices) == 64 and {len(one["logprobs"]["tokens"]) for one in choices} == {10}, "written beside the engine"


def test_methods_and_types_are_checked(server):
    status, headers, _ = server.ask("GET", "/v1/completions")
    assert status == 405 and headers["Allow"] == "POST"
    assert server.ask("POST", "/v1/completions", "a", {"Content-Type": "text/plain"})[0] == 415
    status, _, text = server.ask("POST", "/v1/completions", "a", {"Content-Encoding": "gzip"})
    assert status == 415 and "the Content-Encoding is 'gzip', want the body as it is" in text.decode()
    assert server.ask("GET", "/health", headers={"Host": "evil.example"})[0] == 403
    assert server.ask("GET", "/health", headers={"Origin": "http://evil.example"})[0] == 403
    assert server.ask("GET", "/health", headers={"Origin": server.url})[0] == 200


def test_an_error_of_the_template_is_the_requests(tmp_path, small):
    shutil.copytree(small, tmp_path / "m")
    (tmp_path / "m/chat_template.jinja").write_text("{% if messages[0].role != 'user' %}\n{{ raise_exception('want a user') }}{% endif %}a")
    with serving(tmp_path / "m") as server:
        error = server.post("/v1/chat/completions", {"messages": [{"role": "x", "content": ""}]}, status=400)["error"]
        assert error["message"].endswith("line 2: want a user") and error["param"] == "messages"


def test_a_template_that_cannot_be_read_refuses_chats_alone(tmp_path, small):
    shutil.copytree(small, tmp_path / "m")
    source = "a\n{% include 'x' %}"
    (tmp_path / "m/chat_template.jinja").write_text(source)
    with serving(tmp_path / "m") as server:
        server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
        error = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}]}, status=400)["error"]
        why = "chat_template.jinja: line 2: the statement 'include' is not supported"
        assert error["message"].startswith(why) and error["message"].endswith(", want /v1/completions")
        assert server.get("/tokenizer_info")["chat_template"] == source and not server.get("/motet/model")["chat"]
        server.process.send_signal(signal.SIGTERM)
        assert [why in line for line in server.process.stderr.read().splitlines()] == [True]


def test_scores_of_a_long_prompt_do_not_stream(server):
    asked = {"prompt": "b" * 450, "max_tokens": 1, "echo": True, "logprobs": 20}
    error = server.post("/v1/completions", asked | {"stream": True}, status=400)["error"]
    assert error["param"] == "stream" and error["message"].startswith("stream: 9450 logprobs of prompts, want it left out")
    assert len(server.post("/v1/completions", asked)["choices"][0]["logprobs"]["tokens"]) == 451
    assert server.ask("POST", "/v1/completions", asked | {"stream": True, "logprobs": 2})[0] == 200
    assert server.ask("POST", "/v1/completions", asked | {"stream": True, "prompt": "b" * 20, "max_tokens": 480})[0] == 200  # of an answer


# ---- who may ask -----------------------------------------------------------------------------------------------------


def test_keys_let_their_owners_in(small, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# two of them\nfirst\nsecond # the other\n")
    prompt = "b" * 130
    with serving(small, "--api-key-file", keys, "--cors-origin", "http://page.example") as server:
        body = {"prompt": prompt, "max_tokens": 1}
        assert server.ask("POST", "/v1/completions", body)[0] == 401
        assert server.ask("POST", "/v1/completions", body, {"Authorization": "Bearer wrong"})[0] == 401
        assert server.ask("GET", "/health")[0] == 200
        cached = lambda key: server.post("/v1/completions", body, Authorization=f"Bearer {key}")["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert [cached("first"), cached("first"), cached("second"), cached("second")] == [0, 128, 0, 128]
        status, headers, _ = server.ask("OPTIONS", "/v1/completions", headers={"Origin": "http://page.example"})
        assert status == 204 and headers["Access-Control-Allow-Origin"] == "http://page.example"
        assert server.ask("GET", "/metrics")[0] == 401


def test_a_key_may_come_from_the_environment_and_a_file_replaces_it(small, tmp_path):
    (tmp_path / "keys").write_text("of-the-file\n")
    bearer = lambda key: {"Authorization": f"Bearer {key}"}
    for flags, right, wrong in [((), "of-the-environment", "of-the-file"), (("--api-key-file", tmp_path / "keys"), "of-the-file", "of-the-environment")]:
        with serving(small, "--address", "0.0.0.0", *flags, MOTET_API_KEY="of-the-environment") as server:
            assert server.ask("GET", "/v1/models")[0] == server.ask("GET", "/v1/models", headers=bearer(wrong))[0] == 401
            assert server.ask("GET", "/v1/models", headers=bearer(right))[0] == 200


def test_an_empty_key_is_none(small):
    line = refused(2, "serve", "-m", small, "--address", "0.0.0.0", MOTET_API_KEY="")
    assert "can be reached by others, want --api-key-file or MOTET_API_KEY beside it" in line


def test_what_cannot_be_served_is_refused(small, server, tmp_path):
    line = refused(2, "serve", "-m", small, "--address", "0.0.0.0")
    assert "can be reached by others, want --api-key-file or MOTET_API_KEY beside it" in line
    assert f"{server.port}" in refused(1, "serve", "-m", small, "--port", server.port)
    assert "--port" in refused(2, "serve", "-m", small, "--port", 70000)
    (tmp_path / "none").write_text("# nothing\n")
    assert "holds no key" in refused(1, "serve", "-m", small, "--api-key-file", tmp_path / "none")
    assert "--model is missing" in refused(2, "serve")
    done = run("serve", "-m", small, "--port", 0, "--cache-bytes", 10, timeout=60)
    assert done.returncode == 2 and re.fullmatch(r"motet: --cache-bytes: 10, want at least the \d+ of two tokens", done.stderr.splitlines()[-1])


# ---- clients that leave, wait or come too many -----------------------------------------------------------------------


def request_bytes(body, close=True):
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def test_clients_that_leave_free_everything(small):
    with serving(small, "-t", 2, "--header-seconds", 0.5) as server:
        draw = random.Random(2)
        for i in range(300):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                body = {"prompt": "abc" * draw.randrange(1, 50), "max_tokens": 300, "stream": draw.random() < 0.5}
                connection.sendall(request_bytes(body)[: draw.choice([20, 10**6, 10**6, 10**6])])
                if draw.random() < 0.3:
                    connection.recv(100)
        now = server.wait_idle()
        assert now["motet:cache_bytes"] == 0
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 2})["usage"]["completion_tokens"] == 2


def test_a_full_queue_says_so(small):
    with serving(small, "--queue", 2, "--cache-bytes", 600_000, "-t", 1) as server:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: server.ask("POST", "/v1/completions", {"prompt": "a" * 300, "max_tokens": 200}), range(16)))
        codes = {status for status, _, _ in answers}
        assert codes == {200, 429}
        assert next(h for s, h, _ in answers if s == 429)["Retry-After"] == "1"
        error = server.post("/v1/completions", {"prompt": "a", "max_tokens": 500, "n": 16}, status=400)["error"]["message"]
        assert "want at most the server's 600000" in error


def test_sigterm_lets_running_requests_end(small):
    with serving(small, "-t", 1) as server:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(server.post, "/v1/completions", {"prompt": "a", "max_tokens": 500})
            while server.metrics()["motet:num_requests_running"] == 0:
                time.sleep(0.005)
            server.process.send_signal(signal.SIGTERM)
            assert running.result()["usage"]["completion_tokens"] == 500
        assert server.process.wait(timeout=30) == 0


def test_running_requests_are_cut_off_after_their_time(small):
    with serving(small, "-t", 1, "--drain-seconds", 0) as server:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(server.ask, "POST", "/v1/completions", {"prompt": ["a"] * 32, "max_tokens": 500, "n": 16})
            while server.metrics()["motet:num_requests_running"] == 0:
                time.sleep(0.005)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(timeout=30) == 0
            try:
                status = running.result()[0]
            except (OSError, http.client.HTTPException):
                status = "the connection was cut"
            assert status in (503, "the connection was cut"), "256,000 tokens are not computed in no time"


def test_help_tells_every_limit():
    text = subprocess.run([MOTET, "serve", "--help"], capture_output=True, text=True, env=environment()).stdout
    for flag in ("--body-bytes", "--connections", "--header-seconds", "--queue", "--cache-bytes", "--api-key-file", "--weights"):
        assert flag in text


# ---- measured ----------------------------------------------------------------------------------------------------------


def test_bench_serve_measures_each_number_of_clients(small):
    done = run("bench", "serve", "-m", small, "--shape", "prompt=70,generate=12", "--repeats", 1, "-t", 1, "-o", "json",
               "--beside", small)  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    ways = [(row["way"], row["clients"]) for row in rows]
    assert ways[:5] == [("generate", 1)] + [("serve", n) for n in (1, 4, 8, 16)]
    assert re.fullmatch(r"serve, \d+ /health a second", ways[5][0])
    assert ways[6:] == [("serve, and one more answer", 8), ("serve, and one that reads 10 bytes a second", 8), (f"serve {small}", 8)]
    assert rows[1]["over_one_stream"] == 1
    for row in rows:
        assert row["over_one_stream"] == pytest.approx(row["tokens_per_second"] / rows[1]["tokens_per_second"])
        assert row["first_token_p95_ms"] > 0 and row["weights"] == "float32"
        of_as_many = next(other for other in rows if other["way"] == "serve" and other["clients"] == row["clients"])
        assert row["serve_over_it"] == pytest.approx(of_as_many["tokens_per_second"] / row["tokens_per_second"])
    assert "are more than the context of 512" in refused(2, "bench", "serve", "-m", small, "--shape", "prompt=500,generate=13")
    assert "--model is missing" in refused(2, "bench", "serve")
    assert "llama_server" in refused(2, "bench", "serve", "-m", small, "--rivals", "llama_cpp")
    nowhere = environment(PATH="/nowhere")
    done = run("bench", "serve", "-m", small, "--rivals", "llama_server", "--shape", "prompt=3,generate=3", "-t", 1, **nowhere)
    assert done.returncode == 1 and "llama-server is not on the PATH" in done.stderr


def soaked(model, requests, *flags, **options):
    """What `bench serve --soak` finds; nothing may be lost, wrong or kept."""
    done = run("bench", "serve", "-m", model, "--soak", requests, *flags, "-o", "json", **options)
    assert done.returncode == 0, done.stderr
    found = {row["what"]: row["value"] for row in json.loads(done.stdout)}
    assert found["answers that are whole"] + found["left by their client"] == requests
    for nothing in ("lost", "wrong", "still running", "still waiting", "bytes of keys"):
        assert found[nothing] == 0, found
    assert found["tokens of kept prompts"] >= 64 * requests // 10, found  # a third of the prompts have 64 tokens
    return found


def test_a_soak_loses_nothing_and_keeps_nothing(small):
    assert 3 <= soaked(small, 300, "-t", 1)["left by their client"] <= 40
    assert "--repeats is given with --soak" in refused(2, "bench", "serve", "-m", small, "--soak", 300, "--repeats", 2)


def test_a_second_turn_takes_over_the_whole_pieces_of_the_first(small):
    done = run("bench", "serve", "-m", small, "--turn", 200, "--repeats", 2, "-t", 1, "-o", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["prompt_tokens"], row["kept_tokens"]) for row in rows] == [(200, 0), (264, 192), (264, 0)]
    for row in rows:
        assert row["first_token_ms"] > 0 and row["repeats"] == 2
        assert row["over_first_turn"] == pytest.approx(row["first_token_ms"] / rows[0]["first_token_ms"])
    assert "are more than the context of 512" in refused(2, "bench", "serve", "-m", small, "--turn", 500)
    assert "--soak is given with --turn" in refused(2, "bench", "serve", "-m", small, "--turn", 200, "--soak", 300)


# ---- documents ---------------------------------------------------------------------------------------------------------


def test_the_documents_table_is_the_commands():
    """Names and defaults of docs/serving.md are those of --help."""
    text = subprocess.run([MOTET, "serve", "--help"], capture_output=True, text=True, env=environment()).stdout
    rows = re.findall(r"^\| `--([a-z-]+)` \| ([^|]+) \|", (ROOT / "docs/serving.md").read_text(), re.M)
    assert len(rows) > 15
    for name, default in rows:
        (line,) = re.findall(rf"^ +(?:-\w, )?--{name} [^\n]*(?:\n {{10,}}[^\n]*)*", text, re.M)
        assert f"default: {default.strip()}" in line, (name, line)


@pytest.mark.nightly
def test_a_long_soak_outlives_a_thousand_clients_that_leave(tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(ROOT / "tests/golden/model/llama_mha" / name, tmp_path)
    learned = run("tokenize", "--train", "--vocab-size", 384, "--out", tmp_path / "tokenizer.json", ROOT / "motet/data/tinyshakespeare.txt")
    assert learned.returncode == 0, learned.stderr
    found = soaked(tmp_path, 25000, timeout=900)
    assert found["left by their client"] >= 1000
    assert abs(found["growth of memory, %"]) <= 2
