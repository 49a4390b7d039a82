"""A running `motet serve` for tests, and its folder of a model."""
import contextlib
import http.client
import json
import shutil
import signal
import subprocess
import time

from conftest import FEW_WINDOWS, MOTET, ROOT, environment, last_checkpoint, run

# What prints every bit of an answer: texts with each token's probability, and the nats of a text by position.
ANSWERS = (
    ["generate", "-p", "Licensed to", "-n", "40", "--temp", "0", "-o", "json", "--logprobs", "5", "--ignore-eos"],
    ["generate", "-p", "Licensed to", "-n", "8", "--samples", "3", "--seed", "1", "--cache-type", "int8", "-o", "json", "--logprobs", "0"],
    ["eval", "--json", "--positions", "4", ROOT / "LICENSE"],
)
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"


def small_model(folder, *flags, context=512, tokenizer="bytes"):
    """A model of bytes, or of a tokenizer's file, with a chat template, hardly trained."""
    sizes = "--hidden-size 32 --num-layers 2 --num-heads 2 --batch-size 1 -t 1 --steps 2".split() + ["--ctx-size", context, *FEW_WINDOWS]
    done = run("train", *sizes, "--tokenizer", tokenizer, "--set", "model.initializer_range=0.3", *flags, "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    model = folder / "small"
    shutil.copytree(last_checkpoint(folder / "run"), model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    return model


class Server:
    def __init__(self, process, port):
        self.process, self.port, self.url = process, port, f"http://127.0.0.1:{port}"
        self.code = 0  # with which it must end

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, {"Content-Type": "application/json"} | (headers or {}))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def post(self, path, body, status=200, **headers):
        got, _, text = self.ask("POST", path, body, headers)
        assert got == status, text
        return json.loads(text)

    def get(self, path, status=200):
        got, _, text = self.ask("GET", path)
        assert got == status, text
        return json.loads(text)

    def metrics(self):
        lines = self.ask("GET", "/metrics")[2].decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def wait_idle(self, seconds=60):
        """Until nothing runs or waits any more."""
        end = time.monotonic() + seconds
        while True:
            now = self.metrics()
            if now["motet:num_requests_running"] == now["motet:num_requests_waiting"] == 0:
                return now
            assert time.monotonic() < end, now
            time.sleep(0.02)


@contextlib.contextmanager
def serving(model, *flags, **variables):
    """Ends with SIGTERM, if nothing did before, and with server.code."""
    command = [MOTET, "serve", "-m", str(model), "--port", "0", *map(str, flags)]
    variables = {"MOTET_LOG": "warn"} | variables  # nobody reads its lines while it runs
    process = subprocess.Popen(command, cwd=ROOT, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("http://"), process.stderr.read()
        server = Server(process, int(line.rsplit(":", 1)[1]))
        end = time.monotonic() + 120
        while server.ask("GET", "/health")[0] != 200:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.02)
        yield server
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == server.code, process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close(), process.stderr.close()
