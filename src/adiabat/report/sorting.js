"use strict";
// Tables that sort by any column, and boxes that leave only the rows with a text. Without this script they are plain tables.
(() => {
  const key = (cell) => {
    if (!cell) return null;
    if (cell.dataset.value === undefined) return cell.textContent.trim();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));

  const sort = (body, column, sign, rows) => {
    const keyed = rows.map((row) => [key(row.cells[column]), row]);
    // Rows without a value stay last either way; the sort is stable.
    keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b)));
    body.append(...keyed.map(([, row]) => row));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      const arrow = document.createElement("span");
      arrow.className = "arrow";
      button.append(...head.childNodes);
      button.firstChild.after(arrow);
      head.append(button);
      button.addEventListener("click", () => {
        const first = head.dataset.first || "ascending";
        const second = first === "ascending" ? "descending" : "ascending";
        const now = head.getAttribute("aria-sort");
        const next = now === null ? first : now === first ? second : null;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (next === null) {
          body.append(...rows);
          return;
        }
        head.setAttribute("aria-sort", next);
        sort(body, column, next === "ascending" ? 1 : -1, rows);
      });
    });
  }

  for (const box of document.querySelectorAll("label.filter")) {
    const input = box.querySelector("input");
    const count = box.querySelector("output");
    const rows = [...document.getElementById(input.getAttribute("aria-controls")).tBodies[0].rows];
    box.hidden = false;
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLocaleLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLocaleLowerCase().includes(wanted);
      const shown = rows.filter((row) => !row.hidden).length;
      count.textContent = wanted === "" ? "" : `${shown} of ${rows.length}`;
    });
  }
})();
