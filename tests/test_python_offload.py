"""Models of motet.huggingface whose parameters lie on a disk, as accelerate puts them there."""
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
