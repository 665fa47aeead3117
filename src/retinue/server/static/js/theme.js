/* Light or dark before anything is painted: a plain script in the head, so that nothing flashes. */
(() => {
  const chosen = localStorage.getItem("retinue.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
