// The page around the timelines: title and legends, and the controls, keys and pointer that move the cursor.

/** The room for a timeline, with its name and figures. */
function makeHost(side) {
  const run = RUNS[side];
  const figures = make("p", { class: "figures" }, run.figures);
  const section = make("section", {});
  if (run.name) section.append(make("h2", {}, run.name));
  section.append(figures);
  if (run.error !== null)
    section.append(
      make("pre", { class: "error", tabindex: 0, role: "region", "aria-label": "What went wrong" }, run.error),
    );
  const host = make("div", {
    class: "timeline",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "timeline",
    "aria-describedby": "summary",
  });
  host.setAttribute(
    "aria-label",
    `Timeline${run.name ? ` of ${run.name}` : ""}: left and right for moments, up and down for ranks, space to play`,
  );
  section.append(host);
  byId("timelines").append(section);
  return host;
}

/** Connects the controls. */
function connect(app) {
  const step = nice(LAST / 400);
  const slider = byId("slider");
  slider.step = Number(step.toFixed(9));
  slider.max = Number((Math.ceil(LAST / step - 1e-9) * step).toFixed(9));
  slider.addEventListener("input", () => (app.pause(), app.seek(Number(slider.value))));
  const buttons = {
    previous: () => app.step(-1),
    next: () => app.step(1),
    play: () => app.toggle(),
    in: () => app.zoom(2),
    out: () => app.zoom(0.5),
    whole: () => app.zoom(1e-9),
    speed: () => setSpeed(SPEEDS[(SPEEDS.indexOf(Number(byId("speed").value)) + 1) % SPEEDS.length]),
  };
  for (const [id, act] of Object.entries(buttons)) byId(id).addEventListener("click", act);
  const ranks = Math.max(...RUNS.map((run) => run.ranks.length));
  byId("rank").append(...Array.from({ length: ranks }, (_, rank) => make("option", { value: rank }, String(rank))));
  byId("rank").addEventListener("change", () => {
    const rank = Number(byId("rank").value);
    app.select(rank < app.run.ranks.length ? app.side : 1 - app.side, rank);
  });
  setSpeed(1);
  document.addEventListener("keydown", (key) => pressKey(app, key));
  for (const timeline of app.timelines) point(app, timeline);
  const resize = () => app.timelines.forEach((timeline) => timeline.resize());
  new ResizeObserver(resize).observe(byId("timelines"));
  NIGHT.addEventListener("change", resize);
  resize();
}

const SPEEDS = [1, 2, 4, 0.25, 0.5];
const FRACTIONS = new Map([
  [0.25, "¼"],
  [0.5, "½"],
]);

function setSpeed(speed) {
  byId("speed").value = String(speed);
  byId("speed").textContent = `speed ${FRACTIONS.get(speed) ?? speed}×`;
}

/** Arrows mean the same wherever the focus is; of the other keys controls keep those that are theirs. */
function pressKey(app, key) {
  if (key.altKey || key.ctrlKey || key.metaKey) return;
  const own = key.target.closest("input, select, button, summary, .scroll, .error, .card ul");
  const act = {
    ArrowLeft: () => app.step(-1),
    ArrowRight: () => app.step(1),
    ArrowUp: () => app.move(-1),
    ArrowDown: () => app.move(1),
    Home: () => (app.pause(), app.seek(0)),
    End: () => (app.pause(), app.seek(LAST)),
    " ": () => app.toggle(),
    "+": () => app.zoom(2),
    "=": () => app.zoom(2),
    "-": () => app.zoom(0.5),
    0: () => app.zoom(1e-9),
  }[key.key];
  const theirs = own && !key.key.startsWith("Arrow") && (own.matches("button, summary") ? key.key === " " : !"+=-".includes(key.key));
  if (!act || theirs) return;
  key.preventDefault();
  byId("tip").hidden = true;
  act();
}

