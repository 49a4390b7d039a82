"""A LLaMA-like model trained step by step in PyTorch, eager or compiled: the rivals of `motet bench train`. Protocol: README.md."""

import sys

from rival import device_of, only, serve
from rival_attention import authors_compose, causal_softmax

REQUIRED = ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "intermediate_size", "vocab_size", "context",
            "batch_size", "threads", "learning_rate", "weight_decay", "seed")
DEFAULTS = {"tie_embeddings": False, "rope_base": 10000.0, "eps": 1e-5, "device": "cpu", "dtype": "float32",
            "compile": False, "attention": "sdpa", "backend": ""}
ATTENTIONS = ("sdpa", "authors_dcmha")
RANK = 2  # of DCMHA


def build(request):
    import torch
    import torch.nn.functional as F
    from torch import nn

    width, heads, kv_heads = request["hidden_size"], request["num_heads"], request["num_kv_heads"]
    if width % heads or heads % kv_heads:
        raise ValueError(f"heads do not divide: hidden_size {width}, num_heads {heads}, num_kv_heads {kv_heads}")
    for name, known in (("dtype", ("float32", "float64", "bfloat16")), ("attention", ATTENTIONS)):
        if request[name] not in known:
            raise ValueError(f"{name} is {request[name]!r}, want one of {', '.join(known)}")
    device = device_of(torch, request["device"])
    head_dim, inner, length = width // heads, request["intermediate_size"], request["context"]

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(width))

        def forward(self, x):
            return F.rms_norm(x, (width,), self.weight, request["eps"])

    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj = nn.Linear(width, heads * head_dim, bias=False)
            self.k_proj = nn.Linear(width, kv_heads * head_dim, bias=False)
            self.v_proj = nn.Linear(width, kv_heads * head_dim, bias=False)
            self.o_proj = nn.Linear(heads * head_dim, width, bias=False)

        def forward(self, x, cos, sin):
            batch, tokens, _ = x.shape
            q, k, v = (projection(x).view(batch, tokens, -1, head_dim).transpose(1, 2)
                       for projection in (self.q_proj, self.k_proj, self.v_proj))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            if kv_heads != heads:
                k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
            out = self.attend(x, q, k, v)
            return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, -1))

        def attend(self, _x, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    class AuthorsDcmha(Attention):
        """Heads composed before and after the softmax by maps of the layer's input; all queries in one chunk."""

        def __init__(self):
            super().__init__()
            inner = 2 * RANK * heads
            self.hidden = nn.Parameter(torch.empty(width, 4, inner))
            self.up = nn.Parameter(torch.empty(4, inner, 2 * RANK, heads))
            self.gate = nn.Parameter(torch.empty(width, 4, heads))

        def attend(self, x, q, k, v):
            rows = torch.einsum("btpk,pkrn->pbtrn", F.gelu(torch.einsum("btc,cpk->btpk", x, self.hidden)), self.up)
            down, up = F.rms_norm(rows[..., :RANK, :], (heads,), eps=1e-6), rows[..., RANK:, :]
            gate = torch.einsum("btc,cpn->pbtn", x, self.gate).tanh()
            branches = list(zip(down, up, gate))
            scores = authors_compose(torch, q @ k.transpose(-1, -2) * head_dim**-0.5, *branches[:2])
            return authors_compose(torch, causal_softmax(torch, scores, 0), *branches[2:]) @ v

    class FeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj = nn.Linear(width, inner, bias=False)
            self.up_proj = nn.Linear(width, inner, bias=False)
            self.down_proj = nn.Linear(inner, width, bias=False)

        def forward(self, x):
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm = Norm()
            self.attention = Attention() if request["attention"] == "sdpa" else AuthorsDcmha()
            self.feed_forward_norm, self.feed_forward = Norm(), FeedForward()

        def forward(self, x, cos, sin):
            x = x + self.attention(self.attention_norm(x), cos, sin)
            return x + self.feed_forward(self.feed_forward_norm(x))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(request["vocab_size"], width)
            self.blocks = nn.ModuleList(Block() for _ in range(request["num_layers"]))
            self.norm = Norm()
            self.lm_head = nn.Linear(width, request["vocab_size"], bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)
            if request["tie_embeddings"]:
                self.lm_head.weight = self.embedding.weight
            rates = request["rope_base"] ** (-torch.arange(0, head_dim, 2) / head_dim)
            angles = torch.outer(torch.arange(length), rates)
            angles = torch.cat((angles, angles), dim=-1)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)

        def forward(self, ids):
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            return self.lm_head(self.norm(x))

    narrow = request["dtype"] == "bfloat16"  # autocast over float32
    model = Llama().to(device, torch.float64 if request["dtype"] == "float64" else torch.float32)  # drawn on the CPU
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": request["weight_decay"]}, {"params": plain, "weight_decay": 0.0}],
        lr=request["learning_rate"], fused=device.type == "cuda")
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = narrow  # as nanoGPT
    text = torch.randint(request["vocab_size"], (request["batch_size"], length + 1)).to(device)
    inputs, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def loss_of(inputs, targets):
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    if request["compile"]:
        loss_of = torch.compile(loss_of, dynamic=False)

    def step():
        with only(torch, request["backend"]), torch.autocast(device.type, torch.bfloat16, enabled=narrow):
            loss = loss_of(inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss.item()}  # waits for the device

    return {"parameters": sum(p.numel() for p in model.parameters())}, step


if __name__ == "__main__":
    sys.exit(serve(REQUIRED, DEFAULTS, build))
