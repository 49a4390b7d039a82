"""Rotary embedding, RMS norm and position biases, as motet/layers and motet/mechanisms have them."""
import math

import torch
from torch import nn


def wide_dtype(x):
    """At least float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def rms_norm(x, eps):
    """x / sqrt(mean of x^2 + eps) over the last axis, computed in at least float32, in x's dtype. arXiv:1910.07467."""
    wide = x.to(wide_dtype(x))
    return (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


class RMSNorm(nn.Module):
    """RMS norm over the last axis; the normed input is cast to its dtype before it meets the weight [width], if any."""

    def __init__(self, width, eps, affine=True, device=None, dtype=None):
        super().__init__()
        self.eps = eps
        weight = nn.Parameter(torch.ones(width, device=device, dtype=dtype)) if affine else None
        self.register_parameter("weight", weight)

    def forward(self, x):
        normed = rms_norm(x, self.eps)
        return normed if self.weight is None else normed * self.weight


def head_norm(module):
    """The norm of each head's output that a mechanism's options name, or None."""
    o = module.options
    if o["head_norm"] == "none":
        return None
    return RMSNorm(module.value_dim, o["head_norm_eps"], o["head_norm"] == "affine", **module._factory)


class Rotary:
    """Rotary embedding: pair j of the first `dims` numbers turns by position * base^(-2j/dims). arXiv:2104.09864."""

    def __init__(self, owner, options, key_dim, max_position):
        self.options = options
        self.trained = options["rope_trained_length"] or max_position
        fraction = options["rope_fraction"]
        self.dims = int(key_dim * fraction)
        if fraction < 1:
            self.dims -= self.dims % 2
        self._check(owner, key_dim)

    def _check(self, owner, key_dim):
        o, scaling = self.options, self.options["rope_scaling"]
        if self.dims % 2:
            raise ValueError(f"{owner}: a head is {key_dim} wide, want an even width or rope_fraction 0")
        if 0 < self.dims <= 2 and scaling in ("ntk", "dynamic"):
            raise ValueError(f"{owner}: {self.dims} dimensions rotate, want more than 2 with rope_scaling {scaling!r}")
        if scaling == "llama3" and o["rope_high_freq_factor"] <= o["rope_low_freq_factor"]:
            raise ValueError(
                f"{owner}: rope_high_freq_factor is {o['rope_high_freq_factor']}, want more than rope_low_freq_factor "
                f"{o['rope_low_freq_factor']}"
            )
        if scaling in ("dynamic", "llama3") and not self.trained:
            raise ValueError(f"{owner}: rope_trained_length is 0, want a length with rope_scaling {scaling!r}")

    def inverse_frequencies(self, length, device):
        """[dims/2] float64, at sequences of `length` (dynamic scaling)."""
        o, r = self.options, self.dims
        base, scaling, factor = o["rope_base"], o["rope_scaling"], o["rope_factor"]
        if scaling == "ntk":
            base *= factor ** (r / (r - 2))
        if scaling == "dynamic" and length > self.trained:
            base *= (factor * length / self.trained - (factor - 1)) ** (r / (r - 2))
        theta = torch.exp(torch.arange(0, r, 2, dtype=torch.float64, device=device) * (-math.log(base) / r))
        return self._llama3(theta) if scaling == "llama3" else theta

    def _llama3(self, theta):
        o = self.options
        low, high, factor = o["rope_low_freq_factor"], o["rope_high_freq_factor"], o["rope_factor"]
        wavelength = 2 * math.pi / theta
        smooth = (self.trained / wavelength - low) / (high - low)
        between = (1 - smooth) * theta / factor + smooth * theta
        longest = self.trained / low if low else math.inf
        outside = torch.where(wavelength > longest, theta / factor, between)
        return torch.where(wavelength < self.trained / high, theta, outside)

    def __call__(self, x, positions, length):
        """x [B,T,H,D] rotated in at least float32, in x's dtype; positions [T] or [B,T] integers."""
        if not self.dims:
            return x
        at = positions.to(torch.float64)
        if self.options["rope_scaling"] == "linear":
            at = at / self.options["rope_factor"]
        at = at.unsqueeze(0) if at.dim() == 1 else at
        angle = at[:, :, None, None] * self.inverse_frequencies(length, x.device)
        wide = x.to(wide_dtype(x))
        cos, sin = angle.cos().to(wide.dtype), angle.sin().to(wide.dtype)
        turned, rest = wide[..., : self.dims], wide[..., self.dims :]
        if self.options["rope_pairing"] == "interleaved":
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        return torch.cat((turned, rest), -1).to(x.dtype)


# T5's buckets: half of them for single distances, the rest growing with the logarithm up to the farthest.
BUCKETS, _FARTHEST = 32, 128


def bucket(distance, causal):
    """The bucket 0..31 of query position - key position."""
    buckets = BUCKETS if causal else BUCKETS // 2
    exact = buckets // 2
    ahead = torch.zeros_like(distance) if causal else (distance < 0).long() * buckets
    d = distance.clamp_min(0) if causal else distance.abs()
    step = (buckets - exact) / math.log(_FARTHEST / exact)
    far = exact + ((d.clamp_min(1).double() / exact).log() * step)
    return ahead + torch.where(d < exact, d, far.long().clamp_max(buckets - 1))


def alibi_slopes(heads):
    """ALiBi's slopes, arXiv:2108.12409: 2^(-8 i / n); other counts take every second slope of the next power of two."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    slopes += [2.0 ** (-4 * i / power) for i in range(1, 2 * (heads - power), 2)]
    return slopes
