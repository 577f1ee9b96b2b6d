// The timeline of one run on two canvases: boxes below, and above them what moves with the cursor.

const LEFT = 78;
const RIGHT = 18;
const STRIP = 54;
const ARROWS = 96; // messages in sight that are drawn; more would only be a thicket
const NIGHT = window.matchMedia("(prefers-color-scheme: dark)");

class Timeline {
  /** `app` has the cursor, the selection and the window of time that all timelines share. */
  constructor(app, side, host) {
    this.app = app;
    this.run = RUNS[side];
    this.side = side;
    this.host = host;
    this.below = host.appendChild(make("canvas", { "aria-hidden": true }));
    this.above = host.appendChild(make("canvas", { "aria-hidden": true }));
    this.tops = this.run.rows.tops.map((top) => top + 18);
    this.bottom = this.run.rows.bottom + 18;
    this.height = this.bottom + STRIP + (this.run.more ? 46 : 30);
    this.widths = new Map();
  }

  x(time) {
    return LEFT + ((time - this.app.from) / (this.app.to - this.app.from)) * (this.width - LEFT - RIGHT);
  }

  time(x) {
    return this.app.from + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (this.app.to - this.app.from);
  }

  /** Takes the width of the page and the colours of its theme. */
  resize() {
    this.width = Math.max(320, this.host.clientWidth);
    const scale = window.devicePixelRatio || 1;
    for (const canvas of [this.below, this.above]) {
      canvas.width = Math.round(this.width * scale);
      canvas.height = Math.round(this.height * scale);
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${this.height}px`;
      canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    }
    const style = getComputedStyle(document.documentElement);
    const names = ["paper", "panel", "edge", "ink", "soft", "grid", "track", "alarm", "accent", "accent-ink", "arrow"];
    this.colour = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.kinds = KINDS.map((_, number) => style.getPropertyValue(`--kind-${number}`).trim());
    this.theme = NIGHT.matches ? "night" : "day";
    this.paint();
  }

  /** What lies still: tracks, grid, boxes, and the memory curve of the rank that is selected. */
  paint() {
    const ctx = (this.ctx = this.below.getContext("2d"));
    const { colour, run } = this;
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.textBaseline = "middle";
    const room = this.width - LEFT - RIGHT;
    run.ranks.forEach((rank, number) => {
      ctx.fillStyle = colour.track;
      ctx.fillRect(LEFT, this.tops[number], room, this.depth(number));
    });
    ctx.fillStyle = colour.track;
    ctx.fillRect(LEFT, this.bottom + 8, room, STRIP);
    this.grid(ctx);
    ctx.save();
    ctx.beginPath();
    ctx.rect(LEFT - 1, 0, room + 2, this.height);
    ctx.clip();
    for (const rank of run.ranks) this.boxes(ctx, rank);
    this.messages(ctx);
    const curve = run.ranks[this.rank] && run.ranks[this.rank].curve;
    if (curve) this.memory(ctx, curve);
    ctx.restore();
    if (run.more) this.words(ctx, run.more, LEFT, this.height - 6, colour.soft, 11);
    this.overlay();
  }

  /** The rank whose memory is drawn: the selected one, or the one of that number in the other run. */
  get rank() {
    return Math.min(this.app.rank, this.run.ranks.length - 1);
  }

  /** How high the row of a rank is, with its lanes of communication. */
  depth(number) {
    const { height, thin } = this.run.rows;
    return height + (this.run.lanes[number] - 1) * (thin + 1);
  }

  grid(ctx) {
    const { from, to } = this.app;
    const step = nice((to - from) / ((this.width - LEFT - RIGHT) / 80));
    ctx.font = "10px system-ui, sans-serif";
    for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9; i++) {
      const x = Math.round(this.x(i * step)) + 0.5;
      ctx.strokeStyle = this.colour.grid;
      ctx.beginPath();
      ctx.moveTo(x, 14);
      ctx.lineTo(x, this.bottom + 8 + STRIP);
      ctx.stroke();
      ctx.fillStyle = this.colour.soft;
      ctx.textAlign = "center";
      ctx.fillText(exact(i * step), x, this.bottom + STRIP + 18);
    }
    this.words(ctx, "time", LEFT - 10, this.bottom + STRIP + 18, this.colour.soft, 10, "right");
    this.words(ctx, "memory of", LEFT - 10, this.bottom + STRIP / 2, this.colour.soft, 10, "right");
    this.words(ctx, `rank ${this.rank}`, LEFT - 10, this.bottom + STRIP / 2 + 14, this.colour.ink, 11, "right");
    const end = this.x(this.run.end);
    if (end > this.width - RIGHT + 1 || end < LEFT) return;
    ctx.strokeStyle = this.colour.soft;
    ctx.beginPath();
    ctx.moveTo(end, 14);
    ctx.lineTo(end, this.bottom + 8 + STRIP);
    ctx.stroke();
  }

  words(ctx, text, x, y, fill, size, align = "left") {
    ctx.font = `${size}px system-ui, sans-serif`;
    ctx.fillStyle = fill;
    ctx.textAlign = align;
    ctx.fillText(text, x, y);
  }

  /** Where a box lies. */
  place(rank, box) {
    const { height, thin } = this.run.rows;
    const top = this.tops[rank] + (box.lane ? height + 1 + (box.lane - 1) * (thin + 1) : 0);
    const x = this.x(box.start);
    return { x, y: top, width: this.x(box.end) - x, height: box.lane ? thin : height };
  }

  boxes(ctx, rank) {
    const painted = [];
    for (const box of rank.boxes) {
      const { x, y, width, height } = this.place(rank.number, box);
      if (x > this.width || x + width < LEFT - 1) continue;
      if (x + width - (painted[box.lane] ?? -1) < 0.4 && width < 0.4) continue;
      painted[box.lane] = x + width;
      this.box(
        ctx,
        box,
        STYLES[box.style],
        STYLES[box.style][this.theme],
        x,
        y,
        width < 1.2 ? 1.2 : width > 3 ? width - 0.8 : width,
        height,
      );
    }
  }

  box(ctx, box, { band, share }, style, x, y, width, height) {
    ctx.fillStyle = style.fill;
    ctx.fillRect(x, y, width, height);
    if (style.border !== "none" && style.border !== style.fill && width > 3) {
      ctx.strokeStyle = style.border;
      ctx.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    }
    if (share && width > 2) {
      const high = Math.max(2, Math.abs(share) * height);
      ctx.fillStyle = band;
      ctx.fillRect(x, share < 0 ? y : y + height - high, width, high);
    }
    const [labels, layer] = DATA.labels[box.label];
    const size = height >= 22 ? 11 : height >= 11 ? 10 : 0;
    if (!size || width < 6 || !labels.length) return;
    const best = labels.find((label) => this.measure(ctx, label, size) <= width - 3);
    if (best === undefined) return this.turned(ctx, labels.at(-1), style.ink, x + width / 2, y + height / 2, width, height);
    const two = height >= 26 && layer && this.measure(ctx, layer, 10) <= width - 2;
    const middle = y + (height / 2) * (1 - share);
    this.words(ctx, best, x + width / 2, two ? middle - 5 : middle + 0.5, style.ink, size, "center");
    if (two) this.words(ctx, layer, x + width / 2, middle + 7, style.ink, 10, "center");
  }

  /** A label that reads upwards, where it does not fit in any other way: all-gathers are narrow. */
  turned(ctx, label, ink, x, y, width, height) {
    if (label.length < 2 || label.endsWith("…") || width < 10 || this.measure(ctx, label, 10) > height - 5) return;
    ctx.save();
    ctx.translate(x, y - 1);
    ctx.rotate(-Math.PI / 2);
    this.words(ctx, label, 0, 0, ink, 10, "center");
    ctx.restore();
  }

  /** Messages as in every picture: from the end of a send to the start of its receive, between the rows. */
  messages(ctx) {
    if (this.run.rows.height < 14) return;
    const { from, to } = this.app;
    const seen = this.run.messages.filter(
      ({ sending, receiving }) => receiving && sending.end !== null && receiving.start >= from && sending.end <= to,
    );
    if (seen.length > ARROWS) return;
    for (const message of seen) drawArrow(ctx, this.ends(message), this.colour.arrow, 1.2);
  }

  /** Where a message leaves its sender's row, and where it enters that of its receiver. What members of an exchange
      give each other goes from its start to its end. */
  ends({ sending, receiving, source, target }) {
    const down = target > source;
    const high = this.run.rows.height;
    if (receiving && sending.peer === null)
      return {
        from: { x: this.x(sending.start) + 1, y: this.tops[source] + (down ? high : 0) },
        to: { x: this.x(receiving.end) - 1, y: this.tops[target] + (down ? 0 : high) },
      };
    const gone = sending.end === null ? this.app.time : sending.end;
    return {
      from: { x: this.x(gone) - 1, y: this.tops[source] + (down ? high : 0) },
      to: {
        x: receiving && receiving.start !== null ? this.x(receiving.start) + 1 : Math.max(this.x(gone), this.x(this.app.time)),
        y: this.tops[target] + (down ? 0 : high),
      },
    };
  }

  measure(ctx, text, size) {
    const key = `${size} ${text}`;
    if (!this.widths.has(key)) {
      ctx.font = `${size}px system-ui, sans-serif`;
      this.widths.set(key, ctx.measureText(text).width);
    }
    return this.widths.get(key);
  }

  /** Kinds of value stacked, the highest sum first and the smaller ones over it. */
  memory(ctx, curve) {
    const floor = this.bottom + 8 + STRIP;
    for (let kind = KINDS.length - 1; kind >= 0; kind--) {
      ctx.fillStyle = this.kinds[kind];
      ctx.beginPath();
      ctx.moveTo(this.x(0), floor);
      let y = floor;
      for (const level of curve) {
        const x = this.x(level.time);
        ctx.lineTo(x, y);
        y = floor - (level.sums[kind] / MOST) * (STRIP - 4);
        ctx.lineTo(x, y);
      }
      ctx.lineTo(this.x(curve.length ? curve.at(-1).time : 0), floor);
      ctx.fill();
    }
  }

  /** What moves with the cursor. */
  overlay() {
    paintOverlay(this);
  }

  /** What lies under the pointer: a rank (null below all of them), and the box there. */
  hit(x, y) {
    const rank = this.tops.findLastIndex((top) => top <= y);
    if (rank < 0 || y > this.tops[rank] + this.depth(rank)) return { rank: null, box: null };
    let best = null;
    for (const box of this.run.ranks[rank].boxes) {
      const place = this.place(rank, box);
      if (y < place.y || y > place.y + place.height) continue;
      const off = Math.max(place.x - x, x - place.x - place.width, 0);
      if (off <= 2 && (!best || off < best.off)) best = { box, off };
    }
    return { rank, box: best && best.box };
  }
}

/** The smallest of 1, 2, 5, 10, ... (and 0.1, 0.2, 0.5, ...) that is not below a size. */
function nice(size) {
  if (!(size > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(size));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= size * (1 - 1e-9));
}
