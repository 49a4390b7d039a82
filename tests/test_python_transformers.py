"""What transformers asks of a model, of those of motet.huggingface: saving, caches, training, adapters."""
import re
import shutil
import subprocess
import sys

import pytest
from conftest import environment, run

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
import torch  # noqa: E402

import hf_models  # noqa: E402
from hf_models import CASES, ENCODERS, PADDED, equal, ids, made, wide  # noqa: E402
from motet import huggingface  # noqa: E402
from motet.huggingface.cache import CACHE  # noqa: E402

cases = pytest.mark.parametrize("name", CASES)
# The released window is one wider in a whole pass than behind a cache, and dynamic scaling goes by what is planned.
same_when_cached = pytest.mark.parametrize("name", sorted(set(CASES) - {"dcmha, released", "coca, dynamic"}))
every = pytest.mark.parametrize("name", [*CASES, *ENCODERS])
GREEDY = dict(max_new_tokens=8, do_sample=False)


# ---- saving and loading


@every
def test_a_model_comes_back_as_it_was_saved(name, tmp_path):
    model = made(name)
    model.save_pretrained(tmp_path)
    auto = transformers.AutoModelForCausalLM if model.config.causal else transformers.AutoModelForMaskedLM
    again, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert type(again) is type(model) and again.config.to_dict() == {**model.config.to_dict(), **again_only(again)}
    equal(again(ids()).logits, model(ids()).logits, rtol=0, atol=0)
    tied = again.get_output_embeddings().weight is again.get_input_embeddings().weight
    assert tied == model.config.tie_word_embeddings


def again_only(model):
    """What loading alone sets."""
    return {key: value for key, value in model.config.to_dict().items() if key in ("_name_or_path", "architectures", "dtype")}


def replica(model):
    """As torch.nn.DataParallel makes one, with parameters of its own; those of the model become NaN."""
    copies = {module: module._replicate_for_data_parallel() for module in model.modules()}
    for module, copy in copies.items():
        for name, child in module._modules.items():
            copy._modules[name] = copies.get(child)
        for name, parameter in module._parameters.items():
            setattr(copy, name, None if parameter is None else parameter.detach().clone())
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, torch.nan)
    return copies[model]


@every
def test_a_replica_reads_its_own_parameters(name):
    model = made(name)
    want = model(ids()).logits
    equal(replica(model)(ids()).logits, want, rtol=0, atol=0)


def test_a_model_loads_in_another_dtype_and_onto_a_device(tmp_path):
    model = made("dcmha")
    model.save_pretrained(tmp_path)
    again = huggingface.MotetForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16, device_map="cpu")
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16} and again.device.type == "cpu"
    error = (again(ids()).logits.float() - model(ids()).logits).norm() / model(ids()).logits.norm()
    assert 1e-5 < error < 0.05
    trunk = transformers.AutoModel.from_pretrained(tmp_path)  # without the output matrix
    equal(trunk(ids()).last_hidden_state, model.model(ids()).last_hidden_state, rtol=0, atol=0)


def test_what_a_file_lacks_is_drawn_and_what_it_has_stays(tmp_path):
    model = made("dcmha")
    kept = {key: value for key, value in model.state_dict().items() if "compose_gate" not in key}
    model.save_pretrained(tmp_path, state_dict=dict(kept))
    again, info = huggingface.MotetForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert len(info["missing_keys"]) == 2
    for key, value in again.state_dict().items():
        if key in kept:
            assert torch.equal(value, kept[key]), key
        else:  # as the engine: gates begin small
            assert 0 < value.std() < 0.01, key


