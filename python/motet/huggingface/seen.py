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


def seen(x, past, attention_mask, position_ids, documents=None):
    """Seen of x [B,T,C]. attention_mask: None; [B,S], 0 at padding anywhere; or [B or 1,1 or H,T,S], bool or added to the
    logits. position_ids: [T] or [B,T], by default counted from each sequence's first token on. documents [B,S]:
    integers, tokens of another number are not seen. Without a mask and a past, position_ids that begin anew begin
    another document, as transformers takes packed sequences."""
    batch, count = x.shape[:2]
    total = past + count
    if attention_mask is not None and attention_mask.dim() == 4:
        mask = additive(attention_mask[..., :total], x.dtype)
        hidden = {"bias": mask.expand(-1, -1, count, -1)}
        attention_mask = None
    else:
        hidden = {} if attention_mask is None else _hidden(attention_mask, (batch, total))
    if position_ids is None:
        position_ids = torch.arange(past, total, device=x.device)
        if attention_mask is not None:
            position_ids = (attention_mask.long().cumsum(1) - 1).clamp_min(0)[:, past:]
    elif not hidden and documents is None and not past and position_ids.dim() == 2:
        documents = _packed(position_ids, batch)
    if documents is not None:
        if "documents" in hidden or "key_begin" in hidden:
            documents = documents.masked_fill(~attention_mask.bool(), torch.iinfo(documents.dtype).min)
        hidden = {**hidden, "documents": documents}
    return Seen(position_ids, hidden)


def _hidden(mask, shape):
    if tuple(mask.shape) != shape:
        raise ValueError(f"motet: attention_mask is of shape {list(mask.shape)}, want {list(shape)}, or 4 dimensions")
    mask = mask.bool()
    if torch.compiler.is_compiling():  # no look at the numbers: what is padding is another document
        return {"documents": mask.long()}
    if mask.all():
        return {}
    begin, end = bounds(mask)
    if bool((end - begin == mask.sum(1)).all()):
        return {"key_begin": begin, "key_end": end}
    return {"documents": mask.long()}


def _packed(position_ids, batch):
    """Documents [B,T] where positions begin anew, or None."""
    anew = position_ids[:, 1:] != position_ids[:, :-1] + 1
    if not torch.compiler.is_compiling() and not anew.any():
        return None
    numbers = torch.nn.functional.pad(anew.long().cumsum(1), (1, 0))
    return numbers.expand(batch, -1)
