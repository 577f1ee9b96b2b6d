// What this browser keeps: the text of changed cells, cells that were added, and progress. Every key begins with the
// folder of this site, as other pages of the same host share the storage. Where nothing can be kept, it is remembered
// until the page is closed, and said once.

const PREFIX = `puzzles:${new URL(".", location).pathname}:`;
const remembered = new Map();
let complain = () => {};

export const onRefusal = (told) => (complain = told);

export function get(key) {
  if (remembered.has(key)) return remembered.get(key);
  try {
    return localStorage.getItem(PREFIX + key);
  } catch {
    return null;
  }
}

function write(key, value) {
  value === null ? localStorage.removeItem(PREFIX + key) : localStorage.setItem(PREFIX + key, value);
  remembered.delete(key);
}

export function set(key, value) {
  try {
    write(key, value);
  } catch (error) {
    if (!remembered.size)
      complain(
        error.name === "QuotaExceededError"
          ? "This browser's storage is full, so changes are not kept: download your notebook before you close the page."
          : "This browser does not let the page keep anything: download your notebook before you close the page.",
      );
    remembered.set(key, value);
    return;
  }
  try {
    for (const [other, text] of remembered) write(other, text); // there may be room for it by now
  } catch {
    // It is remembered as before.
  }
}

/** The keys that begin with `start`, in order. */
export function keys(start) {
  const found = [...remembered.keys()];
  try {
    found.push(...Object.keys(localStorage).filter((key) => key.startsWith(PREFIX)).map((key) => key.slice(PREFIX.length)));
  } catch {
    // Storage is forbidden: what is remembered is all there is.
  }
  return [...new Set(found)].filter((key) => key.startsWith(start)).sort();
}

/** Calls `changed(key, value)` when another tab has written something. */
export function onOtherTab(changed) {
  addEventListener("storage", ({key, newValue}) => key?.startsWith(PREFIX) && changed(key.slice(PREFIX.length), newValue));
}
