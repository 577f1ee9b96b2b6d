// What is said about one event: the panel, the table of its rank, and the tip at the pointer.

const byId = (id) => document.getElementById(id);

function placeOf(event) {
  const place = DATA.places[event.place];
  if (!place) return null;
  const [file, line, inside, text] = place;
  return {
    short: `${file}, line ${line}`,
    where: `${file}, line ${line}${inside && inside !== "<module>" ? `, in ${inside}` : ""}`,
    text,
  };
}

/** How long a rank stood still for an event: what it awaits at once, from the call to the start. */
function waited(event) {
  if (event.mode === 2) return "no: beside computation";
  if (event.start === null) return "for ever";
  if (event.about >= 0) return exact(event.end - event.issued);
  return exact(event.start - event.issued);
}

function valuesInWords(ids) {
  return (
    ids
      .filter((id) => id >= 0)
      .map((id) => VALUES[id].words)
      .join("; ") || "none"
  );
}

/** Names and words for everything that is known of an event. */
function factsOf(rank, event) {
  const facts = [["operation", DATA.texts[event.op]]];
  const add = (name, words, shown = true) => shown && facts.push([name, words]);
  add("layer", event.layer, event.layer !== null);
  add("batches", DATA.texts[event.batches], DATA.texts[event.batches] !== "");
  add("rank", rank.number);
  add("called at", exact(event.issued), event.start === null || event.start !== event.issued);
  add("start", event.start === null ? "never" : exact(event.start));
  add("end", event.end === null ? "never" : exact(event.end));
  add("cost", event.start === null ? "none" : exact(event.about < 0 ? event.end - event.start : 0));
  add("waited", waited(event), event.mode > 0 || event.about >= 0);
  add("group", `ranks ${DATA.texts[event.group]}`, DATA.texts[event.group] !== "");
  add("peer", `rank ${event.peer}`, event.peer !== null);
  add("inputs", valuesInWords(event.inputs));
  add("outputs", valuesInWords(event.outputs));
  const place = placeOf(event);
  add("source", place ? place.where : "not known");
  return facts;
}

/** The panel about the event at which the selected rank is. */
function showEvent(app) {
  const { run, current: rank, index } = app;
  const event = rank.events[index];
  byId("event-title").textContent = RUNS.length > 1 ? `Rank ${rank.number} of ${run.name}` : `Rank ${rank.number}`;
  byId("summary").textContent = app.sentence();
  const facts = byId("facts");
  facts.replaceChildren();
  for (const [name, words] of event ? factsOf(rank, event) : [])
    facts.append(make("dt", {}, name), make("dd", {}, words));
  const place = event && placeOf(event);
  byId("code").hidden = !(place && place.text);
  byId("code").firstElementChild.textContent = place ? place.text : "";
}

/** What is on its way at the moment. */
function showTraffic(app) {
  const words = RUNS.flatMap((run) =>
    run.underWay(app.time, app.rank).map((line) => (RUNS.length > 1 ? `${run.name}: ${line}` : line)),
  );
  const shown = words.slice(0, 7);
  if (words.length > shown.length) shown.push(`and ${words.length - shown.length} more`);
  byId("traffic").replaceChildren(...(shown.length ? shown : ["nothing"]).map((line) => make("li", {}, line)));
}

const ROWS = 400;

/** The events of the selected rank, as a table; of very many those around the cursor. */
class EventTable {
  constructor(app) {
    this.app = app;
    this.element = byId("table");
    this.element.addEventListener("toggle", () => this.update());
    this.element.addEventListener("click", (click) => {
      const button = click.target.closest("button[data-index]");
      if (button) app.select(app.side, app.rank, Number(button.dataset.index));
    });
  }

  update() {
    const { app } = this;
    const rank = app.current;
    const name = RUNS.length > 1 ? `rank ${rank.number} of ${app.run.name}` : `rank ${rank.number}`;
    this.element.querySelector("summary").textContent = `The events of ${name} as a table`;
    if (!this.element.open) return;
    const first = rank.length <= ROWS ? 0 : clamp(app.index - ROWS / 2, 0, rank.length - ROWS);
    const key = [app.side, rank.number, first].join();
    if (key !== this.key) this.build(key, rank, first, name);
    for (const row of this.element.querySelectorAll("[aria-current]")) row.removeAttribute("aria-current");
    const row = this.element.querySelector(`tr[data-row="${app.index}"]`);
    if (row) row.setAttribute("aria-current", "true");
  }

  build(key, rank, first, name) {
    this.key = key;
    const heads = ["event", "operation", "start", "end", "waited", "elements held at its start", "source"];
    const body = make("tbody");
    rank.events.slice(first, first + ROWS).forEach((event, i) => {
      const index = first + i;
      const place = placeOf(event);
      const button = make(
        "button",
        { type: "button", "data-index": index, "aria-label": `go to event ${index + 1}` },
        String(index + 1),
      );
      const cells = [
        DATA.texts[event.words],
        event.start === null ? "never" : exact(event.start),
        event.end === null ? "never" : exact(event.end),
        event.mode > 0 || event.about >= 0 ? waited(event) : "",
        elements(rank.total(index)),
        place ? `${place.short}: ${place.text}` : "",
      ];
      body.append(
        make("tr", { "data-row": index }, make("td", {}, button), ...cells.map((cell) => make("td", {}, cell))),
      );
    });
    const head = make("thead", {}, make("tr", {}, ...heads.map((word) => make("th", { scope: "col" }, word))));
    this.element
      .querySelector(".scroll")
      .replaceChildren(make("table", {}, make("caption", {}, `Events of ${name}`), head, body));
  }
}

/** The tip at the pointer. */
function showTip(timeline, found, x, y) {
  const tip = byId("tip");
  tip.hidden = !found;
  if (!found) return;
  const { rank, box } = found;
  const event = timeline.run.ranks[rank].events[box.event];
  const place = placeOf(event);
  const waits =
    event.start === null
      ? "never over"
      : box.end === event.start && box.start < event.start
        ? `waits ${exact(box.end - box.start)}`
        : `cost ${exact(box.end - box.start)}`;
  const when = event.start === null ? `from ${exact(box.start)}` : `${exact(box.start)} to ${exact(box.end)}`;
  const lines = [make("strong", {}, DATA.texts[event.words]), make("span", {}, `rank ${rank}, time ${when}, ${waits}`)];
  if (place) lines.push(make("span", {}, place.where), make("code", {}, place.text));
  tip.replaceChildren(...lines);
  const width = Math.min(420, window.innerWidth - 16);
  tip.style.maxWidth = `${width}px`;
  tip.style.left = `${clamp(x + 14, 8, Math.max(8, window.innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > window.innerHeight ? y - 12 - tip.offsetHeight : y + 18}px`;
}
