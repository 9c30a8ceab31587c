// Wait queues, as client/lock and etcd's package concurrency keep them: each lease has a key below
// a prefix, named by its ID in hex, and the key with the lowest create revision is the holder's.

import { read } from "./read.js";
import { base64, compared, decoded, fromBase64, hexID, keyOf, object, onLease } from "./text.js";

// candidates is the prefix of an election's candidates, next to its own queue.
const candidates = "~candidates/";

// preferred is the key that names the candidate that is next regardless of priorities.
const preferred = "~preferred";

// reader is the value of a reader's key in a read/write lock.
const reader = "r";

// place returns the prefix of the queue in which a key is a ticket, or null if it is not a ticket.
// A ticket's key ends with the ID of its lease, and possibly a dot and a number.
export function place(kv) {
  const [, prefix, digits] = /^([^]*?)([0-9a-f]+)(?:\.[0-9]+)?$/.exec(keyOf(kv)) || [];
  // The ID may have leading zeros.
  const number = (hex) => hex.replace(/^0+/, "");
  return prefix && onLease(kv) && number(digits) === number(hexID(kv.lease)) ? prefix : null;
}

const created = (t) => BigInt(t.kv.create_revision || 0);
const older = (a, b) => compared(created(a), created(b)) || compared(a.kv.key, b.kv.key);

// queuesOf finds the queues among keys: {name, prefix, tickets, candidates}, each list in order. An
// election's candidates are listed with its queue.
export function queuesOf(kvs) {
  const all = new Map();
  for (const kv of kvs) {
    const prefix = place(kv);
    if (!prefix) continue;
    const election = prefix.endsWith(candidates);
    const name = election ? prefix.slice(0, -candidates.length) : prefix.replace(/\/$/, "");
    if (!all.has(name)) all.set(name, { name, prefix: name + "/", tickets: [], candidates: [] });
    const q = all.get(name);
    if (!election) q.prefix = prefix;
    (election ? q.candidates : q.tickets).push({ kv, lease: kv.lease });
  }
  const list = [...all.values()].sort((a, b) => compared(a.name, b.name));
  for (const q of list) {
    q.tickets.sort(older);
    q.candidates.sort(older);
    q.holder = q.tickets[0] || null;
    // The leader and the first candidate are both in the queue and among the candidates.
    const inQueue = new Set(q.tickets.map((t) => t.lease));
    q.others = q.candidates.filter((t) => !inQueue.has(t.lease));
    q.waiters = q.tickets.slice(1).concat(q.others);
  }
  return list;
}

// readQueue reads one queue, or undefined if it is empty, and also its keys and their revision.
export async function readQueue({ name, prefix }, keysOnly, signal) {
  const { kvs, revision } = await read(prefix, keysOnly, signal);
  kvs.push(...(await read(name + "~", keysOnly, signal)).kvs);
  return { queue: queuesOf(kvs).find((q) => q.name === name), kvs, revision };
}

// departures returns the tickets that left a queue up to a revision, the latest first, with end,
// the revision at which each left; why; its position in the queue then; and next, the ticket that
// was first afterwards. Readers, and holders of a semaphore, may have held at the same time.
export function departures(prefix, tickets, ended, revision) {
  const gone = ended.filter((e) => e.prev_kv)
    .map((e) => ({ ...e, kv: e.prev_kv, lease: e.prev_kv.lease, end: BigInt(e.kv.mod_revision) }))
    .filter((t) => t.end <= revision && place(t.kv) === prefix);
  const all = tickets.map((t) => ({ ...t, end: Infinity })).concat(gone).sort(older);
  return gone.reverse().map((t) => {
    const there = all.filter((o) => created(o) <= t.end && o.end > t.end);
    const before = there.filter((o) => older(o, t) < 0).length;
    return { ...t, place: before + 1, next: there[0] };
  });
}

// parts returns the role of each ticket of a queue, given the keys with their values: a reader or
// the holder, holding or waiting. Readers at the head hold together. The cluster does not know how
// many permits a semaphore has.
export function parts(q, values) {
  const value = (key) => decoded(fromBase64(values.get(key)?.value)) ?? "";
  let reading = true;
  const own = q.tickets.map((t, i) => {
    const said = value(t.kv.key);
    const reads = said === reader;
    const holds = i === 0 || (reading && reads);
    reading = reading && reads;
    return { ...t, value: said, role: (holds ? "holds" : "waits") + (reads ? ", reads" : "") };
  });
  const preferredID = value(base64(q.name + preferred));
  const rest = q.others.map((t) => {
    const said = value(t.kv.key);
    const stand = object(said) || {};
    const first = preferredID !== "" && stand.id === preferredID;
    return {
      ...t, value: said, priority: Number(stand.priority || 0), first,
      role: first ? "candidate, preferred" : "candidate",
    };
  });
  // Candidates with the same priority are sorted by age.
  return own.concat(rest.sort((a, b) => b.first - a.first || b.priority - a.priority));
}
