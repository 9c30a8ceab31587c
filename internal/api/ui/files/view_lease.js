// One lease: everything that the cluster knows about it.

import { call } from "./api.js";
import { changeTTL, renew, revoke } from "./acts.js";
import { live, now, stateOf } from "./live.js";
import {
  asking, Facts, html, mayAct, named, stateMark, timeLeft, trouble, useChanges, usePolling,
} from "./parts.js";
import { decimalID, hexID, inAddress, range, seconds, shown64, span } from "./text.js";
import { EventList } from "./view_events.js";

// Past shows the renewals and events of the lease over the last four TTLs, and its certain time.
function Past({ lease, events }) {
  const at = live.upTo();
  const ttl = Number(lease.ttl_ms || 1);
  const place = (t) => Math.max(0, 80 + (20 * (t - at)) / ttl) + "%";
  const seen = lease.renewals || [];
  const told = events.filter((e) => e.at).map((e) => now() - Date.now() + e.at);
  const marks = (list, of) => list.filter((t) => at - t < 4 * ttl).map((t) => html`<i class=${of}
    style=${{ left: place(t) }}></i>`);
  const ends = lease.asked + Number(lease.remaining_ms || 0);
  return html`<div class="strip" role="img" aria-label="Renewals and events">${marks(seen, "")}${marks(told, "told")}
      ${ends > at && html`<i class="left" style=${{ left: "80%", width: (20 * (ends - at)) / ttl + "%" }}></i>`}</div>
    <p class="faint" data-renewals=${seen.length}>${seen.length} renewals were seen while this page was open
      (blue)${seen.length > 0 && html`, the last ${span(at - seen.at(-1))} ago`}; events are red, the time left
      is green. The strip begins four TTLs ago.</p>`;
}

export function LeaseView({ rest }) {
  useChanges();
  const id = decimalID(rest);
  const [{ lease, ended } = {}, err, look] = usePolling(async (signal, last) => {
    if (!id) return;
    const asked = now();
    try {
      const r = await call("v1/leases/describe", { id, keys: true }, signal);
      live.learn(r.lease, asked);
      live.tell();
      return { lease: { ...r.lease, asked } };
    } catch (why) {
      if (why.reason !== "REASON_LEASE_NOT_FOUND") throw why;
      live.ended(id, live.leases.get(id)?.token);
      return { ...last, ended: true };
    }
  }, 1000, [id]);

  const back = html`<p><a href="#/leases">All leases</a></p>`;
  if (!id) return html`${back}<p>The address does not contain a lease ID.</p>`;
  const events = live.log.filter((e) => e.lease?.id === id);
  const known = live.leases.get(id);
  const past = html`<h2>History</h2>
    ${known && html`<${Past} lease=${known} events=${events} />`}
    <${EventList} list=${events} label="Events of this lease" />`;
  if (!lease) {
    return html`${back}
      ${ended ? html`<p>Lease not found: it has ended or never existed.</p>` : asking(err)}${past}`;
  }
  const keys = lease.keys || [];
  const after = (act) => async () => {
    if (await act(lease)) await look();
  };
  return html`${back}${trouble(err)}
    ${ended && html`<p class="line warn" role="alert">The lease has ended. This is its last
      known state.</p>`}
    <${Facts} list=${[
      ["ID", html`<span class="id">${hexID(lease.id)}</span>`],
      ["name", named(lease.name)],
      ["owner", named(lease.owner)],
      ["user", named(lease.principal)],
      ["state", ended ? "ended" : stateMark(stateOf(known || lease, live.upTo()))],
      ["time left, at least", ended ? "nothing" : timeLeft(lease)],
      ["TTL", seconds(lease.ttl_ms)],
      ["token", lease.token],
      ["lock delay", seconds(lease.lock_delay_ms)],
      ["at expiry", lease.at_expiry === "AT_EXPIRY_KEEP" ? "its keys stay" : "its keys are deleted"],
      lease.bound && ["bound", "it ends with its key"],
    ]} />
    ${mayAct && !ended && html`<div class="tools">
      <button onClick=${after(renew)}>Renew</button>
      <button onClick=${after(changeTTL)}>Change the TTL</button>
      <button class="act" onClick=${after(revoke)}>Revoke</button></div>`}
    <h2>Labels</h2>
    ${Object.keys(lease.labels || {}).length === 0 ? html`<p class="faint">none</p>` : html`<ul>
      ${Object.entries(lease.labels).sort().map(([k, v]) => html`<li key=${k}>
        ${named(k)} = ${named(v)}</li>`)}</ul>`}
    <h2>Keys (${lease.key_count || 0})</h2>
    ${keys.length === 0 ? html`<p class="faint">none</p>` : html`<ul class="keys">
      ${keys.slice(0, 500).map((k) => html`<li key=${k}><a href=${"#/keys/" +
        inAddress(k) + "/key"}>${named(shown64(k))}</a></li>`)}
      ${keys.length > 500 && html`<li>and ${keys.length - 500} more</li>`}</ul>`}
    ${(lease.holds || []).length > 0 && html`<h2>Ranges that its cache may hold</h2><ul>
      ${lease.holds.map((h) => html`<li>${named(range(h))}</li>`)}</ul>`}
    ${past}`;
}
