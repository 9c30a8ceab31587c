// Wait queues, as client/lock and etcd's package concurrency keep them: below a prefix each lease
// has a key, named by its ID in hex, and the oldest key, by create revision, is the holder's.

import { compared, decoded, fromBase64, hexID, toBase64, utf8 } from "./text.js";

// candidates is where those wait who want to lead: beside the election's own queue.
const candidates = "~candidates/";

// preferred is the key of the candidate that comes first, whatever the priorities.
const preferred = "~preferred";

// reader is the value of the key of a reader of a read/write lock.
const reader = "r";

// place returns the prefix of the queue in which a key is a ticket; null if it is none. Such a key
// ends with the ID of its lease, and maybe a dot and a number.
export function place(key, lease) {
  const m = /^([^]*?)([0-9a-f]+)(?:\.[0-9]+)?$/.exec(key);
  if (!m || !lease || lease === "0") return null;
  const id = hexID(lease).replace(/^0+/, "");
  const digits = m[2].replace(/^0+/, "");
  if (!digits.endsWith(id)) return null;
  const rest = m[2].slice(0, m[2].length - id.length);
  // Digits before the ID belong to it as zeros, or the key is of something else.
  return /^0*$/.test(rest) ? m[1] : null;
}

const created = (t) => BigInt(t.kv.create_revision || 0);
const older = (a, b) => compared(created(a), created(b)) || compared(a.kv.key, b.kv.key);

// queuesOf finds the queues among keys: {name, prefix, tickets, candidates}, each list in order.
// Candidates of an election stand in one list with its queue.
export function queuesOf(kvs) {
  const all = new Map();
  for (const kv of kvs) {
    const key = decoded(fromBase64(kv.key));
    const prefix = key === null ? null : place(key, kv.lease);
    if (!prefix) continue;
    const election = prefix.endsWith(candidates);
    const name = election ? prefix.slice(0, -candidates.length) : prefix.replace(/\/$/, "");
    if (!all.has(name)) all.set(name, { name, prefix: name + "/", tickets: [], candidates: [] });
    const q = all.get(name);
    if (!election) q.prefix = prefix;
    (election ? q.candidates : q.tickets).push({ kv, key, lease: kv.lease });
  }
  const list = [...all.values()].sort((a, b) => compared(a.name, b.name));
  for (const q of list) {
    q.tickets.sort(older);
    q.candidates.sort(older);
    q.holder = q.tickets[0] || null;
    // The leader and the first candidate stand in the queue and among the candidates.
    const inQueue = new Set(q.tickets.map((t) => t.lease));
    q.waiters = q.tickets.slice(1).concat(q.candidates.filter((t) => !inQueue.has(t.lease)));
  }
  return list;
}

// parts says of each ticket of a queue what it is, given the keys with their values: a reader or
// the holder, holding or waiting. Readers at the head hold together. How many permits a semaphore
// has the cluster does not know.
export function parts(q, values) {
  const value = (t) => decoded(fromBase64(values.get(t.kv.key)?.value || "")) ?? "";
  let reading = true;
  const own = q.tickets.map((t, i) => {
    const reads = value(t) === reader;
    const holds = i === 0 || (reading && reads);
    reading = reading && reads;
    return { ...t, value: value(t), role: (holds ? "holds" : "waits") + (reads ? ", reads" : "") };
  });
  const inQueue = new Set(q.tickets.map((t) => t.lease));
  const first = value({ kv: { key: toBase64(utf8(q.name + preferred)) } });
  const rest = q.candidates.filter((t) => !inQueue.has(t.lease)).map((t) => {
    let stand = {};
    try {
      stand = JSON.parse(value(t)) || {};
    } catch {
      // Not of our client.
    }
    const priority = Number(stand.priority || 0);
    const role = first !== "" && stand.id === first ? "candidate, preferred" : "candidate";
    return { ...t, value: value(t), priority, role, first: role !== "candidate" };
  });
  // Candidates of one priority stand by age, in which they came.
  return own.concat(rest.sort((a, b) => b.first - a.first || b.priority - a.priority));
}
