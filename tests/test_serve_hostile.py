"""`motet serve` among clients that mean it ill: plain sockets that are slow, cut short, greedy, gone or lie. After each
test the server answers and holds nothing of them."""
import contextlib
import json
import random
import re
import socket
import threading

import pytest
from serving import serving, small_model

HOST = b"Host: localhost\r\n"
GET = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
LIMITS = {
    "header-seconds": 2, "body-grace-seconds": 1, "stalled-seconds": 1, "waiting-bytes": 4096, "connections-per-address": 240,
    "body-bytes": 1 << 20,
}  # fmt: skip


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    flags = [word for name, value in LIMITS.items() for word in (f"--{name}", value)]
    with serving(small_model(tmp_path_factory.mktemp("hostile")), "-t", 2, *flags) as server:
        yield server


@pytest.fixture
def server(running):
    yield running
    assert running.get("/health") == {"status": "ok"}
    assert running.process.poll() is None
    running.wait_idle()
    assert running.post("/v1/completions", {"prompt": "a", "max_tokens": 2})["usage"]["completion_tokens"] == 2


@contextlib.contextmanager
def connected(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        yield connection


def send(connection, data):
    """Whether all of it went out: the server may have closed."""
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def received(connection):
    """All that comes until the server closes."""
    out = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            out += part
    return out


def answer(server, data, end=False):
    """What the server says to these bytes until it closes, which it must do."""
    with connected(server) as connection:
        send(connection, data)
        if end:
            connection.shutdown(socket.SHUT_WR)
        return received(connection)


def statuses(answers):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d\d\d) ", answers)]


def refused(answers, status):
    """One answer, in our form."""
    assert statuses(answers) == [status], answers[:500]
    head, _, body = answers.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head
    error = json.loads(body)["error"]
    assert error["code"] == status and error["message"]


def completion(body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return POST + b"Content-Length: %d\r\n\r\n" % len(data) + data


# ---- slow and short ----------------------------------------------------------------------------------------------------


def test_two_hundred_slow_headers_keep_nobody_out(server):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(server)) for _ in range(200)]
        for at, byte in enumerate(b"GET /health HTTP/1.1\r\nX: "):
            for connection in slow:
                send(connection, bytes([byte]))
            if at % 8 == 0:
                assert server.get("/health") == {"status": "ok"}
        for connection in slow:
            refused(received(connection), 408)


