"use strict";

// The table of claims: filtered by text, experiment and verdicts, sorted by a column.
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

// Charts: buttons of the legend show and hide lines; a pointer, or the arrow keys, reads their values.
(() => {
  const short = (value) =>
    value === null ? "-" : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
      ? value.toExponential(2)
      : String(Number(value.toPrecision(3)));

  const points = (panel, line) => {
    const path = panel.querySelector(`[data-curve="${line.c}"]`);
    const found = path.getAttribute("d").match(/-?[\d.]+/g) ?? [];
    return Array.from({ length: found.length / 2 }, (_, i) => [Number(found[2 * i]), Number(found[2 * i + 1])]);
  };

  const read = (chart, panel, told) => {
    const svg = panel.querySelector("svg");
    const inside = panel.querySelector(".inside");
    const tip = panel.querySelector(".tip");
    const cross = panel.querySelector(".cross");
    const width = inside.width.baseVal.value;
    const height = inside.height.baseVal.value;
    let lines = null;
    let place = null;

    const open = () => {
      lines ??= told.lines.map((line) => ({ ...line, points: points(panel, line) }));
      return lines.filter((line) => line.points.length && !chart.off.has(line.g));
    };
    const within = ([x, y]) => x >= -0.5 && x <= width + 0.5 && y >= -0.5 && y <= height + 0.5;

    const show = (x, y) => {
      const near = new Map();
      for (const line of open()) {
        let best = null;
        line.points.forEach((point, i) => {
          if (!within(point)) return;
          const away = Math.abs(point[0] - x) + (y === null ? 0 : 0.001 * Math.abs(point[1] - y));
          if (best === null || away < best.away) best = { away, i, at: point, line };
        });
        if (best === null) continue;
        const name = line.g ?? `line ${line.c}`;
        if (!near.has(name) || best.away < near.get(name).away) near.set(name, best);
      }
      const found = [...near.values()];
      if (!found.length) return hide();
      const first = found.reduce((one, other) => (other.away < one.away ? other : one));
      const shown = found.filter((one) => Math.abs(one.at[0] - first.at[0]) <= 4);
      place = first.at[0];
      cross.setAttribute("d", `M${place} 0V${height}`);
      tip.replaceChildren();
      const head = document.createElement("b");
      head.textContent = `${told.x || "x"}: ${short(first.line.x[first.i])}`;
      tip.append(head);
      for (const { line, i } of shown) {
        const row = document.createElement("div");
        const dot = document.createElement("i");
        dot.style.background = line.k;
        const band = line.l && line.l[i] !== null ? ` [${short(line.l[i])}, ${short(line.h[i])}]` : "";
        row.append(dot, `${line.n ? `${line.n}: ` : ""}${short(line.y[i])}${band}`);
        tip.append(row);
      }
      tip.hidden = false;
      const scale = svg.clientWidth / svg.viewBox.baseVal.width;
      const middle = (inside.x.baseVal.value + place) * scale;
      const left = middle > svg.clientWidth / 2 ? middle - tip.offsetWidth - 10 : middle + 10;
      tip.style.left = `${Math.max(0, Math.min(left, svg.clientWidth - tip.offsetWidth))}px`;
      return undefined;
    };
    const hide = () => {
      tip.hidden = true;
      cross.setAttribute("d", "");
    };
    const pointed = (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale - inside.x.baseVal.value;
      const y = (event.clientY - box.top) * scale - inside.y.baseVal.value;
      if (x < -8 || x > width + 8) hide();
      else show(x, y);
    };
    svg.addEventListener("pointermove", pointed);
    svg.addEventListener("pointerdown", pointed);
    panel.addEventListener("pointerleave", hide);
    panel.addEventListener("blur", hide);
    panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return hide();
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return undefined;
      event.preventDefault();
      const all = open().flatMap((line) => line.points.filter(within).map(([x]) => x));
      const places = [...new Set(all)].sort((a, b) => a - b);
      if (!places.length) return undefined;
      const at = tip.hidden || place === null ? -1 : places.indexOf(place);
      const next = at < 0 ? (step > 0 ? 0 : places.length - 1) : Math.min(Math.max(at + step, 0), places.length - 1);
      return show(places[next], null);
    });
  };

  if (matchMedia("(max-width: 40rem)").matches) { // where a picture of several panels is too small to read
    for (const one of document.querySelectorAll("figure details")) one.open = true;
  }
  for (const node of document.querySelectorAll(".chart")) {
    const told = JSON.parse(node.querySelector("script").textContent);
    const chart = { off: new Set() };
    for (const button of node.querySelectorAll(".legend button")) {
      button.addEventListener("click", () => {
        const on = button.ariaPressed !== "true";
        const group = Number(button.dataset.group);
        button.ariaPressed = String(on);
        chart.off[on ? "delete" : "add"](group);
        for (const part of node.querySelectorAll(`.inside [data-group="${group}"]`)) {
          part.style.display = on ? "" : "none";
        }
      });
    }
    [...node.querySelectorAll(".panel")].forEach((panel, i) => read(chart, panel, told[i]));
  }
})();
