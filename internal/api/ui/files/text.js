// Formats bytes, IDs and times for display. Nothing here produces HTML: views pass these texts to
// the browser as text nodes.

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

// Characters that hide or reverse the text next to them: controls, direction marks, and zero-width
// spaces.
const odd = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

const hex = (n, digits) => n.toString(16).padStart(digits, "0");

// escaped replaces odd characters by their code points.
export const escaped = (s) =>
  s.replace(odd, (c) => {
    const n = c.charCodeAt(0);
    return n < 256 ? "\\x" + hex(n, 2) : "\\u" + hex(n, 4);
  });

// fromBase64 decodes the API's base64.
export const fromBase64 = (s) => Uint8Array.from(atob(s || ""), (c) => c.charCodeAt(0));

// toBase64 is the inverse of fromBase64.
export const toBase64 = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));

// utf8 returns the bytes of a text, and base64 encodes it in the API's base64.
export const utf8 = (text) => encoder.encode(text);
export const base64 = (text) => toBase64(utf8(text));

// shown64 shows the bytes of the API's base64.
export const shown64 = (s) => shown(fromBase64(s));

// decoded decodes UTF-8, and returns null if the bytes are invalid.
export function decoded(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return null;
  }
}

// ascii returns bytes as characters; other maps bytes that are not printable.
const ascii = (bytes, other) =>
  Array.from(bytes, (b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : other(b))).join("");

// onLease says whether a key is on a lease.
export const onLease = (kv) => Number(kv.lease || 0) !== 0;

// keyOf returns a key as text, or "" if it is not UTF-8.
export const keyOf = (kv) => decoded(fromBase64(kv.key)) ?? "";

// object parses a JSON object, and returns null if the text is not one.
export function object(text) {
  try {
    const o = JSON.parse(text);
    return typeof o === "object" && !Array.isArray(o) ? o : null;
  } catch {
    return null;
  }
}

// shown formats bytes as text if they are UTF-8, and byte by byte otherwise.
export function shown(bytes) {
  const text = decoded(bytes);
  return text !== null ? escaped(text) : ascii(bytes, (b) => "\\x" + hex(b, 2));
}

// range formats a range of keys, given in the API's form.
export function range({ key, range_end: end }) {
  const to = end === "AA==" ? "the end" : shown64(end);
  return end ? "[" + shown64(key) + ", " + to + ")" : shown64(key);
}

// hexDump formats bytes in rows of sixteen.
export function hexDump(bytes) {
  const rows = [];
  for (let i = 0; i < bytes.length; i += 16) {
    const row = bytes.subarray(i, i + 16);
    const all = Array.from(row, (b) => hex(b, 2)).join(" ");
    rows.push(hex(i, 8) + "  " + all.padEnd(47) + "  " + ascii(row, () => "."));
  }
  return rows.join("\n");
}

// hexID formats a 64-bit ID as the command line does. The API's IDs are decimal.
export const hexID = (id) => hex(BigInt.asUintN(64, BigInt(id || 0)), 16);

// memberID formats the ID of a member as the metrics do.
export const memberID = (id) => BigInt(id || 0).toString(16);

// decimalID is the inverse of hexID; it returns "" for an invalid ID.
export function decimalID(hex) {
  return /^[0-9a-f]{1,16}$/.test(hex) ? BigInt.asIntN(64, BigInt("0x" + hex)).toString() : "";
}

// span formats a duration for display.
export function span(ms) {
  ms = Math.max(0, Number(ms) || 0);
  if (ms < 10_000) return (Math.floor(ms / 100) / 10).toFixed(1) + " s";
  const s = Math.floor(ms / 1000);
  if (s < 120) return s + " s";
  if (s < 7200) return Math.floor(s / 60) + " min " + (s % 60) + " s";
  if (s < 172_800) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86_400) + " d " + Math.floor((s % 86_400) / 3600) + " h";
}

// compared compares numbers or texts, for sorting.
export const compared = (x, y) => (x < y ? -1 : x > y ? 1 : 0);

// seconds formats a TTL or a remaining time in seconds.
export const seconds = (ms) => Number(ms || 0) / 1000 + " s";

// clock formats a time of day with its zone; "" if there is none.
export const clock = (at) => (at ? new Date(at).toLocaleTimeString("en-GB", { timeZoneName: "short" }) : "");

// date formats a date and a time of day with its zone.
export const date = (at) => new Date(at).toLocaleString("en-GB", { timeZoneName: "short" });

// duration parses "10s", "500ms", "2m", "1h" or a number of seconds, and returns milliseconds, or
// NaN for anything else.
export function duration(text) {
  const m = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/.exec(text.trim());
  const unit = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  return m ? Math.round(Number(m[1]) * unit[m[2] || "s"]) : NaN;
}

// number formats a count with thousands separators.
export const number = (n) => Number(n || 0).toLocaleString("en");

// size formats a number of bytes.
export function size(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (n = Number(n || 0); n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i ? n.toFixed(1) : n) + " " + units[i];
}

// changes compares two texts line by line: removed lines start with "- ", added ones with "+ ".
export function changes(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  if (a.length * b.length > 4e6) return "too long to compare";
  const same = Array.from([...a, ""], () => new Uint32Array(b.length + 1)); // lines of the rests
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      same[i][j] = a[i] === b[j] ? same[i + 1][j + 1] + 1 : Math.max(same[i + 1][j], same[i][j + 1]);
    }
  }
  const out = [];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && a[i] === b[j]) {
      out.push("  " + b[j++]);
      i++;
    } else if (j === b.length || (i < a.length && same[i + 1][j] >= same[i][j + 1])) {
      out.push("- " + a[i++]);
    } else {
      out.push("+ " + b[j++]);
    }
  }
  return out.join("\n");
}

// prefixEnd returns the first key after all keys with a prefix, in the API's form, in which a zero
// byte means the end of all keys.
export function prefixEnd(prefix) {
  const last = prefix.findLastIndex((b) => b < 255);
  const end = last < 0 ? new Uint8Array([255]) : prefix.slice(0, last + 1);
  end[end.length - 1]++; // 255 becomes 0
  return end;
}

// inAddress encodes bytes for the address of a view.
export const inAddress = (base64) =>
  base64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

// fromAddress is the inverse. It returns the empty key for an invalid address.
export function fromAddress(s) {
  try {
    return fromBase64(s.replaceAll("-", "+").replaceAll("_", "/"));
  } catch {
    return new Uint8Array();
  }
}
