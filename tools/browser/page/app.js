// The page: one notebook, its cells, and the buttons above it.

import {NOTEBOOKS, SETUP_CELL, WHEEL} from "site";
import {editor} from "./editor.js";
import {join, markdown, render} from "./outputs.js";
import {Python} from "./python.js";
import {addressOf, brought} from "./share.js";
import * as store from "./store.js";

const SETUP = "# @title Set up";
const THEIRS = (file) => `# The run that a link brought. If yours is called out, then compare(yours=out, theirs=theirs) shows both.
from drawing import compare, draw
from lib import Trace

theirs = Trace.load("${file}")
draw(theirs)`;
const LINE = /^  Cell(?: In\[(\d+)\])?, line (\d+)/;
const LARGEST = 20_000_000; // bytes of a notebook that is opened
const $ = (id) => document.getElementById(id);
const say = (text) => ($("state").textContent = text);
const wanted = new URLSearchParams(location.search).get("p");
const [STEM, TITLE] = NOTEBOOKS.find(([stem]) => stem === wanted) ?? NOTEBOOKS[0];
const cells = [];
let notebook;

// -- cells -------------------------------------------------------------------------------------------------------------

function button(text, title, onclick) {
  return Object.assign(document.createElement("button"), {type: "button", textContent: text, title, onclick});
}

class Cell {
  /** `built` is the text that the notebook came with; a cell that was added has none. */
  constructor(id, built, outputs = []) {
    Object.assign(this, {id, built, ran: null, count: null, added: built === null});
    this.box = document.createElement("section");
    this.box.className = `cell${built?.includes("raise NotSolved") ? " mine" : ""}`;
    this.box.dataset.id = id;
    this.bar = Object.assign(document.createElement("div"), {className: "bar"});
    this.undo = this.added
      ? button("Remove", "Remove this cell", () => remove(this))
      : button("As it was", "Throw away what you wrote in this cell", () => this.set(this.built));
    this.said = Object.assign(document.createElement("span"), {className: "note"});
    this.go = button("Run", "Shift+Enter: runs first what above has not run as it now stands", () => run(this));
    const more = button("+ cell", "A new cell below this one", () => added(this, "").editor.focus());
    this.bar.append(this.go, more, this.undo, this.said);
    const place = document.createElement("div");
    this.out = Object.assign(document.createElement("div"), {className: "out"});
    this.out.setAttribute("role", "group");
    this.box.append(this.bar, place, this.out);
    this.seen = store.get(this.key);
    const doc = this.seen ?? built ?? "";
    this.editor = editor({parent: place, doc, label: "Code", run: () => run(this), changed: () => this.keep()});
    this.undo.hidden = !this.added && doc === built;
    for (const output of outputs) render(this.out, output);
  }

  get key() {
    return `cell:${STEM}:${this.id}`;
  }

  call(number) {
    this.number = number;
    this.box.setAttribute("aria-label", `Cell ${number}`);
    this.go.setAttribute("aria-label", `Run cell ${number}`);
    this.out.setAttribute("aria-label", `Output of cell ${number}`);
  }

  text() {
    return this.editor.text();
  }

  set(text) {
    if (text !== this.text()) this.editor.set(text);
  }

  keep() {
    const text = this.text();
    const [before, now] = [this.seen, store.get(this.key)];
    this.seen = text === this.built ? null : text;
    if (now !== before && now !== null && now !== text) this.aside(now);
    store.set(this.key, this.seen);
    this.undo.hidden = !this.added && text === this.built;
  }

  /** Another tab has written `theirs` while this cell was being edited here: it gets a cell of its own. */
  aside(theirs) {
    notice(`Cell ${this.number} was changed in another tab, too: what was written there stands here.`, added(this, theirs).box);
  }

  /** Another tab has written something; where this one is at work, it is looked at when something is written here. */
  follow(theirs) {
    if (this.editor.has(document.activeElement) && document.hasFocus()) return;
    this.seen = theirs;
    this.set(theirs ?? this.built ?? "");
  }

  begin() {
    this.box.classList.add("running");
    this.out.replaceChildren();
    this.lines = [];
    this.note("running…");
    for (const cell of cells) cell.editor.mark(null);
  }

