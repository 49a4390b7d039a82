#!/usr/bin/env python3
"""Records tests/golden/curves: what 30 steps of training give, for every mechanism and block.

    .venv/bin/python scripts/golden_curves.py            # writes the files anew
    .venv/bin/python scripts/golden_curves.py --check    # recomputes them and compares

Nothing here comes from the program: the models are a few lines of eager PyTorch in float64, the optimiser is
torch.optim.AdamW, the learning rate, the clipping and the order of the batches are written down once more from what
docs/training.md promises. A curve is NAME.json (sizes, options, tokens; loss, learning rate and gradient norm of each
step; validation losses) and NAME.safetensors (the first parameters). optimizers.json is what torch.optim makes of five parameters
whose gradients are written down as sines, schedules.json what its schedulers make of a learning rate.
"""

import argparse
import json
import math
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "curves"
WIDTH, LAYERS, HEADS, VOCABULARY, CONTEXT = 16, 2, 4, 13, 16
TRAIN = {"steps": 30, "context": CONTEXT, "batch_size": 3, "learning_rate": 0.005, "final_learning_rate": 0.2, "warmup": 0.2,
         "weight_decay": 0.5, "beta1": 0.85, "beta2": 0.97, "epsilon": 1e-7, "clip": 4.0, "data_seed": 5, "eval_every": 10}
CURVES = {
    "mha": ({}, {"mechanism": "softmax"}),
    "mha_parallel": ({"block": "parallel"}, {"mechanism": "softmax", "num_kv_heads": 2, "bias": True}),
    "key_size": ({}, {"mechanism": "key_size", "key_dim": 8}),
    "talking_heads": ({}, {"mechanism": "talking_heads", "dynamic": "both"}),
    "dcmha": ({}, {"mechanism": "dcmha"}),
    "dcmha_layer_norm": ({"block": "sequential_layer_norm", "tie_embeddings": True},
                         {"mechanism": "dcmha", "static": True, "qk_norm": True}),
    "differential_v1": ({}, {"mechanism": "differential", "version": "v1"}),
    "differential_v2": ({}, {"mechanism": "differential", "version": "v2"}),
    "coca": ({}, {"mechanism": "coca"}),
}
# What weight decay leaves alone: vectors, the embedding, and what mixes heads without looking at the tokens.
NO_DECAY = ("embed_tokens", "compose_gate", "compose_static", "lambda", ".logits_mix", ".weights_mix")


# ---- the order of the batches: docs/data.md ----------------------------------------------------------------------


class MersenneTwister:
    """mt19937_64 as the C++ standard writes it."""

    def __init__(self, seed):
        self.state = [seed]
        for i in range(1, 312):
            last = self.state[-1]
            self.state.append((6364136223846793005 * (last ^ (last >> 62)) + i) % 2**64)
        self.place = 312

    def __call__(self):
        if self.place == 312:
            for i in range(312):
                x = (self.state[i] & 0xFFFFFFFF80000000) | (self.state[(i + 1) % 312] & 0x7FFFFFFF)
                self.state[i] = self.state[(i + 156) % 312] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0)
            self.place = 0
        x = self.state[self.place]
        self.place += 1
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return x ^ (x >> 43)

    def below(self, bound):
        """Lemire's multiplication with rejection."""
        while True:
            product = self() * bound
            if product % 2**64 >= (2**64 - bound) % bound:
                return product >> 64


