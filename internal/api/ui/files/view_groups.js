// Members, queues, pools and nodes: what the Go client library keeps for programs that share work.

import { html, useRef, useState } from "./vendor/htm-preact.js";
import { call } from "./api.js";
import { groupsOf, poolOf } from "./groups.js";
import { live, now } from "./live.js";
import {
  Choice, Facts, holder, leaseLink, left, named, Search, stateMark, Table, trouble, useChanges, usePolling,
} from "./parts.js";
import { ask, oneOf, rangeOf, read } from "./read.js";
import { clock, decoded, fromAddress, fromBase64, inAddress, number, shown, span, utf8 } from "./text.js";

// A page of the things of one group. Each may have a value, so it is not long.
const pageSize = 50;

const nth = (n, word) => number(n) + " " + word + (n === 1 ? "" : "s");

const keyOf = (kv) => decoded(fromBase64(kv.key)) ?? "";
const lastPart = (key) => key.slice(key.lastIndexOf("/") + 1);

// below leaves out what belongs to another group, whose name is longer.
const below = (kvs, prefix) => kvs.filter((kv) => !keyOf(kv).slice(prefix.length).includes("/"));

// value shows the beginning of a value.
const value = (kv) => named(shown(fromBase64(kv?.value).slice(0, 200)));

function summary({ kind, kvs, counts: n }) {
  switch (kind) {
    case "members":
      return nth(kvs.length, "member");
    case "queue":
      return nth(n.item || 0, "item") + ", " + number(n.claim) + " of them claimed or delayed" +
        (n.dead ? "; " + nth(n.dead, "dead letter") : "");
    case "pool":
      return number(n.held) + " lent";
    default:
      return number(n.up) + " up" + (n.known > (n.up || 0) ? ", " + number(n.known - (n.up || 0)) + " down" : "");
  }
}

export function GroupsView({ rest }) {
  useChanges();
  const [prefix, setPrefix] = useState("");
  const [kind, setKind] = useState("");
  const [{ all, more, at }, set] = useState({});
  const seen = useRef(null); // by key and its create revision: when the page first saw it
  const err = usePolling(async (signal) => {
    const asked = now();
    const r = await read(utf8(prefix), true, signal);
    const next = new Map();
    for (const kv of r.kvs) {
      const k = kv.key + kv.create_revision;
      next.set(k, seen.current ? seen.current.get(k) ?? Date.now() : 0);
    }
    seen.current = next;
    set({ all: groupsOf(r.kvs), more: r.more, at: asked });
  }, 3000, [prefix]);
  // since says when something came, as far as the page knows: a key has no time of day.
  const since = (kv) => {
    const at = clock(seen.current?.get(kv.key + kv.create_revision));
    return "revision " + kv.create_revision + (at && ", " + at);
  };
  const list = all?.filter((g) => !kind || g.kind === kind);
  const [openKind, name] = rest.split("/");
  const open = name ? new TextDecoder().decode(fromAddress(name)) : null;
  const chosen = open === null ? null : all?.find((g) => g.kind === openKind && g.name === open);
  const Detail = details[openKind];
  return html`
    <div class="tools" role="search"><${Search} label="Keys that begin with" value=${prefix} set=${(v) => {
      seen.current = null;
      setPrefix(v);
    }} /><${Choice} label="Kind" value=${kind} set=${setKind}
      list=${["", ...Object.keys(details)].map((k) => [k, k || "all"])} /></div>
    ${trouble(err)}
    ${!list ? html`<p>Asking.</p>` : html`
      <p class="faint" data-count=${list.length}>${number(list.length)} found among the keys, as of
        ${" "}${span(now() - at)} ago.
        ${more ? " There are more keys than the page looks through: give a prefix." : ""}
        ${" "}A key on a lease is a member of the group that its name begins with, whatever program
        put it.</p>
      <${Table} title="Members, queues, pools and nodes" head=${["name", "kind", "what is in it"]}
        rows=${list.slice(0, 1000).map((g) => [
          html`<a href=${"#/groups/" + g.kind + "/" + inAddress(utf8(g.name))}
            aria-current=${g === chosen ? "true" : null}>${named(g.name)}</a>`,
          g.kind, summary(g)])} />`}
    ${open !== null && all && !chosen && html`<p>Nothing is in ${named(open)} now.</p>`}
    ${chosen && Detail && html`<${Detail} key=${openKind + " " + name} group=${chosen} since=${since} />`}`;
}

