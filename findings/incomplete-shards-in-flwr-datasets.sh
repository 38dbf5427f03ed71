#!/usr/bin/env bash
# flwr-datasets: keep_incomplete_shard=True keeps fewer rows than False.
#
# One would guess: rows that do not fill a shard are lost by default, and with keep_incomplete_shard=True they are not,
# so that all 101 rows of this data set are with somebody.
# What happens: where the number of shards is given and their size is not, the rest of three rows becomes a fifteenth
# shard, while seven partitions of two shards take fourteen of the fifteen, drawn at random. In 14 of 15 draws the small
# shard is among them and a full one of seven rows is left out: 94 rows where the default has 98, and one partition is
# smaller than the others.
# Why it matters: a label's rows are missing (shards are sorted by label) in a split that was asked to lose none, and
# the loss depends on the seed.
# Seen with flwr-datasets 0.6.1:
#   default: 98 of 101 rows
#   keep_incomplete_shard=True, seeds 0 to 29: 94 rows in 27 of 30, 98 rows in 3 of 30
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q flwr-datasets==0.6.1
HF_HOME="$place" "$place/env/bin/python" -W ignore - 2>/dev/null <<'PY' | tee "$place/seen"
from collections import Counter

from datasets import Dataset
from flwr_datasets.partitioner import ShardPartitioner

data = Dataset.from_dict({"row": list(range(101)), "label": [row % 5 for row in range(101)]})


def rows(**settings):
    split = ShardPartitioner(num_partitions=7, partition_by="label", num_shards_per_partition=2, **settings)
    split.dataset = data
    kept = [row for part in range(7) for row in split.load_partition(part)["row"]]
    assert len(kept) == len(set(kept))
    return len(kept)


print(f"default: {rows()} of 101 rows")
counts = Counter(rows(keep_incomplete_shard=True, seed=seed) for seed in range(30))
seen = ", ".join(f"{kept} rows in {count} of 30" for kept, count in sorted(counts.items()))
print(f"keep_incomplete_shard=True, seeds 0 to 29: {seen}")
PY
diff "$place/seen" - <<'SEEN'
default: 98 of 101 rows
keep_incomplete_shard=True, seeds 0 to 29: 94 rows in 27 of 30, 98 rows in 3 of 30
SEEN
