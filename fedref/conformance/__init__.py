"""Golden vectors for the papers' equations and rounds, and a suite that names known mistakes.

    fedref conformance MODULE:BACKEND      pytest --pyargs fedref.conformance --fedref-backend ...

**A backend** is any object (or module) with some of these functions. Inputs are NumPy arrays in
dictionaries and lists, a scalar (`mu`, `N`, a round's number, a flag) an array without dimensions; only
`model` and `hyper` hold Python's numbers. Results are arrays of the dtype that was given, which no later
call overwrites; a scalar may be a number. A function that is missing, or that raises
NotImplementedError, is *not offered*. A module offers the functions that it defines, not those that
it imports, unless `__all__` lists them. Name the parameters as below: inputs are passed by keyword.

    loss(model, w, D) → f                    grad(model, w, D) → (d,)      hvp(model, w, v, D) → (d,)
    dissimilarity(model, w, clients) → {"B", "variance"}          clients: {k: {"X", "y"}}
    meta_gradient(variant, model, hyper, **inputs) → the gradient, or a dictionary with intermediates
    client(algorithm, model, hyper, server, data, rows[, client]) → {"upload", "client", "path", ...}
    aggregate(algorithm, model, hyper, server, uploads, n, counts[, N]) → {"server", "p"}
    round(algorithm, model, hyper, state, data, plan) → {"server", "clients"[, "uploads", "p"]}
    evaluate(algorithm, model, hyper, server, tests[, client, D]) → {"losses"[, "w"]}

model   {"family", "d", "shapes", "l2", ...}: w (d,) is cut into `shapes` in order, each in C order:
        weight (in, out), then bias (out,); kernels (k, k, in, out); images are rows (H, W, channels);
        LSTMs: the embedding's rows, then for each layer W (in + H, 4H) and b, gates i, f, g, o. `l2`
        is a number as those in hyper are: compiled functions that take it as an argument, as they
        take α, serve all models that differ in it alone
D       {"X": (B, p), "y": (B,)[, "s": (B,) weights, 0 = padding]}; for an LSTM X holds codes, whole
        numbers below `vocabulary`, and `vocabulary` for a step that is not taken
hyper   every hyperparameter by fedref's name (`fedref run --help`: lr is η), and B, the batch size
server  the server's state by the paper's names: {"w"}, {"theta", "alpha"}, {"w", "u", "v", "t"}, ...
client  the state that the client kept from its last round, absent in its first
upload  {"w"} for FedAvg and most others. For the rest, as for server and client, the names are those
        of the case's required outputs in index.json
path    (S + 1, d), the parameters before each step and at the end; once γ has stopped a client, its last
rows    role → (S, W) rows within the client's data, one line a local step, −1 = padding; roles are D,
        D1, D2 (D, D′, D″) or S, Q (support, query)
state   first {"server": ...}; afterwards what the backend returned in the round before: "clients" is
        {k: the state that client k keeps}
data    of a client: {"X": (n, p), "y": (n,)}. Of a round: all clients' rows, and "offsets" (N + 1,):
        client k has rows offsets[k]:offsets[k+1]
plan    {"round": t; for each of the K clients of the cohort "clients", its index, ascending; "counts", how
        often it was drawn; "sizes", n_k; "steps", how many local steps it does; "per_epoch", steps of one
        epoch; "amount", epochs or steps asked for; "straggler"; "rows": role → (K, S, W), as for `rows`};
        and "loss", the global training loss after the round, for algorithms that watch it (adaptive μ,
        APFL's detector)

Outputs that are not required are compared if they are returned, all in the order in which they arise:
the report names the first one that differs.

The inputs of each variant of `meta_gradient`, and the required outputs:

    per-fedavg, per-fedavg-hf     w, D, D1, D2                                     meta_gradient
    per-fedavg-fo                 w, D, D1                                         meta_gradient
    per-fedavg-steps              w, D (ν batches, leading axis), D1, D2 (ν)       meta_gradient
    fedmeta-maml, fedmeta-fomaml  theta, S, Q                                      g_theta
    fedmeta-sgd                   theta, alpha (d,), S, Q                          g_theta, g_alpha
    fedmaml                       theta, tr, val                                   g

**Conventions**, where a paper or a library may have others:

    loss        Σ s ℓ / Σ s + (l2/2)‖w‖², biases included; so every gradient and Hessian has an L2 term.
                Where D has no s, s = 1. Without a sample (all padding, an empty support set) the mean
                is 0, and a step along the L2 term is still taken
    labels      0, 1 for binary-logistic; −1, 1 for svm; 0 to C − 1 for all others
    svm         ℓ = max(0, 1 − yz), or its square if `squared`; the derivative at margin 1 is 0
    kinks       ReLU′(0) = 0, ELU″(0) = 0; a tie in max-pooling goes to the first in row-major order
    cnn         "valid" correlations of stride 1 (kernels are not flipped), φ, then 2 × 2 pooling, which
                drops an odd last row or column; φ also follows the hidden dense layer
    lstm        a step that is not taken leaves h and c as they are; the dense layer reads the last h, or
                the mean over the steps that are taken; a text without steps reads 0
    dissimilarity  B = √(Σ p_k‖∇F_k‖²)/‖∇f‖, variance = Σ p_k‖∇F_k − ∇f‖²; ∇f = Σ p_k∇F_k, p_k ∝ n_k
    client      local steps in the order of `rows`, ⌈n/B⌉ an epoch; padded rows weigh 0. FedMeta sends the
                sum of its episodes' gradients
    aggregate   p_k ∝ counts_k n_k (`weighting` "samples") or ∝ counts_k ("uniform"); FedMAML sums
    round       clients with plan["straggler"] do not take part if hyper["drop"]; others do plan["steps"]
                steps. If nobody takes part the state does not change
    evaluate    if D is given, `inner_steps` steps on it (1 if hyper has none) of size α (Meta-SGD: the
                server's), with the L2 term; FedMAML with `evaluate` "theta1": θ′, not adapted; APFL: the
                client's w_S ⊙ σ(a) + w_k. Then the mean loss on each test batch, without the L2 term

**Promised** until the version in index.json changes: the names, shapes and meaning above; the names in
the vectors; `fedref.sampling` (`Plan`, `make_plan` and its streams of random numbers), `fedref.rounds`
(`run_round`), `fedref.algorithm.State`, the algorithms' functions, and the split manifest. A vector that
changes is a change of the specification, and is in the CHANGELOG.
"""