  /** Shows an output, once Python has been told what to do next: it works while a picture is put into the page. */
  show(output) {
    if (output.output_type === "error") this.lines = output.traceback;
    setTimeout(() => render(this.out, output));
  }

  /** `count` is the number that messages call this run by. The innermost line of an error is marked in its cell. */
  end(text, count = null) {
    this.box.classList.remove("running");
    this.note(text);
    this.count = count;
    const [, number, line] = this.lines?.map((said) => LINE.exec(said)).findLast(Boolean) ?? [];
    const cell = number ? cells.find((other) => other.count === Number(number)) : this;
    if (line && (cell === this || cell?.ran === cell?.text())) cell.editor.mark(Number(line));
  }

  note(text) {
    this.said.textContent = text;
  }
}

/** Cells are called by their place among those with code. */
function recount() {
  cells.forEach((cell, place) => cell.call(place + 1));
}

/** What was added, in order: `[id, id of the cell above]`. */
const additions = () => JSON.parse(store.get(`added:${STEM}`) ?? "[]");

function put(id, above) {
  const cell = new Cell(id, null);
  const place = cells.indexOf(above);
  cells.splice(place + 1, 0, cell);
  above.box.after(cell.box);
  recount();
  return cell;
}

/** Adds a cell with a text below another, and returns it. */
function added(above, text) {
  const known = additions();
  const id = `own-${1 + Math.max(0, ...known.map(([other]) => Number(other.slice("own-".length))))}`;
  store.set(`added:${STEM}`, JSON.stringify([...known, [id, above.id]]));
  const cell = put(id, above);
  cell.set(text);
  return cell;
}

/** Shows the cells that were added and are not here yet. */
function putAll() {
  for (const [id, above] of additions())
    if (!cells.some((cell) => cell.id === id)) put(id, cells.find((cell) => cell.id === above) ?? cells.at(-1));
}

function remove(cell) {
  const known = additions();
  const [, above] = known.find(([id]) => id === cell.id);
  const left = known.filter(([id]) => id !== cell.id).map(([id, after]) => [id, after === cell.id ? above : after]);
  store.set(`added:${STEM}`, left.length ? JSON.stringify(left) : null);
  store.set(cell.key, null);
  store.set(runOf(cell), null);
  cells.splice(cells.indexOf(cell), 1);
  cell.box.remove();
  recount();
}

// -- running -------------------------------------------------------------------------------------------------------------

/** Takes along what was written in this notebook while it had another number: keys have the name of its file. */
function moved() {
  const name = (stem) => stem.replace(/^\d+_/, "");
  for (const start of ["cell:", "added:", "run:"])
    for (const key of store.keys(start)) {
      const [, stem, ...rest] = key.split(":");
      const now = [start.slice(0, -1), STEM, ...rest].join(":");
      if (stem === STEM || name(stem) !== name(STEM) || store.get(now) != null) continue;
      store.set(now, store.get(key));
      store.set(key, null);
    }
}

/** Runs that links brought are kept by the cell that reads them. */
const runOf = ({id}) => `run:${STEM}:${id}`;
const fileOf = (id) => `theirs-${id.slice("own-".length)}.json`;

/** What other puzzles build on: what was written in their notebooks, as small notebooks. And runs that links brought. */
function files() {
  const found = {};
  const runs = store.keys(`run:${STEM}:`).map((key) => [fileOf(key.split(":")[2]), store.get(key)]);
  for (const key of store.keys("cell:")) {
    const [, stem, id] = key.split(":");
    if (stem === STEM) continue;
    found[`my_puzzles/${stem}.ipynb`] ??= {cells: [], metadata: {}, nbformat: 4, nbformat_minor: 5};
    found[`my_puzzles/${stem}.ipynb`].cells.push({cell_type: "code", id, metadata: {}, outputs: [], execution_count: null, source: store.get(key)});
  }
  return Object.fromEntries([...runs, ...Object.entries(found).map(([name, data]) => [name, JSON.stringify(data)])]);
}

const python = new Python({
  say,
  files,
  busy: (yes) => ($("stop").disabled = !yes),
  forget: () => cells.forEach((cell) => Object.assign(cell, {ran: null, count: null})),
  rest: keep,
});