def test_fresh_parameters_have_the_engines_deviations():
    torch.manual_seed(0)
    sizes = dict(vocab_size=400, hidden_size=64, num_hidden_layers=2, attention_mechanism="coca")
    deviation = lambda model, name: model.get_parameter(name).std().item()  # noqa: E731
    output, other = "model.layers.1.self_attn.o_proj.weight", "model.layers.1.self_attn.t_proj.weight"
    for initializer, wanted in {
        "normal": (0.05, 0.05),
        "pythia": (2 / (2 * 64**0.5), (2 / (5 * 64)) ** 0.5),
        "kaiming": (1 / (3 * 64) ** 0.5,) * 2,
        "xavier": ((2 / 128) ** 0.5,) * 2,
    }.items():
        config = huggingface.MotetConfig(initializer=initializer, initializer_range=0.05, **sizes)
        model = huggingface.MotetForCausalLM(config)
        assert (deviation(model, output), deviation(model, other)) == pytest.approx(wanted, rel=0.05)
        assert deviation(model, "model.embed_tokens.weight") == pytest.approx(0.05, rel=0.05)
        assert torch.equal(model.model.norm.weight, torch.ones(64))


@pytest.mark.parametrize("name", ["softmax", "dcmha", "bert"])
def test_a_vocabulary_grows_and_shrinks(name):
    model = made(name)
    before = model(ids()).logits
    model.resize_token_embeddings(260, mean_resizing=False)
    assert model(torch.full((1, 3), 259)).logits.shape == (1, 3, 260)
    equal(model(ids()).logits[..., :256], before)
    model.resize_token_embeddings(200)
    assert model.config.vocab_size == 200 and model(ids() % 200).logits.shape[-1] == 200


def test_keys_of_any_model_of_transformers_pass_and_motet_reads_what_is_saved(tmp_path):
    theirs = dict(
        output_hidden_states=True, output_attentions=False, return_dict=False, chunk_size_feed_forward=5,
        id2label={0: "a", 1: "b", 2: "c"}, problem_type="regression", sep_token_id=3, decoder_start_token_id=4,
        tokenizer_class="PreTrainedTokenizerFast", task_specific_params={"a": 1}, finetuning_task="x", prefix="x",
        is_decoder=True, name_or_path="x", dtype="float32", attn_implementation="eager", temperature=0.5, bos_token_id=1,
    )
    settings = huggingface.MotetConfig(**hf_models.SMALL, attention_mechanism="dcmha", **theirs)
    assert settings.prefix == "x" and settings.id2label[2] == "c" and settings.output_hidden_states
    settings.foo = 3
    huggingface.MotetForCausalLM(settings).save_pretrained(tmp_path / "first")
    model = huggingface.MotetForCausalLM.from_pretrained(tmp_path / "first", output_hidden_states=True)
    assert model.config.id2label == settings.id2label and len(model(ids(), return_dict=True).hidden_states) == 3
    model.save_pretrained(tmp_path / "second")
    for folder in ("first", "second"):
        done = run("inspect", tmp_path / folder)
        assert done.returncode == 0, done.stderr
    assert huggingface.MotetConfig(**settings_but(model.config, "foo")).to_dict() == model.config.to_dict()


def settings_but(settings, *keys):
    return {key: value for key, value in settings.to_dict().items() if key not in keys}


