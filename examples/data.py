"""What the examples train on: tiny Shakespeare as bytes, in windows, and the tokenizer that makes them."""
import pathlib

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEXT = pathlib.Path(__file__).resolve().parent.parent / "motet/data/tinyshakespeare.txt"


def byte_tokenizer():
    """A token a byte, in a file that `motet` reads too."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def windows(tokenizer, length, count, text=TEXT):
    """The first `count` windows of `length` tokens of the text: a list of dictionaries, as data collators take them."""
    ids = torch.tensor(tokenizer(text.read_text(encoding="utf-8")[: 2 * length * count])["input_ids"])
    ids = ids[: length * count].view(count, length)
    return [{"input_ids": row, "labels": row} for row in ids]
