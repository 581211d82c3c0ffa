// Copies a record's key, value or header as it was shown; where the browser has no clipboard, as over plain HTTP, it selects it.
"use strict";
document.documentElement.classList.add("has-script");
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const text = button.parentElement.querySelector("pre");
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } else {
    getSelection().selectAllChildren(text);
  }
});
