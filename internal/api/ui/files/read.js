// Reading many keys, bounded.

import { call, stream } from "./api.js";
import { base64, prefixEnd, toBase64, utf8 } from "./text.js";

const pageSize = 2000;

// maxKeys bounds what one look goes through. A prefix leads to the rest.
const maxKeys = 20_000;

// maxEndings is how many keys that went are kept.
const maxEndings = 500;

// prefixed is the range of the keys that begin with a prefix, from some key on.
const prefixed = (prefix, from) => ({
  key: base64(from || prefix || "\0"), range_end: toBase64(prefixEnd(utf8(prefix))),
});

// read returns the keys with a prefix, whether there are more, and the revision of the first of them.
export async function read(prefix, keysOnly, signal) {
  const asked = { ...prefixed(prefix), limit: pageSize, keys_only: keysOnly };
  const all = [];
  let revision = null;
  for (;;) {
    const { header, kvs = [], more } = await call("v1/store/range", asked, signal);
    revision ??= BigInt(header.revision);
    all.push(...kvs);
    if (!more || kvs.length === 0 || all.length >= maxKeys) return { kvs: all, more, revision };
    asked.key = btoa(atob(kvs.at(-1).key) + "\0");
  }
}

// endings reads which keys with a prefix went, and why: as far back as the cluster remembers, and then,
// given what was read before, what came since. from is the revision at which this begins.
export async function endings(prefix, last, signal) {
  const range = prefixed(prefix);
  const from = last?.from || 1;
  const list = [...last?.list || []];
  const ask = { ...range, start_revision: String(last?.next || from), prev_kv: true, no_put: true, progress_ms: 100 };
  let first = true;
  try {
    for await (const { header, events } of stream("v1/store/watch", ask, signal)) {
      // The first message says only that it begins; one without events, that all has been told.
      if (!first && !events) return { from, list, next: BigInt(header.revision) + 1n };
      first = false;
      for (const e of events || []) list.push({ ...e, at: last?.next ? Date.now() : 0 });
      list.splice(0, list.length - maxEndings);
    }
  } catch (why) {
    if (why.reason !== "REASON_COMPACTED") throw why;
    // Which revision is the first that is not compacted is told to a watch of etcd's API.
    for await (const m of stream("v3/watch", { create_request: { ...range, start_revision: 1 } }, signal)) {
      if (m.compact_revision) return endings(prefix, { from: m.compact_revision, list: [] }, signal);
    }
  }
  throw new Error("the history was interrupted");
}

// rangeOf asks for the first keys that begin with a prefix, from some key on, as of one moment with
// the rest of a transaction.
export const rangeOf = (prefix, from, limit) => ({ read_range: { ...prefixed(prefix, from), limit } });

// oneOf asks for one key.
export const oneOf = (key) => ({ read_range: { key: base64(key) } });

// ask reads several ranges at one moment, and returns what each has.
export async function ask(ops, signal) {
  const r = await call("v1/store/txn", { success: ops }, signal);
  return (r.responses || []).map((x) => ({ kvs: [], ...x.read_range }));
}
