// The page of motet serve: a chat that streams, and the attention over a text. Texts of the model are set as text, never
// as HTML.

const part = (id) => document.getElementById(id);
let conversation = [];
let key = "", running = null, model = null;

function complain(message) {
  part("problem").hidden = !message;
  part("problem").textContent = message || "";
}

async function ask(path, body, signal) {
  const headers = {"Content-Type": "application/json"};
  if (key) headers.Authorization = "Bearer " + key;
  const answer =
      await fetch(path, body ? {method: "POST", headers, body: JSON.stringify(body), signal} : {headers, signal});
  if (answer.ok) return answer;
  if (answer.status === 401) part("key-form").hidden = false;
  const text = await answer.text();
  let message = text;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    message = message || answer.statusText;
  }
  throw Object.assign(new Error(message), {status: answer.status});
}

// The data of server-sent events, one by one, up to [DONE]. What ends before it, a proxy may take for a whole answer.
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) throw new Error("The connection ended before the answer did.");
    const lines = (rest + value).split("\n\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") return;
      if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
    }
  }
}

const said = (role, text) => {
  const node = html("p", {class: role});
  node.textContent = text;
  part("talk").append(node);
  return node;
};

function request(question) {
  const common = {stream: true, temperature: Number(part("temperature").value), max_tokens: Number(part("length").value)};
  if (!model.chat) return ["/v1/completions", {...common, prompt: question}];
  return ["/v1/chat/completions", {...common, messages: [...conversation]}];
}

async function talk(question) {
  complain("");
  const talked = conversation;  // another one after "forget"
  talked.push({role: "user", content: question});
  const asked = said("user", question), answer = said("assistant open", "");
  part("talk").setAttribute("aria-busy", "true");  // told as a whole
  running = new AbortController();
  const length = part("length").value;
  part("send").disabled = true;
  part("stop").disabled = false;
  let text = "", reason = "";
  try {
    const [path, body] = request(question);
    for await (const event of events(await ask(path, body, running.signal))) {
      if (event.error) throw new Error(event.error.message);
      for (const choice of event.choices) {
        text += choice.text ?? choice.delta.content ?? "";
        reason = choice.finish_reason ?? reason;
      }
      answer.textContent = text;
    }
    if (!text) complain("The answer is empty.");
  } catch (error) {
    if (error.name !== "AbortError") complain(error.message);
  }
  answer.classList.remove("open");
  part("talk").setAttribute("aria-busy", "false");
  if (text) {
    talked.push({role: "assistant", content: text});
    if (reason === "length") answer.append(html("small", {}, `Cut at ${length} tokens.`));
  } else {  // nothing of it was said, and it can be asked again
    talked.pop();
    asked.remove();
    answer.remove();
    if (talked === conversation && !part("question").value) part("question").value = question;
  }
  running = null;
  part("send").disabled = false;
  part("stop").disabled = true;
}

async function see(text, wanted) {
  part("draw").disabled = true;
  try {
    const drawn = await (await ask("/motet/attention", {text})).json();
    mechanisms.splice(0, mechanisms.length, ...drawn.mechanisms);
    Object.assign(data, drawn, {mechanisms});
    repaints.length = 0;
    drawAttention(part("attention"));
    if (data.tokens_cut) complain(`Drawn are the first ${data.tokens_cut} tokens; more would make too large a page.`);
  } catch (error) {
    if (wanted) complain(error.message);  // else it is the text that the page begins with
  }
  part("draw").disabled = false;
}

async function begin() {
  complain("");
  try {
    model = await (await ask("/motet/model")).json();
  } catch (error) {
    if (error.status === 503) setTimeout(begin, 1000);  // the model is being loaded
    return complain(error.message);
  }
  part("key-form").hidden = true;
  part("length").value = Math.min(part("length").value, Math.floor(model.context / 2));
  document.title = model.name + " – motet";
  part("name").textContent = model.name;
  part("mechanism").textContent = model.mechanism;
  const facts = [
    ["Parameters", quantity(model.parameters)], ["Layers", model.layers], ["Heads", model.heads],
    ["Context", whole(model.context) + " tokens"], ["Keys of a token", whole(model.token_bytes) + " bytes"]
  ];
  part("facts").replaceChildren(
      ...facts.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, String(value)))));
  if (!model.chat) {
    part("talk-title").textContent = "Continue a text";
    part("question").placeholder = "The beginning of a text";
  }
  see(part("text").value, false);
}

part("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = part("question").value;
  if (!question || running || !model) return;
  part("question").value = "";
  talk(question);
});
part("question").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  part("ask").requestSubmit();
});
part("stop").addEventListener("click", () => running && running.abort());
part("forget").addEventListener("click", () => {
  if (running) running.abort();
  conversation = [];
  part("talk").replaceChildren();
});
part("see").addEventListener("submit", (event) => {
  event.preventDefault();
  complain("");
  see(part("text").value, true);
});
part("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = part("key").value;
  begin();
});
begin();
