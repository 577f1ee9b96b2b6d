// node compile.mjs FOLDER COMPILED.PY: runs compiled.py in Pyodide, on the folder that is being built.

import fs from "node:fs";
import {fileURLToPath} from "node:url";
import {loadPyodide} from "pyodide";

const [folder, program] = process.argv.slice(2);
const python = await loadPyodide({
  indexURL: fileURLToPath(new URL("node_modules/pyodide/", import.meta.url)),
  env: {HOME: "/home/pyodide", PUZZLES_PROGRESS: "off", PYTHONHASHSEED: "0"},
});
python.FS.mkdirTree("/out");
python.FS.mount(python.FS.filesystems.NODEFS, {root: folder}, "/out");
python.runPython(`${fs.readFileSync(program, "utf8")}
import sysconfig
main(Path("/out"), sysconfig.get_path("purelib"))
`);
process.exit(0);
