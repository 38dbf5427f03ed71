// Two clients, two parameters, one round: what the sliders change. The numbers are those of
// fedref/teach/figure.py; a test compares them.
"use strict";

const KAPPA = 0.3, W0 = [0.2, 1.6];
const CLIENTS = [
  { A: [[2.0, 0.5], [0.5, 0.5]], c: [1.0, 0.5] },
  { A: [[0.5, -0.3], [-0.3, 1.5]], c: [-1.0, -0.5] },
];
const SLIDERS = {
  alpha: ["α, inner step", 0, 0.5, 0.01, 0.1], beta: ["β (η), local step", 0.01, 0.4, 0.01, 0.15],
  mu: ["μ, penalty", 0, 4, 0.05, 0.5], tau: ["τ, local steps", 1, 30, 1, 6],
  delta: ["δ, half-width", 0.01, 1.5, 0.01, 0.3], lam: ["λ, forgetting", 0, 1, 0.05, 1],
  rounds: ["rounds", 1, 30, 1, 8],
};
const ALGORITHMS = {
  fedprox: ["FedProx (μ = 0: FedAvg)", ["beta", "mu", "tau"]],
  exact: ["Per-FedAvg, exact", ["alpha", "beta", "tau"]],
  fo: ["Per-FedAvg, first order", ["alpha", "beta", "tau"]],
  hf: ["Per-FedAvg, Hessian free", ["alpha", "beta", "tau", "delta"]],
  apfl: ["APFL, W_k = W_S at the start, as printed", ["beta", "mu", "lam", "tau", "rounds"]],
  "apfl-continuous": ["APFL, started without a jump", ["beta", "mu", "lam", "tau", "rounds"]],
};

