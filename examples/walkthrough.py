"""A walk through exact attention on this machine: what must move, who runs it how fast, and whether it is right.

    python examples/walkthrough.py                         # causal attention, 2048 tokens, 8 heads of 64, bfloat16
    python examples/walkthrough.py --seq 8192 --heads 2 --window 1024

Times the kernels behind PyTorch's scaled_dot_product_attention, one at a time, beside Tessera; checks all of them
against the math path in float64; shows how partial results join; and runs a mask that no fixed kernel has.
Exits with 1 if Tessera is less accurate than the accuracy rule of docs/contracts.md allows.
"""
import argparse
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import tessera
from tessera.torch.flex import create_block_mask, flex_attention

TORCH_BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
                  "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--seq", type=int, default=2048, help="queries, and as many keys")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16")
    parser.add_argument("--window", type=int, default=256, help="of the sliding-window mask")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each, alternating; the fastest counts")
    return parser.parse_args(given)


def on(backend):
    def run(q, k, v, **options):
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(q, k, v, **options)

    return run


def causal(q, k, v, is_causal=True):
    """Tessera in torch's layout, [batch, heads, tokens, dim]: views, not copies."""
    views = (x.transpose(1, 2) for x in (q, k, v))
    return tessera.attention(*views, mask="causal", q_offset=0).transpose(1, 2)


def show_traffic(a, width):
    scores, tensors = a.batch * a.heads * a.seq**2 * width, 4 * a.batch * a.heads * a.seq * a.dim * width
    print(
        f"scores written and read, twice each: {4 * scores / 1e6:.1f} MB; q, k, v and o alone: {tensors / 1e6:.1f} MB"
    )
    print(f"operations for each byte: {a.seq * a.dim / (a.seq + a.dim) / width:.0f} and {a.seq / width:.0f}\n")


def show_merging():
    """Four keys in two tiles: each tile's (output, LSE) is all that is needed to join them."""
    q = torch.ones(1, 1, 1, 1)
    scores, values = (torch.tensor(x).view(1, 4, 1, 1) for x in ([2.0, 1.0, 3.0, 0.0], [1.0, 2.0, 3.0, 4.0]))
    tiles = [tessera.attention(q, scores[:, i:i + 2], values[:, i:i + 2], scale=1.0, return_lse=True) for i in (0, 2)]
    joined, _ = tessera.merge(*tiles[0], *tiles[1])
    whole = tessera.attention(q, scores, values, scale=1.0)
    print(
        f"two tiles give {tiles[0][0].item():.4f} and {tiles[1][0].item():.4f}, joined {joined.item():.4f}, at once"
        f" {whole.item():.4f}\n"
    )


def times(runs, tensors, rounds):
    """The fastest of `rounds` for each, in seconds, alternating so that all see the same machine."""
    best = {}
    for _ in range(rounds + 1):  # the first warms up
        for name, run in runs.items():
            start = time.perf_counter()
            run(*tensors)
            best.setdefault(name, []).append(time.perf_counter() - start)
    return {name: min(took[1:]) for name, took in best.items()}


def available(tensors):
    """What runs on these tensors; a line for what does not."""
    runs = {"tessera": causal}
    tiny = [x[:, :, :16] for x in tensors]
    for name, backend in TORCH_BACKENDS.items():
        try:
            on(backend)(*tiny, is_causal=True)
            runs[name] = lambda q, k, v, run=on(backend): run(q, k, v, is_causal=True)
        except RuntimeError as error:
            print(f"  {name:10s} skipped, this device lacks it: {str(error).splitlines()[0][:70]}")
    return runs


def errors(o, q, k, v, **options):
    """Largest error of o against the math path in float64, and the same of the math path in o's type, head by head."""
    ours = math = 0.0
    for h in range(q.shape[1]):
        one = [x[:, h:h + 1] for x in (q, k, v)]
        exact = on(SDPBackend.MATH)(*(x.double() for x in one), **options)
        ours = max(ours, (o[:, h:h + 1].double() - exact).abs().max().item())
        math = max(math, (on(SDPBackend.MATH)(*one, **options).double() - exact).abs().max().item())
    return ours, math


def main(given=None):
    a = arguments(given)
    dtype = getattr(torch, a.dtype)
    torch.manual_seed(0)
    q, k, v = tensors = [torch.randn(a.batch, a.heads, a.seq, a.dim, dtype=dtype) for _ in range(3)]
    print(f"causal attention on the CPU: {a.batch} x {a.heads} heads, {a.seq} tokens, dim {a.dim}, {a.dtype}")
    show_traffic(a, dtype.itemsize)
    show_merging()

    runs = available(tensors)
    flops = 2 * a.batch * a.heads * a.seq**2 * a.dim  # causal: half of 4 N^2 d
    rounding, right = torch.finfo(dtype).eps / 2 * v.abs().max().item(), True
    for name, seconds in times(runs, tensors, a.rounds).items():
        error, math = errors(runs[name](*tensors), *tensors, is_causal=True)
        print(f"  {name:10s} {1e3 * seconds:9.2f} ms {flops / seconds / 1e12:7.3f} TFLOP/s   largest error {error:.1e}")
        if name == "tessera":
            right = error <= 2 * math + rounding
    print(f"  the math path's own error in {a.dtype}: {math:.1e}\n")

    def sliding_window_causal(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx <= a.window)

    block_mask = create_block_mask(sliding_window_causal, B=None, H=None, Q_LEN=a.seq, KV_LEN=a.seq)
    o = flex_attention(q, k, v, block_mask=block_mask)
    took = times({"window": lambda *x: flex_attention(*x, block_mask=block_mask), "causal": causal}, tensors, a.rounds)
    position = torch.arange(a.seq)
    dense = sliding_window_causal(0, 0, position[:, None], position[None, :])
    error, math = errors(o, q, k, v, attn_mask=dense)
    print(
        f"sliding window of {a.window}, as a FlexAttention mask_mod: {1e3 * took['window']:.2f} ms,"
        f" {took['causal'] / took['window']:.1f} times as fast as causal; largest error {error:.1e}, the math path's"
        f" {math:.1e}\n{block_mask}"
    )
    right = right and error <= 2 * math + rounding
    print("all within the accuracy rule" if right else "NOT within the accuracy rule")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
