#!/usr/bin/env bash
# FedArtML: the more a split by percent_noniid is skewed in labels, the more of all rows the last client has.
#
# One would guess: percent_noniid, "percentage desired of non-IID-ness for the labels", leaves the sizes alone: it does
# at 0, and with as many clients as labels.
# What happens: the skewed part gives each client but the last its equal share of labels, rounded down, and the last
# what is left. With twelve clients for ten labels that share is none: at 50 % the last client has more than half of all
# rows, at 75 % three quarters (at 100 % an IndexError is raised). With seven it has four times the others' rows.
# Why it matters: a comparison of methods over percent_noniid measures a skew of sizes too, and a mean weighted by rows
# follows one client.
# Seen with FedArtML 0.1.34, scikit-learn 1.9.1 (which it needs and does not name), 1 000 rows, ten labels of 100 rows
# each; the share of the last client, beside an equal one:
#   7 clients, equal 14 %: at 0 % 13 %, at 50 % 26 %, at 75 % 33 %, at 100 % 40 %
#   10 clients, equal 10 %: at 0 % 10 %, at 50 % 10 %, at 75 % 10 %, at 100 % 10 %
#   12 clients, equal 8 %: at 0 % 8 %, at 50 % 54 %, at 75 % 77 %
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q FedArtML==0.1.34 scikit-learn==1.9.1
"$place/env/bin/python" -W ignore - 2>/dev/null <<'PY' | tee "$place/seen"
import numpy as np
from fedartml import SplitAsFederatedData

features, labels = np.arange(1000.0).reshape(-1, 1), [row % 10 for row in range(1000)]


def last(clients, percent):
    split = SplitAsFederatedData(random_state=0)
    parts = split.create_clients(
        image_list=features, label_list=labels, num_clients=clients, method="percent_noniid",
        percent_noniid=percent,
    )[0]["without_class_completion"]
    sizes = [len(rows) for rows in parts.values()]
    assert sum(sizes) == 1000
    return f"at {percent} % {100 * sizes[-1] / 1000:.0f} %"


for clients in (7, 10, 12):
    levels = (0, 50, 75) if clients == 12 else (0, 50, 75, 100)
    print(f"{clients} clients, equal {100 / clients:.0f} %: {', '.join(last(clients, p) for p in levels)}")
PY
diff "$place/seen" - <<'SEEN'
7 clients, equal 14 %: at 0 % 13 %, at 50 % 26 %, at 75 % 33 %, at 100 % 40 %
10 clients, equal 10 %: at 0 % 10 %, at 50 % 10 %, at 75 % 10 %, at 100 % 10 %
12 clients, equal 8 %: at 0 % 8 %, at 50 % 54 %, at 75 % 77 %
SEEN
