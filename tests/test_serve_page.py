"""The page of `motet serve` in a browser without a screen: an answer streams in, pictures are drawn, text stays text."""
import contextlib
import json
import os
import shutil
import subprocess
import time

import pytest
from serving import serving, small_model

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(not BROWSER, reason="no chromium-headless-shell is installed")


class Page:
    """A page of a browser that is asked through a pipe (--remote-debugging-pipe): messages end with a zero."""

    def __init__(self, write, read, url):
        self.write, self.read, self.number, self.rest, self.events = write, read, 0, b"", []
        target = self.ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        self.session = None
        self.session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.ask(domain + ".enable", {})
        self.ask("Page.navigate", {"url": url})

    def ask(self, method, parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                self.rest += os.read(self.read, 1 << 16)
            line, _, self.rest = self.rest.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def value(self, expression):
        result = self.ask("Runtime.evaluate", {"expression": expression, "awaitPromise": True, "returnByValue": True})
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression, seconds=30):
        end = time.monotonic() + seconds
        while not self.value(f"(() => {{ try {{ return {expression} }} catch {{ return false }} }})()"):  # not loaded yet
            assert time.monotonic() < end, (expression, self.value("document.body.innerText"))
            time.sleep(0.05)

    def complaints(self):
        wrong = {"Runtime.exceptionThrown", "Log.entryAdded"}
        return [event for event in self.events if event.get("method") in wrong]


@contextlib.contextmanager
def browsing(url):
    ours, theirs = os.pipe(), os.pipe()  # (read, write): what we say, what it says

    def as_three_and_four():
        low, high = os.dup(ours[0]), os.dup(theirs[1])
        os.dup2(low, 3), os.dup2(high, 4)

    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
    process = subprocess.Popen(command, preexec_fn=as_three_and_four, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Page(ours[1], theirs[0], url)
    finally:
        process.kill()
        process.wait()
        for end in (*ours, *theirs):
            os.close(end)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("page"), "--mechanism", "dcmha")


def test_an_answer_streams_in_and_pictures_differ(model):
    with serving(model) as server, browsing(server.url) as page:
        page.until("document.querySelectorAll('#attention .map canvas').length == 4")  # two heads, before and after
        kinds = page.value("[...document.querySelectorAll('#attention h3')].map((h) => h.firstChild.textContent)")
        assert kinds == ["Before mixing", "After mixing"]
        pictures = page.value("[...document.querySelectorAll('#attention .map canvas')].map((c) => c.toDataURL())")
        assert len(pictures) == 4 and len(set(pictures)) == 4
        page.value("""
            window.lengths = new Set();
            new MutationObserver(() => lengths.add(document.querySelector('.assistant')?.textContent.length))
                .observe(document.getElementById('talk'), {childList: true, characterData: true, subtree: true});
            document.getElementById('length').value = 60;
            document.getElementById('question').value = 'Hello';
            document.getElementById('ask').requestSubmit();""")
        page.until("document.querySelector('.assistant') && !document.querySelector('.assistant.open')")
        assert page.value("lengths.size") > 5
        assert page.value("document.querySelector('.user').textContent") == "Hello"
        assert page.complaints() == []


def test_what_the_model_says_is_never_html(model, tmp_path):
    with serving(model) as server, browsing(server.url) as page:
        page.until("document.getElementById('name').textContent === 'small'")
        page.value("""
            window.fetch = async () => new Response(
                'data: ' + JSON.stringify({choices: [{delta: {content: '<script>window.hurt = 1</script><b>bold</b>'}}]}) + '\\n\\n');
            document.getElementById('question').value = '<img src=x onerror="window.hurt = 1">';
            document.getElementById('ask').requestSubmit();""")
        page.until("document.querySelector('.assistant') && !document.querySelector('.assistant.open')")
        assert page.value("document.querySelector('.assistant').textContent") == "<script>window.hurt = 1</script><b>bold</b>"
        assert page.value("document.querySelectorAll('#talk b, #talk img, #talk script').length") == 0
        assert page.value("window.hurt === undefined")
        assert page.complaints() == []


