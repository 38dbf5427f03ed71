// Pointing at a symbol, or moving to it, marks it in formula, code and table.
"use strict";
const symbols = document.querySelectorAll("[data-symbol]");
function mark(event) {
  const found = event.target.closest && event.target.closest("[data-symbol]");
  const name = found && event.type !== "pointerout" && event.type !== "focusout"
    ? found.dataset.symbol : null;
  for (const one of symbols) one.classList.toggle("same", one.dataset.symbol === name);
}
for (const kind of ["pointerover", "pointerout", "focusin", "focusout"])
  document.addEventListener(kind, mark);
for (const row of document.querySelectorAll("tr[data-symbol]")) row.tabIndex = 0;
