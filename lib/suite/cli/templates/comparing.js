"use strict";

/** What a cell is sorted by: a number where it has one; nothing sorts behind everything. */
function valueOf(text) {
  if (text === undefined || text === "") return null;
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
}

/** Sorts by values; equal ones stay in their order, and those without a value come last in both directions. */
function inOrder(items, value, descending) {
  const sign = descending ? -1 : 1;
  return items
    .map((item, place) => ({ item, place, value: value(item) }))
    .sort((one, other) => {
      if (one.value === null || other.value === null) return (one.value === null) - (other.value === null) || one.place - other.place;
      const order = typeof one.value === "number" && typeof other.value === "number" ? one.value - other.value : String(one.value).localeCompare(String(other.value), "en");
      return sign * order || one.place - other.place;
    })
    .map((found) => found.item);
}

/** Has the heads of a table sort its rows, and the pictures of the runs with them. */
function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const runs = document.getElementById("runs");
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const rows = inOrder([...table.tBodies[0].rows], (row) => valueOf(row.cells[column].dataset.value), descending);
      table.tBodies[0].append(...rows);
      if (runs) runs.append(...rows.map((row) => document.getElementById(`run-${row.dataset.key}`)));
    });
  });
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
