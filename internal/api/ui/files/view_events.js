// Events: what happened to leases, and why.

import { html, useMemo, useState } from "./vendor/htm-preact.js";
import { LeaseLink, Name, Rows, useChanges } from "./parts.js";
import { number } from "./text.js";
import { matcher } from "./view_leases.js";

// words says in a word what kind an event is.
const words = {
  KIND_GRANTED: "granted", KIND_EXPIRED: "expired", KIND_REVOKED: "revoked",
  KIND_HANDED_OVER: "handed over", KIND_RESUMED: "resumed", KIND_TTL_CHANGED: "TTL changed",
  KIND_RELEASED: "released", KIND_EXPIRING: "expiring", KIND_RENEWED: "renewed",
  KIND_CACHE_SLOW: "cache slow", KIND_CACHE_SLOW_ENDED: "cache no longer slow",
};

// why says what made an event happen, as far as it tells.
function why(e) {
  const by = e.by || "";
  switch (e.kind) {
    case "KIND_EXPIRED":
      return Number(e.lease?.lock_delay_ms || 0) > 0
        ? "nobody renewed it; its lock delay runs" : "nobody renewed it";
    case "KIND_REVOKED":
      return by === "key" ? "the key that it was bound to has gone" : by ? "by " + by : "";
    case "KIND_HANDED_OVER":
      return by ? "its owner was " + by : "it had no owner";
    case "KIND_RELEASED":
      return "its lock delay has passed";
    case "KIND_EXPIRING":
      return Number(e.lease?.remaining_ms || 0) / 1000 + " s were left";
    case "KIND_TTL_CHANGED":
      return "to " + Number(e.lease?.ttl_ms || 0) / 1000 + " s";
    case "KIND_CACHE_SLOW":
      return "a write has waited " + Number(e.waited_ms || 0) / 1000 + " s for it";
    default:
      return "";
  }
}

// Events have no time of day: the page knows only when it was told.
const told = (e) => (e.at ? new Date(e.at).toLocaleTimeString("en-GB") : "before");

const widths = "6rem 5rem 8rem 9.5rem minmax(8rem, 2fr) minmax(6rem, 1fr) minmax(10rem, 2fr) 5rem";
const head = ["told at", "number", "what", "lease", "name", "owner", "why", "revision"];

// EventList shows events, the newest first.
export function EventList({ list, label }) {
  if (list.length === 0) return html`<p class="faint">none that this page knows of</p>`;
  const row = (i) => {
    const e = list[list.length - 1 - i];
    const l = e.lease || {};
    return [
      told(e), e.seq || "hint", words[e.kind] || e.kind, html`<${LeaseLink} id=${l.id} />`,
      html`<${Name} text=${l.name} />`, html`<${Name} text=${l.owner} />`,
      html`<${Name} text=${why(e)} />`, e.revision || "",
    ];
  };
  return html`<${Rows} label=${label} head=${head} count=${list.length} row=${row}
    widths=${widths} />`;
}

// save hands a text to the browser as a file.
function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export function EventsView({ live }) {
  useChanges(live);
  const [kind, setKind] = useState("");
  const [search, setSearch] = useState("");
  const list = useMemo(() => {
    const match = matcher(search);
    return live.log.filter((e) => (!kind || e.kind === kind) && match(e.lease || {}));
  }, [live.logged, kind, search]);
  const lines = () => list.map((e) => JSON.stringify({
    ...e, at: undefined, told_at: e.at ? new Date(e.at).toISOString() : undefined,
  }) + "\n").join("");
  return html`
    <div class="tools" role="search">
      <label>What <select value=${kind} onChange=${(e) => setKind(e.target.value)}>
        <option value="">all</option>
        ${Object.entries(words).map(([k, w]) => html`<option value=${k}>${w}</option>`)}
      </select></label>
      <label>Search <input type="search" value=${search} size="30" spellcheck="false"
        onInput=${(e) => setSearch(e.target.value)} /></label>
      <button onClick=${() => save("events.jsonl", lines())}>Save as JSON lines</button>
    </div>
    <p class="faint" data-count=${list.length}>${number(list.length)} of
      ${" "}${number(live.log.length)} events, the newest first.
      ${live.missed ? " Some were forgotten by the member before the page could read them." : ""}</p>
    <${EventList} list=${list} label="Events" />`;
}