// usePage reads one page of a group again and again: look(from, signal) returns it, with next for
// the one after it.
function usePage(look) {
  const [from, go] = useState("");
  const [page, set] = useState(null);
  const err = usePolling(async (signal) => {
    const got = await look(from, signal);
    if (!signal.aborted) set(got);
  }, 2000, [from]);
  const turn = html`${trouble(err)}${(from || page?.next) && html`<div class="tools">
    <button disabled=${!from} onClick=${() => go("")}>First page</button>
    <button disabled=${!page?.next} onClick=${() => go(page.next)}>Next page</button></div>`}`;
  return [page, page || err ? turn : html`<p>Asking.</p>`];
}

function Members({ group, since }) {
  const latest = useRef(group);
  latest.current = group;
  const [page, turn] = usePage(async (from, signal) => {
    const all = latest.current.kvs.filter((kv) => kv.id > from);
    const list = all.slice(0, pageSize);
    const values = list.length ? await ask(list.map((kv) => oneOf(keyOf(kv))), signal) : [];
    await live.ask(list.map((kv) => kv.lease), signal);
    return {
      list: list.map((kv, i) => ({ ...kv, ...values[i].kvs[0] })),
      next: all.length > pageSize ? list[pageSize - 1].id : "",
    };
  });
  return html`<h2>Members of ${named(group.name)}</h2>
    ${page && html`<${Table} title="Members"
      head=${["ID", "lease", "since", "time left, at least", "metadata"]}
      rows=${page.list.map((kv) => [named(kv.id), holder(kv.lease), since(kv), left(kv.lease), value(kv)])} />`}
    ${turn}`;
}

function Queue({ group, since }) {
  const [dead, setDead] = useState(false);
  return html`<h2>Queue ${named(group.name)}</h2>
    <div class="tools"><label><input type="checkbox" checked=${dead}
      onChange=${(e) => setDead(e.target.checked)} /> dead letters</label></div>
    <${Items} key=${dead} base=${group.name + "/"} dead=${dead} since=${since} />`;
}

function Items({ base, dead, since }) {
  const kind = base + (dead ? "dead/" : "item/");
  const [page, turn] = usePage(async (from, signal) => {
    const of = (prefix) => rangeOf(prefix, from && prefix + from, pageSize + 1);
    // Claims and tries are of items, so the first of them are those of the first items.
    const [items, claims, tries] = await ask([kind, base + "claim/", base + "try/"].map(of), signal);
    const by = (found) => new Map(found.kvs.map((kv) => [lastPart(keyOf(kv)), kv]));
    const [claim, tried] = [by(claims), by(tries)];
    const list = below(items.kvs.slice(0, pageSize), kind).map((kv) => {
      const id = lastPart(keyOf(kv));
      const c = claim.get(id);
      const state = !c ? "ready" : c.value ? "claimed" : "delayed";
      return { kv, id, c, state, tries: tried.get(id)?.version || "0" };
    });
    await live.ask(list.filter((x) => x.c).map((x) => x.c.lease), signal);
    const next = items.kvs[pageSize];
    return { list, next: next ? keyOf(next).slice(kind.length) : "" };
  });
  if (!page) return turn;
  if (page.list.length === 0 && !page.next) {
    return html`<p>${dead ? "There are no dead letters." : "No item waits, and none is claimed."}</p>${turn}`;
  }
  const id = (x) => html`<span class="id">${x.id}</span>`;
  if (dead) {
    return html`<${Table} title="Dead letters" head=${["item", "since", "payload"]}
      rows=${page.list.map((x) => [id(x), since(x.kv), value(x.kv)])} />${turn}`;
  }
  return html`<${Table} title="Items, in the order in which they are worked on"
    head=${["item", "state", "by", "lease", "time left, at least", "since", "tries", "payload"]}
    rows=${page.list.map((x) => [
      id(x), stateMark(x.state), value(x.c), x.c ? leaseLink(x.c.lease) : "",
      x.c ? left(x.c.lease) : "", since(x.kv), x.tries, value(x.kv)])} />
    ${turn}`;
}

