"use strict";
// Four sliders choose a schedule; its timeline, its figures, and its place among all others are drawn anew.

const DATA = JSON.parse(document.getElementById("data").textContent);
const NAMES = ["chunks", "group", "ahead", "late"];
const WORDS = {
  chunks: ["stages of a rank", "short stages fill the pipeline sooner"],
  group: ["microbatches in a row", "that take one stage before the rank turns to its next"],
  ahead: ["forwards ahead", "for each rank that follows"],
  late: ["weight halves", "how far they lag behind the input halves, for each rank before"],
};
const PLACES = new Map(DATA.places.map(([a, b, c, d, piece]) => [key([a, b, c, d]), piece]));
const LEFT = 66;
const WIDTH = 960;
const ROW = 26;
const byId = (id) => document.getElementById(id);
const neat = (number) => String(Number(number.toFixed(2)));
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const most = (piece) => Math.max(...piece.peaks);
const legal = (piece) => piece.rows !== undefined;

function key(values) {
  return values.map(String).join(",");
}

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "line", "path", "text", "circle", "title", "polyline"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const BEYOND = "the sliders cannot make this one";

/** What is shown: where the sliders stand, or a piece that they cannot make. */
const state = { at: NAMES.map(() => 0), beyond: null };

function current() {
  if (state.beyond !== null) return state.beyond;
  return PLACES.get(key(NAMES.map((name, i) => DATA.positions[name][state.at[i]])));
}

/** The boxes of a rank: kind, turn of the stage, microbatch, start and length; the second of a pair is `joined`. */
function boxes(piece, row) {
  const found = [];
  let time = 0;
  for (const word of row.split(" ")) {
    const parts = /^([\d.]*)(&?)([FBIW])(\d+),(\d+)$/.exec(word);
    if (!parts) continue;
    time += Number(parts[1] || 0);
    const length = cost(parts[3]) / piece.chunks;
    found.push({ kind: parts[3], turn: Number(parts[4]), batch: Number(parts[5]), start: time, length, joined: parts[2] !== "" });
    time += length;
  }
  return found;
}

const cost = (kind) => (kind === "B" ? COSTS.I + COSTS.W : COSTS[kind]);

/** What a rank's share of a batch costs, and a message: where the sliders stand. */
const COSTS = { ...DATA.costs, message: DATA.message };
const given = () => COSTS.message === DATA.message && Object.entries(DATA.costs).every(([kind, time]) => COSTS[kind] === time);

/** Times a schedule anew, as lib/schedules/pipelines/timing.py does where messages are posted: everything starts when its
    rank is free and its inputs are there, and one message is sent to a rank before the next. */
function retime(piece) {
  const ranks = DATA.ranks;
  const stage = (rank, turn) => (piece.shape === "vee" && turn === 1 ? 2 * ranks - 1 - rank : turn * ranks + rank);
  const home = (at) => (piece.shape === "vee" && at >= ranks ? 2 * ranks - 1 - at : at % ranks);
  const last = piece.chunks * ranks - 1;
  const there = new Map();
  const sent = new Map();
  const rows = piece.rows.map((row) => boxes(piece, row));
  const at = rows.map(() => 0);
  const now = rows.map(() => 0);
  const needs = ({ kind, batch }, own) => {
    if (kind === "F") return own ? [`F${own},${batch}`] : [];
    return kind === "W" ? [`i${own},${batch}`] : [`f${own},${batch}`, ...(own < last ? [`B${own},${batch}`] : [])];
  };
  const done = ({ kind, batch }, own, rank) => {
    if (kind === "W") return;
    there.set(`${kind === "F" ? "f" : "i"}${own},${batch}`, now[rank]);
    const after = kind === "F" ? own + 1 : own - 1;
    if (after < 0 || after > last) return;
    const key = `${kind === "F" ? "F" : "B"}${after},${batch}`;
    if (home(after) === rank) return there.set(key, now[rank]);
    const link = `${rank},${home(after)}`;
    now[rank] = Math.max(now[rank], sent.get(link) ?? 0);
    sent.set(link, now[rank] + COSTS.message / 2);
    there.set(key, now[rank] + COSTS.message);
  };
  for (let moved = true; moved; ) {
    moved = false;
    rows.forEach((row, rank) => {
      while (at[rank] < row.length) {
        const parts = row.slice(at[rank], at[rank] + (row[at[rank] + 1]?.joined ? 2 : 1));
        const own = parts.map((part) => stage(rank, part.turn));
        const first = `f${own[0]},${parts[0].batch}`;
        const keys = parts.flatMap((part, i) => needs(part, own[i])).filter((key) => parts.length < 2 || key !== first);
        if (!keys.every((key) => there.has(key))) break;
        now[rank] = Math.max(now[rank], ...keys.map((key) => there.get(key)));
        for (const part of parts) {
          part.start = now[rank];
          part.length = cost(part.kind) / piece.chunks;
          now[rank] += part.length;
        }
        parts.forEach((part, i) => done(part, own[i], rank));
        at[rank] += parts.length;
        moved = true;
      }
    });
  }
  const ends = rows.map((row) => row.at(-1).start + row.at(-1).length);
  const busy = rows.flat().reduce((sum, box) => sum + box.length, 0);
  const span = Math.max(...rows.map((row, rank) => ends[rank] - row[0].start));
  piece.boxes = rows;
  piece.end = Math.max(...ends);
  piece.bubble = [1 - busy / (ranks * piece.end), 1 - busy / (ranks * span)];
}

