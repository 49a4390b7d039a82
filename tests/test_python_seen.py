"""What a token of a model of motet.huggingface sees: padding, packed sequences and masks, as alone and as compiled."""
import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
import torch  # noqa: E402

from hf_models import CASES, ENCODERS, PADDED, equal, ids, remade, wide  # noqa: E402
from motet.huggingface.cache import CACHE, MotetCache  # noqa: E402

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


# ---- packed sequences behind a cache: as those of one call


# The released window is one wider in a whole pass than behind a cache, and dynamic scaling goes by what is planned.
behind_a_cache = pytest.mark.parametrize("name", sorted(set(CASES) - {"dcmha, released", "coca, dynamic"}))
GREEDY = dict(max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=None)


def in_pieces(model, whole, sizes, cache=None, mask=None, **given):
    """Logits of `whole` in pieces behind a cache; what is given of position_ids and documents covers all tokens."""
    cache, begin, logits = cache or MotetCache(model.config), 0, []
    for piece in whole.split(sizes, 1):
        end = begin + piece.shape[1]
        of_piece = {name: tensor[:, begin:end] if name == "position_ids" else tensor[:, :end] for name, tensor in given.items()}
        seen = None if mask is None else mask[:, :end]
        logits.append(model(piece, attention_mask=seen, cache=cache, **of_piece).logits)
        begin = end
    return torch.cat(logits, 1)


@behind_a_cache
@pytest.mark.parametrize("where", MASKED_PACKED)
def test_packed_sequences_in_pieces_do_not_see_each_other(name, where):
    model, whole, mask = wide(name), ids(2, 9), MASKED_PACKED[where]
    for given in (mask, None) if where == "nowhere" else (mask,):
        want = model(whole, attention_mask=given, position_ids=PACKED, use_cache=False).logits[mask.bool()]
        for sizes in ([7, 2], [4, 1, 4], [3, 2, 4], 1):  # within a document, and where one begins
            equal(in_pieces(model, whole, sizes, mask=given, position_ids=PACKED)[mask.bool()], want)


def test_positions_that_leap_begin_a_document():
    model, whole, leap = wide("dcmha"), ids(1, 9), torch.tensor([[0, 1, 2, 3, 4, 6, 7, 8, 9]])
    want = torch.cat([model(whole[:, :5]).logits, model(whole[:, 5:], position_ids=leap[:, 5:]).logits], 1)
    for mask in (None, torch.ones_like(leap)):
        equal(model(whole, attention_mask=mask, position_ids=leap).logits, want)
        for sizes in ([5, 4], [4, 5], 1):
            equal(in_pieces(model, whole, sizes, mask=mask, position_ids=leap), want)


@behind_a_cache
def test_a_continuation_of_packed_sequences_goes_on_with_the_last_one(name):
    model, whole = wide(name), ids(1, 9)
    alone = model.generate(whole[:, 5:], **GREEDY)[:, 4:]
    for more in ({}, {"prefill_chunk_size": 4}, {"use_cache": False}):
        assert torch.equal(model.generate(whole, position_ids=PACKED[:1], **GREEDY, **more)[:, 9:], alone)


@pytest.mark.parametrize("name", ["talking_heads", "differential v2", "coca"])
def test_a_padded_batch_of_packed_sequences_is_continued(name):
    model, prompts, padding = wide(name), ids(2, 9), torch.tensor([[0] * 3 + [1] * 6, [1] * 9])
    position_ids = torch.tensor([[0, 0, 0, 0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 0, 1, 2, 3, 4]])
    given = dict(attention_mask=padding, position_ids=position_ids)
    have = model.generate(prompts, **given, **GREEDY)[:, 9:]
    for row, begin in enumerate((6, 4)):
        assert torch.equal(have[row], model.generate(prompts[row : row + 1, begin:], **GREEDY)[0, 9 - begin :])
    for beams in (1, 3):
        some = {**GREEDY, "num_beams": beams, "num_return_sequences": beams}
        have, want = (model.generate(prompts, use_cache=cached, **given, **some) for cached in (True, False))
        assert torch.equal(have, want)


