// What ranks hold at a moment: a card for each rank, with the network, the memory curve, and the values in words.

const SVG = "http://www.w3.org/2000/svg";
const CARDS = 8;

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "line", "path", "text", "polygon"].includes(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** One rank: how its stores look, and what is in them. Rebuilt only when the rank is at another event. */
class Card {
  /** `large` is the one beside the timeline, which shows the memory over time already. */
  constructor(app, side, number, large) {
    this.rank = RUNS[side].ranks[number];
    this.run = RUNS[side];
    this.name = make("button", { type: "button" }, `rank ${number}`);
    this.name.addEventListener("click", () => app.select(side, number));
    this.sum = make("span", { class: "sum" });
    this.doing = make("p", { class: "doing" });
    this.network = make("div", { class: "network" });
    this.cursor = make("line", { class: "cursor", y1: 0, y2: 40, "vector-effect": "non-scaling-stroke" });
    this.count = make("summary");
    this.list = make("ul");
    this.values = make("details", {}, this.count, this.list);
    this.values.addEventListener("toggle", () => this.write());
    const head = make("div", { class: "head" }, make("h3", {}, this.name), this.sum);
    this.element = make(
      "article",
      { class: "card", "aria-label": this.run.name ? `rank ${number} of ${this.run.name}` : `rank ${number}` },
      ...[head, this.doing, this.network, ...(large ? [] : [this.curve()]), this.values],
    );
    this.index = null;
  }

  update(index, time, chosen) {
    this.element.classList.toggle("chosen", chosen);
    this.name.setAttribute("aria-pressed", String(chosen));
    this.doing.textContent = this.rank.doing(index, time);
    const x = (time / (EDGE || 1)) * 300;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    if (index === this.index) return;
    this.index = index;
    this.held = this.rank.holdings(index);
    this.sum.textContent = `${elements(this.rank.total(index))} elements`;
    const outside = this.held.filter((span) => OUTSIDE(span.place)).length;
    this.count.textContent = plural(this.held.length, "value") + (outside ? `, ${outside} outside the stores` : "");
    this.network.replaceChildren(
      drawNetwork(this.run, this.held, `What rank ${this.rank.number} holds: ${this.inShort()}`),
    );
    this.write();
  }

  inShort() {
    const sums = this.rank.memory(this.index);
    const parts = KINDS.map((kind, i) => (sums[i] ? `${kind.name} ${elements(sums[i])}` : "")).filter(Boolean);
    return parts.length ? `${parts.join(", ")} elements` : "nothing";
  }

  /** The values in words by where they are, for those who want to read them. */
  write() {
    if (!this.values.open) return;
    const places = DATA.whereabouts.map((name, place) => [name, this.held.filter((span) => span.place === place)]);
    const shown = places.filter(([, spans]) => spans.length);
    this.list.replaceChildren(
      ...shown.map(([name, spans]) => {
        const ordered = spans.sort((a, b) => VALUES[a.value].place - VALUES[b.value].place);
        const outside = OUTSIDE(spans[0].place);
        const label = make("strong", {}, outside ? `outside the stores: ${name}` : name);
        return make("li", {}, label, make("ul", {}, ...ordered.map((span) => this.line(span, outside))));
      }),
    );
    if (!shown.length) this.list.append(make("li", {}, "nothing"));
  }

  line(span, outside) {
    const value = VALUES[span.value];
    const dot = make("span", { class: "dot", style: `background:${KINDS[value.kind].colour}` });
    const item = make("li", {}, dot, `${value.words}: ${elements(value.elements)}`);
    const born = this.rank.events[span.born];
    if (!born || !outside) return item;
    const place = placeOf(born);
    item.append(make("span", { class: "born" }, `from ${DATA.texts[born.words]}${place ? ` (${place.short})` : ""}`));
    return item;
  }

  /** Memory over the whole run, stacked by kind, on the scale that all ranks share. */
  curve() {
    const svg = make("svg", { viewBox: "0 0 300 40", preserveAspectRatio: "none", class: "curve", role: "img" });
    svg.setAttribute(
      "aria-label",
      `Memory of rank ${this.rank.number} over time, at most ${elements(this.rank.most)} elements`,
    );
    for (let kind = KINDS.length - 1; kind >= 0; kind--) {
      let path = "M0 40";
      for (const { time, sums } of this.rank.curve) {
        path += `H${Math.round((time / (EDGE || 1)) * 3000) / 10}V${Math.round(400 - (sums[kind] / MOST) * 390) / 10}`;
      }
      svg.append(make("path", { d: `${path}V40Z`, style: `fill:${KINDS[kind].colour}` }));
    }
    svg.append(this.cursor);
    return svg;
  }
}

/** The network, layers from bottom to top: weight, optimizer state and gradient of each; activations between layers. */
function drawNetwork({ layers, weighted }, held, label) {
  const [slot, gap, between] = [46, 3, 10];
  const left = 15 + 5 * String(layers - 1).length;
  const high = Math.min(24, 190 / layers);
  const pitch = high + (high > 8 ? 3 : high < 3 ? 0 : 1);
  const top = 16 + pitch / 2;
  const height = top + layers * pitch + pitch / 2 + 2;
  const right = left + 3 * (slot + gap) + between;
  const svg = make("svg", { viewBox: `0 0 ${right + 2 * (slot + gap)} ${height}`, class: "net", role: "img" });
  svg.setAttribute("aria-label", label);
  const place = {
    layer: (number, row) => [left + row * (slot + gap), top + (layers - 1 - number) * pitch],
    between: (number, row) => [right + row * (slot + gap), top + (layers - number) * pitch - pitch / 2],
  };
  const heads = [
    ["weight", "layer", 0],
    ["optimizer", "layer", 1],
    ["gradient", "layer", 2],
    ["activation", "between", 0],
    ["gradient", "between", 1],
  ];
  const every = Math.ceil(9 / pitch);
  for (const [word, column, row] of heads) {
    const last = column === "layer" ? layers - 1 : layers;
    // Of a deep network one box stands for the slots of all layers.
    for (let number = 0; number <= last; number++) {
      if (column === "layer" && high >= 3 && !weighted[number]) continue;
      const [x, y] = place[column](high < 3 ? last : number, row);
      svg.append(make("rect", { x, y, width: slot, height: high < 3 ? (last + 1) * pitch : high, class: "slot" }));
      if (high < 3) break;
    }
    svg.append(make("text", { x: place[column](0, row)[0] + slot / 2, y: 8, class: "head" }, word));
  }
  for (let layer = 0; layer < layers; layer += every) {
    svg.append(make("text", { x: left - 4, y: place.layer(layer, 0)[1] + high / 2 + 3, class: "number" }, `L${layer}`));
  }
  const groups = new Map();
  for (const span of held) {
    const value = VALUES[span.value];
    const key = [value.column, value.place, value.row].join();
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(span);
  }
  for (const spans of groups.values()) {
    const { column, place: number, row } = VALUES[spans[0].value];
    if (number < 0 || number > layers || (column === "layer" && number === layers)) continue;
    const [x, y] = place[column](number, row);
    spans.sort((a, b) => OUTSIDE(b.place) - OUTSIDE(a.place));
    for (const span of spans) drawValue(svg, VALUES[span.value], OUTSIDE(span.place), x, y, slot, high);
    if (spans.length > 1 && high >= 9)
      svg.append(make("text", { x: x + slot - 2, y: y + 8, class: "badge" }, `×${spans.length}`));
  }
  return svg;
}

/**
 * A value in its slot: shards and features go down, columns of weights and batches of activations across. A gradient is
 * as large as its weight however many batches are summed in it: they are written on it. Dashed where no store holds it, pale
 * where it is a part of a sum.
 */
function drawValue(svg, value, outside, x, y, width, height) {
  const { colour, ink, edge } = KINDS[value.kind];
  const columns = Math.max(1, value.totalBatches);
  const wide = width / columns;
  const tall = height / Math.max(1, value.total);
  const ranges = (runs, total) =>
    runs.flatMap((_, i) => (i % 2 ? [] : [[clamp(runs[i], 0, total), clamp(runs[i + 1] + 1, 0, total)]]));
  const style = {
    class: `value${outside ? " outside" : tall < 4 ? " thin" : ""}${value.partial ? " partial" : ""}`,
    style: `fill:${colour};stroke:${edge}`,
  };
  const empty = value.summed !== null && !value.batches.length;
  for (const [first, last] of empty ? [[0, columns]] : ranges(value.batches, columns)) {
    for (const [upper, lower] of ranges(value.shards, Math.max(1, value.total))) {
      const box = {
        x: x + first * wide,
        y: y + upper * tall,
        width: (last - first) * wide,
        height: (lower - upper) * tall,
      };
      svg.append(make("rect", { ...box, ...style }));
      const text = { class: "cell", style: `fill:${outside ? "var(--ink)" : ink}` };
      if (value.summed !== null && box.height >= 7) {
        if (box.width < 5 * value.summed.length) continue;
        svg.append(make("text", { x: box.x + box.width / 2, y: box.y + box.height / 2 + 2.8, ...text }, value.summed));
      } else if (columns > 1 && wide >= 7 && box.height >= 7) {
        for (let batch = first; batch < last; batch++) {
          svg.append(make("text", { x: x + (batch + 0.5) * wide, y: box.y + box.height / 2 + 2.8, ...text }, batch));
        }
      } else if (value.total > 1 && tall >= 7) {
        for (let shard = upper; shard < lower; shard++) {
          svg.append(make("text", { x: x + 6, y: y + (shard + 0.5) * tall + 2.8, ...text }, shard));
        }
      }
    }
  }
  if (!value.batches.length)
    svg.append(make("rect", { x, y, width, height, fill: "none", style: `stroke:${colour}`, "stroke-dasharray": "1 3" }));
}