/** Keeps the site for the time without a network; Python comes first, as both take all that a machine has. */
function keep() {
  navigator.serviceWorker?.register("sw.js").then(
    () => navigator.serviceWorker.ready.then(() => performance.mark("offline")),
    () => {}, // a private window: the page works, with a network
  );
}

/** Runs a cell, and before it all from the first above that has not run as it now stands. */
function run(cell) {
  const place = cells.indexOf(cell);
  const first = cells.findIndex((other, at) => at >= place || other.ran !== other.text());
  if (!python.worker) return; // it has been said that this browser cannot
  const waiting = new Set(python.queue);
  python.run(cells.slice(first, place + 1).filter((other) => !waiting.has(other)));
  for (const below of cells.slice(place + 1)) below.ran = null; // what they show is of an earlier run
}

// -- files -------------------------------------------------------------------------------------------------------------

/** The notebook as it stands, without outputs: what `puzzles run` and the grader take. */
function written() {
  const code = (cell, metadata = {}) => ({
    cell_type: "code", id: cell.id, metadata, outputs: [], execution_count: null, source: cell.text().split(/(?<=\n)/),
  });
  const known = new Map(cells.map((cell) => [cell.id, cell]));
  const found = notebook.cells.map((data) => {
    if (known.has(data.id)) return code(known.get(data.id), data.metadata);
    return join(data.source).startsWith(SETUP) ? {...data, source: SETUP_CELL.replace("$site", new URL(WHEEL, location))} : data;
  });
  for (const cell of cells.filter(({added}) => added)) {
    const above = cells[cells.indexOf(cell) - 1].id;
    found.splice(found.findIndex(({id}) => id === above) + 1, 0, code(cell));
  }
  return `${JSON.stringify({...notebook, cells: found}, null, 1)}\n`;
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([written()], {type: "application/x-ipynb+json"}));
  link.download = `${STEM}.ipynb`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Takes this notebook to another place: the file is downloaded, and put in there by hand. */
function take(how) {
  download();
  say(`${STEM}.ipynb is downloaded. ${how}`);
}

function parsed(text) {
  try {
    const theirs = JSON.parse(text).cells.filter(({cell_type}) => cell_type === "code");
    return theirs.map(({id, source}) => [id, join(source)]);
  } catch {
    return null;
  }
}

async function open(file) {
  if (file.size > LARGEST) return say(`${file.name} has ${Math.round(file.size / 1e6)} MB, and a notebook of these has less than ${LARGEST / 1e6}.`);
  const theirs = parsed(await file.text());
  if (!theirs) return say(`${file.name} is not a notebook.`);
  const own = new Map(cells.map((cell) => [cell.id, cell]));
  if (!theirs.some(([id]) => own.has(id) && !own.get(id).added)) return say(`${file.name} is not a copy of “${TITLE}”: choose its notebook first, at the top.`);
  const changed = cells.some((cell) => store.get(cell.key) !== null);
  if (changed && !confirm("Put what is in this file in the place of what you wrote in this notebook?")) return;
  for (const cell of cells.filter(({added}) => added)) remove(cell);
  let above = cells[0];
  for (const [id, source] of theirs) {
    const cell = own.get(id);
    if (cell && !cell.added) (above = cell).set(source);
    else if (!source.startsWith(SETUP)) above = added(above, source);
  }
  say(`Opened ${file.name}.`);
}

function startOver() {
  if (!confirm("Throw away everything that you wrote in this notebook?")) return;
  for (const cell of [...cells]) cell.added ? remove(cell) : cell.set(cell.built);
  say("The notebook is as it was.");
}

/** Copies an address that brings the code of the puzzle's cell along, or the last run. */
async function share(kind) {
  const what = kind === "run" ? "the run" : "your code";
  const text = kind === "run" ? await python.lastRun() : gap().text();
  if (text === null) return say("There is no run yet: run a cell that simulates your schedule, then share it.");
  const address = await addressOf(kind, text);
  if (!address) return say(`This is too large for a link (${text.length.toLocaleString("en")} characters): download the notebook, and send the file.`);
  try {
    await navigator.clipboard.writeText(address);
    say(`The link is copied: whoever opens it sees ${what}.`);
  } catch {
    prompt(`This link shows ${what} to whoever opens it:`, address);
  }
}

