"""A model with differential attention, trained by transformers' Trainer, in one process or several:

    python examples/train_with_trainer.py OUT
    accelerate launch --multi_gpu --num_processes 2 examples/train_with_trainer.py OUT --batch-size 4

The losses are the same, step by step. --multi_gpu is also what starts processes on a machine without one. `motet eval -m OUT TEXT` and `motet generate -m OUT` read what OUT then holds.
"""
import argparse

import torch
from transformers import Trainer, TrainingArguments, default_data_collator, set_seed

import motet.huggingface as hf
from data import byte_tokenizer, windows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="folder of the model")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8, help="windows of a process in a step")
    arguments = parser.parse_args()

    set_seed(1)  # every process draws the same model
    config = hf.MotetConfig(
        vocab_size=256, hidden_size=64, num_hidden_layers=2, max_position_embeddings=128,
        attention_mechanism="differential", attention_options={"num_heads": 4, "version": "v2"},
    )
    model, tokenizer = hf.MotetForCausalLM(config), byte_tokenizer()
    settings = TrainingArguments(
        output_dir=arguments.out, max_steps=arguments.steps, per_device_train_batch_size=arguments.batch_size,
        learning_rate=3e-3, lr_scheduler_type="constant", logging_steps=1, save_strategy="no", report_to=[],
        disable_tqdm=True, seed=1, use_cpu=not torch.cuda.is_available(),
    )
    trainer = Trainer(
        model=model, args=settings, train_dataset=windows(tokenizer, 64, 512), data_collator=default_data_collator
    )
    trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(arguments.out)
        trainer.state.save_to_json(f"{arguments.out}/trainer_state.json")  # the loss of each step
    trainer.accelerator.wait_for_everyone()  # gloo's last work then holds no tensor, for which an interpreter may not wait


if __name__ == "__main__":
    main()
