// The figure with sliders: looks up what fedref/teach/figure.py computed, and draws it.
"use strict";

const SIZE = 480, REACH = 2.2;
const pixel = ([x, y]) => [(x / REACH + 1) * SIZE / 2, (1 - y / REACH) * SIZE / 2];
const line = (path, kind) =>
  `<polyline class="${kind}" points="${path.map((w) => pixel(w).join(",")).join(" ")}"/>`;
const circle = (w, r) => `<circle cx="${pixel(w)[0]}" cy="${pixel(w)[1]}" r="${r}"/>`;
const mark = (w, kind) => `<g class="${kind}">${circle(w, 5)}</g>`;
const LEGEND = { start: "start", least: "minimum of the mean loss", meta: "minimum of the meta-objective",
  mean: "average after one round" };
const TEXT = "Average of the clients after one round ({0}, {1}). Their losses there: {2} and {3}; after one gradient step of size α each: {4} and {5}.";

function drawing({ start, least, rings }, course, t) {
  const paths = course.paths.map((path) => path.slice(0, t + 1));
  return rings.map((levels, k) => levels.map((ring) => line(ring, `ring client${k}`)).join("")).join("")
    + paths.map((path, k) => line(path, `path client${k}`)
      + `<g class="dot client${k}">${path.slice(1).map((w) => circle(w, 2.5)).join("")}</g>`).join("")
    + mark(start, "start") + mark(course.mean[t], "mean") + mark(least, "least")
    + (course.meta ? mark(course.meta, "meta") : "");
}

function build(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  let variant, places;
  figure.innerHTML = `<div class="controls"></div><svg viewBox="0 0 ${SIZE} ${SIZE}" role="img" aria-label="Contours of two losses and the clients' paths"></svg><figcaption><ul></ul><p aria-live="polite"></p></figcaption>`;
  const [controls, svg, caption] = figure.children;
  controls.innerHTML = data.variants.length < 2 ? "<div></div>" : `<label>Algorithm <select>${data.variants.map(
    ({ label }, k) => `<option value="${k}">${label}</option>`).join("")}</select></label>`;
  controls.append(document.createElement("div"));
  function choose(k) {
    variant = data.variants[k];
    places = variant.sliders.map(([, , start]) => start);
    controls.lastChild.innerHTML = variant.sliders.map(([label, values, start], i) =>
      `<label>${label} <output>${values[start]}</output><input type="range" data-slider="${i}" min="0" max="${values.length - 1}" value="${start}"></label>`).join("");
    show();
  }
  function show() {
    const row = variant.sliders.slice(0, -1).reduce((sum, [, values], i) => sum * values.length + places[i], 0);
    const course = variant.courses[row], t = places.at(-1) + 1;
    svg.innerHTML = drawing(data, course, t);
    caption.firstChild.innerHTML = Object.entries(LEGEND)
      .filter(([key]) => key !== "meta" || course.meta)
      .map(([key, text]) => `<li><svg class="key ${key}" viewBox="0 0 14 14" aria-hidden="true"><circle cx="7" cy="7" r="5"/></svg>${text}</li>`).join("");
    const shown = course.numbers[t].map((x) => Math.abs(x) < 99 ? x.toFixed(3) : "∞");
    caption.lastChild.textContent = TEXT.replace(/\{(\d)\}/g, (_, i) => shown[i]);
  }
  controls.addEventListener("input", ({ target }) => {
    if (target.dataset.slider === undefined) return choose(Number(target.value));
    const i = Number(target.dataset.slider);
    places[i] = Number(target.value);
    target.previousElementSibling.textContent = variant.sliders[i][1][places[i]];
    show();
  });
  choose(0);
}
document.querySelectorAll("figure.try").forEach(build);
