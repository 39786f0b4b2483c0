// The explorer of a plan: reads the plan's own tables, and draws what they say.
// A colour is a rank; time is position, or lightness. Coordinates: row and key are rows of the pack.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const UNSEEN = -1, PADDING = -2, HOLE = -3, TWICE = -4;
  const HEX = { [UNSEEN]: "#ffffff", [PADDING]: "#d5d8de", [HOLE]: "#1b1d22", [TWICE]: "#1b1d22" }, INK = "#2b2f36", SOFT = "#5a5f6a", FAULT = "#b00020";
  const PIXELS = 640, WHOLE = 2048, MANY_ARROWS = 400;

  // --- words
  const number = (n) => n.toLocaleString("en-US");
  const count = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
  const has = ([begin, end], n) => begin <= n && n < end;
  const range = ([begin, end], noun) => end - begin === 1 ? `${noun} ${begin}` : `${noun}s ${begin} to ${end - 1}`;
  const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(2)} MiB`;
  const ofRanks = (ranks) => ranks.length === 1 ? `rank ${ranks[0]}`
    : ranks.length > 4 ? count(ranks.length, "rank") : `ranks ${ranks.slice(0, -1).join(", ")} and ${ranks.at(-1)}`;

  // --- a plan, from its tables
  function* cells(flat, width) { for (let i = 0; i < flat.length; i += width) yield flat.slice(i, i + width); }
  const at = (map, key, make) => map.get(key) ?? (map.set(key, make()), map.get(key));

  class Plan {
    constructor(raw) {
      Object.assign(this, raw);
      const t = raw.tables;
      this.k ??= this.q;
      for (const name of ["shards", "lists", "contents", "rasters"]) this[name] = new Map();  // lists of tiles, each by document
      for (const [shard, seq, pos, stride, row, len] of cells(t.shards, 6))
        at(this.shards, shard, () => []).push({ seq, pos, stride, row, len });
      let i = 0, last = null, next = 0;
      for (const c of cells(t.tiles, 10)) {
        next = c[0] === last ? next + 1 : 0;
        last = c[0];
        const [q, k] = [c.slice(2, 6), c.slice(6)].map(([pos, stride, row, len]) => ({ seq: c[1], pos, stride, row, len }));
        at(at(this.lists, c[0], () => new Map()), c[1], () => []).push({ number: t.numbers[i++] ?? next, q, k });
      }
      this.homes = [...cells(t.homes, 3)];
      [this.cp, this.steps] = [this.homes.length, this.homes.map(() => [])];
      for (const [rank, , kind, q, ...c] of cells(t.steps, 10))
        this.steps[rank]?.push({ kind, q, heads: c.slice(0, 2), kv: c[2], kvHeads: c.slice(3, 5), list: c[5], in: [], out: [] });
      for (const [rank, step, direction, peer, operand, , rows, ...heads] of cells(t.messages, 9))
        this.steps[rank]?.[step]?.[direction ? "in" : "out"].push({ peer, operand: operand ? "kv" : "q", rows, heads });
      this.numSteps = Math.max(0, ...this.steps.map((steps) => steps.length));
      [this.numRows, this.numKeys] = [this.q.begins.at(-1), this.k.begins.at(-1)];
      [this.ownerQ, this.ownerK] = [this.owners(this.q, 1), this.owners(this.k, 2)];
    }
    owners(layout, side) {  // [rows] at home where; PADDING
      const owner = new Int32Array(layout.begins.at(-1)).fill(UNSEEN);
      this.homes.forEach((home, rank) => {
        for (const [row] of this.globalRows(layout, this.shards.get(home[side]))) owner[row] = rank;
      });
      layout.lengths.forEach((length, doc) => owner.fill(PADDING, layout.begins[doc] + length, layout.begins[doc + 1]));
      return owner;
    }
    *globalRows(layout, shard = []) {  // [row of the pack, row of the buffer]
      for (const { seq, pos, stride, row, len } of shard) {
        const begin = layout.begins[seq], end = layout.begins[seq + 1];
        for (let i = 0, at = begin + pos; i < len && at >= begin && at < end && stride > 0; ++i, at += stride) yield [at, row + i];
      }
    }
    content(shard, layout, owner) {  // what lies in a buffer: rows of the pack, how many of which rank
      return at(this.contents, `${shard} ${layout === this.k}`, () => {
        const rows = new Int32Array(Math.min(this.shard_rows[shard] ?? 0, 2 ** 24)).fill(-1), of = new Map();
        for (const [row, place] of this.globalRows(layout, this.shards.get(shard))) {
          rows[place] = row;
          if (owner[row] >= 0) of.set(owner[row], (of.get(owner[row]) ?? 0) + 1);
        }
        return { rows, of: [...of].sort((a, b) => a[0] - b[0]) };
      });
    }
    token(layout, row) {  // {doc, pos} of a row of the pack, pos null in padding
      const doc = layout.begins.findLastIndex((begin) => begin <= row), pos = row - layout.begins[doc];
      return { doc, pos: pos < (layout.lengths[doc] ?? 0) ? pos : null };
    }
    visible(doc, pos) {  // [begin, end) of the keys that a query sees
      const { back, ahead, chunk, shift } = this.mask, keys = this.k.lengths[doc], place = pos + shift[doc];
      const first = chunk ? Math.floor(place / chunk) * chunk : 0;
      const begin = Math.min(keys, Math.max(0, first, back === null ? 0 : place - back));
      const end = Math.min(keys, chunk ? first + chunk : keys, ahead === null ? keys : place + ahead + 1);
      return [begin, Math.max(begin, end)];
    }
    whyNot(q, k) {
      if (q.pos === null || k.pos === null) return `${q.pos === null ? "the row" : "the key"} is padding`;
      if (q.doc !== k.doc) return `they are of documents ${q.doc} and ${k.doc}`;
      const [begin, end] = this.visible(q.doc, q.pos);
      if (begin <= k.pos && k.pos < end) return "";
      const seen = end > begin ? `keys ${begin} to ${end - 1}` : "no key";
      return `position ${q.pos} of document ${q.doc} sees ${seen}, not ${k.pos}`;
    }
    *tilesOf(doc) {  // every tile of a document, with who computes it and when
      for (const [rank, steps] of this.steps.entries())
        for (const [step, { list, heads }] of steps.entries())
          for (const tile of this.lists.get(list)?.get(doc) ?? []) yield { rank, step, heads, tile };
    }
    tileAt(rank, step, number) {  // and its document; null where there is none
      for (const [doc, tiles] of this.lists.get(this.steps[rank]?.[step]?.list) ?? [])
        for (const tile of tiles) if (tile.number === number) return { doc, tile };
      return null;
    }
    who(row, key) {  // as Plan.who
      const q = this.token(this.q, row), k = this.token(this.k, key), why = this.whyNot(q, k);
      if (why) return { q, k, places: [], text: `Nobody computes row ${row} with key ${key}: ${why}.` };
      const places = [];
      for (const { rank, step, heads, tile } of this.tilesOf(q.doc)) {
        const [i, j] = [rowOf(tile.q, q.pos), rowOf(tile.k, k.pos)];
        if (i !== null && j !== null) places.push({ rank, step, tile: tile.number, heads, i, j });
      }
      const told = places.map((p) => `rank ${p.rank} in step ${p.step}, tile ${p.tile}, from rows ${p.i} and ${p.j}` +
        (places.length > 1 ? ` for heads ${p.heads[0]} to ${p.heads[1] - 1}` : ""));
      return { q, k, places, text: `Row ${row} with key ${key}: ${told.join("; ") || "nobody computes it, though the row sees the key"}.` };
    }
    raster(doc, head) {  // as _pictures/raster.py: a pixel is one pair; doc null: the whole pack
      return at(this.rasters, `${doc} ${head}`, () => {
        const [q, k] = [this.q, this.k].map(({ begins }) => shown(...(doc === null ? [0, begins.at(-1)] : [begins[doc], begins[doc + 1]])));
        const rank = new Int32Array(q.rows.length * k.rows.length).fill(UNSEEN), step = rank.slice();
        for (const each of doc === null ? this.q.lengths.keys() : [doc]) this.fill(each, head, q, k, rank, step);
        rank.forEach((_, i) => {
          if (this.ownerQ[q.rows[Math.floor(i / k.rows.length)]] === PADDING || this.ownerK[k.rows[i % k.rows.length]] === PADDING) rank[i] = PADDING;
        });
        return { q, k, rank, step, faults: rank.some((r) => r <= HOLE) };
      });
    }
    fill(doc, head, q, k, rank, step) {
      const width = k.rows.length, [rows, keys] = [this.q.begins[doc], this.k.begins[doc]];
      const each = (queries, visit) => {  // of the pixels that these tokens have
        const last = rows + queries.pos + queries.len * queries.stride;
        for (let y = q.pixel(rows + queries.pos); y < q.rows.length && q.rows[y] < last; ++y)
          if (rowOf(queries, q.rows[y] - rows) !== null) visit(y * width, ...this.visible(doc, q.rows[y] - rows));
      };
      each({ pos: 0, stride: 1, row: 0, len: this.q.lengths[doc] },  // until somebody computes them
        (line, begin, end) => { for (let x = k.pixel(keys + begin); x < width && k.rows[x] < keys + end; ++x) rank[line + x] = HOLE; });
      for (const { rank: r, step: s, heads, tile } of this.tilesOf(doc)) {
        const last = tile.k.pos + tile.k.len * tile.k.stride;
        if (has(heads, head)) each(tile.q, (line, begin, end) => {
          for (let x = k.pixel(keys + Math.max(begin, tile.k.pos)); x < width && k.rows[x] < keys + Math.min(end, last); ++x) {
            if (rowOf(tile.k, k.rows[x] - keys) === null) continue;
            rank[line + x] = rank[line + x] === HOLE ? r : TWICE;
            step[line + x] = s;
          }
        });
      }
    }
  }

  function rowOf({ pos, stride, row, len }, position) {  // of a buffer, where a segment has this token
    const i = (position - pos) / stride;
    return Number.isInteger(i) && i >= 0 && i < len ? row + i : null;
  }
  function shown(begin, end) {  // rows of one side, all of them where there is room; as Shown.of
    const n = Math.min(end - begin, PIXELS);
    const rows = Int32Array.from({ length: n }, (_, i) => begin + Math.floor(i * (end - begin) / n));
    const pixel = (row) => Math.min(n, Math.max(0, Math.ceil((row - begin) * n / Math.max(end - begin, 1))));  // of the first row from there on
    return { begin, end, rows, pixel };
  }

  // --- what is shown; the address holds it
  const plans = data.plans.map((raw) => new Plan(raw)), views = [];
  const most = (of) => Math.max(...plans.map(of));
  const limit = (n, low, high) => Math.max(low, Math.min(Number.isFinite(n) ? n : low, high));
  const state = { step: 0, rank: 0, doc: 0, head: 0, pair: null };

  function beginning() {  // at the fault, where there is one
    const plan = plans.find((p) => p.fault) ?? plans[0], { rank, step, tile, row, key } = plan.fault ?? {};
    const heads = plan.steps[rank]?.[step]?.heads ?? [0], { lengths } = plan.q;
    const doc = row != null ? plan.token(plan.q, row).doc : plan.tileAt(rank, step, tile)?.doc ?? lengths.indexOf(Math.max(...lengths));
    Object.assign(state, { step: step ?? 0, rank: rank ?? 0, head: heads[0], pair: row != null && key != null ? [row, key] : null });
    state.doc = plan.numRows <= WHOLE && plan.only === null ? null : plan.only ?? Math.max(0, doc);
  }
  function fromAddress() {
    const words = new URLSearchParams(location.hash.slice(1)), pair = words.get("pair")?.split(",").map(Number);
    for (const name of ["step", "rank", "head"]) if (words.has(name)) state[name] = parseInt(words.get(name), 10);
    if (words.has("doc")) state.doc = words.get("doc") === "all" ? null : parseInt(words.get("doc"), 10);
    if (pair) state.pair = pair.length === 2 && pair.every(Number.isInteger) ? pair : null;
  }
  function choose(change) {
    Object.assign(state, change);
    const ends = { step: most((p) => p.numSteps), rank: most((p) => p.cp), head: most((p) => p.heads[0]) };
    for (const [name, end] of Object.entries(ends)) state[name] = limit(state[name], 0, end - 1);
    const only = plans.find((p) => p.only !== null)?.only ?? null;
    if (state.doc !== null || only !== null) state.doc = only ?? limit(state.doc, 0, most((p) => p.q.lengths.length) - 1);
    if ("rank" in change && !("head" in change)) followHeads();
    const words = new URLSearchParams({ step: state.step, rank: state.rank, doc: state.doc ?? "all", head: state.head });
    if (state.pair) words.set("pair", state.pair.join(","));
    try { history.replaceState(null, "", `#${words}`); } catch { /* a frame without an address */ }
    views.forEach((view) => view.show());
    showControls();
  }
  function followHeads() {  // a rank that computes other heads is looked at in one of its own
    const heads = plans.map((p) => p.steps[state.rank]?.[state.step]?.heads).filter((h) => h && h[1] > h[0]);
    if (heads.length && !heads.some((group) => has(group, state.head))) state.head = heads[0][0];
  }

  // --- drawing
  function draw(parent, name, attributes, text = "") {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    return parent.appendChild(node);
  }
  const levels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const packed = (hex) => { const [r, g, b] = levels(hex); return (0xff000000 | b << 16 | g << 8 | r) >>> 0; };
  const isDark = (hex) => levels(hex).reduce((sum, level, i) => sum + level * [0.299, 0.587, 0.114][i], 0) < 140;
  const FLAT = Object.fromEntries(Object.entries(HEX).map(([key, hex]) => [key, packed(hex)]));

  function paint(canvas, width, height, colour) {  // colour(i): packed, of pixel i
    [canvas.width, canvas.height] = [Math.max(width, 1), Math.max(height, 1)];
    const image = canvas.getContext("2d").createImageData(canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < width * height; ++i) pixels[i] = colour(i);
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
  function sector(parent, x, y, r, begin, end, fill) {  // of a disc, in turns
    if (end - begin > 0.9999) return draw(parent, "circle", { cx: x, cy: y, r, fill });
    const point = (turn) => { const t = (turn - 0.25) * 2 * Math.PI; return `${x + r * Math.cos(t)} ${y + r * Math.sin(t)}`; };
    return draw(parent, "path", { fill, d: `M${x} ${y}L${point(begin)}A${r} ${r} 0 ${end - begin > 0.5 ? 1 : 0} 1 ${point(end)}Z` });
  }
  function arrow(parent, [x0, y0], [x1, y1], gap, stroke, width) {  // bent, so that there and back differ
    const [cx, cy] = [(x0 + x1 - (y1 - y0) * 0.24) / 2, (y0 + y1 + (x1 - x0) * 0.24) / 2];
    const towards = (x, y) => { const d = Math.hypot(cx - x, cy - y) || 1; return [(cx - x) / d, (cy - y) / d]; };
    const [[ux, uy], [vx, vy]] = [towards(x0, y0), towards(x1, y1)], room = Math.min(gap, Math.hypot(x1 - x0, y1 - y0) / 3), head = 3 + 1.6 * width;
    const [ex, ey] = [x1 + vx * room, y1 + vy * room], [bx, by] = [ex + vx * head, ey + vy * head];
    const [wx, wy] = [vx * head * 0.5, vy * head * 0.5], shaft = `M${x0 + ux * room} ${y0 + uy * room}Q${cx} ${cy} ${bx} ${by}`;
    draw(parent, "path", { class: "message", fill: "none", stroke, "stroke-width": width, d: shaft });
    draw(parent, "path", { fill: stroke, d: `M${ex} ${ey}L${bx - wy} ${by + wx}L${bx + wy} ${by - wx}Z` });
  }

  const boxOf = (node) => node.getBoundingClientRect();
  const along = (node, event) => (event.clientX - boxOf(node).left) / boxOf(node).width;
  const down = (node, event) => (event.clientY - boxOf(node).top) / boxOf(node).height;

  class View {
    constructor(plan) {
      const section = document.getElementById("plan").content.cloneNode(true).firstElementChild;
      document.getElementById("plans").append(section);
      this.plan = plan;
      this.find = (selector) => section.querySelector(selector);
      this.shades = plan.colours.map((shade) => shade.map(packed));
      section.classList.toggle("refused", Boolean(plan.fault));
      this.find("h2").textContent = plan.title;
      this.find(".verdict").textContent = plan.fault ? `refused: ${plan.fault.text}` : `proved: ${plan.proof}`;
      this.find(".why").textContent = plan.why;
      this.listen();
    }
    caption(figure, title, note) {
      this.find(`${figure} b`).textContent = title;
      this.find(`${figure} .note`).textContent = ` ${note}`;
    }
    listen() {
      const [map, pack, matrix] = [".map", ".pack", ".matrix"].map(this.find);
      map.addEventListener("mousemove", (event) => views.forEach((view) => view.tell(this.pairAt(event))));
      map.addEventListener("mouseleave", () => views.forEach((view) => view.tell(state.pair)));
      map.addEventListener("click", (event) => this.pin(this.pairAt(event)));
      const docAt = (event) => this.plan.token(this.plan.q, Math.floor(along(pack, event) * this.plan.numRows)).doc;
      pack.addEventListener("click", (event) => choose({ doc: docAt(event), pair: null }));
      matrix.addEventListener("mousemove", (event) => this.tellCell(...this.cellAt(event)));
      matrix.addEventListener("mouseleave", () => this.tellCell(state.rank, state.step));
      matrix.addEventListener("click", (event) => { const [rank, step] = this.cellAt(event); choose({ rank, step }); });
      for (const side of ["q", "k"]) this.find(`.rows-${side}`).addEventListener("mousemove", (event) => this.tellRow(side, event));
    }
    pairAt(event) {
      const map = this.find(".map"), { q, k } = this.raster;
      const pair = [q.rows[Math.floor(down(map, event) * q.rows.length)], k.rows[Math.floor(along(map, event) * k.rows.length)]];
      return pair.includes(undefined) ? null : pair;
    }
    pin(pair) {  // and goes to who computes it
      if (!pair) return;
      const { places } = this.plan.who(...pair), place = places.find((p) => has(p.heads, state.head)) ?? places[0];
      choose({ pair, ...(place && { rank: place.rank, step: place.step, head: limit(state.head, place.heads[0], place.heads[1] - 1) }) });
    }
    show() {
      const last = this.plan.q.lengths.length - 1;
      this.raster = this.plan.raster(state.doc === null || last < 0 ? null : Math.min(state.doc, last), state.head);
      for (const part of ["Mask", "Marks", "Pack", "Ring", "Buffers", "Matrix"]) this[`show${part}`]();
      this.find(".sentence").textContent = this.sentence();
      this.find(".sentence").style.borderLeftColor = this.plan.colours[0][state.rank] ?? HEX[PADDING];
      this.tell(state.pair);
      this.tellCell(state.rank, state.step);
    }
    showMask() {
      const { plan } = this, { q, k, rank, step, faults } = this.raster, s = state.step, [now, done, later] = this.shades;
      paint(this.find(".map"), k.rows.length, q.rows.length,
        (i) => rank[i] < 0 ? FLAT[rank[i]] : (step[i] === s ? now : step[i] < s ? done : later)[rank[i]]);
      const owner = (rows, owners) => (i) => FLAT[owners[rows[i]]] ?? now[owners[rows[i]]];
      paint(this.find(".owners-q"), 1, q.rows.length, owner(q.rows, plan.ownerQ));
      paint(this.find(".owners-k"), k.rows.length, 1, owner(k.rows, plan.ownerK));
      const group = plan.groups.find((each) => has(each, state.head)) ?? [0, 0];
      const heads = plan.groups.length > 1 ? `, ${range(group, "head")}` : "";
      const part = q.rows.length < q.end - q.begin ? `; ${number(q.rows.length)} of ${count(q.end - q.begin, "row")}` : "";
      this.caption(".pairs", `Who computes a pair of ${state.doc === null ? "the whole pack" : `document ${state.doc}`}${heads}`,
        `queries down, keys across; a colour is a rank; full: in this step, paler: before, palest: after${part}` +
        (faults ? "; black: nobody, or twice" : "") + (plan.only === null ? "" : `; of ${count(plan.num_tiles, "tile")} this page has this document's only`));
    }
    showMarks() {
      const { q, k } = this.raster, { plan } = this, { fault } = plan, marks = this.find(".marks");
      const lines = (name, rows, keys) => draw(marks, "path", { class: name,
        d: [...rows.map((y) => `M${k.begin} ${y}H${k.end}`), ...keys.map((x) => `M${x} ${q.begin}V${q.end}`)].join("") });
      marks.replaceChildren();
      marks.setAttribute("viewBox", `${k.begin} ${q.begin} ${Math.max(k.end - k.begin, 1)} ${Math.max(q.end - q.begin, 1)}`);
      if (state.doc === null && plan.q.lengths.length <= 40) lines("document", plan.q.begins.slice(1, -1), plan.k.begins.slice(1, -1));
      this.pointer = (pair) => { marks.querySelector(".pinned")?.remove(); if (pair) lines("pinned", [pair[0] + 0.5], [pair[1] + 0.5]); };
      if (!fault) return;
      lines("fault", ...[fault.row, fault.key].map((n) => Number.isInteger(n) ? [n + 0.5] : []));
      const found = plan.tileAt(fault.rank, fault.step, fault.tile), height = ({ len, stride }) => Math.max(1, (len - 1) * stride + 1);
      if (found && plan.k.begins[found.doc] !== undefined) draw(marks, "rect", { class: "fault", x: plan.k.begins[found.doc] + found.tile.k.pos, width: height(found.tile.k),
        y: plan.q.begins[found.doc] + found.tile.q.pos, height: height(found.tile.q) });
    }
    showPack() {
      const { plan } = this, width = Math.min(1200, plan.numRows), shades = [SOFT, "#ffffff", "#e3e6ea"].map(packed);
      paint(this.find(".pack"), width, 1, (x) => {
        const { doc, pos } = plan.token(plan.q, Math.floor(x * plan.numRows / width));
        return pos === null ? FLAT[PADDING] : shades[state.doc === null || doc === state.doc ? 0 : 1 + doc % 2];
      });
    }
    showRing() {
      const { plan } = this, ring = this.find(".ring"), s = state.step, n = plan.cp, radius = Math.min(30, 300 / n + 1);
      const around = n === 1 ? 0 : 150 - radius;
      const place = (rank) => { const turn = (rank / n - 0.25) * 2 * Math.PI; return [around * Math.cos(turn), around * Math.sin(turn)]; };
      const moves = plan.steps.flatMap((steps, rank) => (steps[s]?.in ?? []).map((m) => [m.peer, rank])).filter(([from, to]) => from !== to && plan.steps[from]);
      ring.replaceChildren();
      this.caption(".ranks", "Who sends to whom", "before this step; the rim: whose keys a rank holds in it");
      for (const [from, to] of moves) {
        const own = from === state.rank || to === state.rank;
        if (own || moves.length <= MANY_ARROWS) arrow(ring, place(from), place(to), radius * 1.25, plan.colours[own ? 0 : 1][from], own ? 2.5 : 1.2);
      }
      plan.steps.forEach((steps, rank) => this.showRank(ring, rank, steps[s], place(rank), radius));
    }
    showRank(ring, rank, step, [x, y], radius) {
      const { plan } = this, fill = plan.colours[0][rank], held = step ? plan.content(step.kv, plan.k, plan.ownerK).of : [];
      const group = draw(ring, "g", { class: "rank", "data-rank": rank, role: "button", "aria-label": `rank ${rank}` });
      const circle = (r, attributes) => draw(group, "circle", { cx: x, cy: y, r, ...attributes });
      circle(radius, { fill: "#fff", stroke: "#c9cdd4", "stroke-width": 0.5 });
      const total = held.reduce((sum, [, rows]) => sum + rows, 0);
      let begin = 0;
      for (const [owner, rows] of held) sector(group, x, y, radius, begin, begin += rows / total, plan.colours[0][owner]);
      circle(radius * 0.62, { fill, stroke: "#fff", "stroke-width": radius * 0.12 });
      if (radius > 5) draw(group, "text", { x, y, "font-size": radius * 0.62, fill: isDark(fill) ? "#fff" : "#000" }, rank);
      if (rank === state.rank) circle(radius + 2, { class: "chosen" });
      if (plan.fault?.rank === rank) circle(radius + 5, { class: "fault" });
      group.addEventListener("click", () => choose({ rank }));
    }
    side(side) { return side === "q" ? [this.plan.q, this.plan.ownerQ, "query"] : [this.plan.k, this.plan.ownerK, "key"]; }
    held(side) {
      const step = this.plan.steps[state.rank]?.[state.step], [layout, owner] = this.side(side);
      return step ? this.plan.content(side === "q" ? step.q : step.kv, layout, owner) : { rows: [], of: [] };
    }
    showBuffers() {
      for (const side of ["q", "k"]) {
        const { rows } = this.held(side), [, owner] = this.side(side), width = Math.min(rows.length, PIXELS);
        const of = (x) => owner[rows[Math.floor(x * rows.length / width)]] ?? UNSEEN;
        paint(this.find(`.rows-${side}`), width, 1, (x) => FLAT[of(x)] ?? this.shades[0][of(x)]);
      }
      const words = ["q", "k"].map((side) => count(this.held(side).rows.length, `${this.side(side)[2]} row`));
      this.caption(".buffers", `What rank ${state.rank} holds in step ${state.step}`, `in the order of its buffers: ${words.join(", ")}`);
      this.find(".row").textContent = "";
    }
    showMatrix() {
      const { plan } = this, { cost } = plan, canvas = this.find(".matrix"), scale = window.devicePixelRatio || 1, width = Math.max(canvas.clientWidth, 100);
      const line = limit(280 / plan.cp, 3, 26), left = 26, top = 16, height = top + line * plan.cp;
      const cell = (width - left) / Math.max(plan.numSteps, 1);
      this.grid = { left, top, line, cell };
      this.caption(".work", "Work and traffic", "of each rank (down) in each step (across). " + (cost ? cost.words : "Tiles: blocks cannot be counted."));
      [canvas.width, canvas.height, canvas.style.height] = [Math.round(width * scale), Math.round(height * scale), `${height}px`];
      const pen = canvas.getContext("2d"), each = (of) => plan.steps.map((steps, rank) => steps.map((_, step) => of(rank, step)));
      pen.scale(scale, scale);
      const worked = each((rank, step) => this.work(rank, step)), moved = each((rank, step) => cost?.bytes_received[rank][step] ?? 0);
      const [busiest, fullest] = [worked, moved].map((x) => x.flat().reduce((a, b) => Math.max(a, b), 1));
      each((rank, step) => {
        const x = left + step * cell, y = top + rank * line, room = Math.max(cell - 2, 0.5);
        const bar = (fill, from, part, high) => { pen.fillStyle = fill; pen.fillRect(x, y + line * from, room * part, high); };
        bar(plan.colours[step === state.step ? 0 : step < state.step ? 1 : 2][rank], 0.1, worked[rank][step] / busiest, line * 0.62);
        bar(SOFT, 0.76, moved[rank][step] / fullest, Math.max(1, line * 0.16));
      });
      this.frame(pen, width, height);
    }
    frame(pen, width, height) {  // numbers, the step and rank shown, the fault
      const { left, top, line, cell } = this.grid, { cp, numSteps, fault } = this.plan, known = (n, end) => Number.isInteger(n) && n >= 0 && n < end;
      [pen.fillStyle, pen.font] = [SOFT, "11px system-ui, sans-serif"];
      for (let rank = 0; rank < cp; rank += Math.ceil(14 / line)) pen.fillText(rank, 4, top + (rank + 0.5) * line + 4);
      for (let step = 0; step < numSteps; step += Math.ceil(24 / cell)) pen.fillText(step, left + step * cell + 2, 11);
      [pen.strokeStyle, pen.lineWidth] = [INK, 1.5];
      if (state.step < numSteps) pen.strokeRect(left + state.step * cell - 1, top - 1, cell, height - top);
      if (state.rank < cp) pen.strokeRect(left - 2, top + state.rank * line, width - left + 1, line);
      if (!known(fault?.rank, cp)) return;
      const all = !known(fault.step, numSteps);
      [pen.strokeStyle, pen.lineWidth] = [FAULT, 3];
      pen.strokeRect(left + (all ? 0 : fault.step) * cell, top + fault.rank * line + 1, (all ? width - left : cell) - 3, Math.max(line - 2, 2));
    }
    work(rank, step) {
      const { cost, steps, lists } = this.plan;
      return cost ? cost.blocks[rank][step] : [...(lists.get(steps[rank][step].list)?.values() ?? [])].flat().length;
    }
    cellAt(event) {
      const { left, top, line, cell } = this.grid, box = boxOf(this.find(".matrix"));
      const [y, x] = [(event.clientY - box.top - top) / line, (event.clientX - box.left - left) / cell].map(Math.floor);
      return [limit(y, 0, this.plan.cp - 1), limit(x, 0, this.plan.numSteps - 1)];
    }
    // --- telling
    tell(pair) {
      const { plan } = this, line = this.find(".pair"), [row, key] = pair ?? [];
      const there = pair && has([0, plan.numRows], row) && has([0, plan.numKeys], key) && [null, plan.token(plan.q, row).doc].includes(plan.only);
      this.pointer(there ? pair : null);
      line.textContent = "Point at a pair of query and key: this line says who computes it, or why nobody.";
      if (!there) return;
      const told = document.createElement("span"), { q, k, text } = plan.who(row, key);
      const of = ({ doc, pos }) => `document ${doc}, ${pos === null ? "padding" : `position ${pos}`}`;
      [told.className, told.textContent] = ["who", text];
      line.replaceChildren(`Query of ${of(q)}; key of ${of(k)}.`, document.createElement("br"), told);
    }
    tellRow(side, event) {
      const { rows } = this.held(side), place = Math.floor(along(this.find(`.rows-${side}`), event) * rows.length), row = rows[place] ?? -1;
      const [layout, owner, noun] = this.side(side), { doc, pos } = this.plan.token(layout, Math.max(row, 0));
      this.find(".row").textContent = row < 0 ? "" : `${noun} row ${place} of the buffer: document ${doc}, ` +
        (pos === null ? "padding" : `position ${pos}, of rank ${owner[row]}`);
    }
    tellCell(rank, step) {
      const { cost } = this.plan, here = this.plan.steps[rank]?.[step], of = (name) => cost[name][rank][step];
      let told = here ? count(this.work(rank, step), "tile") : "it has no such step";
      if (here && cost) told = `bar: ${count(of("blocks"), "block")} (${number(of("partial_blocks"))} with a compare), ${count(of("pairs"), "visible pair")}, ` +
        `fill ${(of("pairs") / Math.max(1, of("blocks") * cost.area)).toFixed(2)}; line: ${mib(of("bytes_received"))} in, ${mib(of("bytes_sent"))} out`;
      this.find(".cell").textContent = `rank ${rank}, step ${step}: ${told}`;
    }
    sentence() {
      const { plan } = this, { rank, step } = state, here = plan.steps[rank]?.[step];
      if (!here) return rank < plan.cp ? `This plan has ended: it has ${count(plan.numSteps, "step")}.` : `This plan has ${count(plan.cp, "rank")}.`;
      const moved = [inWords("receives", here.in, "from", rank), inWords("sends", here.out, "to", rank)].filter(Boolean).join(" and ");
      const [queries, keys] = [this.held("q"), this.held("k")], whose = keys.of.map(([owner]) => owner);
      const kind = [undefined, "none"].includes(plan.kinds[here.kind]) ? "" : `, ${plan.kinds[here.kind]}`;
      return `Step ${step} of 0 to ${plan.numSteps - 1}${kind}: rank ${rank} ${moved || "moves nothing"}. ` +
        `It holds ${count(queries.rows.length, "query row")} of ${range(here.heads, "head")} and the keys of ${whose.length ? ofRanks(whose) : "nobody"}, ` +
        `${count(keys.rows.length, "row")} of ${range(here.kvHeads, "kv head")}. It computes ${this.computed(rank, step, here.heads)}.`;
    }
    computed(rank, step, heads) {
      const { cost } = this.plan;
      if (!cost) return count(this.work(rank, step), "tile");
      const [pairs, blocks] = [cost.pairs[rank][step], cost.blocks[rank][step]];
      return blocks ? `${count(pairs, "visible pair")} of ${range(heads, "head")} in ${count(blocks, "block")} of ` +
        `${cost.block_size.join(" x ")}, ${(100 * pairs / (blocks * cost.area)).toFixed(1)} % full` : "nothing";
    }
  }

  function inWords(verb, all, way, rank) {
    const messages = all.filter((m) => m.peer !== rank);
    const rows = (operand) => messages.filter((m) => m.operand === operand).reduce((sum, m) => sum + m.rows, 0);
    const words = ["q", "kv"].filter(rows).map((operand) => count(rows(operand), `${operand} row`)).join(" and ");
    return words && `${verb} ${words} ${way} ${ofRanks([...new Set(messages.map((m) => m.peer))].sort((a, b) => a - b))}`;
  }

  // --- controls
  const control = (id) => document.getElementById(id);
  const groups = [...new Map(plans.flatMap((p) => p.groups).map((group) => [group[0], group])).values()].sort((a, b) => a[0] - b[0]);
  const groupNow = () => groups.findLastIndex(([begin]) => begin <= state.head);
  const fillList = (list, choices) => list.replaceChildren(...choices.map(([value, text]) => new Option(text, value)));
  const KEYS = {
    ArrowLeft: () => choose({ step: state.step - 1 }), ArrowRight: () => choose({ step: state.step + 1 }),
    ArrowUp: () => choose({ rank: state.rank - 1 }), ArrowDown: () => choose({ rank: state.rank + 1 }),
    "[": () => choose({ doc: (state.doc ?? 0) - 1, pair: null }), "]": () => choose({ doc: (state.doc ?? -1) + 1, pair: null }),
    h: () => choose({ head: groups[(groupNow() + 1) % groups.length][0] }), Escape: () => choose({ pair: null }),
  };

  function prepareControls() {
    const onChange = (id, change) => control(id).addEventListener("input", () => choose(change(Number(control(id).value))));
    control("step").max = most((p) => p.numSteps) - 1;
    control("document").max = most((p) => p.q.lengths.length) - 1;
    control("document").disabled = control("whole").disabled = plans.some((p) => p.only !== null);
    control("head").disabled = groups.length < 2;
    fillList(control("rank"), Array.from({ length: most((p) => p.cp) }, (_, rank) => [rank, rank]));
    fillList(control("head"), groups.map(([begin, end]) => [begin, groups.length < 2 ? "all" : end - begin > 1 ? `${begin} to ${end - 1}` : begin]));
    control("back").addEventListener("click", KEYS.ArrowLeft);
    control("forth").addEventListener("click", KEYS.ArrowRight);
    for (const name of ["step", "rank", "head"]) onChange(name, (value) => ({ [name]: value }));
    onChange("document", (doc) => ({ doc, pair: null }));
    onChange("whole", () => ({ doc: control("whole").checked ? null : Number(control("document").value), pair: null }));
    control("controls").addEventListener("submit", (event) => event.preventDefault());
  }
  function showControls() {
    control("step").value = state.step;
    control("step-of").textContent = `${state.step} of 0 to ${most((p) => p.numSteps) - 1}`;
    control("rank").value = state.rank;
    control("whole").checked = state.doc === null;
    if (state.doc !== null) control("document").value = state.doc;
    control("head").value = groups[groupNow()]?.[0] ?? 0;
  }

  document.getElementById("plans").classList.toggle("two", plans.length > 1);
  views.push(...plans.map((plan) => new View(plan)));
  prepareControls();
  beginning();
  fromAddress();
  choose({});
  document.addEventListener("keydown", (event) => {
    const typed = event.target.closest?.("select, input[type=number]") || event.ctrlKey || event.metaKey || event.altKey;
    if (typed || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  window.addEventListener("hashchange", () => { fromAddress(); choose({}); });
  window.addEventListener("resize", () => views.forEach((view) => view.showMatrix()));
  document.documentElement.dataset.ready = performance.now();
})();