/** The cell of the puzzle; in a notebook that has none, the first. */
const gap = () => cells.find((one) => one.box.classList.contains("mine")) ?? cells[0];

function notice(text, before) {
  before.before(Object.assign(document.createElement("p"), {className: "notice", role: "alert", textContent: text}));
}

/** What an address brings goes into a cell of its own, below the reader's, who decides whether to run it. */
async function receive() {
  const came = await brought();
  if (!came) return;
  const {kind, text} = came;
  const top = $("notebook").firstElementChild;
  if (wanted && wanted !== STEM) return notice(`This link is of a notebook that is not here: ${wanted}.`, top);
  if (text === null) return notice(`The ${kind} in this link is damaged, or too large: ask for the link again.`, top);
  history.replaceState(null, "", location.href.split("#")[0]);
  const cell = added(gap(), kind === "code" ? text : "");
  if (kind === "run") {
    const file = fileOf(cell.id);
    store.set(runOf(cell), text);
    python.give(file, text);
    cell.set(THEIRS(file));
  }
  cell.box.scrollIntoView({block: "center"});
  notice(`The link brought the cell below: somebody else's ${kind}, which has not been run.`, cell.box);
}

// -- the page ----------------------------------------------------------------------------------------------------------

const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => (document.body.dataset.jpThemeLight = String(!dark.matches)); // as our pictures know it of JupyterLab
dark.onchange = paint;

async function show() {
  const answer = await fetch(`nb/${STEM}.json`);
  if (!answer.ok) throw new Error(`the notebook ${STEM} is not there`);
  notebook = await answer.json();
  $("notebook").replaceChildren();
  for (const data of notebook.cells) {
    const source = join(data.source);
    if (data.cell_type === "markdown") $("notebook").append(markdown(source));
    else if (!source.startsWith(SETUP)) {
      const cell = new Cell(data.id, source, data.outputs);
      cells.push(cell);
      $("notebook").append(cell.box);
      if (data.outputs?.length) performance.mark("stored output");
    }
  }
  recount();
  putAll();
  performance.mark("shown");
}

function connect() {
  $("all").onclick = () => {
    for (const cell of cells) cell.ran = null;
    if (cells.length) run(cells.at(-1));
  };
  $("stop").onclick = () => python.stop("Stopped.");
  $("save").onclick = download;
  document.addEventListener("click", ({target}) => ($("menu").open &&= target.closest("summary") !== null));
  $("menu").onkeydown = ({key}) => {
    if (key !== "Escape") return;
    $("menu").open = false;
    $("menu").firstElementChild.focus();
  };
  $("code").onclick = () => share("code");
  $("run").onclick = () => share("run");
  $("colab").onclick = () => take("In Colab choose File, Upload notebook, and then this file.");
  $("lab").onclick = () => take("In JupyterLab choose Upload (the arrow above the files), and then this file.");
  $("reset").onclick = startOver;
  $("open").onchange = async () => {
    const [file] = $("open").files;
    if (file) await open(file);
    $("open").value = "";
  };
  store.onOtherTab((key, value) => {
    if (key === `added:${STEM}`) putAll();
    cells.find((one) => one.key === key)?.follow(value);
  });
}

paint();
store.onRefusal(say);
document.title = `${TITLE} · LLM Training Puzzles`;
for (const [stem, title] of NOTEBOOKS) $("choose").append(new Option(title, stem, false, stem === STEM));
$("choose").onchange = () => (location.search = `?p=${$("choose").value}`);
if (typeof WebAssembly === "undefined" || typeof Worker === "undefined") {
  say("This browser cannot run Python (it has no WebAssembly, or no workers): you can read here, and run in another one.");
  keep();
} else python.start();
try {
  moved();
  await show();
  connect();
  if (cells.length) await receive();
  if (STEM === "00_index" && cells.length) run(cells.at(-1)); // the map shows what is solved here
} catch (error) {
  say(`The page could not be loaded (${error.message}). What you wrote is kept: load it again.`);
}
navigator.storage?.persist?.();
