// The pieces of a ring after each step, and their flight to the next rank. The run comes as data; see ring.py.

const DATA = JSON.parse(document.getElementById("data").textContent);
const CALM = window.matchMedia("(prefers-reduced-motion: reduce)");
const FLIGHT = 700; // milliseconds
const PAUSE = 1600; // from step to step while it plays
const byId = (id) => document.getElementById(id);
const SVG = document.querySelector("#picture svg");
const LAST = DATA.steps.length - 1;

/** An SVG element with attributes. */
function make(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

const patterns = SVG.appendChild(make("defs", {}));
const pieces = SVG.appendChild(make("g", {}));
const flying = SVG.appendChild(make("g", { "aria-hidden": "true" }));

/** The members whose contributions are in a piece: bits of a number. */
function members(mask) {
  return Array.from({ length: 32 }, (_, bit) => bit).filter((bit) => (mask >> bit) & 1);
}

/** A rectangle in the colour of one member, or woven of those of several. */
function woven(box, mask) {
  const some = members(mask);
  const [x, y, width, height] = box;
  if (some.length === 1) return make("rect", { x, y, width, height, class: `o${some[0]}` });
  const id = `woven${mask}`;
  if (!byId(id)) {
    const size = 9 * Math.SQRT1_2;
    const stripes = { id, patternUnits: "userSpaceOnUse", width: size * some.length, height: size };
    const pattern = make("pattern", { ...stripes, patternTransform: "rotate(45)" });
    some.forEach((member, place) =>
      pattern.append(make("rect", { x: place * size, width: size + 0.5, height: size, class: `o${member}` })),
    );
    patterns.append(pattern);
  }
  return make("rect", { x, y, width, height, fill: `url(#${id})` });
}

/** A piece with its number. */
function piece(box, mask, label) {
  const [x, y, width, height] = box;
  const some = members(mask);
  const group = make("g", {});
  const body = woven(box, mask);
  body.classList.add("band");
  group.append(body);
  if (DATA.labels.length > 1) {
    const [middle, line] = [x + width / 2, y + height / 2];
    const wide = 8 + 7 * label.length;
    if (some.length > 1)
      group.append(make("rect", { x: middle - wide / 2, y: line - 6.5, width: wide, height: 13, rx: 5, class: "chip" }));
    group.append(make("text", { x: middle, y: line + 4.3, class: some.length > 1 ? "several" : `i${some[0]}` }, label));
  }
  return group;
}

/** Where a piece of a member lies. */
function band(member, row) {
  const [x, y, width, height] = DATA.tiles[member];
  const high = height / DATA.labels.length;
  return [x, y + row * high, width, high];
}

function centre([x, y, width, height]) {
  return [x + width / 2, y + height / 2];
}

/** A small piece around a point. */
function chip([x, y], mask, row) {
  return piece([x - 15, y - 10, 30, 20], mask, DATA.labels[row]);
}

/** The picture after a step. */
function show(step) {
  const { has, hops, middle } = DATA.steps[step];
  pieces.replaceChildren();
  flying.replaceChildren();
  has.forEach((rows, member) =>
    rows.forEach((mask, row) => mask && pieces.append(piece(band(member, row), mask, DATA.labels[row]))),
  );
  for (const [source, target, row, mask] of hops) {
    const [x, y, width, height] = band(target, row);
    pieces.append(make("rect", { x, y, width, height, class: "new" }), chip(DATA.ways[source], mask, row));
  }
  DATA.middle.forEach(([x, y], line) =>
    pieces.append(make("text", { x, y, class: line ? "phase" : "middle" }, middle[line])),
  );
}

let current = 0;
let playing = 0;
let turn = 0;

/** Goes to a step; a piece flies where it is the next one. */
async function go(step) {
  const from = current;
  current = Math.min(LAST, Math.max(0, step));
  turn += 1;
  const mine = turn;
  write();
  if (current === from + 1 && !CALM.matches) {
    const { hops } = DATA.steps[current];
    pieces.querySelectorAll(".new").forEach((frame) => frame.remove());
    const flights = hops.map(([source, target, row, mask]) => {
      const [start, end] = [centre(band(source, row)), centre(band(target, row))];
      const body = flying.appendChild(chip(start, mask, row));
      const away = `translate(${end[0] - start[0]}px, ${end[1] - start[1]}px)`;
      const moves = [{ transform: "none" }, { transform: away }];
      return body.animate(moves, { duration: FLIGHT, easing: "ease-in-out", fill: "forwards" }).finished;
    });
    await Promise.all(flights);
    if (mine !== turn) return;
  }
  show(current);
}

/** What stands around the picture. */
function write() {
  const { words, holdings } = DATA.steps[current];
  byId("words").textContent = words;
  byId("holdings").textContent = holdings;
  byId("slider").value = String(current);
  byId("slider").setAttribute("aria-valuetext", `round ${current} of ${LAST}`);
  byId("count").textContent = `round ${current} of ${LAST}`;
  byId("previous").disabled = current === 0;
  byId("next").disabled = current === LAST;
  byId("play").textContent = playing ? "pause" : "play";
}

function pause() {
  window.clearInterval(playing);
  playing = 0;
}

function play() {
  if (playing) {
    pause();
    write();
    return;
  }
  if (current === LAST) {
    current = 0;
    show(0);
  }
  playing = window.setInterval(() => {
    if (current >= LAST - 1) pause();
    go(current + 1);
  }, PAUSE);
  go(current + 1);
}

function step(target) {
  pause();
  go(target);
}

byId("slider").max = String(LAST);
byId("slider").addEventListener("input", () => step(Number(byId("slider").value)));
byId("previous").addEventListener("click", () => step(current - 1));
byId("next").addEventListener("click", () => step(current + 1));
byId("play").addEventListener("click", play);
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const target = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: LAST }[event.key];
  const space = event.key === " " && event.target.tagName !== "BUTTON";
  if (target === undefined && !space) return;
  event.preventDefault();
  if (space) play();
  else step(target);
});
show(0);
write();
document.documentElement.dataset.ready = "1";
