// Groups of members, work queues, pools and sets of nodes, as packages members, queue, pool and
// nodes of the Go client keep them (docs/coordination.md), found among keys.

import { place } from "./queues.js";
import { compared, decoded, keyOf, object, onLease } from "./text.js";

// An item's ID, as the client makes it.
const item = /^[0-9][0-9a-f]{11,}-\d\d-[a-z2-7]{10}$/;

const part = /^([^]+)\/(item|claim|try|dead|held|was|up|known)$/;

// groupsOf finds them, in the order of their names: {kind, name, kvs, counts}. kvs are the keys of
// members. The keys come without values, and in order.
export function groupsOf(kvs) {
  const all = new Map();
  const at = (kind, name) => {
    const k = kind + " " + name;
    if (!all.has(k)) all.set(k, { kind, name, kvs: [], counts: {} });
    return all.get(k);
  };
  const count = (kind, name, what) => {
    const { counts } = at(kind, name);
    counts[what] = (counts[what] || 0) + 1;
  };
  for (const kv of kvs) {
    const key = keyOf(kv);
    const cut = key.lastIndexOf("/");
    if (cut < 1 || cut === key.length - 1) continue;
    const [above, id] = [key.slice(0, cut), key.slice(cut + 1)];
    const leased = onLease(kv);
    const [, name, of] = part.exec(above) || [];
    if (/^(item|claim|try|dead)$/.test(of) && item.test(id) && leased === (of === "claim")) {
      count("queue", name, of);
    } else if ((of === "held" && leased) || (of === "was" && !leased)) {
      count("pool", name, of);
    } else if (id === "ids" && !leased) {
      count("pool", above, id);
    } else if ((of === "up" && leased) || (of === "known" && !leased)) {
      count("nodes", name, of);
    } else if (leased && !place(kv) && !above.endsWith("!left")) {
      at("members", above).kvs.push({ ...kv, id });
    }
  }
  for (const g of all.values()) {
    if (g.kind !== "nodes") continue;
    // The role and the order are keys on leases beside those of the nodes.
    const k = "members " + g.name;
    const rest = all.get(k)?.kvs.filter((kv) => kv.id !== "primary" && kv.id !== "order");
    if (rest?.length) all.get(k).kvs = rest;
    else all.delete(k);
  }
  const order = (a, b) => compared(a.name, b.name) || compared(a.kind, b.kind);
  // What was held is no pool without its IDs: a key that is called so may be anything.
  return [...all.values()].filter((g) => g.kind !== "pool" || g.counts.ids).sort(order);
}

// sizeOf says how many IDs a text of a pool means: ranges of addresses are many. Ranges of IPv6
// addresses from one to another are not counted.
function sizeOf(text) {
  const block = /^[\da-f:.]+\/(\d+)$/i.exec(text);
  if (block) return 2 ** ((text.includes(":") ? 128 : 32) - Number(block[1]));
  const range = /^(\d+(?:\.\d+){3})-(\d+(?:\.\d+){3})$/.exec(text);
  const value = (address) => address.split(".").reduce((n, b) => n * 256 + Number(b), 0);
  if (range) return value(range[2]) - value(range[1]) + 1;
  return /:.*-.*:/.test(text) ? NaN : 1;
}

// poolOf reads the value of a pool's IDs: {size, text, quarantine}, null if it is none. A size that
// is not known is NaN.
export function poolOf(bytes) {
  const spec = object(decoded(bytes));
  if (!spec || !Array.isArray(spec.ids || [])) return null;
  const quarantine = Number(spec.quarantine_ns || 0) / 1e6;
  if (!spec.ids) {
    const [first, last] = [Number(spec.first || 0), Number(spec.last || 0)];
    return { size: last - first + 1, text: first + " to " + last, quarantine };
  }
  const ids = spec.ids.map(String);
  return { size: ids.reduce((n, id) => n + sizeOf(id), 0), text: ids.join(", "), quarantine };
}
