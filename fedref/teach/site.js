// The list of topics shows those that hold what is typed.
"use strict";
const find = document.getElementById("find");
if (find) find.addEventListener("input", () => {
  for (const one of document.querySelectorAll("#topics li"))
    one.hidden = !one.textContent.toLowerCase().includes(find.value.trim().toLowerCase());
});
// Pointing at a symbol, or moving to it with the Tab key, marks it in formula, code and table.
{
  const symbols = document.querySelectorAll("[data-symbol]");
  const mark = (event) => {
    const found = event.target.closest && event.target.closest("[data-symbol]");
    const gone = event.type === "pointerout" || event.type === "focusout";
    const name = found && !gone ? found.dataset.symbol : null;
    for (const one of symbols) one.classList.toggle("same", one.dataset.symbol === name);
  };
  for (const kind of ["pointerover", "pointerout", "focusin", "focusout"])
    document.addEventListener(kind, mark);
  // in a formula each symbol is reached once
  for (const formula of document.querySelectorAll(".formula")) {
    const seen = new Set();
    for (const one of formula.querySelectorAll("[data-symbol]")) {
      if (!seen.has(one.dataset.symbol)) one.tabIndex = 0;
      seen.add(one.dataset.symbol);
    }
  }
}
