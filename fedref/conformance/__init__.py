"""Golden vectors for the papers' equations and rounds, and a suite that says which mistake it is.

    fedref conformance MODULE:BACKEND            pytest --pyargs fedref.conformance --backend ...

**A backend** is any object (or module) with some of these functions. Arrays are NumPy arrays, all else
is dictionaries, lists and numbers; results are arrays of the dtype that was given. What a backend lacks,
or raises NotImplementedError for, is *not offered*.

    loss(model, w, D) → f                    grad(model, w, D) → (d,)      hvp(model, w, v, D) → (d,)
    dissimilarity(model, w, clients) → {"B", "variance"}          clients: {k: {"X", "y"}}
    meta_gradient(variant, model, hyper, **inputs) → the gradient, or a dictionary with intermediates
    client(algorithm, model, hyper, server, data, rows[, client]) → {"upload", "client", "path", ...}
    aggregate(algorithm, model, hyper, server, uploads, n, counts) → {"server", "p"}
    round(algorithm, model, hyper, state, data, plan) → {"server", "clients"[, "uploads", "p"]}
    evaluate(algorithm, model, hyper, server, tests[, client, D]) → {"losses"[, "w"]}

model   {"family", "d", "shapes", "l2", ...}: w (d,) is cut into `shapes` in order, each in C order:
        weight (in, out), then bias (out,); kernels (k, k, in, out); images are rows (H, W, channels);
        LSTMs: the embedding's rows, then for each layer W (in + H, 4H) and b, gates i, f, g, o
D       {"X": (B, p), "y": (B,)[, "s": (B,) weights, 0 = padding]}; for an LSTM X holds codes, whole
        numbers below `vocabulary`, and `vocabulary` for a step that is not taken
hyper   every hyperparameter by fedref's name, and B, the batch size
server  the server's state by the paper's names: {"w"}, {"theta", "alpha"}, {"w", "u", "v", "t"}, ...
client  what the client kept from its last round, absent in its first
rows    role → (S, W) rows within the client's data, one line a local step, −1 = padding; roles are D,
        D1, D2 (D, D′, D″) or S, Q (support, query)
state   first {"server": ...}; afterwards just what the backend returned in the round before
data    {"X": (n, p), "y": (n,), "offsets": (N + 1,)}: client k has rows offsets[k]:offsets[k+1]
plan    a `fedref.sampling.Plan` as a dictionary, and "loss", the global training loss after the round,
        for what watches it (adaptive μ, APFL's detector)

Every output that is not required is compared where it is given, in the order in which it arises: the
first one that differs is what the report names.

**Promised** until the version in index.json changes: the names, shapes and meaning above; the names in
the vectors; `fedref.sampling` (`Plan`, `make_plan` and its streams of random numbers), `fedref.rounds`
(`run_round`), `fedref.algorithm.State`, the algorithms' functions, and the split manifest. A vector that
changes is a change of the specification, and is in the CHANGELOG.
"""
