"use strict";

/** What a cell or a tile is sorted by: a number where it has one; nothing sorts behind everything. */
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

/** Has the controls of a gallery sort and filter its tiles, and keys go from one large tile to the next. */
function makeGallery(controls) {
  const tiles = document.getElementById("all");
  const every = [...tiles.querySelectorAll(".tile")];
  const visible = () => [...tiles.querySelectorAll(".tile:not([hidden])")];

  function refresh() {
    const sort = controls.elements.sort.value;
    const descending = controls.elements.reverse.checked !== (sort === "count"); // of those that many have, first
    const isWrong = (tile) => tile.classList.contains("wrong");
    const sorted = inOrder(every, (tile) => valueOf(tile.dataset[sort]), descending);
    tiles.append(...sorted.filter((tile) => !isWrong(tile)), ...sorted.filter(isWrong));
    const least = Number(controls.elements.goal.value);
    for (const tile of every) tile.hidden = Number(tile.dataset.goals) < least;
    document.getElementById("shown").textContent = `${visible().length} of ${every.length}`;
  }

  for (const image of tiles.querySelectorAll("img.large"))
    image.addEventListener("load", () => image.closest(".tile").classList.add("loaded"));
  controls.hidden = false;
  controls.addEventListener("change", refresh);
  controls.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    const large = tiles.querySelector(".tile:target");
    if (!large) return;
    if (event.key === "Escape") location.hash = "all";
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step && visible()[visible().indexOf(large) + step];
    if (next) location.hash = next.id;
  });
  refresh();
}

document.querySelectorAll("form.controls").forEach(makeGallery);