def test_what_was_said_before_stop_stays(model):
    with serving(model) as server, browsing(server.url) as page:
        page.until("document.getElementById('name').textContent === 'small'")
        page.value("""
            window.asked = [];
            const some = new TextEncoder().encode('data: ' + JSON.stringify({choices: [{delta: {content: 'some'}}]}) + '\\n\\n');
            window.fetch = async (path, {body, signal}) => {
                asked.push(JSON.parse(body));
                return new Response(new ReadableStream({start(stream) {
                    stream.enqueue(some);  // and then nothing, until the page wants no more
                    signal.addEventListener('abort', () => stream.error(new DOMException('', 'AbortError')));
                }}));
            };
            window.say = (text) => {
                document.getElementById('question').value = text;
                document.getElementById('ask').requestSubmit();
            };
            say('first');""")
        page.until("document.querySelector('.assistant.open').textContent === 'some'")
        assert page.value("document.getElementById('send').disabled && !document.getElementById('stop').disabled")
        page.value("document.getElementById('stop').click()")
        page.until("!document.querySelector('.assistant.open')")
        assert page.value("!document.getElementById('send').disabled && document.getElementById('stop').disabled")
        assert page.value("document.querySelector('.assistant').textContent") == "some"
        page.value("say('second')")
        page.until("asked.length == 2")
        talk = [("user", "first"), ("assistant", "some"), ("user", "second")]
        assert page.value("asked[1].messages") == [{"role": role, "content": content} for role, content in talk]
        assert page.complaints() == []


def test_what_was_not_answered_can_be_asked_again(model):
    with serving(model) as server, browsing(server.url) as page:
        page.until("document.getElementById('name').textContent === 'small'")
        shown = "document.getElementById('problem').textContent"
        for answer, problem in [
            ("new Response(JSON.stringify({error: {message: 'busy'}}), {status: 429})", "busy"),
            ("new Response('data: [DONE]\\n\\n')", "The answer is empty."),
            ("new Response(': a comment\\n\\n')", "The connection ended before the answer did."),
        ]:
            page.value(f"""
                window.fetch = async () => {answer};
                document.getElementById('question').value = 'again';
                document.getElementById('ask').requestSubmit();""")
            page.until("!document.getElementById('send').disabled")
            assert page.value(shown) == problem
            assert page.value("document.querySelectorAll('#talk p').length") == 0
            assert page.value("document.getElementById('question').value") == "again"


def test_a_page_that_came_before_the_model_asks_again(model):
    with serving(model) as server, browsing(server.url) as page:
        page.until("document.getElementById('name').textContent === 'small'")
        page.value("""
            const real = window.fetch;
            window.times = 0;
            window.fetch = (...asked) => times++ ? real(...asked) : Promise.resolve(new Response('loading', {status: 503}));
            document.getElementById('name').textContent = '';
            document.getElementById('key-form').requestSubmit();""")
        page.until("document.getElementById('problem').textContent === 'loading'")
        page.until("document.getElementById('name').textContent === 'small'")
        assert page.value("document.getElementById('problem').hidden")


def test_a_key_is_asked_for_where_there_is_one(model, tmp_path):
    (tmp_path / "keys").write_text("first\n")
    with serving(model, "--api-key-file", tmp_path / "keys") as server, browsing(server.url) as page:
        page.until("!document.getElementById('key-form').hidden")
        page.value("document.getElementById('key').value = 'first'; document.getElementById('key-form').requestSubmit()")
        page.until("document.getElementById('name').textContent === 'small'")


def test_the_page_is_small_and_asks_nobody_else(model):
    with serving(model) as server:
        parts = {path: server.ask("GET", path) for path in ("/", "/page.css", "/page.js")}
        assert sum(len(body) for _, _, body in parts.values()) < 150_000
        for status, headers, body in parts.values():
            assert status == 200 and headers["Content-Security-Policy"].startswith("default-src 'self'")
            assert b"http://" not in body.replace(b"http://www.w3.org", b"") and b"https://" not in body