// ---- two-dimensional arithmetic
const add = (a, b, t = 1) => [a[0] + t * b[0], a[1] + t * b[1]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
const times = (A, v) => [dot(A[0], v), dot(A[1], v)];
const scaled = (t, v) => [t * v[0], t * v[1]];

// ---- the losses: value, gradient, Hessian-vector product
const loss = (f, w) => {
  const x = add(w, f.c, -1);
  return 0.5 * dot(x, times(f.A, x)) + KAPPA / 4 * dot(x, x) ** 2;
};
const grad = (f, w) => {
  const x = add(w, f.c, -1);
  return add(times(f.A, x), x, KAPPA * dot(x, x));
};
const hvp = (f, w, v) => {
  const x = add(w, f.c, -1);
  return add(add(times(f.A, v), v, KAPPA * dot(x, x)), x, 2 * KAPPA * dot(x, v));
};

// ---- one local step, as the papers have it
function metaGradient(name, f, w, { alpha, delta }) {
  const u = grad(f, add(w, grad(f, w), -alpha));
  if (name === "fo") return u;
  if (name === "exact") return add(u, hvp(f, w, u), -alpha);
  const d = scaled(1 / (2 * delta), add(grad(f, add(w, u, delta)), grad(f, add(w, u, -delta)), -1));
  return add(u, d, -alpha);
}
function step(name, f, w, values) {
  const g = name === "fedprox"
    ? add(grad(f, w), add(w, W0, -1), values.mu) : metaGradient(name, f, w, values);
  return add(w, g, -values.beta);
}

// ---- APFL: the decomposition starts in round 1, and importance is renewed in rounds 0, 1, 2
const sigmoid = (a) => 1 / (1 + Math.exp(-a));
const compose = (w, { a, w_k }) => add(scaled(sigmoid(a), w), w_k);
function apfl(init, { beta, mu, lam, tau, rounds }) {
  let w_S = W0, F = [0, 0];
  const own = [null, null], paths = [[W0], [W0]], shared = [W0];
  for (let t = 0; t < rounds; t++) {
    const I = CLIENTS.map((f) => grad(f, w_S).map((g) => g * g));
    const ends = CLIENTS.map((f, k) => {
      if (t === 1) own[k] = { a: 1, w_k: scaled(init === "apfl" ? 1 : 1 - sigmoid(1), w_S) };
      let w = w_S;
      for (let step = 0; step < tau; step++) {
        const G = grad(f, own[k] ? compose(w, own[k]) : w), m = own[k] ? sigmoid(own[k].a) : 1;
        const pull = add(w, w_S, -1).map((x, j) => mu * F[j] * x);
        if (own[k])
          own[k] = { a: own[k].a - beta * m * (1 - m) * dot(G, w), w_k: add(own[k].w_k, G, -beta) };
        w = add(w, add(scaled(m, G), pull), -beta);
      }
      return w;
    });
    w_S = scaled(0.5, add(...ends));
    if (t <= 2) F = add(scaled(lam, F), add(...I), 0.5);
    shared.push(w_S);
    paths.forEach((path, k) => path.push(own[k] ? compose(w_S, own[k]) : w_S));
  }
  return { paths, mean: w_S, shared, masks: own.map((o) => o ? sigmoid(o.a) : 1) };
}

function round(name, values) {
  if (name.startsWith("apfl")) return apfl(name, values);
  const paths = CLIENTS.map((f) => {
    const path = [W0];
    for (let t = 0; t < values.tau; t++) path.push(step(name, f, path[t], values));
    return path;
  });
  return { paths, mean: scaled(0.5, add(paths[0].at(-1), paths[1].at(-1))) };
}

// ---- where the averaged loss and the meta-objective are smallest: gradient descent to the end
function minimum(gradient) {
  let w = [0, 0];
  for (let t = 0; t < 4000; t++) w = add(w, gradient(w), -0.05);
  return w;
}
const averaged = (w) => scaled(0.5, add(grad(CLIENTS[0], w), grad(CLIENTS[1], w)));
const meta = (alpha) => (w) => scaled(0.5, add(...CLIENTS.map((f) => metaGradient("exact", f, w, { alpha }))));

// ---- the picture
const SIZE = 480, REACH = 2.2;
const px = ([x, y]) => [(x / REACH + 1) * SIZE / 2, (1 - y / REACH) * SIZE / 2];
const points = (path) => path.map((w) => px(w).map((v) => v.toFixed(2)).join(",")).join(" ");

function contour(f, level) {
  const path = [];  // along each ray from the centre the loss rises: halve until it is `level`
  for (let i = 0; i <= 72; i++) {
    const ray = [Math.cos(i * Math.PI / 36), Math.sin(i * Math.PI / 36)];
    let low = 0, high = 8;
    for (let k = 0; k < 40; k++) {
      const middle = (low + high) / 2;
      if (loss(f, add(f.c, ray, middle)) < level) low = middle; else high = middle;
    }
    path.push(add(f.c, ray, low));
  }
  return path;
}
function mark(w, shape) {
  const [x, y] = px(w);
  return `<g class="${shape}"><circle cx="${x}" cy="${y}" r="5"/></g>`;
}
const LEGEND = {
  start: "start", mean: "average of the clients after one round", least: "minimum of the mean loss",
  meta: "minimum of the meta-objective",
};
const hasMeta = (name) => ["exact", "fo", "hf"].includes(name);
const legend = (name) => Object.entries(LEGEND).filter(([key]) => key !== "meta" || hasMeta(name))
  .map(([key, text]) => [key, key === "mean" && name.startsWith("apfl") ? "shared w_S; dashed: its way" : text])
  .map(([key, text]) => `<li><svg class="key ${key}" viewBox="0 0 14 14" aria-hidden="true"><circle cx="7" cy="7" r="5"/></svg>${text}</li>`).join("");
function drawn(name, values) {
  const { paths, mean, shared } = round(name, values);
  const rings = CLIENTS.map((f, k) => [0.1, 0.4, 1, 2].map((level) =>
    `<polyline class="ring client${k}" points="${points(contour(f, level))}"/>`).join("")).join("");
  const lines = paths.map((path, k) => `<polyline class="path client${k}" points="${points(path)}"/>`
    + path.slice(1).map((w) => `<circle class="dot client${k}" cx="${px(w)[0]}" cy="${px(w)[1]}" r="2.5"/>`).join("")).join("");
  const trail = shared ? `<polyline class="path shared" points="${points(shared)}"/>` : "";
  return rings + trail + lines + mark(W0, "start") + mark(mean, "mean")
    + mark(minimum(averaged), "least")
    + (hasMeta(name) ? mark(minimum(meta(values.alpha)), "meta") : "");
}
function described(name, values) {
  const { mean, paths, masks } = round(name, values);
  const now = CLIENTS.map((f) => loss(f, mean)), after = CLIENTS.map((f) => loss(f, add(mean, grad(f, mean), -values.alpha)));
  const shown = (v) => v.map((x) => x.toFixed(3)).join(" and ");
  if (masks)
    return `The clients' losses with w_S alone: ${shown(now)}; with their own models w_S ⊙ m_k + w_k: `
      + `${shown(CLIENTS.map((f, k) => loss(f, paths[k].at(-1))))}. The masks m_k: ${shown(masks)}.`;
  return `Average (${mean.map((x) => x.toFixed(3)).join(", ")}). The clients' losses there: ${shown(now)}; `
    + `after one gradient step of size α = ${values.alpha} each: ${shown(after)}.`;
}

function build(figure) {
  const values = Object.fromEntries(Object.entries(SLIDERS).map(([key, s]) => [key, s[4]]));
  let name = figure.dataset.algorithm;
  const offered = figure.dataset.offered.split(" ");
  figure.innerHTML = `<div class="controls"></div><svg viewBox="0 0 ${SIZE} ${SIZE}" role="img" aria-label="Contours of two losses and the clients' paths"></svg><figcaption><ul></ul><p aria-live="polite"></p></figcaption>`;
  const [controls, svg, caption] = figure.children;
  const choice = offered.length < 2 ? "" : `<label>Algorithm <select>${offered.map((one) =>
    `<option value="${one}">${ALGORITHMS[one][0]}</option>`).join("")}</select></label>`;
  controls.innerHTML = choice + Object.entries(SLIDERS).map(([key, [label, low, high, by, start]]) =>
    `<label data-key="${key}">${label} <output>${start}</output><input type="range" min="${low}" max="${high}" step="${by}" value="${start}"></label>`).join("");
  function show() {
    for (const label of controls.querySelectorAll("[data-key]"))
      label.hidden = !ALGORITHMS[name][1].includes(label.dataset.key);
    svg.innerHTML = drawn(name, values);
    caption.firstChild.innerHTML = legend(name);
    caption.lastChild.textContent = described(name, values);
    figure.dataset.round = JSON.stringify(round(name, values));
  }
  controls.addEventListener("input", ({ target }) => {
    const label = target.closest("[data-key]");
    if (label) {
      values[label.dataset.key] = Number(target.value);
      label.querySelector("output").textContent = target.value;
    } else name = target.value;
    show();
  });
  show();
}
document.querySelectorAll("figure[data-algorithm]").forEach(build);
