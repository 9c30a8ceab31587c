// Plan: what "leasehold plan" computes, starting with the numbers of this cluster. The member
// computes it and requires no permission, because the answer reveals nothing about the cluster.

import { call, get, members, quiet, relay } from "./api.js";
import { metricsNow, sum } from "./health.js";
import { live } from "./live.js";
import { asking, Facts, html, Table, trouble, useEffect, useState } from "./parts.js";

// The questions, their titles, and the columns of their answers.
const kinds = [
  ["outage", "Time without a holder after one dies"],
  ["length", "Recommended TTL", "TTLs, renewed after a third, and the recommended one"],
  ["levels", "Leases that depend on each other", "Levels"],
  ["caches", "Caching: break-even", "Load by term"],
  ["capacity", "Capacity", "Limits"],
];

const digits = (v) => Number(v.toPrecision(2));
// read parses the number in a text; that of a slider is known before the response arrives.
const read = (text, i) => {
  if (i.kind !== "duration") return Number(text);
  return /^[\d.]+m?s$/.test(text) ? parseFloat(text) * (text.includes("ms") ? 1e-3 : 1) : i.number;
};
const time = (s) => (s < 1 ? digits(s * 1000) + "ms" : digits(s) + "s");

// sizes returns the size of this cluster and of this member's machine. A relay does not know the
// machines of members, and knows only some leases.
async function sizes() {
  if (!relay) {
    const m = await metricsNow();
    return {
      leases: sum(m, "leasehold_leases"), keys: sum(m, "leasehold_lease_attached_keys"),
      caches: sum(m, "leasehold_caches_open"), quota: sum(m, "etcd_server_quota_backend_bytes"),
      cores: sum(m, "go_sched_gomaxprocs_threads"), files: sum(m, "process_max_fds"),
    };
  }
  const list = [...live.leases.values()];
  const status = await quiet(call("v3/maintenance/status"));
  return {
    leases: list.length, keys: list.reduce((n, l) => n + Number(l.key_count || 0), 0),
    caches: list.filter((l) => l.holds?.length).length, quota: Number(status?.dbSizeQuota || 0),
  };
}

// ours returns the known values of this cluster, by input name.
async function ours() {
  const list = await quiet(members());
  const { leases, keys, caches, quota, cores, files } = await sizes();
  const ttls = [...live.leases.values()].map((l) => Number(l.ttl_ms)).sort((a, b) => a - b);
  const ttl = ttls.length > 0 && { ttl: ttls[ttls.length >> 1] / 1000 + "s" };
  return {
    outage: { ...ttl },
    length: { leases },
    levels: { core: ttl.ttl },
    caches: { caches },
    capacity: {
      ...ttl, leases, keys: leases && digits(keys / leases), members: list?.length, cores, files,
      quota: +(quota / 2 ** 30).toFixed(2), tls: location.protocol === "https:",
    },
  };
}

// Field shows one input. Its slider ranges from a hundredth of the first value to a hundred times
// that value.
function Field({ input: i, first, value, known, set }) {
  const hint = "about-" + i.name;
  const put = ({ target: t }) => set(i.kind === "bool" ? String(t.checked) : t.value);
  const all = { "aria-describedby": hint, name: i.name, value, onInput: put };
  let field = html`<input ...${all} spellcheck="false" />`;
  if (i.kind === "bool") field = html`<input ...${all} type="checkbox" checked=${value === "true"} />`;
  if (i.choices) {
    field = html`<select ...${all}>${i.choices.map((c) => html`<option value=${c}>${c}</option>`)}</select>`;
  }
  const slides = first > 0 && i.kind !== "int";
  const at = Math.round(20 * Math.log10(read(value, i) / first));
  const to = (v) => (i.kind === "duration" ? time(v) : String(digits(v)));
  return html`<div><label>${i.name}${known && " (of this cluster)"} ${field}</label>
    ${slides && html`<input type="range" aria-label=${i.name + ", slider"} aria-valuetext=${value}
      min="-40" max="40" value=${Math.max(-40, at || 0)}
      onInput=${(e) => set(to(first * 10 ** (e.target.value / 20)))} />`}
    <small id=${hint}>${i.usage}</small></div>`;
}

export function PlanView({ rest }) {
  const [kind, , rows] = kinds.find(([k]) => k === rest) || kinds[0];
  return html`<nav class="tools" aria-label="Questions">${kinds.map(([k, title]) => html`<a key=${k}
      href=${"#/plan/" + k} aria-current=${k === kind ? "page" : null}>${title}</a>`)}</nav>
    <${Plan} key=${kind} kind=${kind} rows=${rows} />`;
}

function Plan({ kind, rows }) {
  const [known, setKnown] = useState(null);
  const [typed, setTyped] = useState({});
  const [{ answer, query, err, first }, set] = useState({});
  const begin = () => ours().then((all) => {
    setKnown(Object.fromEntries(Object.entries(all[kind]).filter(([, v]) => v).map(([k, v]) => [k, String(v)])));
    setTyped({});
  }, (why) => set({ err: why }));
  useEffect(() => {
    begin();
  }, []);
  const asked = known && String(new URLSearchParams({ ...known, ...typed }));
  useEffect(() => {
    if (asked === null) return;
    let over = false;
    const t = setTimeout(async () => {
      try {
        const r = await get("ui/plan/" + kind + "?" + asked);
        if (r.status !== 200) throw new Error(r.text.trim());
        const got = JSON.parse(r.text);
        if (!over) {
          set((s) => ({
            answer: got, query: asked, first: s.first || Object.fromEntries(got.inputs.map((i) => [i.name, i.number])),
          }));
        }
      } catch (why) {
        if (over) return;
        set((s) => ({ ...s, err: why }));
        if (!answer && asked) setKnown({}); // what this cluster has makes no sense there
      }
    }, 100);
    return () => {
      over = true;
      clearTimeout(t);
    };
  }, [asked]);
  if (!answer) return asking(err);
  return html`<div class="logins">
    <form class="card" onSubmit=${(e) => e.preventDefault()}>
      ${answer.inputs.map((i) => html`<${Field} key=${i.name} input=${i} first=${first[i.name]}
        value=${typed[i.name] ?? known[i.name] ?? i.value} known=${i.name in known && !(i.name in typed)}
        set=${(v) => setTyped((s) => ({ ...s, [i.name]: v }))} />`)}
      <button type="button" onClick=${begin}>Reset to this cluster</button></form>
    <div class="answer" data-asked=${query}>${trouble(err)}
      <ul>${answer.sentences.map((s) => html`<li>${s}</li>`)}</ul>
      ${answer.figures && html`<${Facts} list=${answer.figures} />`}
      ${answer.rows && html`<${Table} title=${rows} head=${answer.head} rows=${answer.rows} />`}</div></div>`;
}
