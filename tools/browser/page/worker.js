// Python itself: Pyodide with the package, and one kernel. It tells "ready" or "broken", and for each cell "begins",
// any number of "output", and "done"; one cell is asked for at a time. No await at the top: messages that come before its end would be lost.

import {loadPyodide} from "./pyodide/pyodide.mjs";

const HOME = "/home/pyodide";
const PROGRESS = `${HOME}/progress.json`;
const FOLDER = `${HOME}/my_puzzles`;
const BEGIN = `
import importlib, json
importlib.invalidate_caches()
import chalk_standin
chalk_standin.install()
from kernel import Kernel
shell = Kernel(lambda output: tell(json.dumps(output)))
import drawing
from lib import simulate
shell
`;

let python, shell, ready;

async function start({archive, lock, files, progress}) {
  const times = {};
  const begun = performance.now();
  const since = () => Math.round(performance.now() - begun);
  const coming = fetch(archive).then((answer) => {
    if (!answer.ok) throw new Error(`${archive} is not there`);
    return new Response(answer.body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  });
  python = await loadPyodide({
    indexURL: new URL("./pyodide/", self.location).href,
    lockFileContents: lock,
    packages: [],
    env: {HOME, PUZZLES_PROGRESS: PROGRESS, PUZZLES_FOLDER: FOLDER, PYTHONHASHSEED: "0"},
  });
  times.pyodide = since();
  const site = python.runPython("import sysconfig; sysconfig.get_path('purelib')");
  python.unpackArchive(await coming, "zip", {extractDir: site});
  times.unpacked = since();
  python.FS.mkdirTree(FOLDER);
  for (const [name, text] of Object.entries(files)) python.FS.writeFile(`${FOLDER}/${name}`, text);
  setProgress(progress);
  python.globals.set("tell", (text) => self.postMessage({type: "output", output: JSON.parse(text)}));
  shell = python.runPython(BEGIN);
  times.ready = since();
  times.heap = python._module.HEAP8.length;
  return times;
}

/** Another tab may have written the progress since. */
function setProgress(text) {
  if (text) python.FS.writeFile(PROGRESS, text);
}

function progressNow() {
  return python.FS.analyzePath(PROGRESS).exists ? python.FS.readFile(PROGRESS, {encoding: "utf8"}) : null;
}

async function run({source, progress}) {
  await ready;
  setProgress(progress);
  self.postMessage({type: "begins"});
  const begun = performance.now();
  const fine = await shell.run(source);
  const ms = Math.round(performance.now() - begun);
  self.postMessage({type: "done", fine, ms, count: shell.count, progress: progressNow()});
}

const broken = (error) => self.postMessage({type: "broken", text: error.message ?? String(error)});

self.onmessage = ({data}) => {
  if (data.type === "start") {
    ready = start(data);
    ready.then((times) => self.postMessage({type: "ready", times}), broken);
  } else run(data).catch(broken);
};