# Keys that change at loading -> what is said of them then.
CHANGES = {
    "rope_theta": ({"rope_theta": 5e5}, {"rope_base": 5e5}),
    "heads": ({"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4},
              {"num_heads": 2, "num_kv_heads": 1, "head_dim": 4}),
    "width": ({"hidden_size": 32}, {"head_dim": 0}),
    "bias": ({"attention_bias": True}, {"bias": True}),
    "options": ({"attention_options": {"window": 3, "rope_scaling": "linear", "rope_factor": 2.0}},
                {"window": 3, "rope_scaling": "linear", "rope_factor": 2.0, "rank": 3}),
    "layers": ({"num_hidden_layers": 1}, {}),
    "no autocast": ({"autocast": None}, {}),
    "mechanism": ({"attention_mechanism": "coca"}, {"rank": None, "static": None}),
}


@pytest.mark.parametrize("keys, said", CHANGES.values(), ids=CHANGES)
def test_keys_change_at_loading(keys, said, tmp_path):
    given = {"num_heads": 4, "rank": 3, "static": True}
    settings = config(attention_mechanism="dcmha", autocast="bfloat16", attention_options=given)
    huggingface.MotetForCausalLM(settings).save_pretrained(tmp_path)
    loaded = huggingface.MotetForCausalLM.from_pretrained(tmp_path, ignore_mismatched_sizes=True, **keys)
    wanted = {**settings.attention_options, **said}
    if "attention_mechanism" in keys:  # what all have stays
        wanted = {**loaded.config.attention_options, "num_heads": 4}
        assert not {"rank", "static"} & wanted.keys()
    assert loaded.config.attention_options == wanted == loaded.model.layers[0].self_attn.options
    for key, value in keys.items():
        assert key == "attention_options" or getattr(loaded.config, key) == value
    assert loaded.config.head_dim == (keys.get("head_dim") or loaded.config.hidden_size // loaded.config.num_attention_heads)
    loaded.save_pretrained(tmp_path / "saved")
    again = transformers.AutoConfig.from_pretrained(tmp_path / "saved")
    assert again.attention_options == loaded.config.attention_options
    assert run("inspect", tmp_path / "saved").returncode == 0


def test_options_by_themselves_are_refused_at_loading(tmp_path):
    config().save_pretrained(tmp_path)
    for keys, words in {
        ("window", 4): "unknown key 'window', want attention_options={'window': ...}",
        ("num_layers", 4): "unknown key 'num_layers', want 'num_hidden_layers'",
    }.items():
        with pytest.raises(TypeError, match=re.escape(words)):
            transformers.AutoConfig.from_pretrained(tmp_path, **dict([keys]))
    with pytest.raises(ValueError, match="rope_theta is 5.0, want 2.0 as attention_options.rope_base says"):
        transformers.AutoConfig.from_pretrained(tmp_path, rope_theta=5.0, attention_options={"rope_base": 2.0})


def test_a_name_that_nobody_knows_is_refused_at_loading(tmp_path):
    huggingface.MotetForCausalLM(config()).save_pretrained(tmp_path)
    for auto, cls in ((transformers.AutoModel, "MotetModel"), (transformers.AutoModelForCausalLM, "MotetForCausalLM")):
        with pytest.raises(TypeError, match=f"^{cls}: unknown argument 'hiden_size'; nearest is 'hidden_size'$"):
            auto.from_pretrained(tmp_path, hiden_size=4)


# ---- decoding


@same_when_cached
def test_continuations_with_and_without_a_cache_and_in_batches_are_one(name):
    model, prompts = wide(name), ids() * PADDED
    together = model.generate(prompts, attention_mask=PADDED, **GREEDY)
    for row, real in enumerate(PADDED.bool()):
        alone = prompts[row : row + 1, real]
        for use_cache in (True, False):
            assert torch.equal(model.generate(alone, use_cache=use_cache, **GREEDY)[0, -8:], together[row, -8:])
    assert len({tuple(row) for row in together[:, -8:].tolist()}) == 2


@same_when_cached
def test_beams_are_reordered(name):
    model, options = wide(name), {**GREEDY, "num_beams": 4, "num_return_sequences": 2}
    cached = model.generate(ids(), **{CACHE: huggingface.MotetCache(model.config)}, **options)
    assert torch.equal(cached, model.generate(ids(), use_cache=False, **options))


@cases
def test_a_cropped_cache_goes_on_as_if_it_had_not_seen_more(name):
    model, whole = wide(name), ids(2, 14)
    cache = huggingface.MotetCache(model.config, length=14)
    cache.activate_past_recording()
    for part in whole[:, :11].split([6, 5], 1):
        model(part, cache=cache)
    cache.crop(-4)
    assert cache.get_seq_length() == 7
    logits = model(whole[:, 7:10], cache=cache).logits
    again = huggingface.MotetCache(model.config, length=14)
    for part in whole[:, :10].split([6, 1, 3], 1):
        want = model(part, cache=again).logits
    equal(logits, want)


def test_dynamic_scaling_goes_by_what_generation_plans_beyond_the_context_too():
    model = made("coca, dynamic")
    model.requires_grad_(False)
    for parameter in model.parameters():
        parameter *= 4  # so that places show in logits
    context, new = model.config.max_position_embeddings, 45
    options = dict(max_new_tokens=new, do_sample=False, output_logits=True, return_dict_in_generate=True)
    first = model.generate(ids(), **options).logits[0]
    planned, within = (
        model(ids(), cache=huggingface.MotetCache(model.config, length=length)).logits[:, -1]
        for length in (ids().shape[1] + new, context)
    )
    assert ids().shape[1] + new > context
    assert (first - planned).abs().max() < 0.1 * (first - within).abs().max()


def test_a_cache_has_its_name_of_any_release_of_transformers():
    model, logits = wide("coca"), []
    for name in ("cache", "past_key_values"):
        cache = huggingface.MotetCache(model.config)
        first = model(ids()[:, :5], **{name: cache})
        assert getattr(first, CACHE) is cache
        logits.append(model(ids()[:, 5:], **{name: cache}).logits)
    assert torch.equal(*logits)
    equal(logits[0], model(ids()).logits[:, 5:])


def test_a_window_bounds_what_a_cache_holds():
    model, whole = wide("dcmha"), ids(1, 40)
    cache = huggingface.MotetCache(model.config)
    parts = [model(part, cache=cache).logits for part in whole.split(1, 1)]
    equal(torch.cat(parts, 1), model(whole).logits)
    assert [layer.held["k"].shape[1] < 10 for layer in cache.layers] == [True, False]  # a local layer, a global one
    assert cache.get_seq_length() == 40 and cache.layers[0].begin > 30
    cache.crop(-1)
    equal(model(whole[:, 39:], cache=cache).logits, parts[-1])
    with pytest.raises(ValueError, match="MotetCache: crop to 20 tokens, want 3[0-9] or more: a window of 5 has dropped"):
        cache.crop(-20)


def test_dynamic_scaling_counts_what_a_window_dropped():
    dynamic = {"rope_scaling": "dynamic", "rope_factor": 4.0, "rope_trained_length": 4}
    model, whole = wide("softmax", attention_options={"num_heads": 4, "window": 3, **dynamic}), ids(1, 20)
    logits = []
    for drops in (True, False):
        cache = huggingface.MotetCache(model.config)
        if not drops:
            cache.activate_past_recording()
        logits.append(torch.cat([model(part, cache=cache).logits for part in whole.split(1, 1)], 1))
        assert (cache.layers[0].begin > 10) == drops
    equal(*logits)


def test_speculative_decoding_gives_the_same_text():
    model, helper = wide("dcmha"), wide("dcmha", seed=2)
    want = model.generate(ids(1), **{**GREEDY, "max_new_tokens": 20})
    have = model.generate(ids(1), assistant_model=helper, **{**GREEDY, "max_new_tokens": 20})
    assert torch.equal(have, want)


# ---- training


def test_a_model_in_training_generates_with_its_cache():
    model = wide("dcmha")
    want = model.generate(ids(), **GREEDY)
    model.train().gradient_checkpointing_enable()
    passes = []
    model.model.register_forward_pre_hook(lambda module, given: passes.append(given[0].shape[1]))
    assert torch.equal(model.generate(ids(), **GREEDY), want)
    assert passes == [9] + [1] * 7
    with torch.no_grad():
        cache = huggingface.MotetCache(model.config)
        logits = [model(part, cache=cache).logits for part in ids().split([5, 4], 1)]
    equal(torch.cat(logits, 1), model(ids()).logits)


def gradients(model, **given):
    model.zero_grad()
    out = model(ids(2, 9), labels=ids(2, 9), **given)
    out.loss.backward()
    return [out.loss.detach(), *(p.grad.clone() for p in model.parameters())]


@every
def test_the_loss_is_that_of_the_labels(name):
    model, labels = wide(name), ids(2, 9).masked_fill(~PADDED.bool(), -100)
    logits = model(ids(2, 9), attention_mask=PADDED).logits
    if model.config.causal:
        logits, targets = logits[:, :-1], labels[:, 1:]
    else:
        targets = labels
    want = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    have = model(ids(2, 9), attention_mask=PADDED, labels=labels).loss
    equal(have, want, rtol=1e-5, atol=0, check_dtype=False)


@every
def test_recomputed_layers_have_the_same_gradients(name):
    model = wide(name).train()
    want = gradients(model)
    model.gradient_checkpointing_enable()
    calls, attend = [], type(model.model.layers[0].self_attn).forward

    def counted(module, *arguments, **named):
        calls.append(module)
        return attend(module, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model.model.layers[0].self_attn), "forward", counted)
        equal(gradients(model), want)
    assert calls.count(model.model.layers[0].self_attn) == 2 * (2 if model.config.shared_layers else 1)


@every
def test_hidden_states_are_those_of_each_layer(name):
    model = wide(name)
    out = model(ids(), output_hidden_states=True, return_dict=True)
    assert len(out.hidden_states) == 3
    equal(model.logits(out.hidden_states[-1]), out.logits)
    as_tuple = model(ids(), return_dict=False)
    equal(as_tuple[0], out.logits)


@cases
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_close_and_keeps_float32_gradients(name, dtype):
    model = made(name)
    want = gradients(model)
    with torch.autocast("cpu", dtype=dtype):
        have = gradients(model)
        assert model(ids()).logits.dtype == dtype
    assert all(gradient.dtype == torch.float32 for gradient in have[1:])
    assert abs(have[0] - want[0]) < 0.05 * want[0]
    norms = [torch.stack([gradient.norm() for gradient in all[1:]]).norm() for all in (have, want)]
    difference = torch.stack([(a - b).norm() for a, b in zip(have[1:], want[1:], strict=True)]).norm()
    assert difference < 0.2 * norms[1]


@pytest.mark.parametrize(
    "name", ["differential v2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dcmha", "coca, dynamic", "bert"))]
)
def test_a_compiled_model_equals_the_eager_one(name):
    torch._dynamo.reset()
    model = wide(name)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for given in ({}, {"attention_mask": PADDED}):
        have, want = compiled(ids(), use_cache=False, **given).logits, model(ids(), **given).logits
        real = PADDED.bool() if given else torch.ones_like(PADDED, dtype=torch.bool)
        equal(have[real], want[real])


