"use strict";
// Makes the columns of tables sortable. Without it the tables stand in the order in which they were written.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const original = [...body.rows];
  const value = (row, place) => {
    const cell = row.cells[place];
    const exact = (cell.matches("[data-value]") ? cell : cell.querySelector("[data-value]"))?.dataset.value;
    if (exact !== undefined) return exact === "" ? null : Number(exact);
    return cell.classList.contains("number") ? null : cell.textContent.trim().toLowerCase();
  };
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const next = before === null ? "ascending" : before === "ascending" ? "descending" : null;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (next) head.setAttribute("aria-sort", next);
      const known = original.filter((row) => value(row, place) !== null);
      const sign = next === "descending" ? -1 : 1;
      known.sort((a, b) => sign * compare(value(a, place), value(b, place)));
      body.append(...(next ? [...known, ...original.filter((row) => value(row, place) === null)] : original));
    });
  });
}
