// Reading many keys, bounded.

import { call } from "./api.js";
import { prefixEnd, toBase64, utf8 } from "./text.js";

const pageSize = 2000;

// maxKeys bounds what one look goes through. A prefix leads to the rest.
const maxKeys = 20_000;

// read returns the keys with a prefix, and whether there are more.
export async function read(prefix, keysOnly, signal) {
  const end = toBase64(prefixEnd(prefix));
  const out = [];
  let key = prefix.length ? toBase64(prefix) : toBase64(new Uint8Array([0]));
  for (;;) {
    const r = await call("v1/store/range", {
      key, range_end: end, limit: pageSize, keys_only: keysOnly,
    }, signal);
    const kvs = r.kvs || [];
    out.push(...kvs);
    if (!r.more || kvs.length === 0 || out.length >= maxKeys) return { kvs: out, more: r.more };
    key = btoa(atob(kvs[kvs.length - 1].key) + "\0");
  }
}

// rangeOf asks for the first keys that begin with a prefix, from some key on, as of one moment with
// the rest of a transaction.
export const rangeOf = (prefix, from, limit, more) => ({
  read_range: {
    key: toBase64(utf8(from || prefix)), range_end: toBase64(prefixEnd(utf8(prefix))), limit, ...more,
  },
});

// oneOf asks for one key.
export const oneOf = (key) => ({ read_range: { key: toBase64(utf8(key)) } });

// ask reads several ranges at one moment, and returns what each has.
export async function ask(ops, signal) {
  const r = await call("v1/store/txn", { success: ops }, signal);
  return (r.responses || []).map((x) => ({ kvs: [], ...x.read_range }));
}
