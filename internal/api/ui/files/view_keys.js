// Keys: a tree of prefixes, and one key with its history.

import { call } from "./api.js";
import { deleteKey, newKey, putKey } from "./acts.js";
import {
  asking, Facts, html, leaseLink, mayAct, named, Search, trouble, useEffect, useMemo, usePolling, useState,
} from "./parts.js";
import {
  changes, decoded, fromAddress, fromBase64, hexDump, inAddress, onLease, prefixEnd, shown, size, toBase64, utf8,
} from "./text.js";

const slash = 47;
const pageSize = 500;
const most = 300; // entries of one level that are read at once

// level reads the entries directly below a prefix, starting at some key: keys, and prefixes of
// several keys. Each prefix costs one read, regardless of its number of keys.
async function level(prefix, from) {
  const end = prefixEnd(prefix);
  const out = [];
  let at = from.length ? from : new Uint8Array([0]);
  while (out.length < most) {
    const { kvs = [], more } = await call("v1/store/range", {
      key: toBase64(at), range_end: toBase64(end), limit: pageSize, keys_only: true,
    });
    let jumped = false;
    for (const kv of kvs) {
      const key = fromBase64(kv.key);
      const cut = key.indexOf(slash, prefix.length);
      if (cut < 0) {
        out.push({ key, kv });
      } else {
        const below = key.slice(0, cut + 1);
        out.push({ key: below, kv: null });
        at = prefixEnd(below);
        jumped = true;
        break;
      }
    }
    if (!jumped) {
      if (!more || kvs.length === 0) return { list: out, next: null };
      at = Uint8Array.of(...fromBase64(kvs.at(-1).key), 0);
    } else if (at.length === 1 && at[0] === 0) {
      return { list: out, next: null }; // the end of all keys
    }
  }
  return { list: out, next: at };
}

// link is the address of the view of a prefix or of a key.
const link = (bytes, what = "") => "#/keys/" + inAddress(toBase64(bytes)) + what;

// Path has links to the enclosing prefixes.
function Path({ prefix }) {
  const steps = [];
  prefix.forEach((b, i) => {
    if (b === slash) steps.push(prefix.slice(0, i + 1));
  });
  let from = 0;
  return html`<nav aria-label="Prefix" class="path"><a href="#/keys">all keys</a>
    ${steps.map((p) => {
      const text = shown(p.slice(from));
      from = p.length;
      return html` <a key=${link(p)} href=${link(p)}>${named(text)}</a>`;
    })}</nav>`;
}

export function KeysView({ rest }) {
  const [where, what] = rest.split("/");
  const key = fromAddress(where || "");
  return what === "key" ? html`<${Key} key=${rest} bytes=${key} />`
    : html`<${Level} key=${rest} prefix=${key} />`;
}

function Level({ prefix }) {
  const [search, setSearch] = useState("");
  const [{ list, next, err }, set] = useState({});
  const load = (from, before) => level(prefix, from).then(
    (r) => set({ list: before.concat(r.list), next: r.next }), (why) => set((s) => ({ ...s, err: why })));
  useEffect(() => {
    load(prefix, []);
  }, []);
  const text = decoded(prefix);
  return html`<${Path} prefix=${prefix} />
    <form class="tools" role="search" onSubmit=${(e) => {
      e.preventDefault();
      location.hash = link(utf8(search));
    }}><${Search} label="Go to a prefix" value=${search} set=${setSearch} /><button>Go</button>
      ${mayAct && html`<button type="button" onClick=${async () => {
        if (await newKey(text ?? "")) load(prefix, []);
      }}>Put a new key</button>`}
      <button type="button" onClick=${() => load(prefix, [])}>Look again</button></form>
    ${!list ? asking(err) : trouble(err)}
    ${list?.length === 0 ? html`<p>No keys here.</p>`
      : list && html`<ul class="keys" data-count=${list.length}>${list.map((e) => html`<li key=${link(e.key)}>
        <a href=${link(e.key, e.kv ? "/key" : "")}>
          ${named(shown(e.key.slice(prefix.length)) || "(the prefix itself)")}</a>
        ${e.kv && html` <span class="faint">revision ${e.kv.mod_revision}${onLease(e.kv) && ", on lease "}</span>${
          onLease(e.kv) && leaseLink(e.kv.lease)}`}</li>`)}</ul>`}
    ${next && html`<button onClick=${() => load(next, list)}>More</button>`}`;
}

