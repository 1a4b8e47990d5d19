"use strict";

// Filtering of the table of claims by text, experiment and verdict, and sorting by a column.
(() => {
  const table = document.getElementById("all");
  const words = document.getElementById("words");
  const of = document.getElementById("of");
  const count = document.getElementById("count");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    verdict: row.cells[0].textContent,
    experiment: row.cells[4].textContent,
  }));
  const verdicts = [...document.querySelectorAll("[data-verdict]")];

  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = verdicts.filter((one) => one.ariaPressed === "true").map((one) => one.dataset.verdict);
    let left = 0;
    for (const one of rows) {
      const shown =
        (!of.value || one.experiment === of.value) &&
        (!chosen.length || chosen.includes(one.verdict)) &&
        wanted.every((word) => one.text.includes(word));
      one.row.hidden = !shown;
      left += shown;
    }
    count.value = left === rows.length ? `${left} claims` : `${left} of ${rows.length} claims`;
  };

  words.addEventListener("input", filter);
  of.addEventListener("change", filter);
  words.form.addEventListener("submit", (event) => event.preventDefault());
  for (const one of verdicts) {
    one.addEventListener("click", () => {
      one.ariaPressed = String(one.ariaPressed !== "true");
      filter();
    });
  }
  for (const one of document.querySelectorAll("[data-experiment]")) {
    one.addEventListener("click", () => {
      of.value = one.dataset.experiment;
      words.value = "";
      for (const verdict of verdicts) verdict.ariaPressed = "false";
      filter();
      document.getElementById("claims").scrollIntoView();
      of.focus({ preventScroll: true });
    });
  }
  const key = (row, column) => {
    const cell = row.cells[column];
    return column === 3 ? Number(cell.dataset.order ?? NaN) : cell.textContent;
  };
  for (const button of table.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.parentElement;
      const down = head.ariaSort === "ascending";
      for (const other of head.parentElement.cells) other.ariaSort = "none";
      head.ariaSort = down ? "descending" : "ascending";
      const column = Number(button.dataset.column);
      const sign = down ? -1 : 1;
      const keyed = rows.map((one) => [key(one.row, column), one.row]);
      keyed.sort(([a], [b]) => {
        if (typeof a === "string") return sign * a.localeCompare(b, "en", { numeric: true });
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return sign * (a - b);
      });
      body.append(...keyed.map(([, row]) => row));
    });
  }
  filter();
})();
