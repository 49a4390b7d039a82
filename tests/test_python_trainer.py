"""transformers' Trainer beside models of motet.huggingface: what it hands to them and what it makes of their logits."""
import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install accelerate")
import torch  # noqa: E402
from transformers.trainer_pt_utils import LabelSmoother  # noqa: E402

from hf_models import equal, ids, made  # noqa: E402


def trainer(model, folder, **given):
    settings = transformers.TrainingArguments(output_dir=str(folder), use_cpu=True, report_to=[], **given)
    return transformers.Trainer(model=model, args=settings)


@pytest.mark.parametrize("name", ["dcmha", "bert"])
def test_label_smoothing_is_of_the_next_token_for_causal_models_alone(name, tmp_path):
    model, labels = made(name), ids(2, 9).masked_fill(ids(2, 9) % 5 == 0, -100)
    have = trainer(model, tmp_path, label_smoothing_factor=0.1).compute_loss(model, {"input_ids": ids(), "labels": labels})
    equal(have, LabelSmoother(0.1)(model(ids()), labels, shift_labels=model.config.causal))
