"use strict";
// What the page knows: the runs as plain data, and questions about them. Nothing is drawn here.

const DATA = JSON.parse(document.getElementById("data").textContent);
const KINDS = DATA.kinds.map((name, number) => ({
  name,
  colour: `var(--kind-${number})`,
  ink: `var(--kind-${number}-ink)`,
  edge: `var(--kind-${number}-edge)`,
}));
const VALUES = objects("value", DATA.values);
const STYLES = objects("style", DATA.styles).map((style) => ({
  band: style.band,
  share: style.share,
  day: { fill: style.fill, border: style.border, ink: style.ink },
  night: { fill: style.nightFill, border: style.nightBorder, ink: style.nightInk },
}));
const OUTSIDE = (place) => place === 0 || place > DATA.stores.length;

/** Rows of a kind as objects that have the names of their parts. */
function objects(kind, rows) {
  const names = DATA.fields[kind];
  return rows.map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]])));
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
/** A time without the dust of binary fractions: times are whole billionths of a time unit. */
const exact = (time) => String(Number(time.toFixed(9)));
const elements = (count) => count.toLocaleString("en-US", { maximumFractionDigits: 2 });
const plural = (count, what, many = what + "s") => `${count.toLocaleString("en-US")} ${count === 1 ? what : many}`;

/** One rank of a run: its program, and what it holds before each event. */
class Rank {
  constructor(run, number, row) {
    this.run = run;
    this.number = number;
    this.events = objects("event", row.events);
    this.spans = objects("span", row.spans);
    this.boxes = objects("box", row.boxes);
    this.length = this.events.length;
    // When its program is over: what it does beside computation, and never awaits, does not count.
    this.over = this.events.reduce(
      (over, event) => Math.max(over, event.end === null ? Infinity : this.when(event, true)),
      0,
    );
    this.boxOf = new Map();
    for (const box of this.boxes) this.boxOf.set(box.event, box); // of a wait and what follows it, the latter
  }

  /** Where the cursor stands for an event: at its start, or at the call of what runs beside computation. */
  when(event, end = false) {
    if (event.mode === 2 || event.start === null) return event.issued;
    return end ? event.end : event.start;
  }

  time(index) {
    return index < this.length ? this.when(this.events[index]) : this.finish;
  }

  /** When there is nothing more to see of it. */
  get finish() {
    return Math.min(this.over, this.run.last);
  }

  /** The number of the event that the rank is at: the last one called by then, or one past the end. */
  at(time) {
    if (time >= this.over) return this.length;
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.events[middle].issued <= time) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  /** What is alive when event number `index` starts: spans, whose values are in VALUES. */
  holdings(index) {
    return this.spans.filter((span) => span.start <= index && index < span.stop);
  }

  /** Elements by kind when each event starts, all events one after the other. */
  get sums() {
    if (!this._sums) {
      const wide = KINDS.length;
      const sums = new Float64Array((this.length + 2) * wide);
      for (const span of this.spans) {
        const value = VALUES[span.value];
        sums[span.start * wide + value.kind] += value.elements;
        sums[span.stop * wide + value.kind] -= value.elements;
      }
      for (let i = wide; i < sums.length; i++) sums[i] += sums[i - wide];
      this._sums = sums.map((sum) => Math.round(sum * 1e6) / 1e6);
    }
    return this._sums;
  }

  memory(index) {
    return Array.from(this.sums.subarray(index * KINDS.length, (index + 1) * KINDS.length));
  }

  total(index) {
    return this.memory(index).reduce((sum, part) => sum + part, 0);
  }

  /** The memory curve: from each moment on running sums by kind. Of samples at one moment the highest counts. */
  get curve() {
    if (!this._curve) {
      const found = [];
      this.events.forEach((event, index) => {
        if (!event.sampled) return;
        let sum = 0;
        const sums = this.memory(index).map((part) => (sum += part));
        const last = found.at(-1);
        if (!last || last.time < event.issued) found.push({ time: event.issued, sums, total: sum });
        else if (last.total < sum) Object.assign(last, { sums, total: sum });
      });
      if (found.length) found.push({ ...found.at(-1), time: this.finish });
      this._curve = found;
    }
    return this._curve;
  }

