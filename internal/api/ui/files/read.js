// Bounded reads of many keys.

import { call, stream } from "./api.js";
import { base64, prefixEnd, toBase64, utf8 } from "./text.js";

const pageSize = 2000;

// maxKeys bounds the keys of one read. Entering a prefix finds the rest.
const maxKeys = 20_000;

// maxEndings bounds the remembered deleted keys.
const maxEndings = 500;

// prefixed is the range of keys with a prefix, starting at some key.
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

// endings reads which keys with a prefix were deleted, and why: first as far back as the history
// goes, and later, given the previous result, only what is new. from is the revision at which the
// result begins.
export async function endings(prefix, last, signal) {
  const range = prefixed(prefix);
  const from = last?.from || 1;
  const list = [...last?.list || []];
  const ask = { ...range, start_revision: String(last?.next || from), prev_kv: true, no_put: true, progress_ms: 100 };
  let first = true;
  try {
    for await (const { header, events } of stream("v1/store/watch", ask, signal)) {
      // The first message only confirms the start; one without events means that everything was
      // sent.
      if (!first && !events) return { from, list, next: BigInt(header.revision) + 1n };
      first = false;
      for (const e of events || []) list.push({ ...e, at: last?.next ? Date.now() : 0 });
      list.splice(0, list.length - maxEndings);
    }
  } catch (why) {
    if (why.reason !== "REASON_COMPACTED") throw why;
    // Only a watch of etcd's API returns the first revision that is not compacted.
    for await (const m of stream("v3/watch", { create_request: { ...range, start_revision: 1 } }, signal)) {
      if (m.compact_revision) return endings(prefix, { from: m.compact_revision, list: [] }, signal);
    }
  }
  throw new Error("the history was interrupted");
}

// rangeOf is the operation of a transaction that reads the first keys with a prefix, starting at
// some key.
export const rangeOf = (prefix, from, limit) => ({ read_range: { ...prefixed(prefix, from), limit } });

// oneOf is the operation that reads one key.
export const oneOf = (key) => ({ read_range: { key: base64(key) } });

// ask reads several ranges in one transaction, and returns the result of each.
export async function ask(ops, signal) {
  const r = await call("v1/store/txn", { success: ops }, signal);
  return (r.responses || []).map((x) => ({ kvs: [], ...x.read_range }));
}
