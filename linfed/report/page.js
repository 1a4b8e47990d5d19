"use strict";

// Filtering of the claims by text and verdict: badges count the claims that are left, and what is empty is hidden.
(() => {
  const words = document.getElementById("words");
  const count = document.getElementById("count");
  const unfold = document.getElementById("unfold");
  const buttons = [...document.querySelectorAll("[data-verdict]")];
  const experiments = [...document.querySelectorAll(".experiment")].map((node) => ({
    node,
    statements: [...node.querySelectorAll(".statement")].map((one) => {
      const shared = [one.firstElementChild, ...one.querySelectorAll("p, ol")].map((part) => part.textContent);
      const text = [node.id, ...shared].join(" ").toLowerCase();
      const rows = [...one.querySelectorAll("tr")].map((row) => ({
        row,
        verdict: row.cells[0].textContent,
        text: `${text} ${row.textContent.toLowerCase()}`,
      }));
      return { node: one, rows };
    }),
  }));
  const every = experiments.flatMap((one) => one.statements.flatMap((statement) => statement.rows));

  const recount = (summary, rows) => {
    for (const badge of summary.querySelectorAll(".verdict:has(b)")) {
      const verdict = badge.firstChild.textContent.trim();
      const left = rows.filter((row) => row.verdict === verdict).length;
      badge.lastElementChild.textContent = left.toLocaleString("en");
      badge.hidden = !left;
    }
  };

  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = buttons.filter((one) => one.ariaPressed === "true").map((one) => one.dataset.verdict);
    const matching = every.filter((row) => wanted.every((word) => row.text.includes(word)));
    const left = new Set(matching.filter((row) => !chosen.length || chosen.includes(row.verdict)));
    for (const { row } of every) row.hidden = true;
    for (const { row } of left) row.hidden = false;
    for (const { node, statements } of experiments) {
      const mine = statements.flatMap((statement) => {
        const rows = statement.rows.filter((row) => left.has(row));
        statement.node.hidden = !rows.length;
        recount(statement.node.firstElementChild, rows);
        return rows;
      });
      node.hidden = left.size < every.length && !mine.length;
      recount(node.firstElementChild, mine);
    }
    for (const button of buttons) {
      const rows = matching.filter((row) => row.verdict === button.dataset.verdict);
      button.lastElementChild.textContent = rows.length.toLocaleString("en");
    }
    count.value = left.size === every.length ? `${left.size} claims` : `${left.size} of ${every.length} claims`;
  };

  words.addEventListener("input", filter);
  words.form.addEventListener("submit", (event) => event.preventDefault());
  for (const one of buttons) {
    one.addEventListener("click", () => {
      one.ariaPressed = String(one.ariaPressed !== "true");
      filter();
    });
  }
  unfold.addEventListener("click", () => {
    const open = unfold.ariaPressed !== "true";
    unfold.ariaPressed = String(open);
    for (const one of document.querySelectorAll("details")) one.open = open;
  });
  const follow = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  window.addEventListener("hashchange", follow);
  follow();
  filter();
})();
