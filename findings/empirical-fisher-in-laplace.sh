#!/usr/bin/env bash
# laplace-torch's empirical Fisher information of a regression is 2σ² times that of its own likelihood.
#
# One would guess: with likelihood="regression" and sigma_noise σ all backends speak of one likelihood, N(f(x), σ²), and those
# whose names end in EF give Σ g g', g a row's gradient of its logarithm. For classification they do.
# What happens: the loss is the squared error, without 1/2. For its second derivatives the factor 1/(2σ²) is right; products of
# two gradients need 1/(2σ²)². They get the first, so that the posterior precision is 2σ² times the one of the likelihood: twice
# at σ = 1, eight times at σ = 2. The GGN is right. All backends have it, so that comparing them tells nothing.
# Why it matters: elastic weights (EWC, FedCurv) and predictive variances are made of this matrix, and marginal likelihoods, by
# which σ is chosen, take it as if it were the Hessian.
# Seen with laplace-torch 0.3, torch 2.13.0, in float64, prior precision 1e-9 (AsdlEF, with asdfghjkl 0.1a4, alike): the trace of
# posterior_precision over that of the definition: what stands at the end.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/env"
"$place/env/bin/pip" install -q torch==2.13.0 laplace-torch==0.3 curvlinops-for-pytorch==3.0.1 backpack-for-pytorch==1.7.1
"$place/env/bin/pip" uninstall -q -y torchvision # not used, and it has to fit torch
"$place/env/bin/python" -W ignore - <<'PY' | tee "$place/seen"
from copy import deepcopy

import torch
from laplace import Laplace
from laplace.curvature import BackPackEF, BackPackGGN, CurvlinopsEF, CurvlinopsGGN
from torch.distributions import Categorical, Normal

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
X, Y, y = torch.randn(9, 3), torch.randn(9, 2), torch.randint(0, 2, (9,))
net = torch.nn.Linear(3, 2)
w = torch.cat([p.detach().flatten() for p in net.parameters()])


def gradients_product(log_likelihood):
    g = torch.func.grad(log_likelihood)(w)
    return g.outer(g)


def curvature(log_likelihood):  # of a linear model the GGN
    return -torch.func.hessian(log_likelihood)(w)


def defined(matrix, targets, sigma):
    def log_likelihood(w, x, t):
        f = w[:6].view(2, 3) @ x + w[6:]
        return (Categorical(logits=f) if targets is y else Normal(f, sigma)).log_prob(t).sum()

    return sum(matrix(lambda w, x=x, t=t: log_likelihood(w, x, t)) for x, t in zip(X, targets, strict=True))


for likelihood, targets, sigma in (("classification", y, 1.0), ("regression", Y, 1.0), ("regression", Y, 2.0)):
    ratios = []
    for backend in (CurvlinopsGGN, BackPackGGN, CurvlinopsEF, BackPackEF):
        it = Laplace(deepcopy(net), likelihood, "all", "full", backend=backend, prior_precision=1e-9, sigma_noise=sigma)
        it.fit(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, targets), batch_size=4))
        matrix = gradients_product if backend in (CurvlinopsEF, BackPackEF) else curvature
        ratio = it.posterior_precision.trace() / defined(matrix, targets, sigma).trace()
        ratios.append(f"{backend.__name__} {ratio:.4f}")
    print(f"{likelihood}, sigma {sigma:.0f}:", ", ".join(ratios))
PY
diff "$place/seen" - <<'SEEN'
classification, sigma 1: CurvlinopsGGN 1.0000, BackPackGGN 1.0000, CurvlinopsEF 1.0000, BackPackEF 1.0000
regression, sigma 1: CurvlinopsGGN 1.0000, BackPackGGN 1.0000, CurvlinopsEF 2.0000, BackPackEF 2.0000
regression, sigma 2: CurvlinopsGGN 1.0000, BackPackGGN 1.0000, CurvlinopsEF 8.0000, BackPackEF 8.0000
SEEN
