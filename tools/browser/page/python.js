// Python, in a worker that can be ended at any moment: that is how an endless loop is stopped. What waits is kept here.

import {LIMIT, PYTHON} from "site";
import * as store from "./store.js";

const QUIET = 2000; // milliseconds

/** A worker that obeys the Content-Security-Policy of the page, as one does whose address is a blob: it asks no other host. */
function worker() {
  const program = new Blob([`import ${JSON.stringify(new URL("worker.js", location))};`], {type: "text/javascript"});
  return new Worker(URL.createObjectURL(program), {type: "module"});
}

export class Python {
  /**
   * `say(text)` tells the reader, `busy(yes)` whether there is something to stop; `files()` gives what Python finds in
   * its folder, by name; `forget()` is called when a new Python has run no cell yet, and `rest()` when the first one has
   * nothing to do, or is lost.
   */
  constructor({say, files, busy, forget, rest}) {
    Object.assign(this, {say, files, busy, forget, rest, queue: [], clock: null});
  }

  start() {
    clearTimeout(this.clock);
    Object.assign(this, {queue: [], asked: 0, lost: null, loaded: false});
    this.busy(false);
    this.forget();
    this.worker = worker();
    this.worker.onmessage = ({data}) => this[data.type](data);
    this.worker.onerror = () => this.broken({text: "its worker did not start"});
    this.worker.postMessage({type: "start", ...PYTHON, files: this.files(), progress: store.get("progress")});
  }

  /** Runs cells, one after the other, until one fails. */
  run(cells) {
    if (this.lost) return this.broken({text: this.lost});
    for (const cell of cells) cell.note("waits");
    this.queue.push(...cells);
    if (!this.asked) this.ask();
  }

  /** Asks for all cells that wait, at once: Python goes on while the page shows what it has put out. */
  ask() {
    this.busy(this.queue.length > 0);
    if (!this.queue.length) return;
    this.asked = this.queue.length;
    const cells = this.queue.map((cell) => (cell.ran = cell.text()));
    this.worker.postMessage({type: "run", cells, progress: store.get("progress")});
    if (this.loaded) this.watch(); // a task that an earlier cell has left may let no other begin
  }

  /** Ends what takes too long. */
  watch() {
    clearTimeout(this.clock);
    this.clock = setTimeout(() => this.stop(`Stopped after ${LIMIT} seconds. Is there a loop that never ends?`), 1000 * LIMIT);
  }

  stop(why) {
    this.worker.terminate();
    const [running, ...others] = this.queue;
    running?.end("stopped");
    running?.show({output_type: "error", traceback: [why]});
    for (const cell of others) cell.end("");
    performance.mark("stopped");
    this.start();
    this.say(`${why} Python starts again…`);
  }

  /** Gives Python a file, without which it has begun. */
  give(name, text) {
    this.worker?.postMessage({type: "file", name, text});
  }

  /** The last run, as the text of a Trace file; null where there is none. */
  lastRun() {
    return new Promise((resolve) => {
      this.share = ({text}) => resolve(text);
      this.worker.postMessage({type: "share"});
    });
  }

  // -- what the worker tells -----------------------------------------------------------------------------------------

  ready({times, known}) {
    performance.mark("ready", {detail: {...times, known}});
    this.loaded = true;
    if (!this.queue.length) this.say("Python is ready.");
    else this.watch();
    setTimeout(() => this.idle(known), known ? 0 : QUIET);
  }

  idle(known) {
    if (this.queue.length) return setTimeout(() => this.idle(known), QUIET);
    this.rest();
    if (!known) this.remember();
  }

  /** Lets another worker keep a memory for the next page. */
  remember() {
    if (this.helper) return;
    this.helper = worker();
    this.helper.postMessage({type: "remember", ...PYTHON});
    this.helper.onmessage = () => {
      this.helper.terminate(); // and it is not asked again
      performance.mark("remembered");
    };
  }

  broken({text}) {
    clearTimeout(this.clock);
    Object.assign(this, {lost: text, asked: 0});
    for (const cell of this.queue.splice(0)) cell.end("");
    this.busy(false);
    this.rest();
    this.say(`Python could not be loaded (${text}). What you wrote is kept: load the page again to go on.`);
  }

  crashed() {
    this.stop("Python broke down here, as it does on what is nested too deeply.");
  }

  begins() {
    this.queue[0].begin();
    this.say("Running…");
    this.watch();
  }

  output({output}) {
    this.queue[0]?.show(output);
  }

  done({fine, ms, count, progress}) {
    clearTimeout(this.clock);
    const cell = this.queue.shift();
    cell.end(fine ? `${ms} ms` : "failed", count);
    if (progress) store.set("progress", progress);
    this.asked -= 1;
    if (!fine) {
      for (const other of [cell, ...this.queue]) other.ran = null;
      for (const other of this.queue.splice(0)) other.end("");
      this.asked = 0;
    }
    if (!this.asked) this.ask();
    if (this.queue.length) return;
    setTimeout(() => { // what was put out comes first
      this.say(fine ? "Done." : `Cell ${cell.number} failed: see its message.`);
      performance.mark("done");
    });
  }
}
