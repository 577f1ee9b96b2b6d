// The cursor and the selection: what changes them, playing, and what is shown then.

const CALM = window.matchMedia("(prefers-reduced-motion: reduce)");
const WHOLE = 20; // seconds that the whole run takes at speed 1

class App {
  constructor() {
    this.side = this.rank = this.index = this.time = 0;
    this.from = 0;
    this.to = EDGE || 1;
    this.playing = false;
    this.timelines = RUNS.map((_, side) => new Timeline(this, side, makeHost(side)));
    this.chosen = { key: null, cards: [] };
    this.cards = null;
    this.table = new EventTable(this);
  }

  get run() {
    return RUNS[this.side];
  }

  get current() {
    return this.run.ranks[this.rank];
  }

  // -- what changes ------------------------------------------------------------------------------------------------

  /** Puts the cursor to a time; the selected rank is then at the event that it has come to. */
  seek(time, index = null) {
    this.time = clamp(Number(time.toFixed(9)), 0, LAST);
    this.index = index ?? this.current.at(this.time);
    this.follow();
    this.refresh();
  }

  /** Selects a rank, and one of its events where it is known; the cursor goes there. */
  select(side, rank, index = null) {
    const other = side !== this.side || rank !== this.rank;
    this.side = side;
    this.rank = rank;
    if (other) this.repaint = true;
    this.seek(index === null ? this.time : this.current.time(index), index);
  }

  step(change) {
    this.pause();
    const index = clamp(this.index + change, 0, this.current.length);
    this.seek(this.current.time(index), index);
  }

  /** The rank above or below, past the last of one run in the other. */
  move(change) {
    const all = RUNS.flatMap((run, side) => run.ranks.map((_, rank) => [side, rank]));
    const here = all.findIndex(([side, rank]) => side === this.side && rank === this.rank);
    this.select(...all[clamp(here + change, 0, all.length - 1)]);
    this.timelines[this.side].host.scrollIntoView({ block: "nearest" });
  }

  zoom(factor, around = this.time) {
    const size = clamp((this.to - this.from) / factor, EDGE / 5000 || 1, EDGE || 1);
    const share = (around - this.from) / (this.to - this.from);
    this.pan(around - clamp(share, 0, 1) * size, size);
  }

  pan(from, size = this.to - this.from) {
    this.from = clamp(from, 0, Math.max(0, (EDGE || 1) - size));
    this.to = this.from + size;
    this.repaint = true;
    this.refresh();
  }

  /** Keeps the cursor in sight. */
  follow() {
    const size = this.to - this.from;
    if (this.time < this.from || this.time > this.to) {
      this.from = clamp(this.time - size * 0.2, 0, Math.max(0, (EDGE || 1) - size));
      this.to = this.from + size;
      this.repaint = true;
    }
  }

  // -- playing -----------------------------------------------------------------------------------------------------

  play() {
    if (this.playing) return;
    if (this.time >= LAST) this.seek(0);
    this.playing = true;
    byId("play").textContent = "Pause";
    byId("summary").setAttribute("aria-live", "off");
    let last = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      const passed = (now - last) / 1000;
      const speed = Number(byId("speed").value);
      if (!CALM.matches) {
        last = now;
        this.seek(this.time + (passed * speed * LAST) / WHOLE);
      } else if (passed * speed > 1) {
        last = now;
        this.seek(
          this.current.time(Math.min(this.index + 1, this.current.length)),
          Math.min(this.index + 1, this.current.length),
        );
      }
      if (this.time >= LAST || (CALM.matches && this.index >= this.current.length)) this.pause();
      else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    byId("play").textContent = "Play";
    byId("summary").setAttribute("aria-live", "polite");
  }

  // -- what is shown -----------------------------------------------------------------------------------------------

  /** Shows the new state before the next frame, once, however often it changed. */
  refresh() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.show();
    });
  }

  show() {
    for (const timeline of this.timelines) this.repaint ? timeline.paint() : timeline.overlay();
    this.repaint = false;
    const words = `time ${exact(Number(this.time.toFixed(DECIMALS)))} of ${exact(LAST)}`;
    const slider = byId("slider");
    slider.value = this.time;
    slider.setAttribute("aria-valuetext", words);
    byId("clock").textContent = words;
    showEvent(this);
    showTraffic(this);
    this.showCards();
    this.table.update();
  }

  /** One sentence about the selected rank at the cursor: what a screen reader says after each step. */
  sentence() {
    const rank = this.current;
    const event = rank.events[this.index];
    const count = event ? `Event ${this.index + 1} of ${rank.length}` : `After all ${rank.length} events`;
    const when = event
      ? event.start === null
        ? `called at ${exact(event.issued)}`
        : `time ${exact(event.start)} to ${exact(event.end)}`
      : "";
    const parts = [rank.doing(this.index, Infinity), when, `holds ${elements(rank.total(this.index))} elements`];
    return `${count}: ${parts.filter(Boolean).join("; ")}`;
  }

  /** What the selected rank holds, in both runs; and below it all ranks, where they are few. */
  showCards() {
    const all = RUNS.flatMap((run, side) => run.ranks.map((_, rank) => [side, rank]));
    const few = all.length <= CARDS;
    const one = RUNS.flatMap((run, side) => (this.rank < run.ranks.length ? [[side, this.rank]] : []));
    if (this.chosen.key !== one.join(";")) this.chosen = this.deal(one, byId("chosen"), true);
    if (few && all.length > RUNS.length && !this.cards) this.cards = this.deal(all, byId("cards"), false);
    byId("all").hidden = !this.cards;
    byId("choice").hidden = few;
    byId("rank").value = String(this.rank);
    byId("held-title").textContent = few ? `What rank ${this.rank} holds` : "What it holds:";
    for (const { side, rank, card } of [...this.chosen.cards, ...(this.cards ? this.cards.cards : [])]) {
      const chosen = side === this.side && rank === this.rank;
      card.update(chosen ? this.index : RUNS[side].ranks[rank].at(this.time), this.time, chosen);
    }
  }

  /** Cards of ranks, put where they belong, under the name of their run where there are two. */
  deal(wanted, host, large) {
    const cards = wanted.map(([side, rank]) => ({ side, rank, card: new Card(this, side, rank, large) }));
    const groups = RUNS.flatMap((run, side) => {
      const mine = cards.filter((entry) => entry.side === side).map((entry) => entry.card.element);
      const group = make("div", { class: "group" }, ...mine);
      return RUNS.length > 1 && mine.length ? [make("h3", { class: "run" }, run.name), group] : [group];
    });
    const open = large && this.chosen.cards.some((entry) => entry.card.values.open);
    for (const { card } of cards) card.values.open = open;
    host.replaceChildren(...groups);
    return { key: wanted.join(";"), cards };
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }
}