  get most() {
    return this.curve.reduce((most, level) => Math.max(most, level.total), 0);
  }

  /** What the rank does at a time, at an event, in words. */
  doing(index, time) {
    if (index >= this.length) return this.run.error === null ? "finished" : "stopped here";
    const event = this.events[index];
    const words = DATA.texts[event.words];
    if (event.start === null) return `waits for ever: ${words}`;
    return event.mode === 1 && time < event.start ? `waits: ${words}` : words;
  }
}

/** One run, with questions about all its ranks. */
class Run {
  constructor(row) {
    Object.assign(this, row);
    this.ranks = row.ranks.map((rank, number) => new Rank(this, number, rank));
    this.messages = objects("message", row.messages).map((message) => ({
      ...message,
      sending: this.ranks[message.source].events[message.send],
      receiving: message.receive < 0 ? null : this.ranks[message.target].events[message.receive],
    }));
    this.collectives = this._collectives();
  }

  _collectives() {
    const found = new Map();
    for (const rank of this.ranks) {
      for (const event of rank.events) {
        if (event.mode === 0 || event.peer !== null || event.start === null || !DATA.texts[event.group]) continue;
        const key = [event.op, event.layer, event.group, event.start].join();
        if (!found.has(key)) found.set(key, event);
      }
    }
    return [...found.values()];
  }

  /** The messages that were sent and have not arrived: from the start of the send to the end of the receive. */
  inFlight(time) {
    return this.messages.filter((m) => m.sending.start <= time && time < (m.receiving ? m.receiving.end : Infinity));
  }

  /** Whether two events of two ranks are one collective, or the two ends of one message. */
  partners(rank, index) {
    const event = this.ranks[rank].events[index];
    if (!event || event.mode === 0) return [];
    const mine = (m) => (m.source === rank && m.send === index) || (m.target === rank && m.receive === index);
    const message = this.messages.find(mine);
    if (message && event.peer !== null) {
      const ends = [
        [message.source, message.send],
        [message.target, message.receive],
      ];
      return ends.filter(([who, which]) => who !== rank && which >= 0);
    }
    if (event.start === null || !DATA.texts[event.group]) return [];
    const found = [];
    for (const other of this.ranks) {
      if (other.number === rank) continue;
      const same = (e) =>
        e.op === event.op && e.start === event.start && e.group === event.group && e.layer === event.layer;
      const which = other.events.findIndex(same);
      if (which >= 0) found.push([other.number, which]);
    }
    return found;
  }

  /** What is on its way at a time, in words; what one rank takes part in comes first. */
  underWay(time, rank) {
    const found = this.collectives
      .filter((event) => event.start <= time && time < event.end)
      .map((event) => `${collectiveWords(event)}, time ${exact(event.start)} to ${exact(event.end)}`);
    const mine = (m) => Number(m.source === rank || m.target === rank);
    for (const m of this.inFlight(time).sort((a, b) => mine(b) - mine(a))) {
      const end = m.receiving ? `received at ${exact(m.receiving.end)}` : "never received";
      found.push(
        `rank ${m.source} to rank ${m.target}: ${DATA.texts[m.words]}; sent at ${exact(m.sending.start)}, ${end}`,
      );
    }
    return found;
  }
}

/** A collective without what is different for each of its members. */
function collectiveWords(event) {
  const layer = event.layer === null ? "" : ` of layer ${event.layer}`;
  return `${DATA.texts[event.op]}${layer}, ranks ${DATA.texts[event.group]}`;
}

const RUNS = DATA.runs.map((row) => new Run(row));
/** The right edge of the timelines, and the last moment that the cursor goes to: what never happened lies beyond it. */
const EDGE = Math.max(0, ...RUNS.map((run) => run.edge));
const LAST = Math.max(0, ...RUNS.map((run) => run.last));
/** The scale of all memory curves: the most that any rank holds. */
const MOST = Math.max(1, ...RUNS.flatMap((run) => run.ranks.map((rank) => rank.most)));
/** Decimals of a time that the cursor was dragged to: enough for a thousandth of the run. */
const DECIMALS = clamp(Math.ceil(3 - Math.log10(LAST || 1)), 1, 9);
