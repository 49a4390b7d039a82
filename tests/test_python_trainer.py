"""transformers' Trainer beside models of motet.huggingface: what it hands to them and what it makes of their logits."""
import inspect

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


@pytest.mark.parametrize("name", ["dcmha", "bert"])
def test_columns_of_documents_and_of_token_types_reach_the_model(name, tmp_path):
    model, kept = made(name), {"documents", "token_type_ids", "position_ids", "labels"}
    owner = trainer(model, tmp_path)
    owner._set_signature_columns_if_needed()
    assert kept <= set(owner._signature_columns)
    documents = torch.tensor([[0] * 5 + [1] * 4] * 2)
    alone = torch.cat([model(part, position_ids=torch.arange(first, first + part.shape[1])).logits
                       for first, part in zip((0, 5), ids().split([5, 4], 1), strict=True)], 1)
    equal(model(ids(), documents=documents).logits, alone, rtol=1e-5, atol=1e-5)


def test_an_encoders_first_arguments_stand_in_berts_order():
    model, types, mask = made("bert"), ids() % 2, torch.tensor([[1] * 9, [1] * 5 + [0] * 4])
    places = torch.arange(9).flip(0).expand(2, 9)
    want = model(input_ids=ids(), attention_mask=mask, token_type_ids=types, position_ids=places).logits
    equal(model(ids(), mask, types, places).logits, want, rtol=0, atol=0)
    assert not torch.allclose(model(ids(), mask, None, places).logits, want)
    of_berts = list(inspect.signature(transformers.BertForMaskedLM.forward).parameters)[:6]
    assert list(inspect.signature(type(model).forward).parameters)[:6] == of_berts


def gradients(model, scale=1.0):
    model.zero_grad()
    (model(ids(), labels=ids()).loss * scale).backward()
    return [parameter.grad.clone() / scale for parameter in model.parameters()]


def test_training_of_a_float16_folder_loses_no_gradients():
    small, logger = 2.0**-20, transformers.utils.logging.get_logger("motet.huggingface.model")
    want = gradients(made("dcmha").train(), small)
    model = made("dcmha", autocast="float16").train()
    logger.warning_once.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr(type(logger), "warning", lambda self, message, *more, **named: said.append(message))
        for _ in range(2):
            equal(gradients(model, small), want, rtol=0, atol=0)
    assert len(said) == 1 and "want fp16=True of Trainer" in said[0]


def test_autocast_is_the_callers_then_the_folders():
    model, logits = made("dcmha", autocast="float16"), lambda: model(ids()).logits.dtype
    assert logits() == torch.float16
    model.train()
    assert logits() == torch.float32
    with torch.no_grad():
        assert logits() == torch.float16
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype):
            assert logits() == dtype
            assert model.eval() is model and logits() == dtype
    model.config.autocast = "bfloat16"
    assert logits() == torch.bfloat16
