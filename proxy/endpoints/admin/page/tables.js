// Puts rows and bars on the page. Elements stay while their rows last, so that nobody loses the focus.

export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// Bring the rows of a table up to date: `cells(item)` are strings, or [text, class] or a node that `key` owns.
export function showRows(table, items, key, cells, empty = "none") {
  const body = table.tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = items.map((item) => {
    const name = key(item);
    const row = known.get(name) ?? newRow(table, name);
    known.delete(name);
    showCells(row, cells(item));
    return row;
  });
  for (const gone of known.values()) gone.remove();
  wanted.forEach((row, at) => {
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null);
  });
  if (!wanted.length) {
    const cell = element("td", { className: "empty", colSpan: table.tHead.rows[0].cells.length, textContent: empty });
    body.replaceChildren(element("tr", {}, cell));
  }
}

function newRow(table, name) {
  const row = element("tr");
  row.dataset.key = name;
  for (const head of table.tHead.rows[0].cells) row.append(element("td", { className: head.className }));
  return row;
}

function showCells(row, values) {
  values.forEach((value, at) => {
    const cell = row.cells[at];
    if (value instanceof Node) {
      if (cell.firstChild !== value) cell.replaceChildren(value);
    } else if (Array.isArray(value) && value.some(Array.isArray)) {
      showBadges(cell, value);
    } else {
      setText(cell, String(value));
    }
  });
}

// [text, class] each.
function showBadges(cell, badges) {
  const now = JSON.stringify(badges);
  if (cell.dataset.badges === now) return;
  cell.dataset.badges = now;
  cell.replaceChildren(
    ...badges.map(([text, kind]) => element("span", { className: kind, textContent: text })),
  );
}

const GOOD = ["ready", "closed", "serving", "in step"];
const BAD = ["ejected", "open", "not ready", "gone", "lost"];
const kindOf = (state) => `badge ${GOOD.includes(state) ? "good" : BAD.includes(state) ? "bad" : "warn"}`;

// What the processes see, with their numbers where they differ.
export function badgesOf(seen) {
  const entries = Object.entries(seen);
  if (!entries.length) return [["unknown", kindOf("")]];
  return entries.map(([state, processes]) => [
    `${state.replace("_", " ")}${entries.length > 1 ? ` ${processes}` : ""}`,
    kindOf(state),
  ]);
}

// A histogram as a list of bars, cut to the buckets that have something and one on each side.
export function showBars(place, buckets, bounds, shown) {
  if (buckets === null) {
    place.replaceChildren(element("p", { className: "empty", textContent: "no streamed answers in the last minute" }));
    return;
  }
  const total = buckets.reduce((sum, count) => sum + count, 0);
  const most = Math.max(...buckets);
  const filled = buckets.map((count, at) => (count ? at : -1)).filter((at) => at >= 0);
  const from = Math.max(0, Math.min(filled[0] - 1, buckets.length - 7));
  const to = Math.min(buckets.length - 1, Math.max(filled[filled.length - 1] + 1, from + 6));
  const bars = [];
  for (let at = from; at <= to; at += 1) {
    const bar = element("div", { className: "bar" });
    bar.style.height = `${(100 * buckets[at]) / most}%`;
    const percent = (100 * buckets[at]) / total;
    const share = buckets[at] ? (percent < 1 ? "<1 %" : `${Math.round(percent)} %`) : "";
    const bound = at < bounds.length ? `≤ ${shown(bounds[at])}` : `> ${shown(bounds[at - 1])}`;
    bars.push(
      element(
        "li",
        { title: `${bound}: ${buckets[at]}` },
        element("div", { className: "space" }, element("span", { className: "share", textContent: share }), bar),
        element("span", { className: "bound", textContent: bound }),
      ),
    );
  }
  place.replaceChildren(element("ul", { className: "chart" }, ...bars));
}