// lines formats a value as text, with line breaks.
const lines = (bytes) => shown(bytes).replaceAll("\\x0a", "\n").replaceAll("\\x09", "\t");

// json formats a value as indented JSON.
const json = (bytes) => JSON.stringify(JSON.parse(decoded(bytes) ?? ""), null, 2);

// pretty formats a value for comparison line by line.
function pretty(v) {
  const bytes = fromBase64(v.value);
  try {
    return json(bytes);
  } catch {
    return lines(bytes.subarray(0, 100_000));
  }
}

// Value shows a value in one of three ways.
function Value({ bytes }) {
  const [as, setAs] = useState("text");
  let text = lines(bytes);
  if (as === "hex") text = hexDump(bytes.subarray(0, 65_536));
  if (as === "JSON") {
    try {
      text = json(bytes);
    } catch {
      text = "This value is not JSON.";
    }
  }
  return html`<fieldset class="tools"><legend>Value (${size(bytes.length)}), as</legend>
    ${["text", "JSON", "hex"].map((k) => html`<label key=${k}><input type="radio" name="as"
      value=${k} checked=${as === k} onChange=${() => setAs(k)} /> ${k}</label>`)}</fieldset>
    <pre tabindex="0" aria-label="Value" class="value">${text.slice(0, 300_000)}</pre>`;
}

// Old shows an earlier value, and how it was replaced.
function Old({ v, newer }) {
  const [open, set] = useState(false);
  const other = useMemo(() => open && changes(pretty(v), pretty(newer)), [open, newer.mod_revision]);
  return html`<details onToggle=${(e) => set(e.target.open)}>
    <summary>revision ${v.mod_revision}, version ${v.version}, ${size(fromBase64(v.value).length)}</summary>
    <pre tabindex="0" aria-label="Old value" class="value">${lines(fromBase64(v.value)).slice(0, 100_000)}</pre>
    Changes in revision ${newer.mod_revision}:
    <pre tabindex="0" aria-label="Difference" class="value">${other}</pre></details>`;
}

function Key({ bytes }) {
  const key = toBase64(bytes);
  const [{ kv, gone } = {}, err, look] = usePolling(async (signal, last) => {
    const { kvs = [] } = await call("v1/store/range", { key }, signal);
    return { kv: kvs[0] || last?.kv, gone: kvs.length === 0 };
  }, 2000);
  const [past, setPast] = useState({ list: [], end: "" });
  // older reads earlier values, one by one, back to the compaction.
  const older = async () => {
    let [{ list }, end] = [past, ""];
    try {
      for (let i = 0; i < 10 && !end; i++) {
        const revision = BigInt((list.at(-1) || kv).mod_revision) - 1n;
        const { kvs = [] } = await call("v1/store/range", { key, revision: String(revision || 1n) });
        list = list.concat(kvs);
        if (kvs.length === 0) end = "Before that, the key did not exist.";
      }
    } catch (why) {
      end = why.reason === "REASON_COMPACTED" ? "Earlier revisions have been compacted." : why.message;
    }
    setPast({ list, end });
  };
  const up = bytes.slice(0, bytes.lastIndexOf(slash, bytes.length - 2) + 1);
  if (!kv) {
    return html`<${Path} prefix=${up} />${gone ? html`<p>Key not found.</p>` : asking(err)}`;
  }
  const value = fromBase64(kv.value);
  const text = decoded(value);
  const after = (act) => async () => {
    if (!await act()) return;
    setPast({ list: [], end: "" });
    await look();
  };
  return html`<${Path} prefix=${up} />${trouble(err)}
    ${gone && html`<p class="line warn" role="alert">The key was deleted. This is its last value.</p>`}
    <h2>${named(shown(bytes))}</h2>
    <${Facts} list=${[
      ["mod revision", kv.mod_revision], ["create revision", kv.create_revision],
      ["version", kv.version],
      ["lease", onLease(kv) ? leaseLink(kv.lease) : "none"],
    ]} />
    ${mayAct && !gone && html`<div class="tools">
      ${text !== null && html`<button onClick=${after(() => putKey(kv, text))}>Change the
        value</button>`}
      <button class="act" onClick=${after(() => deleteKey(kv))}>Delete</button></div>`}
    <${Value} bytes=${value} />
    <h2>History</h2>
    ${past.list.map((v, i) => html`<${Old} key=${v.mod_revision} v=${v} newer=${past.list[i - 1] || kv} />`)}
    ${past.end ? html`<p class="faint">${past.end}</p>`
      : html`<button onClick=${older}>Read older values</button>`}`;
}
