"""Models of Motet as models of Hugging Face transformers.

    import motet.huggingface
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)

MotetConfig, MotetForCausalLM and MotetForMaskedLM (encoders) are registered with the Auto classes. FOLDER is what
`motet train` wrote, or what `motet convert FOLDER --to motet` made of a published layout; save_pretrained of these two
models writes what `motet` reads. MotetModel is their trunk: what it saves lacks an output matrix, and transformers alone
reads it. MotetCache holds the keys of generate().
"""
try:
    import transformers

    if int(transformers.__version__.split(".")[0]) < 5:
        raise ImportError(f"this is {transformers.__version__}")
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
except ImportError as error:
    raise ImportError(
        f"motet.huggingface: transformers 5 is missing ({error}), want `pip install transformers`"
    ) from None

from motet.huggingface.cache import MotetCache
from motet.huggingface.config import MotetConfig
from motet.huggingface.model import MotetForCausalLM, MotetForMaskedLM, MotetModel

__all__ = ["MotetCache", "MotetConfig", "MotetForCausalLM", "MotetForMaskedLM", "MotetModel"]

AutoConfig.register("motet", MotetConfig, exist_ok=True)
AutoModel.register(MotetConfig, MotetModel, exist_ok=True)
AutoModelForCausalLM.register(MotetConfig, MotetForCausalLM, exist_ok=True)
AutoModelForMaskedLM.register(MotetConfig, MotetForMaskedLM, exist_ok=True)
AutoTokenizer.register(MotetConfig, fast_tokenizer_class=transformers.PreTrainedTokenizerFast, exist_ok=True)
# Trainer shifts labels under label smoothing for the names of this table, to which `register` adds nothing.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["motet"] = MotetForCausalLM.__name__