@every
def test_a_model_is_exported_without_a_cache(name):
    model = wide(name)
    given = {"use_cache": False} if model.config.causal else {}
    sizes = {0: torch.export.Dim("batch", min=1, max=8), 1: torch.export.Dim("length", min=2, max=48)}
    shapes = {"input_ids": sizes, **dict.fromkeys(given)}
    if model.config.attention_options["rope_scaling"] == "dynamic":  # it goes by the length, which is then part of the graph
        shapes = None
    exported = torch.export.export(model, (ids(),), given, dynamic_shapes=shapes).module()
    for whole in (ids(), ids(3, 20)) if shapes else (ids(),):
        equal(exported(whole, **given).logits, model(whole).logits)


@cases
def test_lora_trains_its_matrices_alone_and_merges(name):
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install peft")
    model = made(name)
    targets = ["q_proj", "k_proj", "t_proj", "v_proj"]
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=targets, init_lora_weights=False)
    before, adapted = model(ids()).logits, peft.get_peft_model(model, config)
    adapted(ids(), labels=ids()).loss.backward()
    learned = {key for key, p in adapted.named_parameters() if p.grad is not None}
    blocks = len(model.model.layers)
    assert len(learned) == 2 * 3 * blocks and all("lora_" in key for key in learned)
    after = adapted(ids()).logits
    assert not torch.allclose(after, before, atol=1e-2)
    equal(adapted.merge_and_unload()(ids()).logits, after, rtol=1e-4, atol=1e-4)


