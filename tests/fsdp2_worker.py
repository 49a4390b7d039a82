"""One of two processes of test_python_scale.py: every model sharded by FSDP2 beside the same model whole.

usage: fsdp2_worker.py RANK FOLDER
"""
import os
import pathlib
import sys

import hf_models  # first: it sets the paths
import torch
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def sharded(model, mesh):
    """By each attention, each layer and the rest: parameters are gathered where a forward pass reads them."""
    for layer in model.model.layers:
        fully_shard(layer.self_attn, mesh=mesh)
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def loss_of(model, ids):
    """In float64, which transformers' own does not keep."""
    return torch.nn.functional.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def differences(name, mesh, rank, folder):
    """Largest difference of losses, gradients and, after two steps, parameters; and of a checkpoint that comes back."""
    one, two = hf_models.made(name, torch.float64), sharded(hf_models.made(name, torch.float64), mesh)
    labels, found = hf_models.ids(4, 9), []
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-2) for model in (one, two)]
    for _ in range(2):
        losses = [loss_of(one, labels), loss_of(two, labels[2 * rank : 2 * rank + 2])]
        for loss in losses:
            loss.backward()
        mean = losses[1].detach().clone()
        torch.distributed.all_reduce(mean)
        found.append((mean / 2 - losses[0]).abs().item())
        pairs = list(zip(one.named_parameters(), two.named_parameters(), strict=True))
        assert all(isinstance(b, DTensor) and a_name == b_name for (a_name, a), (b_name, b) in pairs)
        found += [(whole(b.grad) - a.grad).abs().max().item() for (_, a), (_, b) in pairs]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    found += [(whole(b) - a).abs().max().item() for (_, a), (_, b) in pairs]
    checkpoint.save(get_model_state_dict(two), checkpoint_id=folder)
    again = sharded(hf_models.made(name, torch.float64, seed=2), mesh)
    state = get_model_state_dict(again)
    checkpoint.load(state, checkpoint_id=folder)
    again.load_state_dict(state)
    found.append((again(labels).logits - one(labels).logits).abs().max().item())
    if rank == 0:  # without FSDP
        alone = hf_models.made(name, torch.float64, seed=2)
        state = {key: value for key, value in alone.state_dict().items() if key in state}
        checkpoint.load(state, checkpoint_id=folder, no_dist=True)
        alone.load_state_dict(state, strict=False)
        found.append((alone(labels).logits - one(labels).logits).abs().max().item())
    return max(found)


def main():
    rank, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for name in (*hf_models.CASES, *hf_models.ENCODERS):
        print(f"{name}\t{differences(name, mesh, rank, folder / name.replace(' ', '-'))}", flush=True)
    torch.distributed.barrier()
    os._exit(0)  # an interpreter that ends may meet gloo's threads and abort (pytorch issue 190489)


if __name__ == "__main__":
    main()
