// The health of the cluster in one word, by the rules of "leasehold status". That command asks
// every member; a page can ask only the member that serves it, or the one behind its relay, and
// relies on what that member knows.

import { get, relay, server } from "./api.js";

// lagEntries and fullPart are the thresholds of the command.
const lagEntries = 10_000;
const fullPart = 0.8;

// parse parses the text of /metrics. It returns a function from a name to a list of {labels,
// value}.
function parse(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    const m = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!m) continue;
    const labels = {};
    for (const [, k, v] of (m[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[k] = v.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    if (!out.has(m[1])) out.set(m[1], []);
    out.get(m[1]).push({ labels, value: Number(m[3]) });
  }
  return (name) => out.get(name) || [];
}

// asked names the member that was asked.
export const asked = relay ? "the member behind this relay" : "this member";

// metricsNow fetches the metrics of the member or the relay.
export const metricsNow = async () => parse((await get("metrics")).text);

// sum adds up the values of one metric.
export const sum = (metrics, name) =>
  metrics(name).reduce((n, x) => n + x.value, 0);

// judge returns the word and the reasons. Arguments: health, the response of /health; status, the
// response of /v3/maintenance/status, or null; metrics; and members, a list of {id, name} in hex.
// The metrics of a relay do not describe the cluster, so behind a relay judge uses the status,
// which requires a login.
export function judge({ health, status, metrics, members }) {
  const reasons = [];
  const name = (id) => members.find((m) => m.id === id)?.name || id;
  let down = false;
  if (health.health !== "true" && !/^ALARM/.test(health.reason || "")) {
    down = true;
    reasons.push("it is not serving: " + (health.reason || `the ${server} gives no reason`));
  }
  if (relay ? status && Number(status.leader || 0) === 0 : sum(metrics, "etcd_server_has_leader") === 0) {
    down = true;
    reasons.push(asked + " has no leader");
  }
  for (const { labels, value } of metrics("etcd_network_active_peers")) {
    if (value === 0) reasons.push(name(labels.Remote) + " is not connected to this member");
  }
  for (const { labels, value } of metrics("leasehold_member_lag_entries")) {
    if (value > lagEntries) reasons.push(name(labels.member) + " is " + value + " entries behind");
  }
  const behind = relay ? Number(status?.raftIndex || 0) - Number(status?.raftAppliedIndex || 0)
    : sum(metrics, "etcd_server_proposals_committed_total") - sum(metrics, "etcd_server_proposals_applied_total");
  if (behind > lagEntries) reasons.push(asked + " is " + behind + " entries behind");
  const quota = Number(status?.dbSizeQuota || 0);
  const state = Number(status?.dbSizeInUse || 0);
  if (quota > 0 && state > fullPart * quota) {
    reasons.push("the state uses " + Math.floor((state * 100) / quota) + "% of the quota");
  }
  for (const { labels, value } of metrics("leasehold_alarm")) {
    if (value > 0) reasons.push("alarm: " + labels.alarm);
  }
  if (sum(metrics, "leasehold_disk_full") > 0) reasons.push("this member's disk is full");
  if (relay) for (const [, alarm] of String(status?.errors).matchAll(/alarm:(\w+)/g)) reasons.push("alarm: " + alarm);
  const word = down ? "down" : reasons.length > 0 ? "degraded" : relay && !status ? "unknown" : "healthy";
  if (word === "unknown") reasons.push(`calls succeed; ${asked} reports its health only to users who are logged in`);
  return { word, reasons };
}
