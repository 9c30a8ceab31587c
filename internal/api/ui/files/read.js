// Reading many keys, bounded.

import { call } from "./api.js";
import { base64, prefixEnd, toBase64, utf8 } from "./text.js";

const pageSize = 2000;

// maxKeys bounds what one look goes through. A prefix leads to the rest.
const maxKeys = 20_000;

// prefixed is the range of the keys that begin with a prefix, from some key on.
const prefixed = (prefix, from) => ({
  key: base64(from || prefix || "\0"), range_end: toBase64(prefixEnd(utf8(prefix))),
});

// read returns the keys with a prefix, and whether there are more.
export async function read(prefix, keysOnly, signal) {
  const asked = { ...prefixed(prefix), limit: pageSize, keys_only: keysOnly };
  const all = [];
  for (;;) {
    const { kvs = [], more } = await call("v1/store/range", asked, signal);
    all.push(...kvs);
    if (!more || kvs.length === 0 || all.length >= maxKeys) return { kvs: all, more };
    asked.key = btoa(atob(kvs.at(-1).key) + "\0");
  }
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
