// The actions of the page. Each one announces its effect, and applies only to what was shown: a
// lease with its token, a key with its mod revision. If that has changed, nothing is done.

import { call } from "./api.js";
import { ask } from "./ask.js";
import { html, named, useEffect, useState } from "./parts.js";
import { queuesOf, readQueue } from "./queues.js";
import { base64, duration, escaped, hexID, onLease, seconds, shown64 } from "./text.js";

const some = 8; // keys that a question names

const refuse = (message) => {
  throw new Error(message);
};

// ttlOf parses the TTL in a form.
function ttlOf(text) {
  const ttl = duration(text);
  return ttl > 0 ? ttl : refuse("The TTL must be a time, such as 10s, 500ms or 2m.");
}

// labelsOf parses labels, one per line.
function labelsOf(text) {
  const out = {};
  for (const line of text.split("\n").map((l) => l.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) refuse("A label must be name=value: " + escaped(line));
    out[line.slice(0, at)] = line.slice(at + 1);
  }
  return out;
}

const ttlHint = "seconds, or with a unit: 500ms, 2m, 1h";

// grant grants a lease, to try things out or to reserve a name for a while.
export const grant = () => ask({
  title: "Grant a lease",
  text: "The lease will be yours. This page does not renew it: it ends after its TTL " +
    "unless another program renews it by its ID and token.",
  fields: [
    { name: "ttl", label: "TTL", value: "60s", hint: ttlHint },
    { name: "name", label: "Name", hint: "may be empty; unique among live leases" },
    { name: "owner", label: "Owner", hint: "may be empty" },
    { name: "labels", label: "Labels", kind: "lines", hint: "name=value, one per line" },
  ],
  verb: "Grant",
  act: async (f) => {
    const r = await call("v1/leases/grant", {
      ttl_ms: ttlOf(f.ttl), name: f.name, owner: f.owner, labels: labelsOf(f.labels),
    });
    location.hash = "#/lease/" + hexID(r.lease.id);
  },
});

// going describes which keys are deleted with a lease, for a confirmation.
const going = (l) => {
  const n = Number(l.key_count || 0);
  if (n === 0) return html`<p>It has no keys.</p>`;
  const list = (l.keys || []).slice(0, some);
  return html`<p>${n === 1 ? "1 key goes" : n + " keys go"} with it:</p>
    <ul>${list.map((k) => html`<li>${named(shown64(k))}</li>`)}
    ${n > list.length && html`<li>and ${n - list.length} more</li>`}</ul>`;
};

// waiters counts the waiters for what a lease holds: for locks and elections.
async function waiters(l) {
  let n = 0;
  for (const q of queuesOf((l.keys || []).map((key) => ({ key, lease: l.id })))) {
    const { queue } = await readQueue(q, true);
    if (queue?.holder?.lease === l.id) n += queue.waiters.length;
  }
  return n;
}

// Waiters shows who is next when a lease ends.
function Waiters({ lease }) {
  const [n, set] = useState("asking");
  useEffect(() => {
    waiters(lease).then(set, () => set("not known"));
  }, []);
  return html`<p role="status">Waiters for what it holds: ${n}.${
    n > 0 && " The next in each queue gets its turn."}</p>`;
}

const refusals = {
  REASON_LEASE_NOT_FOUND: "Nothing was done: the lease has ended, or its token is not the one shown.",
  REASON_PERMISSION_DENIED: "You are not permitted to do this. Nothing was done.",
  REASON_UNKNOWN_OUTCOME: "It is unknown whether this was done. Check before you repeat it.",
};

// told throws an error for the reason in one lease's result.
function told(reason = "REASON_UNSPECIFIED") {
  if (reason === "REASON_UNSPECIFIED") return;
  refuse(refusals[reason] || "Nothing was done (" + reason.replace("REASON_", "").toLowerCase() + "). Try again.");
}

// revoke revokes a lease that is shown.
export const revoke = (l) => ask({
  title: "Revoke lease " + hexID(l.id),
  text: html`<p>The lease ends now, regardless of its remaining time. Its holder
    ${" "}${named(l.owner || "(no owner)")} finds out at its next renewal, and
    may continue until then.</p>
    ${l.name && html`<p>Its name is free immediately: ${named(l.name)}</p>`}
    ${going(l)}<${Waiters} lease=${l} />`,
  verb: "Revoke",
  act: async () => {
    const r = await call("v1/leases/revoke", { leases: [{ id: l.id, token: l.token }] });
    told(r.results?.[0]?.reason);
  },
});

// renew restarts the full TTL of a lease that is shown.
export const renew = (l) => ask({
  title: "Renew lease " + hexID(l.id),
  text: "The lease lives for " + seconds(l.ttl_ms) + " from now, even if its holder is gone: others wait that long " +
    "for what it holds.",
  verb: "Renew",
  act: async () => {
    const r = await call("v1/leases/renew", { leases: [{ id: l.id, token: l.token }] });
    told(r.results?.[0]?.reason);
  },
});

// changeTTL changes the TTL of a lease that is shown.
export const changeTTL = (l) => ask({
  title: "Change the TTL of lease " + hexID(l.id),
  text: html`<p>Changes the TTL, and restarts it now. Its holder counts by the old
    one until it finds out about the change: a shorter TTL may end the lease while the holder still relies on
    it. Do this only if the holder expects it.</p>`,
  fields: [{
    name: "ttl", label: "TTL", value: Number(l.ttl_ms || 0) / 1000 + "s", hint: ttlHint,
  }],
  verb: "Change",
  act: async (f) => {
    const lease = { id: l.id, token: l.token };
    await call("v1/leases/ttl", { lease, ttl_ms: ttlOf(f.ttl) });
  },
});

// txn applies an operation to a key if the key still has the given mod revision; 0 means that it
// does not exist.
async function txn(key, revision, op) {
  const r = await call("v1/store/txn", {
    compare: [{ relation: "RELATION_EQUAL", key, mod_revision: String(revision) }],
    success: [op],
  });
  if (!r.succeeded) refuse("Nothing was done: the key has changed since it was shown.");
}

// deleteKey deletes a key that is shown.
export const deleteKey = (kv) => ask({
  title: "Delete a key",
  text: html`<p>Deletes the key, unless it has changed since it was shown:</p>
    <p>${named(shown64(kv.key))}</p>
    ${onLease(kv) && html`<p>It is on lease ${hexID(kv.lease)}. If it is a ticket
      of a lock or an election, its holder loses it immediately.</p>`}`,
  verb: "Delete",
  act: () => txn(kv.key, kv.mod_revision, { delete_range: { key: kv.key } }),
});

// putKey changes the value of a key that is shown. The key keeps its lease.
export const putKey = (kv, text) => ask({
  title: "Change the value",
  text: html`<p>Sets this value, unless the key has changed since it was shown. Its lease
    does not change.</p><p>${named(shown64(kv.key))}</p>`,
  fields: [{ name: "value", label: "Value", kind: "lines", value: text }],
  verb: "Put",
  act: (f) => txn(kv.key, kv.mod_revision, {
    put: { key: kv.key, value: base64(f.value), ignore_lease: true },
  }),
});

// newKey creates a key.
export const newKey = (prefix) => ask({
  title: "Put a new key",
  text: "Creates a key without a lease. If the key exists already, nothing is done.",
  fields: [
    { name: "key", label: "Key", value: prefix },
    { name: "value", label: "Value", kind: "lines" },
  ],
  verb: "Put",
  act: (f) => {
    if (!f.key) refuse("The key must not be empty.");
    const key = base64(f.key);
    return txn(key, 0, { put: { key, value: base64(f.value) } });
  },
});