def test_speculation_behind_packed_sequences_gives_the_same_text():
    model, helper = wide("dcmha"), wide("dcmha", seed=2)
    given = {**GREEDY, "max_new_tokens": 20, "position_ids": PACKED[:1]}
    want = model.generate(ids(1), use_cache=False, **given)
    for more in ({"assistant_model": helper}, {"assistant_model": model}, {"prompt_lookup_num_tokens": 3}):
        assert torch.equal(model.generate(ids(1), **more, **given), want)


@pytest.mark.parametrize("name", ["dcmha", "talking_heads, collinear", "differential v1", "softmax, learned"])
def test_a_cache_that_is_changed_keeps_its_documents(name):
    model, whole, later = wide(name), ids(2, 9), ids(4, 3, seed=1)
    changes = {  # a change -> the rows that are there then
        "reorder_cache": (torch.tensor([1, 0]), [1, 0]),
        "batch_repeat_interleave": (2, [0, 0, 1, 1]),
        "batch_select_indices": (torch.tensor([1]), [1]),
    }
    for change, (argument, rows) in changes.items():
        cache = MotetCache(model.config)
        model(whole, position_ids=PACKED, cache=cache)
        getattr(cache, change)(argument)
        positions = torch.cat((PACKED, PACKED[:, -1:] + torch.tensor([[1, 2, 3]])), 1)[rows]
        every = torch.cat((whole[rows], later[: len(rows)]), 1)
        have = model(every[:, 9:], position_ids=positions[:, 9:], cache=cache).logits
        equal(have, model(every, position_ids=positions, use_cache=False).logits[:, 9:])


@pytest.mark.parametrize("name", ["dcmha", "talking_heads", "differential composed", "coca"])
def test_a_cropped_cache_goes_on_in_the_document_that_is_then_the_last(name):
    model, whole = wide(name), ids(1, 9)
    rest = {8: [3, 4], 6: [1, 2], 5: [0, 1], 3: [3, 4], 2: [0, 1]}  # tokens that are left -> where the next ones stand
    for left, places in rest.items():
        cache, positions = MotetCache(model.config), torch.tensor([[*PACKED[0, :left], *places]])
        cache.activate_past_recording()
        in_pieces(model, whole, [6, 3], cache, position_ids=PACKED[:1])
        cache.crop(left - 9)
        every = torch.cat((whole[:, :left], ids(1, 2, seed=1)), 1)
        have = model(every[:, left:], position_ids=positions[:, left:], cache=cache).logits
        equal(have, model(every, position_ids=positions, use_cache=False).logits[:, left:])
    cache.crop(-cache.get_seq_length())
    equal(in_pieces(model, whole, [9], cache), model(whole).logits)
    cache.reset()
    equal(in_pieces(model, ids(2, 9), [4, 5], cache), model(ids(2, 9)).logits)


@pytest.mark.parametrize("name", ["dcmha", "softmax, bias", "softmax, learned"])
def test_tokens_without_positions_go_on_behind_the_last_one(name):
    model, whole = wide(name), ids(2, 9)
    want = model(whole, position_ids=PACKED).logits[:, 7:]
    cache = MotetCache(model.config)
    model(whole[:, :7], position_ids=PACKED[:, :7], cache=cache)
    equal(torch.cat([model(token, cache=cache).logits for token in whole[:, 7:].split(1, 1)], 1), want)
    mask = torch.tensor([[0] * 5 + [1] * 4, [1] * 6 + [0, 1, 1]])  # the first piece of one is padding alone
    want = model(whole, attention_mask=mask).logits[mask.bool()]
    for sizes in ([4, 5], [7, 2], 3):
        equal(in_pieces(model, whole, sizes, mask=mask)[mask.bool()], want)


