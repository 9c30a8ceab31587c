// Events: what happened to leases, and why.

import { live } from "./live.js";
import { Choice, html, leaseLink, named, Rows, Search, useChanges, useMemo, useState } from "./parts.js";
import { clock, number, seconds } from "./text.js";
import { matcher } from "./view_leases.js";

// words maps the kind of an event to a word.
const words = {
  KIND_GRANTED: "granted", KIND_EXPIRED: "expired", KIND_REVOKED: "revoked",
  KIND_HANDED_OVER: "handed over", KIND_RESUMED: "resumed", KIND_TTL_CHANGED: "TTL changed",
  KIND_RELEASED: "released", KIND_EXPIRING: "expiring", KIND_RENEWED: "renewed",
  KIND_CACHE_SLOW: "cache slow", KIND_CACHE_SLOW_ENDED: "cache no longer slow",
};

// why shows the cause of an event, if it has one.
function why(e) {
  const by = e.by || "";
  switch (e.kind) {
    case "KIND_EXPIRED":
      return Number(e.lease?.lock_delay_ms || 0) > 0
        ? "not renewed; its lock delay runs" : "not renewed";
    case "KIND_REVOKED":
      return by === "key" ? "the key that it was bound to is gone" : by ? "by " + by : "";
    case "KIND_HANDED_OVER":
      return by ? "its owner was " + by : "it had no owner";
    case "KIND_RELEASED":
      return "its lock delay has passed";
    case "KIND_EXPIRING":
      return seconds(e.lease?.remaining_ms) + " were left";
    case "KIND_TTL_CHANGED":
      return "to " + seconds(e.lease?.ttl_ms);
    case "KIND_CACHE_SLOW":
      return "a write waited " + seconds(e.waited_ms) + " for it";
    default:
      return "";
  }
}

const widths = "9rem 5rem 8rem 9.5rem minmax(8rem, 2fr) minmax(6rem, 1fr) minmax(10rem, 2fr) 5rem";
const head = ["told at", "number", "what", "lease", "name", "owner", "why", "revision"];

// EventList shows events, the newest first. Events have no time of day, so it shows when the page
// received them.
export function EventList({ list, label }) {
  if (list.length === 0) return html`<p class="faint">none seen by this page</p>`;
  const row = (i) => {
    const e = list[list.length - 1 - i];
    const l = e.lease || {};
    return [
      clock(e.at) || "before", e.seq || "hint", words[e.kind] || e.kind, leaseLink(l.id),
      named(l.name), named(l.owner),
      named(why(e)), e.revision || "",
    ];
  };
  return html`<${Rows} label=${label} head=${head} count=${list.length} row=${row}
    widths=${widths} />`;
}

// save offers a text for download.
function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  const a = document.createElement("a");
  a.href = url;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export function EventsView() {
  useChanges();
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
      <${Choice} label="What" value=${kind} set=${setKind} list=${[["", "all"], ...Object.entries(words)]} />
      <${Search} label="Search" value=${search} set=${setSearch} size="30" />
      <button onClick=${() => save("events.jsonl", lines())}>Save as JSON lines</button>
    </div>
    <p class="faint" data-count=${list.length}>${number(list.length)} of
      ${" "}${number(live.log.length)} events, the newest first.
      ${live.missed ? " The member discarded some before the page could read them." : ""}</p>
    <${EventList} list=${list} label="Events" />`;
}
