// Runs before the first paint, so that no page flashes in the wrong colours.
try {
  var chosen = localStorage.getItem("memplan-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (e) { /* a file opened from disk may have no storage */ }