def test_slow_bodies_are_refused(server):
    for form in (b"Content-Length: 1000000\r\n\r\n" + b" " * 5000, b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", b"Content-Length: 1\r\n\r\n"):
        refused(answer(server, POST + form), 408)


def test_half_requests_are_refused_or_forgotten(server):
    whole = completion({"prompt": "a", "max_tokens": 3, "stream": True})
    draw = random.Random(1)
    for _ in range(60):
        half = whole[: draw.randrange(1, len(whole))]
        refused(answer(server, half, end=True), 400)
        with connected(server) as connection:  # and gone
            send(connection, half)
    assert answer(server, b"", end=True) == b""


# ---- lies --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status, head",
    [
        (400, b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
        (400, b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
        (400, b"Content-Length: 4\r\nContent-Length: 5\r\n"),
        (400, b"Content-Length: 4\r\nContent-Length: 4\r\n"),
        (400, b"Content-Length: 4, 4\r\n"),
        (400, b"Content-Length: +4\r\n"),
        (400, b"Content-Length: 4\r\n X: folded\r\n"),
        (400, b"Content-Length: 4\r\nTransfer-Encoding:\r\n chunked\r\n"),
        (400, b"Content-Length : 4\r\n"),
        (400, b"Content-Length: 4\nX: bare\r\n"),
        (400, b"Content-Length: 4\r\nX: a\0b\r\n"),
        (400, b"Content-Length: 4\r\nX: a\rb\r\n"),
        (400, b"Content-Length: 4\r\n" + HOST),
        (400, b"Content-Length: 99999999999999999999\r\n"),
        (411, b""),
        (417, b"Content-Length: 4\r\nExpect: a-miracle\r\n"),
        (501, b"Transfer-Encoding: gzip, chunked\r\n"),
        (501, b"Transfer-Encoding: chunked, identity\r\n"),
        (413, b"Content-Length: 1073741824\r\n"),
        (413, b"Content-Length: 18446744073709551615\r\n"),
        (413, b"Content-Length: 1073741824\r\nExpect: 100-continue\r\n"),
        (431, b"".join(b"X%d: a\r\n" % i for i in range(101))),
        (431, b"X: " + b"a" * 20000 + b"\r\n"),
    ],
)
def test_smuggled_requests_are_not_seen(server, status, head):
    """What stands behind a refused header is never taken for a request."""
    refused(answer(server, POST + head + b"\r\n" + GET + GET), status)


@pytest.mark.parametrize(
    "status, data",
    [
        (400, b"GET /health\r\n\r\n"),
        (400, b"GET /health HTTP/1.1\r\n\r\n"),
        (400, b"GET /%00health HTTP/1.1\r\n" + HOST + b"\r\n"),
        (400, b"GET /health%0d%0aX:1 HTTP/1.1\r\n" + HOST + b"\r\n"),
        (400, b"GET http://other/health HTTP/1.1\r\n" + HOST + b"\r\n"),
        (400, b"CONNECT other:80 HTTP/1.1\r\n" + HOST + b"\r\n"),
        (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        (414, b"GET /" + b"a" * 20000),
        (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ],
)
def test_wrong_requests_are_refused(server, status, data):
    refused(answer(server, data), status)


@pytest.mark.parametrize("size", [b"40000000", b"ffffffffffffffff", b"10000000000000004", b"-1", b"4;\n", b"0x4"])
def test_wrong_chunks_are_refused(server, size):
    got = answer(server, POST + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n{}  \r\n0\r\n\r\n" + GET)
    assert statuses(got) in ([400], [413]), got


def test_a_gigabyte_in_chunks_is_cut_off(server):
    with connected(server) as connection:
        send(connection, POST + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        sender = threading.Thread(target=lambda: any(not send(connection, chunk) for _ in range(1 << 14)))
        sender.start()
        got = connection.recv(65536)
        assert statuses(got) == [413]
        connection.close()
        sender.join()


# ---- bodies that lie ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 10_000,
        b'{"prompt":' * 10_000,
        b'{"prompt": "a", "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "\xed\xa0\x80"}',
        b'{"prompt": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"",
        b"null",
        b'{"prompt": "a", "prompt": "b"}',
        b'{"prompt": [' + b"1," * 400_000 + b"1]}",
        b'{"prompt": "a", "max_tokens": 9223372036854775808}',
        b'{"prompt": "a", "max_tokens": -1}',
        b'{"prompt": "a", "max_tokens": 1e999}',
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "n": 1000000}',
        b'{"prompt": [-1]}',
        b'{"prompt": [2147483648]}',
        b'{"prompt": [[[1]]]}',
        b'{"prompt": "a", "logit_bias": {"-1": 1}}',
        b'{"prompt": "a", "stop": ["' + b'a", "' * 100 + b'"]}',
    ],
)
def test_wrong_bodies_are_refused_and_the_connection_stays(server, body):
    got = answer(server, completion(body) + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert statuses(got) == [400, 200], got[:500]


# ---- many ----------------------------------------------------------------------------------------------------------------


def test_two_thousand_pipelined_requests_are_answered_in_order(server):
    paths = [random.Random(i).choice([b"/health", b"/version", b"/none"]) for i in range(2000)]
    with connected(server) as connection:
        data = b"".join(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n" for path in paths)
        sender = threading.Thread(target=lambda: (send(connection, data), connection.shutdown(socket.SHUT_WR)))
        sender.start()
        got = received(connection)
        sender.join()
    assert statuses(got) == [404 if path == b"/none" else 200 for path in paths]


def test_pipelined_completions_are_answered_one_by_one(server):
    asked = [{"prompt": "a", "max_tokens": i % 5 + 1, "stream": i % 2 == 1} for i in range(20)]
    data = b"".join(map(completion, asked)) + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    got = answer(server, data)
    assert statuses(got) == [200] * 21
    assert got.count(b"data: [DONE]") == 10


def test_connections_beyond_the_limit_get_503(server):
    with contextlib.ExitStack() as stack:
        first = []
        while len(first) < LIMITS["connections-per-address"]:  # some of the tests before may not be closed yet
            connection = stack.enter_context(connected(server))
            send(connection, GET)
            if statuses(connection.recv(65536)) == [200]:
                first.append(connection)
        refused(answer(server, b""), 503)
        send(first[0], GET)
        assert statuses(first[0].recv(65536)) == [200]


def test_clients_that_never_read_are_closed(server):
    with contextlib.ExitStack() as stack:
        deaf = [stack.enter_context(connected(server)) for _ in range(4)]
        for connection in deaf:
            send(connection, completion({"prompt": "a", "max_tokens": 400, "n": 4, "stream": True, "temperature": 1, "logprobs": 5}) * 20)
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 5})["usage"]["completion_tokens"] == 5
        server.wait_idle()  # while they are connected still
        assert server.get("/health") == {"status": "ok"}


def test_random_bytes_hurt_nothing(server):
    draw = random.Random(3)
    good = [GET, completion({"prompt": "a", "max_tokens": 1}), POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
    seen = set()
    for _ in range(2000):
        data = bytearray(b"".join(draw.choices(good, k=3)))
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(data))
            draw.choice([lambda: data.__setitem__(at, draw.randrange(256)), lambda: data.__delitem__(slice(at, at + 7)), lambda: data.insert(at, 10)])()
        with connected(server) as connection:
            send(connection, bytes(data))
            connection.shutdown(socket.SHUT_WR)
            seen.update(statuses(received(connection)))
    assert {200, 400, 404, 405} <= seen <= {100, 200, 400, 403, 404, 405, 411, 413, 414, 415, 417, 431, 501, 505}, seen
