"""What a token of a model of motet.huggingface sees: padding, packed sequences and masks, as alone and as compiled."""
import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
import torch  # noqa: E402

from hf_models import CASES, ENCODERS, PADDED, equal, ids, remade, wide  # noqa: E402
from motet.huggingface.cache import CACHE  # noqa: E402

every = pytest.mark.parametrize("name", [*CASES, *ENCODERS])


@every
def test_padding_changes_no_sequence(name):
    model, whole, holes = wide(name), ids(), torch.tensor([[1, 1, 0, 1, 1, 0, 0, 1, 1], [1] * 9])
    model.config.attention_options |= {"rope_scaling": "none", "rope_factor": 1.0}  # it goes by the longest of a batch
    model = remade(model)
    for mask in (PADDED, PADDED.flip(1), holes):
        if mask is holes and model.config.attention_options["window"]:
            continue  # a window counts places, padding too
        logits = model(whole, attention_mask=mask).logits
        for row, real in enumerate(mask.bool()):
            equal(logits[row, real], model(whole[row : row + 1, real]).logits[0])


@pytest.mark.parametrize("name", ["dcmha", "dcmha, released", "softmax, learned"])
def test_packed_sequences_do_not_see_each_other(name):
    model, whole = wide(name), ids(1, 9)
    alone = torch.cat([model(part).logits for part in whole.split([5, 4], 1)], 1)
    position_ids = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])
    for given in (position_ids, position_ids[0]):
        equal(model(whole, position_ids=given).logits, alone)
    documents = torch.tensor([[7] * 5 + [2] * 4])
    equal(model(whole, position_ids=position_ids, documents=documents).logits, alone)


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_continuation_goes_on_with_the_last_document(use_cache):
    model, whole = wide("dcmha"), ids(1, 9)
    given = dict(max_new_tokens=6, do_sample=False, use_cache=use_cache, pad_token_id=0, eos_token_id=None)
    alone = model.generate(whole[:, 5:], **given)[:, 4:]
    of_two = dict(documents=torch.tensor([[7] * 5 + [2] * 4]), position_ids=torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]]))
    assert torch.equal(model.generate(whole, **of_two, **given)[:, 9:], alone)


PACKED = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3], [0, 1, 2, 0, 1, 2, 3, 4, 5]])
MASKED_PACKED = {  # where two packed sequences have padding -> the mask
    "nowhere": torch.ones(2, 9, dtype=torch.long),
    "at the end": torch.tensor([[1] * 7 + [0] * 2, [1] * 8 + [0]]),
    "between": torch.tensor([[1] * 4 + [0] + [1] * 4, [1] * 3 + [0] * 2 + [1] * 4]),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("where", MASKED_PACKED)
def test_packed_sequences_with_a_mask_do_not_see_each_other(where, compiled):
    torch._dynamo.reset()
    model, whole, mask = wide("dcmha, last"), ids(2, 9), MASKED_PACKED[where]
    function = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    logits = function(whole, attention_mask=mask, position_ids=PACKED, use_cache=False).logits
    for row, begins in enumerate((5, 3)):
        for part in (slice(0, begins), slice(begins, 9)):
            real = mask[row, part].bool()
            places, at = whole[row, part][real].unsqueeze(0), PACKED[row, part][real]
            want = model(places, position_ids=at, documents=torch.zeros_like(places)).logits[0]
            equal(logits[row, part][real], want)


@pytest.mark.parametrize("compiled", [False, True])
def test_padding_within_begins_no_document(compiled):
    torch._dynamo.reset()
    model, whole = wide("talking_heads"), ids(2, 9)
    mask = torch.tensor([[1, 1, 0, 1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 1, 1, 1, 0]])
    function = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    counted, places = (mask.cumsum(1) - 1).clamp_min(0), torch.arange(9).expand(2, 9)
    for position_ids in (counted, counted.masked_fill(mask == 0, 1), places):
        logits = function(whole, attention_mask=mask, position_ids=position_ids, use_cache=False).logits
        for row, real in enumerate(mask.bool()):
            at = position_ids[row, real]
            one = torch.zeros_like(at).unsqueeze(0)
            equal(logits[row, real], model(whole[row : row + 1, real], position_ids=at, documents=one).logits[0])


def test_padding_takes_no_row_of_a_table_of_positions():
    model, whole = wide("softmax, learned"), ids(2, 60)
    mask = torch.zeros(2, 60, dtype=torch.long)
    mask[0, 12:], mask[1, 30:50] = 1, 1  # 48 tokens, as the table has rows, and 20
    logits = model(whole, attention_mask=mask).logits
    for row, real in enumerate(mask.bool()):
        equal(logits[row, real], model(whole[row : row + 1, real]).logits[0])
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    equal(compiled(whole, attention_mask=mask, use_cache=False).logits[mask.bool()], logits[mask.bool()])
    packed = torch.arange(30).repeat(2).expand(2, 60)
    equal(model(whole, position_ids=packed).logits[:, 30:], model(whole[:, 30:]).logits)


def test_a_mask_of_four_dimensions_hides_what_it_says():
    model, whole = wide("dcmha, released"), ids(2, 9)
    hidden = torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    hidden[0, :, :, :4] = False
    want = model(whole, attention_mask=PADDED, position_ids=(PADDED.cumsum(1) - 1).clamp_min(0)).logits[PADDED.bool()]
    additive = torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(~hidden, -torch.inf)
    for mask in (hidden, additive):
        have = model(whole, attention_mask=mask, position_ids=(PADDED.cumsum(1) - 1).clamp_min(0)).logits
        equal(have[PADDED.bool()], want)


def test_a_mask_of_integers_with_four_dimensions_is_refused():
    model, whole = wide("softmax"), ids(2, 9)
    for dtype in (torch.int64, torch.uint8):
        with pytest.raises(ValueError, match=f"attention_mask is of dtype {dtype}, want bool, or a float added"):
            model(whole, attention_mask=torch.ones(2, 1, 9, 9, dtype=dtype).tril())


def test_a_mask_that_shows_later_tokens_is_refused_but_for_an_encoder():
    whole, causal = ids(2, 9), torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    model, halved, one = wide("softmax"), wide("softmax").bfloat16(), causal.clone()
    one[1, :, 3, 4] = True
    padding = PADDED.bool()[:, None, None]
    for mask in (one, torch.zeros(2, 1, 9, 9), torch.zeros(1, 4, 9, 9), padding):
        with pytest.raises(ValueError, match="attention_mask shows a later token to a causal model, want it hidden"):
            model(whole, attention_mask=mask)
    want = model(whole).logits
    for low in (torch.finfo(torch.float64).min, torch.finfo(torch.float32).min, -1e4):
        hidden = torch.zeros(2, 1, 9, 9, dtype=torch.float64).masked_fill(~causal, low)
        equal(model(whole, attention_mask=hidden).logits, want)
        assert halved(whole, attention_mask=hidden).logits.isfinite().all()
    kept = model(whole[:, :6], attention_mask=causal[:, :, :6, :6], use_cache=True)
    kept = {CACHE: getattr(kept, CACHE)}
    with pytest.raises(ValueError, match="shows a later token"):
        model(whole[:, 6:], attention_mask=one.new_ones(2, 1, 3, 9), **kept)
    equal(model(whole[:, 6:], attention_mask=causal[:, :, 6:], **kept).logits, want[:, 6:])
    encoder = wide("plain")
    equal(encoder(whole, attention_mask=torch.ones_like(causal)).logits, encoder(whole).logits)
