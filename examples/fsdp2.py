"""A model of DCMHA whose parameters, gradients and optimiser are spread over processes (FSDP2):

    torchrun --nproc-per-node 2 examples/fsdp2.py OUT

Losses are those of one process; torch.distributed.checkpoint reads OUT/checkpoint, in any number of processes; `motet` reads OUT/model.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.fsdp import fully_shard

import motet.huggingface as hf
from data import byte_tokenizer, windows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=8, help="windows in a step, of all processes")
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count()) if cuda else torch.device("cpu")

    torch.manual_seed(1)  # every rank draws the same model and keeps its part
    config = hf.MotetConfig(attention_mechanism="dcmha", attention_options={"num_heads": 4, "rank": 2})
    model, tokenizer = hf.MotetForCausalLM(config).to(device), byte_tokenizer()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)

    optimizer, own = torch.optim.AdamW(model.parameters(), lr=3e-3), arguments.batch_size // world
    rows = torch.stack([row["input_ids"] for row in windows(tokenizer, 64, arguments.batch_size * arguments.steps)])
    for step in range(arguments.steps):
        ids = rows[step * arguments.batch_size + rank * own :][:own].to(device)
        loss = model(ids, labels=ids).loss  # of the rank's own rows; gradients are averaged over ranks
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss := loss.detach())
        if rank == 0:
            print(f"step {step + 1}  loss {loss.item() / world:.6f}", flush=True)

    parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dist.checkpoint.save(parts, checkpoint_id=f"{arguments.out}/checkpoint")
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        hf.MotetForCausalLM(config).save_pretrained(f"{arguments.out}/model", state_dict=whole)
        tokenizer.save_pretrained(f"{arguments.out}/model")
    dist.barrier()  # until the model is written
    os._exit(0)  # an interpreter that ends may meet gloo's threads and abort (pytorch issue 190489)


if __name__ == "__main__":
    main()
