"""What the words of transformers' masks and positions mean to the operator."""
import typing

import torch

from motet.attention_interface import additive, bounds
from motet.composed import check_tensor


class Seen(typing.NamedTuple):
    """Of the T new tokens behind the P of a cache, S in all."""

    positions: torch.Tensor  # [T] or [B,T], where the new tokens stand in their own sequence
    hidden: dict  # arguments of a mechanism's forward that hide keys
    tokens: dict  # what a cache keeps of all S: "positions" [B,S] and, where there are several, "documents" [B,S]

    def behind(self, begin):
        """`hidden` for a layer that holds the keys from `begin` on."""
        if not begin:
            return self.hidden
        cut = {"documents": lambda t: t[:, begin:], "bias": lambda t: t[..., begin:]}
        late = lambda t: (t - begin).clamp_min(0)  # noqa: E731
        return {name: cut.get(name, late)(tensor) for name, tensor in self.hidden.items()}


def seen(x, held, attention_mask, position_ids, documents=None, causal=True):
    """Seen of x [B,T,C]. held: the `tokens` of the P that a cache has, or {} for none. attention_mask: None; [B,S], 0 at
    padding anywhere; or [B or 1,1 or H,T,S], bool or added to the logits, which hides later tokens from those of a causal
    model: ValueError where not. position_ids: [T] or [B,T], by default counted from each sequence's first token on, behind
    a cache from its last one on. documents [B,S]: integers, tokens of another number are not seen. Where none are given,
    tokens go on in the document of the one before them, and position_ids that begin anew or leap begin another (in
    transformers without any mask alone), behind a cache as within a call; but a mask of four dimensions begins none and
    says alone what its tokens see."""
    batch, count = x.shape[:2]
    past = held["positions"].shape[1] if held else 0
    if held and held["positions"].shape[0] != batch:
        raise ValueError(f"motet: the batch is {batch} and the cache's {held['positions'].shape[0]}, want one number")
    hidden, real = {}, None
    if attention_mask is not None and attention_mask.dim() == 4:
        hidden["bias"] = additive(attention_mask[..., : past + count], x.dtype).expand(-1, -1, count, -1)
        if causal and not torch.compiler.is_compiling():
            _check_causal(hidden["bias"], past)
    elif attention_mask is not None:
        real = _real(attention_mask, (batch, past + count))
    counted = position_ids is None
    if counted:
        position_ids = _counted(held, real, count, x.device)
    new = _fitting(position_ids, batch, count)
    tokens = {"positions": torch.cat((held["positions"], new), 1) if held else new}
    kept = documents
    if documents is None:
        anew = None if counted or hidden else _anew(tokens["positions"], real, past)
        kept = _documents(held, real, anew, count)
        documents = None if hidden else kept
    if kept is not None:
        tokens["documents"] = kept
    return Seen(position_ids, {**hidden, **_hidden(real, documents)}, tokens)


def _last(table, real):
    """[B,1] of a table [B,P] of the tokens held: its entry of each sequence's last real one."""
    if real is None:
        return table[:, -1:]
    places = torch.arange(table.shape[1], device=table.device)
    return table.gather(1, torch.where(real[:, : table.shape[1]], places, 0).amax(1, keepdim=True))


def _counted(held, real, count, device):
    """Positions [T] or [B,T] that count real tokens, on from the last one held."""
    past = held["positions"].shape[1] if held else 0
    steps = torch.arange(1, count + 1, device=device) if real is None else real[:, past:].long().cumsum(1)
    if not held:
        return (steps - 1).clamp_min(0)
    last = _last(held["positions"], real)
    if real is not None:
        last = last.where(real[:, :past].any(1, keepdim=True), -1)
    return (last + steps).clamp_min(0)


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
    check_tensor("motet", "position_ids", position_ids)
    if tuple(position_ids.shape) not in ((count,), (1, count), (batch, count)):
        raise ValueError(f"motet: position_ids is of shape {list(position_ids.shape)}, want {[batch, count]} or {[count]}")
    return position_ids.expand(batch, -1)


def _anew(positions, real, past):
    """Bool [B,T] of the new ones of positions [B,S]: which begin anew, or None where a look says that none does. A token goes
    on where it stands 1 to d positions behind the real token that is d places before it: padding between them may be counted
    or not. Behind a cache it also does at its own number, which generate() counts of all real tokens."""
    if real is None:
        line = positions[:, max(past - 1, 0) :]
        anew = line[:, 1:] - line[:, :-1] != 1
    else:
        places = torch.arange(positions.shape[1], device=positions.device).expand_as(positions)
        last = torch.where(real, places, 0).cummax(1).values[:, :-1]  # the real token before each
        step, distance = positions[:, 1:] - positions.gather(1, last), places[:, 1:] - last
        anew = ((step < 1) | (step > distance)) & real[:, 1:] & real.gather(1, last)
        anew = anew[:, max(past - 1, 0) :]
    if past:
        counted = torch.arange(past, positions.shape[1], device=positions.device)
        anew = anew & (positions[:, past:] != (counted if real is None else real.long().cumsum(1)[:, past:] - 1))
    else:
        anew = torch.nn.functional.pad(anew, (1, 0))
    return anew if torch.compiler.is_compiling() or anew.any() else None


def _documents(held, real, anew, count):
    """Documents [B,S] of the tokens held and `count` new ones, which go on in the last but where they begin anew; None where
    all are one."""
    known = held.get("documents")
    if anew is None:
        return None if known is None else torch.cat((known, _last(known, real).expand(-1, count)), 1)
    begun = anew.long().cumsum(1)
    if not held:
        return begun
    if known is None:
        known = torch.zeros_like(held["positions"])
    return torch.cat((known, torch.where(begun == 0, _last(known, real), known.amax(1, keepdim=True) + begun)), 1)


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
