// Outputs of nbformat 4 and Markdown, as elements. Scripts in them do not run but in frames of ours, whose hashes the
// page's Content-Security-Policy names.

import {marked} from "marked";
import {NOTEBOOKS} from "site";

const SVG = "data:image/svg+xml,";
const HERE = new Set(NOTEBOOKS.map(([stem]) => stem));

export const join = (text) => (typeof text === "string" ? text : text.join(""));

/** The page of a notebook: of the map the first page, where a course has its own; none of what is not here. */
function page(stem) {
  if (HERE.has(stem)) return `?p=${stem}`;
  return stem === "00_index" ? `?p=${NOTEBOOKS[0][0]}` : null;
}

const ELSEWHERE = "meta,base,link,object,embed";

/** Takes out what leads the whole page elsewhere, or changes what its addresses mean: code of others may put it out. */
function tame(root) {
  for (const odd of root.querySelectorAll(ELSEWHERE)) odd.remove();
}

/** Leads links between notebooks to this page; a link to a notebook that is not here becomes text. */
function follow(root) {
  for (const link of root.querySelectorAll("a[href]")) {
    const href = link.getAttribute("href");
    const found = /^(?:[\w.]+\/)*(\w+)\.ipynb(#.*)?$/.exec(href);
    if (found && page(found[1])) link.setAttribute("href", page(found[1]) + (found[2] ?? ""));
    else if (found) link.replaceWith(...link.childNodes);
    else if (/^https?:/.test(href)) Object.assign(link, {target: "_blank", rel: "noopener"});
  }
}

/** Titles of shapes, one a row: a line begins with how many letters it shares with that line of the title before. */
function addTitles(svg, rows) {
  const titles = rows.split("\n");
  let lines = [];
  svg.querySelectorAll("path,rect").forEach((shape, number) => {
    if (!titles[number]) return;
    lines = titles[number].split("\t").map((line, i) => (lines[i] ?? "").slice(0, line.charCodeAt() - 63) + line.slice(1));
    shape.append(Object.assign(document.createElementNS(svg.namespaceURI, "title"), {textContent: lines.join("\n")}));
  });
}

/** A picture is an <img> with an SVG in its address; put into the page itself, it has titles, links, day and night. */
function html(text) {
  const inside = document.createElement("template");
  inside.innerHTML = text.replace(/ onload="[^"]*"/g, "");
  for (const still of inside.content.querySelectorAll(".still")) still.remove(); // it is for where no frame is shown
  for (const image of inside.content.querySelectorAll(`img[src^="${SVG}"]`)) {
    const holder = document.createElement("div");
    holder.innerHTML = decodeURIComponent(image.getAttribute("src").slice(SVG.length));
    const svg = holder.firstElementChild;
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", image.alt);
    svg.style.cssText = image.style.cssText;
    addTitles(svg, image.dataset.titles ?? "");
    image.replaceWith(svg);
  }
  tame(inside.content);
  follow(inside.content);
  return inside.content;
}

export function markdown(text) {
  const box = document.createElement("div");
  box.className = "text";
  box.innerHTML = marked.parse(text);
  for (const table of box.querySelectorAll("table")) table.tabIndex = 0; // wide ones are scrolled
  tame(box);
  follow(box);
  return box;
}

function plain(text, kind = "") {
  const pre = document.createElement("pre");
  pre.className = kind;
  pre.textContent = text;
  return pre;
}

/** Adds an output to an element. */
export function render(into, output) {
  if (output.output_type === "stream") {
    const last = into.lastElementChild;
    if (last?.tagName === "PRE" && last.className === output.name) last.textContent += join(output.text);
    else into.append(plain(join(output.text), output.name));
  } else if (output.output_type === "error") into.append(plain(output.traceback.join("\n"), "error"));
  else if (output.data["text/html"]) into.append(html(join(output.data["text/html"])));
  else if (output.data["text/markdown"]) into.append(markdown(join(output.data["text/markdown"])));
  else into.append(plain(join(output.data["text/plain"])));
}