def test_tokens_without_documents_go_on_in_the_last_one():
    model, whole, documents = wide("talking_heads"), ids(2, 11), torch.tensor([[7] * 5 + [6] * 4, [1] * 3 + [0] * 6])
    mask = torch.tensor([[1] * 8 + [0] + [1] * 2, [1] * 11])
    documents[0, 8] = 7  # at padding, where it is nobody's
    cache = MotetCache(model.config)
    model(whole[:, :9], attention_mask=mask[:, :9], position_ids=PACKED, documents=documents, cache=cache)
    documents.zero_()
    have = [model(whole[:, 9:10], attention_mask=mask[:, :10], cache=cache).logits]
    have.append(model(whole[:, 10:], attention_mask=mask, position_ids=torch.zeros(1, 1, dtype=torch.long), cache=cache).logits)
    for row, begin in enumerate((5, 3)):
        real = mask[row, begin:10].bool()
        equal(have[0][row, -1], model(whole[row : row + 1, begin:10][:, real]).logits[0, -1])
        equal(have[1][row], model(whole[row : row + 1, 10:]).logits[0])


def test_a_cache_keeps_positions_of_its_own():
    model, whole, cache = wide("coca"), ids(1, 9), MotetCache(wide("coca").config)
    at, logits = torch.zeros(1, 1, dtype=torch.long), []
    for token in whole.split(1, 1):
        logits.append(model(token, position_ids=at, cache=cache).logits)
        at += 1
    equal(torch.cat(logits, 1), model(whole).logits)


def test_a_mask_of_four_dimensions_behind_packed_sequences_says_alone_what_is_seen():
    model, whole, causal = wide("dcmha, last"), ids(2, 9), torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    documents = (PACKED == 0).cumsum(1)
    apart = causal & (documents[:, None, :, None] == documents[:, None, None])
    kinds = {  # masks of two pieces, None where positions say it -> the mask of one call
        (causal, causal): (causal, causal),
        (None, causal): (apart, causal),
        (None, apart): (apart, apart),
        (causal, apart): (causal, apart),
        (causal, None): (causal, causal),  # the first mask began no document
    }
    for (first, later), of_one in kinds.items():
        mask = torch.cat((of_one[0][:, :, :6], of_one[1][:, :, 6:]), 2)
        want = model(whole, attention_mask=mask, position_ids=PACKED, use_cache=False).logits[:, 6:]
        cache = MotetCache(model.config)
        first, later = (None if first is None else first[:, :, :6, :6]), (None if later is None else later[:, :, 6:])
        model(whole[:, :6], attention_mask=first, position_ids=PACKED[:, :6], cache=cache)
        equal(model(whole[:, 6:], attention_mask=later, position_ids=PACKED[:, 6:], cache=cache).logits, want)


def test_packed_sequences_behind_a_cache_are_compiled():
    torch._dynamo.reset()
    model, whole = wide("talking_heads"), ids(2, 9)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    want = model(whole, position_ids=PACKED, use_cache=False).logits
    equal(in_pieces(compiled, whole, [4, 5], position_ids=PACKED), want)


def test_a_cache_of_another_batch_is_refused():
    model, cache = wide("coca"), MotetCache(wide("coca").config)
    model(ids(2, 9), cache=cache)
    with pytest.raises(ValueError, match="motet: the batch is 3 and the cache's 2, want one number"):
        model(ids(3, 2), cache=cache)


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


def test_a_token_at_the_number_that_generate_counts_goes_on():
    model, whole = wide("softmax"), ids(1, 10)

    def behind(kept, **given):
        kept = model(whole[:, :9], use_cache=True, **kept)
        return model(whole[:, 9:], **{CACHE: getattr(kept, CACHE)}, **given).logits

    mask = torch.tensor([[1, 0, 0, 1, 1, 1, 1, 1, 1, 1]])
    given = dict(position_ids=mask.cumsum(1)[:, 9:] - 1)
    want = behind({}, attention_mask=mask[:, None, None].bool(), **given)
    equal(behind({}, attention_mask=mask, **given), want)  # hides what was seen, and begins nothing
    packed, given = dict(position_ids=torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])), dict(position_ids=torch.tensor([[9]]))
    want = behind(packed, documents=torch.tensor([[0] * 5 + [1] * 5]), **given)
    equal(behind(packed, **given), want)
    equal(behind(packed, position_ids=torch.tensor([[7]])), behind(packed, position_ids=torch.tensor([[0]])))  # a leap


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
