"""Models of motet.huggingface whose parameters lie on a disk or in fewer bits, as accelerate and torch.ao put them there."""
import warnings

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install accelerate")
import torch  # noqa: E402

from hf_models import CASES, ENCODERS, equal, ids, made  # noqa: E402

every = pytest.mark.parametrize("name", [*CASES, *ENCODERS])


def offloaded(model, folder, places):
    """The model loaded again, with parts where `places` says."""
    model.save_pretrained(folder / "saved")
    again = type(model).from_pretrained(folder / "saved", device_map=places, offload_folder=folder / "offload").eval()
    assert any(parameter.is_meta for parameter in again.parameters())
    return again


@every
def test_a_model_on_a_disk_computes_the_same(name, tmp_path):
    model = made(name)
    equal(offloaded(model, tmp_path, {"": "disk"})(ids()).logits, model(ids()).logits, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("autocast", [None, "bfloat16"])
def test_a_model_with_some_parts_on_a_disk_computes_the_same(autocast, tmp_path):
    model = made("dcmha", autocast=autocast)
    places = {"model.embed_tokens": "disk", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu",
              "lm_head": "disk"}
    have = offloaded(model, tmp_path, places)(ids()).logits
    assert have.dtype == (torch.bfloat16 if autocast else torch.float32)
    equal(have, model(ids()).logits, rtol=1e-6, atol=1e-6)


@every
def test_a_model_whose_linear_layers_are_quantized_computes_near_it(name):
    model = made(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        coarse = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    assert not isinstance(coarse.model.layers[0].self_attn.q_proj.weight, torch.Tensor)
    have, want = coarse(ids()).logits, model(ids()).logits
    assert 1e-4 < (have - want).norm() / want.norm() < 0.15
    with pytest.raises(ValueError, match="x is of dtype torch.int64, want a floating dtype"):
        coarse.model.layers[0].self_attn(torch.zeros(1, 3, 16, dtype=torch.long))


class Bytes(torch.nn.Module):
    """A linear layer whose weight is stored as bytes, as bitsandbytes' are."""

    def __init__(self, linear):
        super().__init__()
        self.scale = linear.weight.detach().abs().max() / 127
        self.weight = torch.nn.Parameter((linear.weight.detach() / self.scale).round().to(torch.int8), requires_grad=False)

    def forward(self, x):
        return x @ (self.weight * self.scale).to(x.dtype).T


@pytest.mark.parametrize("name", ["talking_heads, collinear", "dcmha"])  # the first has ALiBi
def test_a_projection_that_is_stored_as_bytes_computes_near_it(name):
    model = made(name)
    want = model(ids()).logits
    for layer in model.model.layers:
        layer.self_attn.q_proj = Bytes(layer.self_attn.q_proj)
    assert 0 < (model(ids()).logits - want).norm() / want.norm() < 0.1
