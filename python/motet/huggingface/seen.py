"""What the words of transformers' masks and positions mean to the operator."""
import typing

import torch

from motet.attention_interface import additive, bounds


class Seen(typing.NamedTuple):
    """Of the T new tokens behind `past` others, S in all."""

    positions: torch.Tensor  # [T] or [B,T], where the new tokens stand in their own sequence
    hidden: dict  # arguments of a mechanism's forward that hide keys

    def behind(self, begin):
        """`hidden` for a layer that holds the keys from `begin` on."""
        if not begin:
            return self.hidden
        cut = {"documents": lambda t: t[:, begin:], "bias": lambda t: t[..., begin:]}
        late = lambda t: (t - begin).clamp_min(0)  # noqa: E731
        return {name: cut.get(name, late)(tensor) for name, tensor in self.hidden.items()}


def seen(x, past, attention_mask, position_ids, documents=None, causal=True):
    """Seen of x [B,T,C]. attention_mask: None; [B,S], 0 at padding anywhere; or [B or 1,1 or H,T,S], bool or added to the
    logits, which hides later tokens from those of a causal model: ValueError where not. position_ids: [T] or [B,T], by
    default counted from each sequence's first token on. documents [B,S]: integers, tokens of another number are not seen. Without a past and a
    mask of four dimensions, position_ids that begin anew or leap begin another document (in transformers without any
    mask alone)."""
    batch, count = x.shape[:2]
    total = past + count
    hidden, real = {}, None
    if attention_mask is not None and attention_mask.dim() == 4:
        hidden["bias"] = additive(attention_mask[..., :total], x.dtype).expand(-1, -1, count, -1)
        if causal and not torch.compiler.is_compiling():
            _check_causal(hidden["bias"], past)
    elif attention_mask is not None:
        real = _real(attention_mask, (batch, total))
    if position_ids is None:
        position_ids = torch.arange(past, total, device=x.device)
        if real is not None:
            position_ids = (real.long().cumsum(1) - 1).clamp_min(0)[:, past:]
    elif not hidden and documents is None and not past:
        documents = _packed(_fitting(position_ids, batch, count), real)
    return Seen(position_ids, {**hidden, **_hidden(real, documents)})


def _check_causal(bias, past):
    """ValueError for a bias [.,.,T,S] that leaves a later token in sight. Some hide by -1e4, which 16 bits round."""
    later = torch.ones(bias.shape[2:], dtype=torch.bool, device=bias.device).triu(past + 1)
    if ((bias > -1e3) & later).any():
        raise ValueError("motet: attention_mask shows a later token to a causal model, want it hidden there")


def _real(mask, shape):
    """Bool [B,S] of an attention_mask: whether each token is one, not padding."""
    if tuple(mask.shape) != shape:
        raise ValueError(f"motet: attention_mask is of shape {list(mask.shape)}, want {list(shape)}, or 4 dimensions")
    return mask.bool()


def _fitting(position_ids, batch, count):
    """position_ids [B,T]."""
    if tuple(position_ids.shape) not in ((count,), (1, count), (batch, count)):
        raise ValueError(f"motet: position_ids is of shape {list(position_ids.shape)}, want {[batch, count]} or {[count]}")
    return position_ids.expand(batch, -1)


def _packed(position_ids, real):
    """Documents [B,T] where positions begin anew, or None where a look says that none do. A token goes on where it stands 1
    to d positions behind the real token that is d places before it: padding between them may be counted or not."""
    places = torch.arange(position_ids.shape[1], device=position_ids.device).expand_as(position_ids)
    last = (places if real is None else torch.where(real, places, 0).cummax(1).values)[:, :-1]  # real token before each
    step, distance = position_ids[:, 1:] - position_ids.gather(1, last), places[:, 1:] - last
    anew = (step < 1) | (step > distance)
    if real is not None:
        anew = anew & real[:, 1:] & real.gather(1, last)
    if not torch.compiler.is_compiling() and not anew.any():
        return None
    return torch.nn.functional.pad(anew.long().cumsum(1), (1, 0))


def _hidden(real, documents):
    """Arguments that hide padding and other documents."""
    if documents is not None:
        if real is not None:  # padding is a document of its own
            documents = documents.masked_fill(~real, torch.iinfo(documents.dtype).min)
        return {"documents": documents}
    if real is None:
        return {}
    if not torch.compiler.is_compiling():  # a compiled graph takes no look at the numbers
        if real.all():
            return {}
        begin, end = bounds(real)
        if bool((end - begin == real.sum(1)).all()):
            return {"key_begin": begin, "key_end": end}
    return {"documents": real.long()}
