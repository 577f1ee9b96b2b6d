// What moves over a timeline: the cursor, the selected event and its partners, and messages in flight.

/** Paints all of it anew. */
function paintOverlay(timeline) {
  const ctx = timeline.above.getContext("2d");
  const { app, run, colour } = timeline;
  ctx.clearRect(0, 0, timeline.width, timeline.height);
  ctx.textBaseline = "middle";
  rankNames(timeline, ctx);
  ctx.save();
  ctx.beginPath();
  ctx.rect(LEFT - 6, 0, timeline.width - LEFT - RIGHT + 12, timeline.height);
  ctx.clip();
  if (app.side === timeline.side) {
    for (const [rank, index] of run.partners(app.rank, app.index))
      outlineEvent(timeline, ctx, rank, index, colour.accent, [4, 2]);
    outlineEvent(timeline, ctx, app.rank, app.index, colour.accent, []);
  }
  const x = timeline.x(app.time);
  ctx.strokeStyle = colour.accent;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.moveTo(x, 8);
  ctx.lineTo(x, timeline.bottom + 8 + STRIP);
  ctx.stroke();
  ctx.fillStyle = colour.accent;
  ctx.beginPath();
  ctx.moveTo(x - 6, 1);
  ctx.lineTo(x + 6, 1);
  ctx.lineTo(x + 6, 7);
  ctx.lineTo(x, 13);
  ctx.lineTo(x - 6, 7);
  ctx.fill();
  for (const message of run.inFlight(app.time)) arrow(timeline, ctx, message);
  ctx.restore();
}

/** The names of the ranks, the selected one marked. */
function rankNames(timeline, ctx) {
  const { height } = timeline.run.rows;
  const every = height >= 9 ? 1 : 8;
  const size = clamp(height - 2, 7, 11);
  timeline.run.ranks.forEach((rank, number) => {
    const chosen = timeline.app.side === timeline.side && timeline.app.rank === number;
    const middle = timeline.tops[number] + height / 2;
    if (chosen) {
      ctx.fillStyle = timeline.colour.accent;
      ctx.fillRect(6, middle - Math.max(8, height / 2), LEFT - 11, Math.max(16, height));
    }
    if (!chosen && number % every) return;
    const near = number - timeline.app.rank;
    if (!chosen && height < 9 && timeline.app.side === timeline.side && Math.abs(near) * (height + 1) < 16) return;
    timeline.words(
      ctx,
      `rank ${number}`,
      LEFT - 10,
      middle,
      chosen ? timeline.colour["accent-ink"] : timeline.colour.ink,
      chosen ? 11 : size,
      "right",
    );
  });
}

function outlineEvent(timeline, ctx, rank, index, colour, dash) {
  const box = timeline.run.ranks[rank].boxOf.get(index);
  if (!box) return;
  const { x, y, width, height } = timeline.place(rank, box);
  const room = width < 8 ? 3 : 1;
  ctx.lineWidth = 4;
  ctx.strokeStyle = timeline.colour.paper;
  ctx.strokeRect(x - room, y - 1, width + 2 * room, height + 2);
  ctx.setLineDash(dash);
  ctx.lineWidth = 2;
  ctx.strokeStyle = colour;
  ctx.strokeRect(x - room, y - 1, width + 2 * room, height + 2);
  ctx.setLineDash([]);
}

/** A line with a head. */
function drawArrow(ctx, { from, to }, colour, width, dash = []) {
  const angle = Math.atan2(to.y - from.y, to.x - from.x);
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(from.x, from.y);
  ctx.lineTo(to.x, to.y);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.beginPath();
  ctx.moveTo(to.x, to.y);
  for (const turn of [2.68, -2.68])
    ctx.lineTo(to.x + (4 + width) * Math.cos(angle + turn), to.y + (4 + width) * Math.sin(angle + turn));
  ctx.fill();
}

/** A message under way: its arrow, and how far it is. One that nobody receives is dashed. */
function arrow(timeline, ctx, message) {
  const { sending, receiving } = message;
  const ends = timeline.ends(message);
  const { colour, run, app } = timeline;
  const plain = run.rows.height < 14;
  if (!plain) drawArrow(ctx, ends, colour.paper, 5);
  drawArrow(ctx, ends, receiving ? colour.accent : colour.alarm, plain ? 1 : 2.2, receiving ? [] : [4, 3]);
  if (!receiving) return;
  const share = clamp((app.time - sending.start) / (receiving.end - sending.start || 1), 0, 1);
  const at = (axis) => ends.from[axis] + share * (ends.to[axis] - ends.from[axis]);
  ctx.beginPath();
  ctx.arc(at("x"), at("y"), plain ? 2.5 : 4, 0, 2 * Math.PI);
  ctx.fill();
}