# ---- what is refused


def config(**given):
    return huggingface.MotetConfig(**{**hf_models.SMALL, **given})


def reset(settings, **keys):
    """Settings of which keys were set one by one."""
    for key, value in keys.items():
        setattr(settings, key, value)
    return settings


def recomputed(name):
    model = made(name).train()
    model.gradient_checkpointing_enable()
    return model


REFUSED = {
    "MotetConfig: attention_mechanism is 'dcmh', want one of coca,": lambda: config(attention_mechanism="dcmh"),
    "unknown key 'num_layers', want 'num_hidden_layers'": lambda: config(num_layers=3),
    "unknown key 'rank', want attention_options={'rank': ...}": lambda: config(attention_mechanism="dcmha", rank=3),
    "unknown option 'rnak'; nearest is 'rank'": lambda: config(
        attention_mechanism="dcmha", attention_options={"rnak": 3}
    ),
    "MotetConfig: block is 'paralel', want one of sequential, parallel": lambda: config(block="paralel"),
    "MotetConfig: hidden_act is 'relu', want one of silu, swish": lambda: config(hidden_act="relu"),
    "MotetConfig: autocast is 'float8', want bfloat16, float16 or None": lambda: config(autocast="float8"),
    "MotetConfig: vocab_size is 0, want integer, 1 to": lambda: config(vocab_size=0),
    "num_attention_heads is 8, want 4 as attention_options.num_heads says": lambda: config(
        num_attention_heads=8, attention_options={"num_heads": 4}
    ),
    "norm_place is 'post', want 'pre' with block 'parallel'": lambda: config(norm_place="post", block="parallel"),
    "MotetForCausalLM: causal is False in the configuration, want a MotetForMaskedLM": lambda: (
        huggingface.MotetForCausalLM(config(causal=False))
    ),
    "MotetCache: causal is False": lambda: huggingface.MotetCache(config(causal=False)),
    "config.json is of a model of type 'dcformer', want a folder in Motet's own": lambda: (
        huggingface.MotetForCausalLM.from_pretrained(hf_models.ROOT / "tests/golden/model/dcformer")
    ),
    "output_attentions is set, want False: the operator keeps no": lambda: made("coca")(ids(), output_attentions=True),
    f"{CACHE} is a DynamicCache, want a motet.huggingface.MotetCache": lambda: made("coca")(
        ids(), cache=transformers.DynamicCache()
    ),
    "input_ids and inputs_embeds are both given or both missing": lambda: made("coca")(),
    r"attention_mask is of shape \[2, 5\], want \[2, 9\], or 4 dim": lambda: made("coca")(
        ids(), attention_mask=torch.ones(2, 5)
    ),
    "cache_implementation is 'static', want None": lambda: made("coca").generate(
        ids(), cache_implementation="static", **GREEDY
    ),
    "a token stands at position 48, want at most 47, the last of the table": lambda: made("softmax, learned")(ids(1, 49)),
    "a token stands at position 90, want at most 47": lambda: made("softmax, learned")(
        ids(1, 2), position_ids=torch.tensor([[89, 90]])
    ),
    "a token stands at position 49, want at most 47": lambda: made("softmax, learned")(
        ids(1, 51), attention_mask=torch.tensor([[0] + [1] * 50])
    ),
    r"position_ids is of shape \[3, 9\], want \[2, 9\] or \[9\]": lambda: made("coca")(
        ids(), position_ids=torch.arange(9).expand(3, 9)
    ),
    rf"{CACHE} is of 1 layers with windows \[0\], want 2 layers with windows \[0\]: a motet.huggingface.Mot": lambda: (
        made("coca")(ids(), cache=huggingface.MotetCache(config(num_hidden_layers=1)))
    ),
    rf"{CACHE} is of 2 layers with windows \[0\], want 2 layers with windows \[0, 5\]": lambda: made("dcmha")(
        ids(), cache=huggingface.MotetCache(config())
    ),
    f"{CACHE} is given beside gradient checkpointing, want None or torch.no_grad": lambda: recomputed("coca")(
        ids(), cache=huggingface.MotetCache(config())
    ),
    "MotetConfig: unknown key 'hiden_size'; nearest is 'hidden_size'": lambda: config(hiden_size=512),
    "unknown key 'nun_hidden_layers'; nearest is 'num_hidden_layers'": lambda: config(nun_hidden_layers=7),
    "unknown key 'attention_mechanizm'; nearest is 'attention_mechanism'": lambda: config(attention_mechanizm="dcmha"),
    r"unknown key 'sliding_window'; nearest is attention_options=\{'window': ...\}": lambda: config(sliding_window=4),
    "unknown key 'rope_parameters'": lambda: config(rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
    "unknown key 'foo'$": lambda: config(foo=3),
    "rope_theta is 500000.0, want 10000.0 as attention_options.rope_base says": lambda: huggingface.MotetForCausalLM(
        reset(config(), rope_theta=5e5)
    ),
    "num_attention_heads is 4, want 8 as attention_options.num_heads says": lambda: huggingface.MotetForCausalLM(
        reset(config(attention_options={"num_heads": 4}), attention_options={"num_heads": 8})
    ),
    "num_attention_heads is 2, want 4 as": lambda: reset(config(), num_attention_heads=2).save_pretrained("nowhere"),
    "motet: unknown argument 'atention_mask'; nearest is 'attention_mask'": lambda: made("coca")(ids(), atention_mask=PADDED),
    "motet: unknown argument 'document'; nearest is 'documents'": lambda: made("bert")(ids(), document=PADDED),
    "motet: unknown argument 'is_causal'": lambda: made("coca")(ids(), is_causal=False),
    "motet: continuous batching .* want generate": lambda: made("coca").generate_batch([[1, 2]], progress_bar=False),
    "token types were given, want none": lambda: made("plain")(ids(), token_type_ids=torch.zeros(2, 9, dtype=torch.long)),
}


@pytest.mark.parametrize("words, call", REFUSED.items(), ids=range(len(REFUSED)))
def test_what_is_wrong_is_one_line(words, call):
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_without_transformers_the_error_says_so():
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.startswith("motet.huggingface")]:
            patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, "transformers", None)
        with pytest.raises(ImportError, match="motet.huggingface: transformers 5 is missing"):
            import motet.huggingface  # noqa: F401


