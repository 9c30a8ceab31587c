// Leases: a searchable list of all. Only the visible ones are polled.

import { grant } from "./acts.js";
import { live, now, stateOf, states } from "./live.js";
import {
  Choice, html, leaseLink, mayAct, named, Rows, Search, stateMark, timeLeft, useChanges, useNarrow, usePolling,
  useRef, useState,
} from "./parts.js";
import { compared, hexID, number, seconds } from "./text.js";

// matcher returns a function that matches a search, all of whose words must match. "name:",
// "owner:" and "user:" match a prefix of that field, "label:k=v" matches a label, and a plain word
// matches anywhere, including the ID and the token.
export function matcher(text) {
  const words = text.trim().split(/\s+/).filter(Boolean).map((w) => {
    const m = /^(name|owner|user|label):(.*)$/.exec(w);
    if (!m) {
      const part = w.toLowerCase();
      return (l) => (l.name || "").toLowerCase().includes(part) ||
        (l.owner || "").toLowerCase().includes(part) || (l.hex || hexID(l.id)).includes(part) ||
        l.token === w || Object.entries(l.labels || {})
        .some(([k, v]) => (k + "=" + v).toLowerCase().includes(part));
    }
    const [, where, rest] = m;
    if (where === "label") {
      const [k, ...v] = rest.split("=");
      return (l) => k in (l.labels || {}) && (v.length === 0 || l.labels[k] === v.join("="));
    }
    const field = where === "user" ? "principal" : where;
    return (l) => (l[field] || "").startsWith(rest);
  });
  return (l) => words.every((w) => w(l));
}

const until = (l) => (l.asked >= 0 ? l.asked + Number(l.remaining_ms || 0) : Infinity);
const byID = (a, b) => compared(a.hex, b.hex);

const orders = {
  ID: byID,
  name: (a, b) => compared(a.name || "\uffff", b.name || "\uffff") || byID(a, b),
  "least time left": (a, b) => compared(until(a), until(b)) || byID(a, b),
};

// updated returns a list after some leases have changed. It inserts those that match in order, and
// does not examine the others. where has the leases of the list, by ID. The order is total.
export function updated(list, where, touched, leases, fits, order) {
  const place = (l, all) => {
    let [from, to] = [0, all.length];
    while (from < to) {
      const i = (from + to) >> 1;
      if (order(all[i], l) < 0) from = i + 1;
      else to = i;
    }
    return from;
  };
  // joined merges the changes into a sorted list: it inserts or removes items at some positions,
  // and copies the parts in between.
  const joined = (all, some, comes) => {
    const parts = [];
    let from = 0;
    for (const l of some.sort(order)) {
      const at = place(l, all);
      parts.push(all.slice(from, at), comes ? l : []);
      from = comes ? at : at + 1;
    }
    return [].concat(...parts, all.slice(from));
  };
  const ids = [...touched];
  const gone = ids.map((id) => where.get(id)).filter((l) => where.delete(l?.id));
  const come = ids.map((id) => leases.get(id)).filter((l) => l && fits(l) && where.set(l.id, l));
  return joined(joined(list, gone, false), come, true);
}

// usePicked returns the matching leases, in order. It examines all leases after a new search, after
// very many changes, and when it searches for a state, because states change over time; but rarely
// enough to take at most a tenth of the browser's time.
function usePicked(search, state, order) {
  const made = useRef({});
  const m = made.current;
  const same = m.search === search && m.state === state && m.order === order;
  if (same && ((live.touched.size === 0 && !state) || now() - m.at < 250 + 10 * m.cost)) return m.list;
  const began = now();
  const match = matcher(search);
  const fits = (l) => match(l) && (!state || stateOf(l, live.upTo()) === state);
  const some = same && !state && live.touched.size < 10_000;
  const list = some ? updated(m.list, m.where, live.touched, live.leases, fits, orders[order])
    : [...live.leases.values()].filter(fits).sort(orders[order]);
  const where = some ? m.where : new Map(list.map((l) => [l.id, l]));
  live.touched.clear();
  made.current = { at: now(), cost: now() - began, list, where, search, state, order };
  return list;
}

// columns have a title, a width and a function that returns the cell of a lease.
const columns = [
  ["ID", "9.5rem", (l) => leaseLink(l.id)],
  ["name", "minmax(8rem, 2fr)", (l) => named(l.name)],
  ["owner", "minmax(6rem, 1fr)", (l) => named(l.owner)],
  ["state", "7rem", (l) => stateMark(stateOf(l, live.upTo()))],
  ["time left, at least", "14rem", timeLeft],
  ["TTL", "6rem", (l) => seconds(l.ttl_ms)],
  ["token", "5rem", (l) => l.token],
  ["keys", "4rem", (l) => l.key_count || "0"],
];

// A phone shows only some columns, so the most important ones come first.
const [id, name, owner, state, time, ...rest] = columns;
const phoneColumns = [["state", "6rem", state[2]], ["time left", "6.5rem", time[2]], name, id, owner, ...rest];

export function LeasesView() {
  useChanges();
  const [search, setSearch] = useState("");
  const [state, setState] = useState("");
  const [order, setOrder] = useState("ID");
  const seen = useRef([]);
  const list = usePicked(search, state, order);

  // Failures are shown above all views, and by rows that show their age.
  usePolling((signal) => live.ask(seen.current, signal), 1000);

  const shown = useNarrow() ? phoneColumns : columns;
  const row = (i) => {
    const l = live.leases.get(list[i].id) || list[i];
    return shown.map(([, , cell]) => cell(l));
  };
  return html`
    <div class="tools" role="search">
      <${Search} label="Search" value=${search} set=${setSearch} size="30"
        placeholder="name:jobs/ owner:node-a label:zone=b" />
      <${Choice} label="State" value=${state} set=${setState}
        list=${[["", "all"], ...states.map((s) => [s, s])]} />
      <${Choice} label="Order" value=${order} set=${setOrder} list=${Object.keys(orders).map((o) => [o, o])} />
      ${mayAct && html`<button onClick=${grant}>Grant a lease</button>`}
    </div>
    <p class="faint" data-count=${list.length}>${number(list.length)} of
      ${" "}${number(live.leases.size)} leases. Silent: less than half of the TTL is left.
      Expiring: less than a quarter, or it was not renewed in its last seconds. In jeopardy:
      it may have ended, but this is not confirmed. Rows out
      of view keep the state that they last showed.</p>
    <${Rows} label="Leases" head=${shown.map(([title]) => title)} count=${list.length} row=${row}
      widths=${shown.map(([, width]) => width).join(" ")}
      seen=${(from, to) => {
        seen.current = list.slice(from, to).map((l) => l.id);
      }} />`;
}