function Pool({ group }) {
  const base = group.name + "/";
  const [page, turn] = usePage(async (from, signal) => {
    const asked = now();
    const [[ids], leases] = await Promise.all([
      ask([oneOf(base + "ids")], signal),
      call("v1/leases/list", { name_prefix: base + "held/", page_size: pageSize, page_token: from }, signal),
    ]);
    const list = (leases.leases || []).filter((l) => !l.name.slice(base.length + 5).includes("/"));
    for (const l of list) live.learn(l, asked);
    return { pool: poolOf(fromBase64(ids.kvs[0]?.value)), list, next: leases.next_page_token };
  });
  // Who had the values that are free.
  const [past, turnPast] = usePage(async (from, signal) => {
    const [was] = await ask([rangeOf(base + "was/", from, pageSize + 1)], signal);
    const kvs = below(was.kvs.slice(0, pageSize), base + "was/");
    const held = await ask(kvs.map((kv) => oneOf(base + "held/" + lastPart(keyOf(kv)))), signal);
    return {
      list: kvs.filter((kv, i) => held[i].kvs.length === 0),
      next: was.kvs.length > pageSize ? keyOf(was.kvs[pageSize]) : "",
    };
  });
  if (page && !page.pool) {
    return html`<h2>${named(group.name)}</h2><p>This is no pool: the value of its key
      ids is not one that the client library wrote.</p>`;
  }
  const lent = group.counts.held || 0;
  const free = page?.pool.size - lent;
  return html`<h2>Pool ${named(group.name)}</h2>
    ${page && html`<${Facts} list=${[
      ["values", named(page.pool.text.slice(0, 2000))],
      ["lent", number(lent)],
      ["free", free >= 0 ? number(free) : "not known"],
      page.pool.quarantine > 0 && ["kept back after a holder's death", span(page.pool.quarantine)],
    ]} />
    ${page.list.length === 0 ? html`<p>None is lent.</p>` : html`<${Table} title="Lent"
      head=${["value", "state", "to", "token", "time left, at least"]}
      rows=${page.list.map((l) => [named(l.name.slice(base.length + 5)),
        l.delayed ? "kept back: its holder died" : "lent", holder(l.id), l.token, left(l.id)])} />`}`}${turn}
    ${past && past.list.length > 0 && html`<${Table} title="Free, and held before"
      head=${["value", "last held by"]}
      rows=${past.list.map((kv) => [named(lastPart(keyOf(kv))), value(kv)])} />`}${past && turnPast}`;
}

function Nodes({ group }) {
  const base = group.name + "/";
  const [page, turn] = usePage(async (from, signal) => {
    const asked = now();
    const [[known, order], up, role] = await Promise.all([
      ask([rangeOf(base + "known/", from, pageSize + 1), oneOf(base + "order")], signal),
      call("v1/leases/list", { name_prefix: base + "up/" }, signal),
      call("v1/leases/list", { name_prefix: base + "primary", page_size: 1 }, signal),
    ]);
    const leases = up.leases || [];
    const primary = (role.leases || []).find((l) => l.name === base + "primary" && !l.delayed);
    for (const l of leases.concat(primary || [])) live.learn(l, asked);
    const byID = new Map(leases.filter((l) => !l.delayed).map((l) => [l.name.slice(base.length + 3), l]));
    const nodes = below(known.kvs.slice(0, pageSize), base + "known/").map((kv) => ({ id: lastPart(keyOf(kv)), kv }));
    // A node that has just come is not noted yet.
    for (const id of byID.keys()) {
      if (!from && known.kvs.length <= pageSize && !nodes.some((n) => n.id === id)) nodes.push({ id });
    }
    return {
      nodes: nodes.map((n) => ({ ...n, lease: byID.get(n.id) })), primary,
      order: decoded(fromBase64(order.kvs[0]?.value)),
      next: known.kvs.length > pageSize ? keyOf(known.kvs[pageSize]) : "",
    };
  });
  // As package nodes has it: a healthy node renews when two thirds are left.
  const state = (l) => {
    if (!l) return "down";
    return Number(l.remaining_ms || 0) < Number(l.ttl_ms) / 2 ? "suspect" : "alive";
  };
  const part = (n) => [
    page.primary?.owner === n.id && "primary", page.order === n.id && "ordered to be the next",
  ].filter(Boolean).join(", ");
  return html`<h2>Nodes ${named(group.name)}</h2>
    ${page && html`<${Facts} list=${[
      ["primary", page.primary ? named(page.primary.owner) : "none"],
      page.primary && ["token of the role", page.primary.token],
      page.primary && ["the role's lease", holder(page.primary.id)],
      page.primary && ["time left, at least", left(page.primary.id)],
    ]} /><${Table} title="Nodes"
      head=${["ID", "state", "role", "lease", "token", "time left, at least", "metadata"]}
      rows=${page.nodes.map((n) => [named(n.id), stateMark(state(n.lease)), part(n),
        n.lease ? holder(n.lease.id) : "", n.lease?.token || "", n.lease ? left(n.lease.id) : "",
        value(n.kv)])} />`}${turn}`;
}

const details = { members: Members, queue: Queue, pool: Pool, nodes: Nodes };