# ---- transformers' own tests

# What its source package leaves out and the tests import, with what they take from it.
LEFT_OUT = {
    **{f"{folder}__init__.py": "" for folder in ("", "exporters/", "generation/", "utils/")},
    "exporters/test_export.py": "class ExportTesterMixin: pass",
    "generation/test_utils.py": "class GenerationTesterMixin: pass",
    "utils/test_configuration_utils.py": "config_common_kwargs = {'return_dict': False, 'output_hidden_states': True}",
}


@pytest.mark.nightly
def test_transformers_own_tests_of_models_pass(tmp_path):
    pytest.importorskip("parameterized", reason="parameterized is not installed: pip install parameterized")
    package = f"transformers=={transformers.__version__}"
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "transformers", package]
    if subprocess.run([*fetch, "-d", str(tmp_path)], capture_output=True).returncode != 0:
        pytest.skip(f"the source package of {package} cannot be downloaded here")
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for name, text in LEFT_OUT.items():
        if not (folder / "tests" / name).exists():
            (folder / "tests" / name).parent.mkdir(exist_ok=True)
            (folder / "tests" / name).write_text(text)
    shutil.copy(hf_models.ROOT / "tests/hf_common_tests.py", folder / "tests/test_motet.py")
    variables = environment(PYTHONPATH=f"{hf_models.ROOT / 'python'}:{folder}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "tests/test_motet.py"]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed >= 70 * 7, done.stdout[-500:]  # of each of seven models; the rest wants what a processor has not
