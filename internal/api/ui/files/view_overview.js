// Overview: the health, the members and the load of the cluster.

import { call, get, members, quiet, relay, server } from "./api.js";
import { asked, judge, metricsNow, sum } from "./health.js";
import { live, now } from "./live.js";
import { asking, Facts, html, named, Table, trouble, useChanges, usePolling } from "./parts.js";
import { escaped, memberID, number, object, size, span } from "./text.js";

// counters are the metrics whose rates are shown.
const counters = relay ? [
  ["calls and streams", "leasehold_relay_calls_total"],
  ["renewals by groups", "leasehold_relay_renewals_total"],
] : [
  ["grants", "leasehold_leases_granted_total"],
  ["renewals", "leasehold_lease_renewals_total"],
  ["expiries", "leasehold_leases_expired_total"],
  ["revokes", "leasehold_leases_revoked_total"],
  ["syncs of the log", "leasehold_log_sync_duration_seconds_count"],
  ["log entries", "etcd_server_proposals_applied_total"],
];

async function look() {
  const [health, metrics, version, status, list] = await Promise.all([
    get("health"), metricsNow(), quiet(get("version")), quiet(call("v3/maintenance/status")), quiet(members()),
  ]);
  const found = {
    at: now(), metrics, status, version: object(version?.text) || {},
    health: object(health.text) || { health: "false", reason: "/health returned status " + health.status },
    members: list || [],
  };
  return { ...found, ...judge(found) };
}

function Members({ found }) {
  const own = memberID(found.status?.header?.member_id);
  const leader = memberID(found.status?.leader);
  const by = (label, name) => new Map(found.metrics(name).map((x) => [x.labels[label], x.value]));
  const peers = by("Remote", "etcd_network_active_peers");
  const lags = by("member", "leasehold_member_lag_entries");
  const role = (m) => (m.learner ? "learner" : m.id === leader ? "leader" : "voter");
  const state = (m) => {
    if (relay) return m.id === own ? "receives calls" : "";
    if (m.id === own) return "this one";
    if (!peers.has(m.id)) return "unknown";
    return peers.get(m.id) ? "connected" : "not connected";
  };
  return html`<${Table} title="Members"
    head=${["name", "ID", "role", relay ? "this relay's" : "seen from here", "entries behind", "address"]}
    rows=${found.members.map((m) => [named(m.name), html`<span class="id">${m.id}</span>`, role(m),
      state(m), lags.has(m.id) ? number(lags.get(m.id)) : "", m.urls.map((u) => (/^https?:/.test(u)
        ? html`<a href=${new URL("ui/", u).href} rel="noreferrer">${u}</a> ` : u + " "))])} />`;
}

// Rates shows the rates between two readings of the metrics.
function Rates({ found, before }) {
  const seconds = before ? (found.at - before.at) / 1000 : 0;
  const rate = (name) => {
    if (!before) return "asking";
    const n = sum(found.metrics, name) - sum(before.metrics, name);
    // If a counter falls, the process has restarted.
    return n < 0 ? "unknown" : (n / seconds).toFixed(1) + " /s";
  };
  return html`<h2>Rates of this ${server}</h2>
    <${Facts} list=${counters.map(([word, name]) => [word, rate(name)])} />`;
}

// mostly returns what 99% of the values of a histogram did not exceed since the member started, or
// the highest bound if they did: the last bucket has none.
export function mostly(metrics, name) {
  const all = sum(metrics, name + "_count");
  if (all === 0) return "none yet";
  const bounds = metrics(name + "_bucket").filter((b) => b.labels.le !== "+Inf");
  const within = bounds.find((b) => b.value >= 0.99 * all);
  const s = Number((within || bounds.at(-1)).labels.le);
  return (within ? "within " : "over ") + (s < 1 ? Number((s * 1000).toPrecision(3)) + " ms" : span(s * 1000));
}

// backup shows the age of the newest full backup. Only a member that makes backups knows it.
function backup(metrics) {
  const last = metrics("leasehold_backup_last_full_timestamp_seconds")[0]?.value;
  if (last === undefined) return "this member makes none";
  return last > 0 ? span(Date.now() - last * 1000) + " old" : "none yet";
}

// figures are the figures of a member, from its metrics.
function figures({ metrics }) {
  const of = (name) => sum(metrics, name);
  const overdue = of("leasehold_lease_overdue_seconds");
  return [
    ["live leases", number(of("leasehold_leases"))],
    ["keys", number(of("etcd_debugging_mvcc_keys_total"))],
    ["revision", number(of("leasehold_store_revision"))],
    ["term", number(of("leasehold_raft_term"))],
    ["state", size(of("leasehold_state_bytes")) + " of " + size(of("etcd_server_quota_backend_bytes"))],
    ["on disk", size(of("leasehold_disk_bytes"))],
    ["newest backup", backup(metrics)],
    ["log sync, p99", mostly(metrics, "leasehold_log_sync_duration_seconds")],
    ["expiry lateness, p99", mostly(metrics, "leasehold_lease_expiry_lateness_seconds")],
    ["longest overdue lease", overdue > 0 ? span(overdue * 1000) : "none"],
  ];
}

// relayed are the figures of a relay: those of the member behind it that a user may see, and its
// own.
const relayed = ({ metrics, status }) => [
  ["live leases that you may see", live.state === "live" ? number(live.leases.size) : "unknown"],
  ...(status ? [
    ["revision", number(status.header.revision)],
    ["term", number(status.raftTerm)],
    ["state", size(status.dbSizeInUse) + " of " + size(status.dbSizeQuota)],
  ] : []),
  ["calls and streams in progress", number(sum(metrics, "leasehold_relay_open_calls"))],
  ["watches that can be merged", number(sum(metrics, "leasehold_relay_watches"))],
  ["shared watches at the member", number(sum(metrics, "leasehold_relay_shared_watches"))],
];

export function Overview() {
  useChanges();
  const [{ found, before } = {}, err] = usePolling(async (_, last) => (
    { found: await look(), before: last?.found }), 4000);
  if (!found) return asking(err);
  const v = found.version.leasehold || {};
  return html`
    ${trouble(err)}
    <p class=${"verdict " + found.word}>${found.word}${" "}
      <small>as of ${span(now() - found.at)} ago, as ${asked} sees it</small></p>
    ${found.reasons.length > 0 && html`<ul>
      ${found.reasons.map((r) => html`<li key=${r}>${escaped(r)}</li>`)}</ul>`}
    ${relay && html`<p>This is a relay. It forwards what a member reports, and keeps nothing. Members have more
      figures, such as how long syncs take, how late expiries are and how old the newest backup is: see their
      pages.</p>`}
    <${Facts} list=${[
      ...(relay ? relayed(found) : figures(found)),
      ["release", v.release ? v.release + (relay ? ", of this relay" : ", cluster version " + v.cluster)
        : "unknown"],
    ]} />
    <${Members} found=${found} />
    <${Rates} found=${found} before=${before} />`;
}
