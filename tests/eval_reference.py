"""Multiple choice as Hugging Face transformers computes it, with the conventions of lm-evaluation-harness.

usage: eval_reference.py FOLDER TASK FILE OURS [--limit N] [--dtype float64] [--threads N]

OURS is what `motet eval TASK -m FOLDER FILE --limit N --items OURS` wrote. Prints in how many items the chosen endings
differ, and by how much the log-likelihoods do.
"""
import argparse
import json
import pathlib
import sys


def questions(task, path, limit):
    """(contexts, endings, gold) of each item; one context stands for all."""
    text = pathlib.Path(path).read_text(encoding="utf-8")
    if task == "hellaswag":  # six lines an item
        lines = text.split("\n")
        items = [lines[i : i + 6] for i in range(0, len(lines) - 5, 6)]
        return [([i[0]], [" " + e for e in i[2:]], int(i[1])) for i in items[:limit]]
    out = []
    for record in map(json.loads, text.splitlines()[:limit]):
        if "context_options" in record:
            out.append((record["context_options"], [" " + record["continuation"]] * 2, record["gold"]))
        elif "sentence_good" in record:
            out.append(([""], [" " + record["sentence_good"], " " + record["sentence_bad"]], 0))
        elif "continuation" in record:
            out.append(([record["context"]], [" " + record["continuation"]], 0))
        else:
            after = {"arc_easy": "\nAnswer:", "arc_challenge": "\nAnswer:", "piqa": "Answer:"}.get(task, "")
            out.append(([record["query"] + after], [" " + c for c in record["choices"]], record["gold"]))
    return out


def encoded(tokenizer, context, ending, prefix):
    """Tokens of context and ending, and how many of them are the ending's: _encode_pair of the harness."""
    ids = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    if not context:
        return [prefix] + ids(ending), len(ids(ending))
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, ending = context[:-spaces], context[-spaces:] + ending
    whole, start = ids(context + ending), len(ids(context))
    return whole, len(whole) - start


def scores(model, tokenizer, question, limit):
    """(log-likelihood, whether each token is the likeliest) of each ending; all endings in one padded batch."""
    import torch

    contexts, endings, _ = question
    prefix = model.config.bos_token_id if model.config.bos_token_id is not None else model.config.eos_token_id
    pairs = [encoded(tokenizer, contexts[i % len(contexts)], ending, prefix) for i, ending in enumerate(endings)]
    pairs = [(tokens[-(limit + 1) :], count) for tokens, count in pairs]
    longest = max(len(tokens) for tokens, _ in pairs) - 1
    ids = torch.tensor([tokens[:-1] + [0] * (longest + 1 - len(tokens)) for tokens, _ in pairs])
    with torch.no_grad():
        hidden = model.model(ids).last_hidden_state
        out = []
        for row, (tokens, count) in zip(hidden, pairs, strict=True):
            logits = model.lm_head(row[len(tokens) - 1 - count : len(tokens) - 1]).log_softmax(-1)
            wanted = torch.tensor(tokens[-count:])
            likelihood = logits.gather(1, wanted[:, None]).double().sum().item()
            out.append((likelihood, bool((logits.argmax(-1) == wanted).all())))
    return out


def loaded(folder, dtype="float32"):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    return model, AutoTokenizer.from_pretrained(folder)


def reference(folder, task, path, limit, dtype="float32", kept=None):
    """One record an item, as in the files of `motet eval --items`; those in the file `kept` are taken from it."""
    model, tokenizer = loaded(folder, dtype)
    out = json.loads(kept.read_text()) if kept and kept.exists() else []
    for number, question in list(enumerate(questions(task, path, limit)))[len(out) :]:
        found = scores(model, tokenizer, question, model.config.max_position_embeddings)
        out.append({"item": number, "log_likelihood": [s[0] for s in found], "greedy": [s[1] for s in found]})
        if number % 20 == 19:
            print(f"{task}: {number + 1} items", file=sys.stderr, flush=True)
            if kept:
                kept.write_text(json.dumps(out))
    return out


def argmax(values):
    return values.index(max(values))


def differences(question, theirs, ours):
    """What differs: names of "chosen", "chosen by length", "greedy"; and the largest difference of log-likelihoods."""
    lengths = [len(ending.removeprefix(" ").encode()) for ending in question[1]]
    found = []
    if argmax(theirs["log_likelihood"]) != ours["chosen"]:
        found.append("chosen")
    if argmax([x / n for x, n in zip(theirs["log_likelihood"], lengths, strict=True)]) != ours["chosen_by_length"]:
        found.append("chosen by length")
    if theirs["greedy"] != ours["greedy"]:
        found.append("greedy")
    pairs = zip(theirs["log_likelihood"], ours["log_likelihood"], strict=True)
    return found, max(abs(a - b) / max(1, abs(a)) for a, b in pairs)


def read_items(path):
    """The items of a file of `motet eval --items`, in the order of the task."""
    records = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()][1:]
    return sorted(records, key=lambda record: record["item"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "task", "file", "ours"):
        parser.add_argument(name)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", help="keep what transformers computed, and use it when it is there")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(given.threads)
    kept = pathlib.Path(given.save) if given.save else None
    theirs = reference(given.folder, given.task, given.file, given.limit, given.dtype, kept)
    asked = questions(given.task, given.file, given.limit)
    ours = read_items(given.ours)
    assert len(asked) == len(theirs) == len(ours), (len(asked), len(theirs), len(ours))
    compared = [differences(*each) for each in zip(asked, theirs, ours, strict=True)]
    for number, (found, error) in enumerate(compared):
        if found:
            print(f"item {number}: {', '.join(found)}; {theirs[number]['log_likelihood']} here {ours[number]['log_likelihood']}")
    differing = sum(bool(found) for found, _ in compared)
    print(f"{given.task}: {differing} of {len(ours)} items differ; log-likelihoods to {max(e for _, e in compared):.2g}")


if __name__ == "__main__":
    main()
