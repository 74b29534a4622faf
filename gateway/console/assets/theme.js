// Runs before the first paint, so that no page flashes in the other theme.
// "auto" follows the system; the choice is kept in this browser.
(() => {
  const read = () => {
    try { return localStorage.getItem("headway-theme") || "auto"; } catch { return "auto"; }
  };
  const apply = (theme) => { document.documentElement.dataset.theme = theme; };
  apply(read());
  document.addEventListener("DOMContentLoaded", () => {
    const choices = document.getElementById("theme");
    choices.querySelector(`[value="${read()}"]`)?.setAttribute("checked", "");
    choices.addEventListener("change", (event) => {
      apply(event.target.value);
      try { localStorage.setItem("headway-theme", event.target.value); } catch { /* for this page only, then */ }
    });
  });
})();