/** Pointing: hover says what is there, a click selects it, a drag takes the cursor along, a wheel with ctrl zooms. */
function point(app, timeline) {
  const { host } = timeline;
  let pressed = null;
  const at = (pointer) => [
    pointer.clientX - host.getBoundingClientRect().left,
    pointer.clientY - host.getBoundingClientRect().top,
  ];
  host.addEventListener("pointerdown", (pointer) => {
    if (pointer.button !== 0) return;
    pressed = { x: pointer.clientX, dragged: false };
    host.setPointerCapture(pointer.pointerId);
  });
  host.addEventListener("pointermove", (pointer) => {
    const [x, y] = at(pointer);
    if (pressed && (pressed.dragged || Math.abs(pointer.clientX - pressed.x) > 3)) {
      pressed.dragged = true;
      app.pause();
      app.seek(round(timeline.time(x)));
    }
    const found = pressed ? null : timeline.hit(x, y);
    host.classList.toggle("over", Boolean(found && found.box));
    showTip(timeline, found && found.box ? found : null, pointer.clientX, pointer.clientY);
  });
  host.addEventListener("pointerup", (pointer) => {
    if (!pressed) return;
    const { rank, box } = timeline.hit(...at(pointer));
    if (!pressed.dragged) {
      app.pause();
      if (box) app.select(timeline.side, rank, box.event);
      else {
        app.time = clamp(round(timeline.time(at(pointer)[0])), 0, LAST);
        app.select(rank === null ? app.side : timeline.side, rank === null ? app.rank : rank);
      }
    }
    pressed = null;
  });
  host.addEventListener("pointercancel", () => (pressed = null));
  host.addEventListener("pointerleave", () => showTip(timeline, null));
  host.addEventListener(
    "wheel",
    (wheel) => {
      const sideways = wheel.shiftKey ? wheel.deltaY : wheel.deltaX;
      if (wheel.ctrlKey) app.zoom(wheel.deltaY < 0 ? 1.25 : 0.8, timeline.time(at(wheel)[0]));
      else if (Math.abs(sideways) > Math.abs(wheel.deltaY) || wheel.shiftKey)
        app.pan(app.from + (sideways / timeline.width) * (app.to - app.from));
      else return;
      wheel.preventDefault();
    },
    { passive: false },
  );
}

/** A time that was pointed at. */
function round(time) {
  return Number(time.toFixed(DECIMALS));
}

/** What stands still: title, notes and legends. */
function writeHead() {
  const [first] = RUNS;
  const names = RUNS.length > 1 ? RUNS.map((run) => run.name).join(" and ") : first && first.puzzle;
  const title = `Step through ${names || "it"}`;
  document.title = byId("title").textContent = title;
  byId("size").textContent = RUNS.length === 1 ? first.size : "";
  byId("notes").append(...DATA.notes.map((note) => make("li", {}, note)));
  const swatch = (fill, border, dark, edge, share = 0) => {
    const colours = {
      fill,
      border: border === "none" ? fill : border,
      "night-fill": dark,
      "night-border": edge === "none" ? dark : edge,
    };
    return make("span", {
      class: share < 0 ? "swatch above" : share ? "swatch below" : "swatch",
      style: Object.entries(colours)
        .map(([name, colour]) => `--${name}:${colour}`)
        .join(";"),
    });
  };
  const ramp = make("span", { class: "ramp" });
  for (const [layer, fill, ink, dark, pale] of DATA.layers)
    ramp.append(make("span", { style: `--fill:${fill};--on:${ink};--night-fill:${dark};--night-on:${pale}` }, String(layer)));
  byId("legend").append(make("li", {}, ramp, "layer"));
  byId("legend").append(
    ...DATA.legend.map(([fill, border, dark, edge, share, words]) =>
      make("li", {}, swatch(fill, border, dark, edge, share), words),
    ),
  );
  byId("kinds").append(
    ...KINDS.map(({ name, colour, edge }) => make("li", {}, swatch(colour, edge, colour, edge), name)),
  );
  byId("kinds").append(make("li", {}, make("span", { class: "swatch dashed" }), "outside the stores"));
  if (VALUES.some((value) => value.partial)) {
    byId("kinds").append(make("li", {}, make("span", { class: "swatch pale" }), "a part of a sum"));
  }
}

let app = null;
writeHead();
if (window.parent !== window) byId("all").open = false; // a frame of a notebook would end in the middle of it
if (RUNS.length) {
  document.querySelector("main").hidden = false;
  app = new App();
  connect(app);
  app.seek(0);
  app.show();
}
document.documentElement.dataset.ready = performance.now().toFixed(1);
