#!/usr/bin/env bash
# OpenFL's sparse ternary compression sends p of the update's size, p the share of entries that it keeps.
#
# One would guess: STCPipeline keeps the k largest entries and sends ±μ for each, μ the mean of their magnitudes, as in Sattler
# et al. 2019, algorithm 1: what is sent has the same sum of magnitudes as the entries that were kept.
# What happens: μ is the mean over all n entries, of which n − k have been set to zero before. With p = 0.1 each kept entry is a
# tenth of what it should be, with p = 0.01 a hundredth; the places and signs are right.
# Why it matters: it looks as if compression itself slowed training, the more the stronger it is, and no residual is kept that
# would catch up: a comparison of compressors compares their rates.
# Seen with openfl 1.9, NumPy 2.4.6; 1 000 numbers from a normal distribution: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q numpy==2.4.6
"$place/env/bin/pip" install -q --no-deps openfl==1.9
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
import sys
import sysconfig
from types import ModuleType

import numpy as np

package = sys.modules["openfl"] = ModuleType("openfl")  # its own __init__ loads the whole framework
pipelines = sys.modules["openfl.pipelines"] = ModuleType("openfl.pipelines")
package.__path__ = [f"{sysconfig.get_path('purelib')}/openfl"]
pipelines.__path__ = [f"{package.__path__[0]}/pipelines"]
from openfl.pipelines.stc_pipeline import STCPipeline

update = np.random.default_rng(0).normal(size=1000).astype(np.float32)
for p in (1.0, 0.1, 0.01):
    pipeline = STCPipeline(p_sparsity=p)
    got = pipeline.backward(*pipeline.forward(update))
    kept = np.argsort(-np.abs(update))[: round(1000 * p)]
    right = set(np.flatnonzero(got)) == set(kept) and (np.sign(got[kept]) == np.sign(update[kept])).all()
    share = np.abs(got).sum() / np.abs(update[kept]).sum()
    print(f"p = {p}: places and signs {'right' if right else 'wrong'}, sent / kept sum of magnitudes {share:.3f}")
PY
diff "$place/seen" - <<'SEEN'
p = 1.0: places and signs right, sent / kept sum of magnitudes 1.000
p = 0.1: places and signs right, sent / kept sum of magnitudes 0.100
p = 0.01: places and signs right, sent / kept sum of magnitudes 0.010
SEEN
