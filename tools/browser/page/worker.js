// Python itself: Pyodide with the package, and one kernel. It tells "ready" or "broken". It is asked to "run" some cells,
// and tells for each that it "begins", any number of "output", and "done"; after one that fails it runs no more of these.
// It also takes a "file", and answers "share" with the last run. A worker that is told to "remember" keeps the memory of a
// Python that is ready in the browser, and the next page begins with it, which takes a fifth of the time.
// No await at the top: messages that come before its end would be lost.

import {loadPyodide} from "./pyodide/pyodide.mjs";

const HOME = "/home/pyodide";
const PROGRESS = `${HOME}/progress.json`;
const FOLDER = `${HOME}/my_puzzles`; // what was written in other notebooks lies there
const MEMORY = "puzzles-memory"; // a cache for all sites of this host; entries have addresses below their site
const HERE = import.meta.url; // the worker itself has an address of a blob, so that it obeys the policy of the page
const BEGIN = "import importlib; importlib.invalidate_caches(); import kernel; kernel.begin";
const REST = 500; // milliseconds

let python, shell, ready, resting;

async function unpacked(name) {
  const answer = await fetch(new URL(name, HERE));
  if (!answer.ok) throw new Error(`${name} is not there`);
  return new Uint8Array(await new Response(answer.body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

/** Puts files where Python finds them. The archive is a line of `[[name, size], ...]`, and then their bytes. */
function unpack(bytes, folder) {
  const end = bytes.indexOf(10);
  let place = end + 1;
  for (const [name, size] of JSON.parse(new TextDecoder().decode(bytes.subarray(0, end)))) {
    const path = `${folder}/${name}`;
    python.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    python.FS.writeFile(path, bytes.subarray(place, (place += size)));
  }
}

async function remembered(name) {
  try {
    const kept = await (await caches.open(MEMORY)).match(new URL(name, HERE));
    return kept && new Uint8Array(await kept.arrayBuffer());
  } catch {
    return null; // storage is forbidden: Python starts anew each time
  }
}

/** Makes Python's program with as much memory as was kept: Pyodide puts that into what there is. */
async function large(settings, size) {
  const {default: create} = await import("./pyodide/pyodide.asm.mjs");
  const program = await create(settings);
  while (program.HEAP8.length < size) program._malloc(2 ** 20);
  program.HEAP8.fill(0, size);
  return program;
}

async function load(lock, more = {}) {
  // Where its code does not come whole, Pyodide warns, and then waits for ever.
  const lost = new Promise((_, reject) => {
    console.warn = (text) => String(text).startsWith("wasm instantiation") && reject(new Error("the connection was lost"));
  });
  const env = {HOME, PUZZLES_PROGRESS: PROGRESS, PUZZLES_FOLDER: FOLDER, PYTHONHASHSEED: "0", PYTHONDONTWRITEBYTECODE: "1"};
  const indexURL = new URL("./pyodide/", HERE).href;
  return Promise.race([loadPyodide({indexURL, lockFileContents: lock, packages: [], env, ...more}), lost]);
}

async function start({archive, lock, site, memory, files, progress}) {
  const times = {};
  const begun = performance.now();
  const since = () => Math.round(performance.now() - begun);
  const coming = unpacked(archive);
  coming.catch(() => {}); // it is awaited below, and may fail before
  const kept = await remembered(memory);
  const size = kept && kept.length - (kept.length % 65536); // what it has beside whole pages is its head
  const again = {_loadSnapshot: kept, createPyodideModule: (settings) => large(settings, size)};
  python = kept && (await load(lock, again).catch(() => null)); // a damaged one is not used
  const known = Boolean(python);
  python ??= await load(lock);
  times.pyodide = since();
  unpack(await coming, site);
  times.unpacked = since();
  if (!known) python.runPython(`${BEGIN}()`);
  python.FS.mkdirTree(FOLDER);
  for (const [name, text] of Object.entries(files)) python.FS.writeFile(`${HOME}/${name}`, text);
  setProgress(progress);
  python._api.on_fatal = () => self.postMessage({type: "crashed"}); // else a cell that overflows its stack never ends
  closeOff();
  shell = python.pyimport("kernel").connect((text) => self.postMessage({type: "output", output: JSON.parse(text)}));
  times.ready = since();
  times.heap = python._module.HEAP8.length;
  return {times, known};
}

/** Takes away what reaches beyond this page: the site's own files lie in its caches, and a cell may be anybody's. */
function closeOff() {
  for (const name of ["caches", "indexedDB", "Worker"])
    for (let owner = self; owner; owner = Object.getPrototypeOf(owner)) delete owner[name];
}

/** Begins once more, with all that any notebook imports, and keeps the memory of that. No cell runs here. */
async function remember({archive, lock, site, memory}) {
  python = await load(lock, {_makeSnapshot: true});
  unpack(await unpacked(archive), site);
  python.runPython(`${BEGIN}(with_all=True)`);
  const held = python.makeMemorySnapshot();
  const cache = await caches.open(MEMORY);
  const here = new URL("./memory-", HERE).href;
  for (const {url} of await cache.keys()) if (url.startsWith(here)) await cache.delete(url); // of other versions
  await cache.put(new URL(memory, HERE), new Response(held));
}

/** Another tab may have written the progress since. */
function setProgress(text) {
  if (text) python.FS.writeFile(PROGRESS, text);
}

function progressNow() {
  return python.FS.analyzePath(PROGRESS).exists ? python.FS.readFile(PROGRESS, {encoding: "utf8"}) : null;
}

/** Once nothing has been asked for a while, tidies up, which would keep somebody waiting. */
function rest() {
  clearTimeout(resting);
  resting = setTimeout(() => {
    try {
      shell.rest();
    } catch {
      // A cell has changed what this needs. Thrown from here, it would be taken for a worker that is lost.
    }
  }, REST);
}

/** Runs cells, one after the other, until one fails. */
async function run({cells, progress}) {
  await ready;
  clearTimeout(resting);
  await runAll(cells, progress);
  rest();
}

async function runAll(cells, progress) {
  setProgress(progress);
  for (const source of cells) {
    self.postMessage({type: "begins"});
    const begun = performance.now();
    const fine = await shell.run(source);
    const ms = Math.round(performance.now() - begun);
    self.postMessage({type: "done", fine, ms, count: shell.count, progress: progressNow()});
    if (!fine) return;
  }
}

async function answer({type, name, text}) {
  await ready;
  if (type === "file") python.FS.writeFile(`${HOME}/${name}`, text);
  else self.postMessage({type: "share", text: shell.last_run() ?? null});
}

const broken = (error) => self.postMessage({type: "broken", text: error.message ?? String(error)});

self.onmessage = ({data}) => {
  if (data.type === "start") {
    ready = start(data);
    ready.then((found) => (self.postMessage({type: "ready", ...found}), rest()), broken);
  } else if (data.type === "remember") {
    const end = () => self.postMessage({type: "remembered"});
    remember(data).then(end, end); // storage that is full or forbidden: Python starts anew each time
  } else (data.type === "run" ? run(data) : answer(data)).catch(broken);
};
