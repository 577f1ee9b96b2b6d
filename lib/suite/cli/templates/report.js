"use strict";
// What a page can do besides being read: another theme, tables in another order, rows that are looked for.
(() => {
  const root = document.documentElement;

  const kept = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("theme");
      localStorage.setItem("theme", value);
    } catch { /* a page from a file may have nowhere to keep it */ }
    return null;
  };

  const themes = { auto: "auto", light: "light", dark: "dark" };
  const button = document.createElement("button");
  button.id = "theme";
  button.type = "button";
  const show = (name) => {
    if (name === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", name);
    button.textContent = `Colours: ${themes[name]}`;
    button.dataset.now = name;
  };
  button.addEventListener("click", () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(button.dataset.now) + 1) % names.length];
    show(next);
    kept(next);
  });
  show(Object.hasOwn(themes, kept() ?? "") ? kept() : "auto");
  document.querySelector("header")?.prepend(button);

  const words = new Intl.Collator("en", { numeric: true });
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.dataset.v ?? cell.textContent.trim();
    const number = parseFloat(text);
    return [text, cell.dataset.v !== undefined || /^[\d.]+( of \d+)?$/.test(text) ? number : NaN];
  };
  const compare = (a, b) => {
    if (Number.isNaN(a[1]) !== Number.isNaN(b[1])) return Number.isNaN(a[1]) ? 1 : -1;
    return Number.isNaN(a[1]) ? words.compare(a[0], b[0]) : a[1] - b[1];
  };
  const sort = (table, head) => {
    const column = head.cellIndex;
    const body = table.tBodies[0];
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : head.dataset.sort === "down";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = Array.from(body.rows, (row) => [value(row, column), row]);
    rows.sort((a, b) => (down ? compare(b[0], a[0]) : compare(a[0], b[0])));
    body.replaceChildren(...rows.map((each) => each[1]));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.querySelectorAll("th[data-sort]")) {
      const press = document.createElement("button");
      press.type = "button";
      press.append(...head.childNodes);
      press.addEventListener("click", () => sort(table, head));
      head.append(press);
    }
  }

  const tools = document.querySelector(".tools");
  if (tools) {
    const [find, which, where, shown] = ["find", "which", "where", "shown"].map((id) => document.getElementById(id));
    const rows = Array.from(document.getElementById("table").tBodies[0].rows);
    const names = rows.map((row) => row.cells[0].textContent.toLowerCase());
    const filter = () => {
      const name = find.value.trim().toLowerCase();
      const wanted = which.value && `s-${which.value}`;
      let count = 0;
      rows.forEach((row, at) => {
        const cells = where.value === "" ? Array.from(row.cells).slice(3) : [row.cells[3 + Number(where.value)]];
        const fits = names[at].includes(name) && (!wanted || cells.some((cell) => cell.classList.contains(wanted)));
        row.hidden = !fits;
        count += fits;
      });
      shown.textContent = count === rows.length ? "" : `${count} of ${rows.length} students`;
    };
    for (const one of [find, which, where]) one.addEventListener("input", filter);
    const signs = document.getElementById("signs");
    const table = document.getElementById("table");
    signs.addEventListener("input", () => table.classList.toggle("signs", signs.checked));
    tools.hidden = false;
    filter();
  }

  for (const box of document.querySelectorAll("textarea.copy")) {
    const press = document.createElement("button");
    press.type = "button";
    press.textContent = "Copy";
    press.addEventListener("click", async () => {
      box.select();
      try { await navigator.clipboard.writeText(box.value); } catch { document.execCommand("copy"); }
      press.textContent = "Copied";
    });
    box.after(press);
  }
})();
