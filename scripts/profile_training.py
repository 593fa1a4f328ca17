"""Says where the time of training goes, by kind of work.

    python scripts/profile_training.py --d-model 256 --layers 3

The workload is that of `benchmark.py train`; torch's profiler sums the time in which each operator
itself works.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import cast

from benchmark_measures import make_updater
from benchmark_work import SyntheticCorpus, Work
from torch.profiler import ProfilerActivity, profile

from transformer.data.corpus import EncodedCorpus
from transformer.data.tokenizer import Tokenizers
from transformer.data.updates import START, Update, iterate_updates

KINDS = {
    "matrix products": ("mm", "addmm", "bmm", "linear"),
    "attention": ("_scaled_dot_product",),
    "packing and padding": ("index_select", "cat"),
    "softmax over the vocabulary": ("_log_softmax", "exp_", "gather", "scatter_add_", "embedding"),
    "dropout": ("random_", "ge"),
    "norms": ("native_layer_norm", "_fused_rms_norm"),
    "activations": ("clamp_min", "relu", "threshold_backward", "gelu", "silu"),
    "additions, scaling, masks": ("add", "add_", "mul", "mul_", "div", "sum", "where"),
    "copies and fills": ("copy_", "fill_", "zero_", "clone", "empty", "empty_like"),
    "optimizer, clipping": ("_fused_adamw_", "_fused_adam_", "_foreach", "linalg_vector_norm"),
}


def kind_of(operator: str) -> str:
    """Returns the kind of work that an operator does."""
    name = operator.removeprefix("aten::")
    for kind, names in KINDS.items():
        if name in names or any(n.startswith("_") and name.startswith(n) for n in names):
            return kind
    return "everything else, Python included"


def measure(work: Work) -> tuple[Counter[str], int]:
    """Profiles some updates; returns microseconds by kind of work, and target tokens."""
    device = work.start()
    corpus = SyntheticCorpus(20 * work.batch_tokens, work.vocab_size, work.seed)
    config = work.config(work.max_tokens)

    def updates() -> Iterator[Update]:
        data = cast(EncodedCorpus, corpus)
        return iterate_updates(data, cast(Tokenizers, None), config, START)

    do_update = make_updater(work, "ours", corpus, config, device)
    upcoming = list(islice(updates(), work.updates + 1))
    do_update(upcoming[0])
    kinds = [ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(ProfilerActivity.CUDA)
    with profile(activities=kinds) as profiler:
        for update in upcoming[1:]:
            do_update(update)
    spent: Counter[str] = Counter()
    for event in profiler.key_averages():
        cuda = device.type == "cuda"
        spent[kind_of(event.key)] += (
            event.self_device_time_total if cuda else event.self_cpu_time_total
        )
    return spent, sum(update.num_tokens for update in upcoming[1:])


def main() -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, default in (
        ("--d-model", 256),
        ("--layers", 3),
        ("--vocab-size", 8000),
        ("--batch-tokens", 4096),
        ("--max-tokens", 2048),
        ("--updates", 5),
        ("--threads", 0),
        ("--seed", 1),
    ):
        parser.add_argument(flag, type=int, default=default, help=" ")
    work = Work(**vars(parser.parse_args()))
    spent, num_tokens = measure(work)
    print("| kind of work | ms / 1,000 target tokens | share |\n| --- | --- | --- |")
    for kind, microseconds in spent.most_common():
        share = microseconds / spent.total()
        print(f"| {kind} | {microseconds / num_tokens:.1f} | {share:.1%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
