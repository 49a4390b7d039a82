"""A LLaMA-like model trained step by step in eager PyTorch: the rival of `motet bench train`. Protocol: README.md."""

import sys

from rival import serve

REQUIRED = ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "intermediate_size", "vocab_size", "context",
            "batch_size", "threads", "learning_rate", "weight_decay", "seed")
DEFAULTS = {"tie_embeddings": False, "rope_base": 10000.0, "eps": 1e-5, "device": "cpu"}


def build(request):
    import torch
    import torch.nn.functional as F
    from torch import nn

    width, heads, kv_heads = request["hidden_size"], request["num_heads"], request["num_kv_heads"]
    if width % heads or heads % kv_heads:
        raise ValueError(f"heads do not divide: hidden_size {width}, num_heads {heads}, num_kv_heads {kv_heads}")
    device = torch.device(request["device"])
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"this PyTorch {torch.__version__} has no {device}, want one with CUDA or --device cpu")
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
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o_proj(out.transpose(1, 2).reshape(batch, tokens, -1))

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
            self.attention_norm, self.attention = Norm(), Attention()
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

    model = Llama().to(device)  # drawn on the CPU
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": request["weight_decay"]}, {"params": plain, "weight_decay": 0.0}],
        lr=request["learning_rate"])
    text = torch.randint(request["vocab_size"], (request["batch_size"], length + 1)).to(device)
    inputs, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def step():
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": loss.item()}  # waits for the device

    return {"parameters": sum(p.numel() for p in model.parameters())}, step


if __name__ == "__main__":
    sys.exit(serve(REQUIRED, DEFAULTS, build))