// -- the timeline -------------------------------------------------------------------------------------------------------

/** Whether what is proved is about schedules of this kind. */
const speaksOf = (limit, piece) =>
  given() && limit.chunks === piece.chunks && limit.shape === piece.shape && limit.halves === piece.halves;

/** All legal schedules that have a name fit on this axis; for one that is longer the axis is. */
const NAMED = DATA.pieces.filter((piece) => piece.name && legal(piece));
const axis = () => 1.04 * Math.max(...NAMED.map((piece) => piece.end));

function drawTimeline(piece) {
  const last = Math.max(axis(), piece.end * 1.02);
  const room = WIDTH - LEFT - 150;
  const x = (time) => LEFT + (time / last) * room;
  const bottom = 6 + DATA.ranks * (ROW + 4);
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${bottom + 24}`, width: WIDTH });
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((one) => last / one <= 12) || 1000;
  for (let time = 0; time <= last; time += step) {
    svg.append(make("line", { class: "grid", x1: x(time), x2: x(time), y1: 2, y2: bottom }));
    svg.append(make("text", { class: "soft", x: x(time), y: bottom + 16, "text-anchor": "middle" }, neat(time)));
  }
  const widest = Math.max(...NAMED.map(most), most(piece));
  svg.append(
    make("text", { class: "soft", x: WIDTH - 140, y: bottom + 16 }, "peak, in microbatches"),
  );
  piece.rows.forEach((row, rank) => {
    const top = 4 + rank * (ROW + 4);
    svg.append(make("rect", { class: "track", x: LEFT, y: top, width: room, height: ROW }));
    svg.append(make("text", { x: LEFT - 8, y: top + ROW / 2 + 4, "text-anchor": "end" }, `rank ${rank}`));
    for (const box of piece.boxes?.[rank] ?? boxes(piece, row)) {
      const width = (box.length / last) * room;
      const name = `${box.kind}${box.turn}`;
      const what = { F: "forward", B: "backward", I: "input half", W: "weight half" }[box.kind];
      const words = `rank ${rank}, ${neat(box.start)} to ${neat(box.start + box.length)}: ${what} of microbatch ${box.batch}`;
      const rect = make(
        "rect",
        {
          x: x(box.start) + 0.4,
          y: top + 1,
          width: Math.max(0.8, width - 0.8),
          height: ROW - 2,
          rx: Math.min(3, width / 3),
          style: `fill:var(--${name});stroke:var(--${name}-edge);stroke-width:.8`,
        },
        make("title", {}, piece.chunks > 1 ? `${words}, on stage ${box.turn + 1} of its ${piece.chunks}` : words),
      );
      svg.append(rect);
      if (width > 2 && (box.kind === "I" || box.kind === "W")) {
        const at = { class: "band", x: x(box.start) + 0.4, y: top + (box.kind === "I" ? 1 : ROW - 5), width: width - 0.8, height: 4 };
        svg.append(make("rect", { ...at, style: `fill:var(--F${box.turn})` }));
      }
      const size = Math.min(12, width * 0.72);
      if (size >= 7) {
        const style = `fill:var(--${name}-ink);font-size:${size}px;pointer-events:none`;
        const at = { x: x(box.start) + width / 2, y: top + ROW / 2 + size * 0.36, "text-anchor": "middle", style };
        svg.append(make("text", at, String(box.batch)));
      }
    }
    const bar = (piece.peaks[rank] / widest) * 90;
    svg.append(make("rect", { class: "peak", x: WIDTH - 140, y: top + 5, width: bar, height: ROW - 10, rx: 2 }));
    svg.append(make("text", { x: WIDTH - 134 + bar, y: top + ROW / 2 + 4 }, neat(piece.peaks[rank])));
  });
  const end = x(piece.end);
  svg.append(make("line", { style: "stroke:var(--alarm);stroke-width:1.5", x1: end, x2: end, y1: 0, y2: bottom }));
  byId("timeline").replaceChildren(svg);
  byId("timeline").setAttribute("aria-label", `Timeline: ends at ${neat(piece.end)}`);
}

function drawLegend(piece) {
  const kinds = new Set(piece.rows.flatMap((row) => [...row.matchAll(/[FBIW]/g)].map((found) => found[0])));
  const words = { F: "forward", B: "backward", I: "input half of the backward", W: "weight half" };
  const items = [];
  for (const kind of "FBIW")
    if (kinds.has(kind))
      for (let turn = 0; turn < piece.chunks; turn += 1) {
        const name = `--${kind}${turn}`;
        const swatch = make("i", { class: kind, style: `background:var(${name});border-color:var(${name}-edge);--own:var(--F${turn})` });
        const which = piece.chunks > 1 ? `, stage ${turn + 1}` : "";
        items.push(make("span", {}, swatch, words[kind] + which));
      }
  byId("legend").replaceChildren(...items, make("span", {}, "number: microbatch"));
}

/** Round numbers between two others, some six of them. */
function ticks(low, high) {
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].find((one) => (high - low) / one <= 7) || 1000;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9; at += step) found.push(Number(at.toFixed(6)));
  return found;
}

// -- time against memory --------------------------------------------------------------------------------------------------

function drawPlot(here) {
  const width = 560;
  const height = 270;
  const [left, bottom] = [44, height - 34];
  const shown = DATA.pieces.map((piece, number) => ({ piece, number })).filter(({ piece }) => legal(piece));
  const limits = DATA.limits.filter((limit) => speaksOf(limit, here));
  const ends = NAMED.map((piece) => piece.end).concat(limits.map((limit) => limit.end));
  const low = Math.min(DATA.batches * (COSTS.F + COSTS.I + COSTS.W), ...ends);
  const high = Math.max(axis(), legal(here) ? Math.min(here.end, 2 * axis()) : 0) * 1.02;
  const top = Math.max(...shown.filter(({ piece }) => piece.end <= high).map(({ piece }) => most(piece)));
  const x = (end) => left + ((end - low) / (high - low)) * (width - left - 12);
  const y = (peak) => bottom - (peak / top) * (bottom - 26);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, role: "img" });
  svg.setAttribute("aria-label", "Every schedule: when it ends, and its highest peak");
  svg.append(make("line", { class: "axis", x1: left, x2: width - 10, y1: bottom, y2: bottom }));
  svg.append(make("line", { class: "axis", x1: left, x2: left, y1: 8, y2: bottom }));
  for (const end of ticks(low, high))
    svg.append(make("text", { class: "soft", x: x(end), y: bottom + 15, "text-anchor": "middle" }, neat(end)));
  for (const peak of ticks(0, top))
    svg.append(make("text", { class: "soft", x: left - 6, y: y(peak) + 4, "text-anchor": "end" }, neat(peak)));
  svg.append(make("text", { x: (left + width) / 2, y: height - 3, "text-anchor": "middle" }, "end (better: left)"));
  svg.append(make("text", { x: 6, y: 10, class: "soft" }, "highest peak, microbatches (better: down)"));
  if (limits.length) {
    const points = limits.slice().sort((one, other) => one.peak - other.peak);
    let path = "";
    points.forEach((limit, number) => {
      const after = number + 1 < points.length ? points[number + 1].peak : top;
      path += `${number ? "L" : "M"}${x(limit.end)},${y(limit.peak)}L${x(limit.end)},${y(after)}`;
    });
    svg.append(make("path", { class: "limit", d: path }, make("title", {}, "proved: nothing is to the left of this line")));
  }
  const order = shown.filter(({ piece }) => piece.end <= high);
  order.sort((one, other) => Number(Boolean(one.piece.name)) - Number(Boolean(other.piece.name)));
  for (const { piece, number } of order) {
    const kind = piece === here ? "dot here" : piece.name ? "dot named" : "dot";
    const dot = make("circle", { class: kind, cx: x(piece.end), cy: y(most(piece)), r: piece === here ? 6 : 4 });
    dot.append(make("title", {}, `${titleOf(piece)}: ends at ${neat(piece.end)}, peak ${neat(most(piece))}`));
    dot.addEventListener("click", () => go(number));
    svg.append(dot);
  }
  const named = order.filter(({ piece }) => piece.name).map(({ piece }) => piece);
  named.sort((one, other) => Number(other === here) - Number(one === here) || one.chunks - other.chunks);
  const taken = named.map((piece) => ({ x: x(piece.end) - 4, y: y(most(piece)) - 4, width: 8, height: 8 }));
  for (const piece of named) label(svg, piece, here, x(piece.end), y(most(piece)), width, taken);
  byId("plot").replaceChildren(svg);
}

/** The name of a schedule beside its dot; where there is no room, farther away at the end of a line. */
function label(svg, piece, here, x, y, width, taken) {
  const words = titleOf(piece);
  const long = words.length * 5.4 + 4;
  for (let far = 0; far < 9; far += 1) {
    const [across, up] = [7 + 9 * far, 7 + 11 * far];
    for (const [dx, dy] of [[across, -up], [across, up + 6], [-across - long, -up], [-across - long, up + 6], [-long / 2, -up - 2], [-long / 2, up + 11]]) {
      const box = { x: x + dx, y: y + dy - 9, width: long, height: 11 };
      const free = box.x > 44 && box.x + long < width && box.y > 12 && box.y < 220;
      if (!free || taken.some((one) => overlap(one, box))) continue;
      taken.push(box);
      if (far) {
        const near = { x2: clamp(x, box.x, box.x + long), y2: clamp(y, box.y, box.y + 11) };
        svg.append(make("line", { class: "lead", x1: x, y1: y, ...near }));
      }
      const kind = piece === here ? "small strong" : "small";
      svg.append(make("text", { class: kind, x: box.x, y: box.y + 9 }, words));
      return;
    }
  }
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function overlap(one, other) {
  const across = one.x < other.x + other.width && other.x < one.x + one.width;
  return across && one.y < other.y + other.height && other.y < one.y + one.height;
}

// -- words ----------------------------------------------------------------------------------------------------------------

function titleOf(piece) {
  if (!piece.name) return "no name";
  const { title } = DATA.names[piece.name];
  return piece.chunks > 2 ? `${title} × ${piece.chunks}` : title;
}

function say(piece) {
  byId("name").textContent = piece.name ? titleOf(piece) : "A schedule without a name";
  const about = [piece.name ? DATA.names[piece.name].paper : "", state.beyond === null ? "" : BEYOND];
  byId("paper").textContent = about.filter(Boolean).join(" · ");
  const figures = legal(piece)
    ? [
        ["ends at", neat(piece.end)],
        ["bubble, of the whole time", percent(piece.bubble[0])],
        ["of the longest rank's own time", percent(piece.bubble[1])],
        ["highest peak", `${neat(most(piece))} microbatches`],
      ]
    : [];
  byId("figures").replaceChildren(...figures.map(([what, number]) => make("div", {}, make("dt", {}, what), make("dd", {}, number))));
  const better = DATA.pieces.filter(
    (one) => legal(one) && legal(piece) && one.end <= piece.end && most(one) <= most(piece) && (one.end < piece.end || most(one) < most(piece)),
  );
  const beat = byId("beat");
  if (!legal(piece)) beat.textContent = "";
  else if (better.length) {
    better.sort((one, other) => Number(Boolean(other.name)) - Number(Boolean(one.name)) || one.end - other.end);
    const [best] = better;
    beat.textContent = `Beaten by ${better.length} of the others, in time, in memory or in both: ${titleOf(best)} ends at ${neat(best.end)} with ${neat(most(best))}.`;
  } else beat.textContent = "Nothing here is as good in both time and memory.";
  const limits = DATA.limits.filter((limit) => legal(piece) && speaksOf(limit, piece) && limit.peak >= most(piece) - 1e-9);
  limits.sort((one, other) => one.peak - other.peak);
  if (limits.length) {
    const [{ peak, end }] = limits;
    const open = piece.end - end;
    const stages = piece.chunks === 1 ? "one stage" : `${piece.chunks} stages`;
    const all = `It is proved: with ${stages} a rank${piece.shape === "vee" ? " in a V" : ""}, ${piece.halves ? "the backward split" : "the backward whole"} and peaks of at most ${neat(peak)} nothing ends before ${neat(end)}`;
    beat.textContent += open > 1e-9 ? ` ${all}. So up to ${neat(open)} may be in it: can you beat it?` : ` ${all}, so nothing can beat it there.`;
  }
  byId("about").textContent = DATA.limits.some((limit) => speaksOf(limit, piece))
    ? "The line is proved: no schedule of this kind (as many stages, in the same shape, the backward split or not as here) is to the left of it. Click a dot to see its schedule."
    : "Click a dot to see its schedule.";
}

function labelOf(name, value) {
  if (name === "late") return value === null ? "not split" : value === 0 ? "right behind" : `${value} behind`;
  if (name === "ahead") return value === null ? "everything" : String(value);
  return String(value);
}

function refresh() {
  const piece = DATA.pieces[current()];
  NAMES.forEach((name, i) => {
    const value = DATA.positions[name][state.at[i]];
    byId(name).value = state.at[i];
    const shown = state.beyond === null ? labelOf(name, value) : "–";
    byId(name).setAttribute("aria-valuetext", state.beyond === null ? shown : BEYOND);
    byId(`${name}-value`).textContent = shown;
  });
  byId("sliders").classList.toggle("off", state.beyond !== null);
  for (const button of byId("names").children)
    button.setAttribute("aria-pressed", String(Number(button.dataset.piece) === current()));
  say(piece);
  if (legal(piece)) {
    drawTimeline(piece);
    drawLegend(piece);
  } else {
    const words = `The ranks wait for each other in a circle: ${piece.why}.`;
    byId("timeline").replaceChildren(make("p", { class: "circle" }, words));
    byId("timeline").setAttribute("aria-label", words);
    byId("legend").replaceChildren();
  }
  drawPlot(piece);
}

/** Shows a piece, with the sliders where they make it. */
function go(number) {
  const place = DATA.places.find((row) => row[4] === number && row[1] === DATA.ranks) || DATA.places.find((row) => row[4] === number);
  if (place) {
    state.beyond = null;
    state.at = NAMES.map((name, i) => DATA.positions[name].indexOf(place[i]));
  } else state.beyond = number;
  refresh();
}

function sayWorld() {
  const world = given() ? DATA.world : `messages are posted and take ${neat(COSTS.message)}`;
  byId("world").textContent = `Each rank computes ${neat(DATA.batches * (COSTS.F + COSTS.I + COSTS.W))}; ${world}.`;
}

function begin() {
  sayWorld();
  if (DATA.messages === "posted")
    for (const [kind, what] of Object.entries({ F: "a forward", I: "an input half", W: "a weight half", message: "a message" })) {
      const input = make("input", { id: `cost-${kind}`, type: "range", min: kind === "message" ? 0 : 0.25, max: 4, step: 0.25, value: COSTS[kind] });
      const output = make("output", { id: `cost-${kind}-value`, for: input.id }, neat(COSTS[kind]));
      input.addEventListener("input", () => {
        COSTS[kind] = Number(input.value);
        output.textContent = neat(COSTS[kind]);
        DATA.pieces.filter(legal).forEach(retime);
        sayWorld();
        refresh();
      });
      byId("costs").append(make("div", {}, make("label", { for: input.id }, `${what} takes`, output), input));
    }
  NAMES.forEach((name, i) => {
    const input = make("input", { id: name, type: "range", min: 0, max: DATA.positions[name].length - 1, step: 1 });
    input.addEventListener("input", () => {
      state.at[i] = Number(input.value);
      state.beyond = null;
      refresh();
    });
    const label = make("label", { for: name }, WORDS[name][0], make("output", { id: `${name}-value`, for: name }));
    byId("sliders").append(make("div", {}, label, input, make("small", {}, WORDS[name][1])));
  });
  const made = new Set(DATA.places.map((row) => row[4]));
  const order = Object.keys(DATA.names);
  const numbers = DATA.pieces.map((_, number) => number).filter((number) => DATA.pieces[number].name);
  const rank = (number) => [Number(!made.has(number)), order.indexOf(DATA.pieces[number].name), DATA.pieces[number].chunks];
  numbers.sort((one, other) => rank(one).reduce((found, value, i) => found || value - rank(other)[i], 0));
  numbers.forEach((number) => {
    const piece = DATA.pieces[number];
    const attributes = { type: "button", "data-piece": number, "aria-pressed": "false" };
    if (!made.has(number)) Object.assign(attributes, { class: "beyond", title: BEYOND });
    const button = make("button", attributes, titleOf(piece));
    button.addEventListener("click", () => go(number));
    byId("names").append(button);
  });
  go(DATA.pieces.findIndex((piece) => piece.name === "gpipe"));
  document.documentElement.dataset.ready = "true";
}

begin();