def pass_seed(seed, number):
    z = (seed + (number + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def windows(count):
    """Starts of the training windows, without end."""
    number = 0
    while True:
        random = MersenneTwister(pass_seed(TRAIN["data_seed"], number))
        start = random.below(min(CONTEXT, count - 1 - CONTEXT + 1))
        order = list(range((count - 1 - start) // CONTEXT))
        for i in range(len(order), 1, -1):
            j = random.below(i)
            order[i - 1], order[j] = order[j], order[i - 1]
        yield from (start + CONTEXT * window for window in order)
        number += 1


# ---- the models --------------------------------------------------------------------------------------------------


def rotated(x, base=10000.0):
    """Rotary embedding of [B,T,H,D], dimension j with j + D/2."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * base ** (-torch.arange(half, dtype=x.dtype) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def rms(x, weight=None, eps=1e-5):
    normed = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return normed if weight is None else normed * weight


def softmax_of(logits):
    """Causal softmax over the last axis of [B,H,T,S]."""
    length = logits.shape[-1]
    return logits.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf).softmax(-1)


def dcmha_mix(a, generated, static, place):
    """a [B,N,T,S] by what the tokens say: queries are branch 2 place, keys branch 2 place + 1."""
    out = a if static is None else a + torch.einsum("bnts,nm->bmts", a, static[0])
    for branch, token in ((2 * place, "t"), (2 * place + 1, "s")):
        down, up, gate = (part[:, :, branch] for part in generated)
        out = out + torch.einsum(f"bnts,b{token}n->bnts", a, gate)
        out = out + torch.einsum(f"bnts,b{token}rn,b{token}rm->bmts", a, down, up)
    return out


class Attention:
    """One layer's attention; `p` gives its parameters by name."""

    def __init__(self, options, layer, p):
        self.options, self.layer, self.p = options, layer, p

    def heads(self, x, name, count):
        bias = self.p(name + ".bias") if self.options.get("bias") else None
        return F.linear(x, self.p(name + ".weight"), bias).unflatten(-1, (count, -1))

    def __call__(self, x):
        out = getattr(self, self.options["mechanism"])(x)
        bias = self.p("o_proj.bias") if self.options.get("bias") else None
        return F.linear(out.flatten(2), self.p("o_proj.weight"), bias)

    def scores(self, q, k):
        k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
        return torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])

    @staticmethod
    def values(weights, v):
        return torch.einsum("bhts,bshe->bthe", weights, v.repeat_interleave(weights.shape[1] // v.shape[2], 2))

    def softmax(self, x):
        stored = self.options.get("num_kv_heads", HEADS)
        q, k, v = self.heads(x, "q_proj", HEADS), self.heads(x, "k_proj", stored), self.heads(x, "v_proj", stored)
        return self.values(softmax_of(self.scores(rotated(q), rotated(k))), v)

    key_size = softmax

    def talking_heads(self, x):
        q, k, v = (self.heads(x, name, HEADS) for name in ("q_proj", "k_proj", "v_proj"))

        def mix(a, kind):
            full = self.p(f"{kind}_mix")[None, None, None]
            full = full + torch.einsum("btc,cnm->btnm", x, self.p(f"query_{kind}_mix"))[:, :, None]
            full = full + torch.einsum("bsc,cnm->bsnm", x, self.p(f"key_{kind}_mix"))[:, None]
            return torch.einsum("bnts,btsnm->bmts", a, full)

        weights = softmax_of(mix(self.scores(rotated(q), rotated(k)), "logits"))
        return self.values(mix(weights, "weights"), v)

    def dcmha(self, x):
        q, k, v = (self.heads(x, name, HEADS) for name in ("q_proj", "k_proj", "v_proj"))
        if self.options.get("qk_norm"):
            q, k = rms(q, self.p("q_norm.weight"), 1e-6), rms(k, self.p("k_norm.weight"), 1e-6)
        hidden = F.gelu(torch.einsum("btc,cpk->btpk", x, self.p("compose_hidden")[:, 0]))
        rows = torch.einsum("btpk,pkrn->btprn", hidden, self.p("compose_up")[0])
        rank = rows.shape[3] // 2
        gate = torch.einsum("btc,cpn->btpn", x, self.p("compose_gate")).tanh()
        generated = (rms(rows[:, :, :, :rank], eps=1e-6), rows[:, :, :, rank:], gate)
        static = [self.p(f"compose_static_{place}") if self.options.get("static") else None for place in ("pre", "post")]
        weights = softmax_of(dcmha_mix(self.scores(rotated(q), rotated(k)), generated, static[0], 0))
        return self.values(dcmha_mix(weights, generated, static[1], 1), v)

    def differential(self, x):
        if self.options["version"] == "v2":
            q, k, v = self.heads(x, "q_proj", 2 * HEADS), self.heads(x, "k_proj", HEADS), self.heads(x, "v_proj", HEADS)
            weights = softmax_of(self.scores(rotated(q), rotated(k))).unflatten(1, (HEADS, 2))
            part = F.linear(x, self.p("lambda_proj.weight")).sigmoid().transpose(1, 2)[..., None]
            return self.values(weights[:, :, 0] - part * weights[:, :, 1], v)
        q, k, v = self.heads(x, "q_proj", HEADS), self.heads(x, "k_proj", HEADS), self.heads(x, "v_proj", HEADS // 2)
        weights = softmax_of(self.scores(rotated(q), rotated(k))).unflatten(1, (HEADS // 2, 2))
        first = 0.8 - 0.6 * math.exp(-0.3 * self.layer)
        part = (self.p("lambda_q1") @ self.p("lambda_k1")).exp() - (self.p("lambda_q2") @ self.p("lambda_k2")).exp() + first
        out = self.values(weights[:, :, 0] - part * weights[:, :, 1], v)
        return rms(out, self.p("subln.weight")) * (1 - first)

    def coca(self, x):
        q, t, v = (self.heads(x, name, HEADS) for name in ("q_proj", "t_proj", "v_proj"))
        half = q.shape[-1] // 2
        length = q[..., :half].square() + q[..., half:].square()
        tied = ((t[..., :half] + t[..., half:]) / 2).relu()
        q, k = (rotated(torch.cat([part, torch.zeros_like(part)], -1)) for part in (length, tied))
        return self.values(softmax_of(self.scores(q, k)), v)


def logits_of(parameters, model, attention, ids):
    block = model.get("block", "sequential")

    def norm(x, name):
        if block == "sequential":
            return rms(x, parameters[name + ".weight"])
        return F.layer_norm(x, (WIDTH,), parameters[name + ".weight"], parameters[name + ".bias"], 1e-5)

    def feed_forward(x, name):
        def linear(part, y):
            return F.linear(y, parameters[f"{name}.{part}.weight"], parameters.get(f"{name}.{part}.bias"))

        if block == "sequential":
            return linear("down_proj", F.silu(linear("gate_proj", x)) * linear("up_proj", x))
        return linear("down_proj", F.gelu(linear("up_proj", x)))

    x = parameters["model.embed_tokens.weight"][ids]
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        attended = Attention(attention, layer, lambda part: parameters[f"{name}self_attn.{part}"])(norm(x, name + "input_layernorm"))
        second = name + "post_attention_layernorm"
        if block == "parallel":
            x = x + attended + feed_forward(norm(x, second), name + "mlp")
        else:
            x = x + attended
            x = x + feed_forward(norm(x, second), name + "mlp")
    x = norm(x, "model.norm")
    return x @ parameters["model.embed_tokens.weight" if model.get("tie_embeddings") else "lm_head.weight"].T


# ---- first values and a run --------------------------------------------------------------------------------------


def shapes(model, attention):
    """Names and shapes of all parameters."""
    dim, inner, bias = WIDTH // HEADS, 24, attention.get("bias")
    gated = model.get("block", "sequential") == "sequential"
    mechanism, stored = attention["mechanism"], attention.get("num_kv_heads", HEADS)
    rows = {"q_proj": HEADS * dim, "k_proj": stored * dim, "v_proj": stored * dim}
    extra = {}
    if mechanism == "key_size":
        rows |= {"q_proj": HEADS * attention["key_dim"], "k_proj": HEADS * attention["key_dim"]}
    if mechanism == "coca":
        rows["t_proj"] = rows.pop("k_proj")
    if mechanism == "talking_heads":
        for kind in ("logits", "weights"):
            extra |= {f"{kind}_mix": (HEADS, HEADS), f"query_{kind}_mix": (WIDTH, HEADS, HEADS), f"key_{kind}_mix": (WIDTH, HEADS, HEADS)}
    if mechanism == "dcmha":
        hidden = 2 * 2 * HEADS
        extra |= {"compose_hidden": (WIDTH, 1, 4, hidden), "compose_up": (1, 4, hidden, 4, HEADS), "compose_gate": (WIDTH, 4, HEADS)}
        if attention.get("static"):
            extra |= {f"compose_static_{place}": (1, HEADS, HEADS) for place in ("pre", "post")}
        if attention.get("qk_norm"):
            extra |= {"q_norm.weight": (dim,), "k_norm.weight": (dim,)}
    if mechanism == "differential" and attention["version"] == "v1":
        extra |= {f"lambda_{part}": (dim,) for part in ("q1", "k1", "q2", "k2")} | {"subln.weight": (2 * dim,)}
    if mechanism == "differential" and attention["version"] == "v2":
        rows["q_proj"] *= 2
        extra["lambda_proj.weight"] = (HEADS, WIDTH)
    norm_parts = ("weight",) if gated else ("weight", "bias")
    out = {"model.embed_tokens.weight": (VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        attention_shapes = {f"{part}.weight": (n, WIDTH) for part, n in rows.items()} | {"o_proj.weight": (WIDTH, HEADS * dim)}
        if bias:
            attention_shapes |= {part.replace("weight", "bias"): shape[:1] for part, shape in attention_shapes.items()}
        out |= {f"{name}self_attn.{part}": shape for part, shape in (attention_shapes | extra).items()}
        out |= {f"{name}{norm}.{part}": (WIDTH,) for norm in ("input_layernorm", "post_attention_layernorm") for part in norm_parts}
        mlp = {"up_proj": (inner, WIDTH), "down_proj": (WIDTH, inner)} | ({"gate_proj": (inner, WIDTH)} if gated else {})
        out |= {f"{name}mlp.{part}.weight": shape for part, shape in mlp.items()}
        if not gated:
            out |= {f"{name}mlp.{part}.bias": shape[:1] for part, shape in mlp.items()}
    out |= {f"model.norm.{part}": (WIDTH,) for part in norm_parts}
    if not model.get("tie_embeddings"):
        out["lm_head.weight"] = (VOCABULARY, WIDTH)
    return out


def first_values(model, attention, seed):
    """Large enough that every part of a layer matters; numbers of float32. DCMHA's up rows are smaller: at 0.3 a change in
    the last bit grows 1e9 times in 30 steps, here 1e3 times."""
    random = torch.Generator().manual_seed(seed)
    values = {}
    for name, shape in shapes(model, attention).items():
        t = torch.randn(shape, generator=random) * 0.3
        if len(shape) == 1 and "norm" in name + "subln" and name.endswith("weight"):
            t = t / 3 + 1
        if name.endswith((".logits_mix", ".weights_mix")):
            t = t + torch.eye(HEADS)
        if name.endswith("compose_up"):
            t[..., 2:, :] *= 0.2
        values[name] = t
    return values


def tokens(count, seed):
    """A text that can be learned in part: the next token is often the one three places back, plus one."""
    random, out = MersenneTwister(seed), [1, 2, 3]
    while len(out) < count:
        out.append((out[-3] + 1) % VOCABULARY if random.below(4) else random.below(VOCABULARY))
    return out


def learning_rate(step):
    at, warmup, last = step / TRAIN["steps"], TRAIN["warmup"], TRAIN["final_learning_rate"]
    if at < warmup:
        return TRAIN["learning_rate"] * at / warmup
    return TRAIN["learning_rate"] * (last + (1 - last) * (1 + math.cos(math.pi * (at - warmup) / (1 - warmup))) / 2)


def train(model, attention, values, text, held):
    parameters = {name: value.double().clone().requires_grad_() for name, value in values.items()}
    decays = {name: p.dim() >= 2 and not any(part in name for part in NO_DECAY) for name, p in parameters.items()}
    groups = [{"params": [p for name, p in parameters.items() if decays[name] == on], "weight_decay": TRAIN["weight_decay"] * on}
              for on in (True, False)]
    adamw = torch.optim.AdamW(groups, lr=1.0, betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["epsilon"])

    def loss_of(sequence, starts):
        ids = torch.tensor([sequence[start : start + CONTEXT + 1] for start in starts])
        logits = logits_of(parameters, model, attention, ids[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    steps, evaluations, order = [], [], windows(len(text))
    for step in range(1, TRAIN["steps"] + 1):
        for group in adamw.param_groups:
            group["lr"] = learning_rate(step)
        loss = loss_of(text, [next(order) for _ in range(TRAIN["batch_size"])])
        adamw.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), TRAIN["clip"])
        adamw.step()
        steps.append({"loss": loss.item(), "learning_rate": learning_rate(step), "gradient_norm": norm.item()})
        if step % TRAIN["eval_every"] == 0:
            with torch.no_grad():
                evaluations.append({"step": step, "loss": loss_of(held, range(0, len(held) - CONTEXT, CONTEXT)).item()})
    return {"steps": steps, "evaluations": evaluations}


def optimizers():
    """20 steps of each: parameter p[j] begins at cos(j), its gradient in step s (from 1) is sin(s (j + 1)) / s."""
    options = {"learning_rate": 0.02, "muon_learning_rate": 0.05, "weight_decay": 0.3, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-6,
               "momentum": 0.9, "steps": 20}
    shapes = {"lm_head.weight": (5, 4), "model.norm.weight": (4,), "model.embed_tokens.weight": (5, 4),
              "model.layers.0.mlp.up_proj.weight": (11, 4), "model.layers.1.mlp.down_proj.weight": (4, 11)}
    betas = {"betas": (options["beta1"], options["beta2"]), "eps": options["epsilon"]}
    kinds = {"adamw": (torch.optim.AdamW, betas), "adam": (torch.optim.Adam, betas), "sgd": (torch.optim.SGD, {"momentum": options["momentum"]})}
    made = {}
    for kind in (*kinds, "muon"):
        values = {name: torch.arange(math.prod(shape), dtype=torch.float64).cos().view(shape).requires_grad_() for name, shape in shapes.items()}
        inside = [p for name, p in values.items() if ".layers." in name]
        others = [values["model.norm.weight"], values["model.embed_tokens.weight"]]
        make, more = kinds["adamw" if kind == "muon" else kind]
        decaying = [values["lm_head.weight"], *([] if kind == "muon" else inside)]
        groups = [{"params": decaying, "weight_decay": options["weight_decay"]}, {"params": others, "weight_decay": 0}]
        running = [make(groups, lr=options["learning_rate"], **more)]
        if kind == "muon":
            running.append(torch.optim.Muon(inside, lr=options["muon_learning_rate"], weight_decay=options["weight_decay"], momentum=options["momentum"]))
        for step in range(1, options["steps"] + 1):
            for p in values.values():
                p.grad = (step * (torch.arange(p.numel(), dtype=torch.float64) + 1)).sin().view(p.shape) / step
            for one in running:
                one.step()
        made[kind] = {name: p.detach().flatten().tolist() for name, p in values.items()}
    return options | {"parameters": made}


def schedules():
    """The learning rate of each of N steps as a part of its peak, by torch's schedulers; a warmup is W steps."""
    from torch.optim import lr_scheduler as by

    def factors(steps, warmup, parts):
        """parts: (first step, scheduler of an optimiser), the first of which follows the warmup."""
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        rise = [(1, lambda o: by.LinearLR(o, start_factor=1 / warmup, total_iters=warmup - 1))] if warmup > 1 else []
        made = [*rise, *((max(first, 1), scheduler) for first, scheduler in parts)]
        schedule = by.SequentialLR(optimizer, [scheduler(optimizer) for _, scheduler in made], [first - 1 for first, _ in made[1:]])
        rates = []
        for _ in range(steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return rates

    n, w, last, fall = 40, 8, 0.1, 10
    stays = lambda o: by.ConstantLR(o, factor=1.0, total_iters=1)  # noqa: E731
    table = [
        ({"schedule": "cosine", "warmup": 0.2}, [(w, lambda o: by.CosineAnnealingLR(o, n - w, eta_min=last))]),
        ({"schedule": "linear", "warmup": w}, [(w, lambda o: by.LinearLR(o, 1.0, last, total_iters=n - w))]),
        ({"schedule": "constant", "warmup": 0.2}, [(w, stays)]),
        ({"schedule": "inverse_sqrt", "warmup": 0.2}, [(w, lambda o: by.LambdaLR(o, lambda t: math.sqrt(w / (t + w))))]),
        ({"schedule": "wsd", "warmup": 0.2, "decay": 0.25}, [(w, stays), (n - fall, lambda o: by.LinearLR(o, 1.0, last, total_iters=fall))]),
        ({"schedule": "wsd", "warmup": w, "decay": fall, "decay_shape": "cosine"},
         [(w, stays), (n - fall, lambda o: by.CosineAnnealingLR(o, fall, eta_min=last))]),
        ({"schedule": "wsd", "warmup": 0.2, "decay": fall, "decay_shape": "sqrt"},
         [(w, stays), (n - fall, lambda o: by.LambdaLR(o, lambda t: last + (1 - last) * (1 - math.sqrt(t / fall))))]),
    ]
    return [{"options": options | {"final_learning_rate": last}, "steps": n, "factors": factors(n, w, parts)} for options, parts in table]


def check(name, made, recorded):
    """The largest relative difference; exits when it is more than another version of PyTorch explains."""
    pairs = [(a[key], b[key]) for kind in ("steps", "evaluations") for a, b in zip(made[kind], recorded[kind], strict=True) for key in a]
    worst = max(abs(a - b) / max(abs(b), 1e-30) for a, b in pairs)
    if worst > 1e-10:
        sys.exit(f"golden_curves: {name}: recomputed values differ by {worst:.1e}, want at most 1e-10")
    print(f"{name}: {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(description="Records or checks tests/golden/curves.")
    parser.add_argument("--check", action="store_true", help="recompute the recorded curves and compare")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    text, held = tokens(101, 1), tokens(70, 2)
    for file, made in (("optimizers.json", optimizers()), ("schedules.json", schedules())):
        if not arguments.check:
            (FOLDER / file).write_text(json.dumps(made, indent=1) + "\n")
        elif made != json.loads((FOLDER / file).read_text()):
            sys.exit(f"golden_curves: {file} differs from what is recomputed")
    for seed, (name, (model, attention)) in enumerate(CURVES.items()):
        sizes = {"hidden_size": WIDTH, "num_layers": LAYERS, "intermediate_size": 24, **model}
        weights = FOLDER / f"{name}.safetensors"
        if arguments.check:
            check(name, train(model, attention, load_file(weights), text, held), json.loads((FOLDER / f"{name}.json").read_text()))
            continue
        values = first_values(model, attention, seed)
        save_file(values, weights)
        curve = {"model": sizes, "attention": {"num_heads": HEADS, **attention}, "train": TRAIN, "vocabulary": VOCABULARY,
                 "tokens": text, "validation_tokens": held, **train(model, attention, values, text, held)}
        (FOLDER / f"{name}.json").write_text(json.dumps(curve, indent=1) + "\n")
        print(name, curve["steps"][0]["loss"], curve["steps"][-1]["loss"], curve["evaluations"][-1]["loss"])


if __name__ == "__main__":
    main()
