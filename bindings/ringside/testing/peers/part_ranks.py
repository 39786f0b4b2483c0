# The package, one process a rank.
import os
import sys
import tempfile

import torch


def rank_main(rank, size, store, results):
    place = f"cuda:{rank}" if DEVICE == "cuda" else "cpu"
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    torch.distributed.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=size
    )
    rows = ROWS[rank]
    whole = (torch.tensor(x, dtype=DTYPE, device=place).reshape(x_shape) for x, x_shape in PROBLEM)
    q, k, v, dout = (x[rows].requires_grad_() for x in whole)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    returned = CALL(q, k, v, **ARGUMENTS)
    out = returned[0] if isinstance(returned, tuple) else returned
    found = {"out": out.detach().float().cpu().numpy()}
    if GRADIENTS:
        gradients = torch.autograd.grad(out, (q, k, v), dout.detach(), allow_unused=True)
        for name, x, like in zip(("dq", "dk", "dv"), gradients, (q, k, v)):
            x = torch.zeros_like(like) if x is None else x
            found[name] = x.float().cpu().numpy()
    torch.save(found, f"{results}/{rank}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        arguments = (len(ROWS), store, folder)
        start = "fork" if sys.platform == "linux" else "spawn"  # a fork need not import torch again
        torch.multiprocessing.start_processes(rank_main, arguments, len(ROWS), start_method=start)
        parts = [torch.load(f"{folder}/{r}", weights_only=False) for r in range(len(ROWS))]
    got = {}
    for name in parts[0]:
        got[name] = np.zeros((sum(map(len, ROWS)), *parts[0][name].shape[1:]))
        for rows, part in zip(ROWS, parts):
            got[name][rows] = part[name]
    compare(got)


if __name__ == "__main__":
    main()
