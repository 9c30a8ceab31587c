// Caches: which holders may cache which ranges, and which caches writes wait for.

import { relay } from "./api.js";
import { metricsNow, sum } from "./health.js";
import { live, now } from "./live.js";
import {
  asking, html, leaseLink, left, named, Search, Table, trouble, useChanges, usePolling, useState,
} from "./parts.js";
import { number, range, seconds, span } from "./text.js";
import { matcher } from "./view_leases.js";

const most = 200; // caches that are shown
const some = 5; // ranges of one that are shown

// find returns the leases that hold ranges, slow ones first, and those whose ranges the page does
// not know yet, because it has only received an event about them.
function find(search) {
  const match = matcher(search);
  const [list, unknown] = [[], []];
  // A write still waits for a cache whose lease was revoked, because the cache may not know that
  // yet.
  for (const { lease: l } of live.slow.values()) if (match(l)) list.push(l.id);
  for (const l of live.leases.values()) {
    if (!(l.asked >= 0)) unknown.push(l.id);
    if (l.holds?.length && !live.slow.has(l.id) && match(l)) list.push(l.id);
  }
  return { list, unknown };
}

// waits shows how long writes have waited for a cache.
function waits(slow) {
  if (!slow) return "";
  const until = live.state === "lost" ? live.since : now();
  return html`<span class="state down">slow: a write waits for
    ${" "}${span(slow.waited + until - slow.at)}</span>`;
}

export function CachesView() {
  useChanges();
  const [search, setSearch] = useState("");
  const [{ list, unknown, metrics } = {}, err] = usePolling(async (signal) => {
    const found = find(search);
    await live.ask(found.list.slice(0, most), signal);
    await live.ask(found.unknown, signal);
    const known = relay ? null : await metricsNow(); // a relay counts no waits
    return { ...find(search), metrics: known };
  }, 1500, [search]);
  const row = (id) => {
    const slow = live.slow.get(id);
    const known = live.leases.get(id);
    const l = known || slow?.lease || {};
    const holds = l.holds || [];
    return [html`${leaseLink(id)} ${named(l.owner || l.name)}`, waits(slow),
      known ? left(id) : "it was revoked", seconds(l.ttl_ms),
      html`${holds.slice(0, some).map((h) => html`<div>${named(range(h))}</div>`)}
        ${holds.length > some && html`<div class="faint">and ${holds.length - some} more</div>`}`];
  };
  const counted = metrics?.("leasehold_caches_slow_total") || [];
  const waited = metrics && sum(metrics, "leasehold_cache_wait_seconds_count");
  return html`
    <div class="tools" role="search"><${Search} label="Search" value=${search} set=${setSearch} size="30"
      placeholder="owner:service-1" /></div>
    ${!list ? asking(err) : html`${trouble(err)}
      <p class="faint" data-count=${list.length}>${number(list.length)}
        ${" "}${list.length === 1 ? "lease holds" : "leases hold"} ranges for a
        cache${list.length > most ? ", the first " + most + " are shown" : ""}. A write to a key in a
        range waits until the cache has dropped it, or its lease has ended.
        ${unknown.length > 0 && html` Of ${number(unknown.length)} leases, this is not yet known.`}</p>
      ${list.length === 0 ? html`<p>No program has a cache.</p>` : html`<${Table} title="Caches"
        head=${["lease and owner", "slow", "time left, at least", "TTL", "ranges it may cache"]}
        rows=${list.slice(0, most).map(row)} />`}
      ${metrics && html`<h2>Since this member started</h2>
        <p>Writes that waited for caches while it led: ${number(waited)}.
          ${counted.length === 0 && " No cache was slow."}</p>`}
      ${counted.length > 0 && html`<${Table} title="Slow caches by owner" head=${["owner", "times"]}
        rows=${counted.map(({ labels, value }) => [named(labels.owner || "(no owner)"), number(value)])} />`}`}`;
}
