// Members, queues, pools and nodes: what the Go client library keeps for programs that share work.

import { groupsOf, poolOf } from "./groups.js";
import { live } from "./live.js";
import {
  asking, Choice, Facts, holder, html, leaseLink, left, named, stateMark, Table, trouble, useChanges, useFound,
  usePolling, useState, value,
} from "./parts.js";
import { ask, oneOf, rangeOf } from "./read.js";
import { base64, decoded, fromAddress, fromBase64, inAddress, keyOf, number, span } from "./text.js";

// The size of a page of one group. It is small, because each entry may have a value.
const pageSize = 50;

const nth = (n, word) => number(n) + " " + word + (n === 1 ? "" : "s");

const lastPart = (kv) => keyOf(kv).split("/").at(-1);

// pageOf is the operation that reads a page of the keys with a prefix, and cut extracts the page
// from the result. Keys of another group with a longer name are left out.
const pageOf = (prefix, from) => rangeOf(prefix, from && prefix + from, pageSize + 1);
const cut = ({ kvs }, prefix) => ({
  list: kvs.slice(0, pageSize).filter((kv) => !keyOf(kv).slice(prefix.length).includes("/")),
  next: kvs.length > pageSize ? keyOf(kvs[pageSize]).slice(prefix.length) : "",
});

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
  const [kind, setKind] = useState("");
  const { list: all, err, search, age, since } = useFound(groupsOf, (_, kvs) => kvs);
  const list = all?.filter((g) => !kind || g.kind === kind);
  const [openKind, name] = rest.split("/");
  const open = name ? decoded(fromAddress(name)) : null;
  const chosen = all?.find((g) => g.kind === openKind && g.name === open);
  const Detail = details[openKind];
  return html`
    <div class="tools" role="search">${search}<${Choice} label="Kind" value=${kind} set=${setKind}
      list=${["", ...Object.keys(details)].map((k) => [k, k || "all"])} /></div>
    ${!list ? asking(err) : html`${trouble(err)}
      <p class="faint" data-count=${list.length}>${number(list.length)} found among the keys, ${age}
        ${" "}A key on a lease is a member of the group that its name begins with, regardless of which program
        put it.</p>
      <${Table} title="Members, queues, pools and nodes" head=${["name", "kind", "content"]}
        rows=${list.slice(0, 1000).map((g) => [
          html`<a href=${"#/groups/" + g.kind + "/" + inAddress(base64(g.name))}
            aria-current=${g === chosen ? "true" : null}>${named(g.name)}</a>`,
          g.kind, summary(g)])} />`}
    ${open !== null && all && !chosen && html`<p>Nothing is in ${named(open)} now.</p>`}
    ${chosen && Detail && html`<${Detail} key=${openKind + " " + name} group=${chosen} since=${since} />`}`;
}

// usePage reads one page of a group repeatedly: look(from, signal) returns it, with next for the
// one after it.
function usePage(look) {
  const [from, go] = useState("");
  const [page, err] = usePolling((signal) => look(from, signal), 2000, [from]);
  const turn = html`${trouble(err)}${(from || page?.next) && html`<div class="tools">
    <button disabled=${!from} onClick=${() => go("")}>First page</button>
    <button disabled=${!page?.next} onClick=${() => go(page.next)}>Next page</button></div>`}`;
  return [page, page ? turn : asking(err)];
}

function Members({ group, since }) {
  const [page, turn] = usePage(async (from, signal) => {
    const all = group.kvs.filter((kv) => kv.id > from);
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
    // Claims and tries belong to items, so the first of them belong to the first items.
    const [items, claims, tries] = await ask(
      [kind, base + "claim/", base + "try/"].map((prefix) => pageOf(prefix, from)), signal);
    const by = (found) => new Map(found.kvs.map((kv) => [lastPart(kv), kv]));
    const [claim, tried] = [by(claims), by(tries)];
    const page = cut(items, kind);
    const list = page.list.map((kv) => {
      const id = lastPart(kv);
      const c = claim.get(id);
      const state = !c ? "ready" : c.value ? "claimed" : "delayed";
      return { kv, id, c, state, tries: tried.get(id)?.version || "0" };
    });
    await live.ask(list.filter((x) => x.c).map((x) => x.c.lease), signal);
    return { list, next: page.next };
  });
  if (!page) return turn;
  if (page.list.length === 0 && !page.next) {
    return html`<p>${dead ? "No dead letters." : "No items are waiting or claimed."}</p>${turn}`;
  }
  const id = (x) => html`<span class="id">${x.id}</span>`;
  if (dead) {
    return html`<${Table} title="Dead letters" head=${["item", "since", "payload"]}
      rows=${page.list.map((x) => [id(x), since(x.kv), value(x.kv)])} />${turn}`;
  }
  return html`<${Table} title="Items, in processing order"
    head=${["item", "state", "by", "lease", "time left, at least", "since", "tries", "payload"]}
    rows=${page.list.map((x) => [
      id(x), stateMark(x.state), value(x.c), x.c && leaseLink(x.c.lease), x.c && left(x.c.lease),
      since(x.kv), x.tries, value(x.kv)])} />
    ${turn}`;
}

function Pool({ group }) {
  const base = group.name + "/";
  const [page, turn] = usePage(async (from, signal) => {
    const [[ids], { leases, next }] = await Promise.all([
      ask([oneOf(base + "ids")], signal),
      live.list({ name_prefix: base + "held/", page_size: pageSize, page_token: from }, signal),
    ]);
    const list = leases.filter((l) => !l.name.slice(base.length + 5).includes("/"));
    return { pool: poolOf(fromBase64(ids.kvs[0]?.value)), list, next };
  });
  // The last holders of the free values.
  const [past, turnPast] = usePage(async (from, signal) => {
    const [was] = await ask([pageOf(base + "was/", from)], signal);
    const { list, next } = cut(was, base + "was/");
    const held = await ask(list.map((kv) => oneOf(base + "held/" + lastPart(kv))), signal);
    return { list: list.filter((_, i) => held[i].kvs.length === 0), next };
  });
  if (page && !page.pool) {
    return html`<h2>${named(group.name)}</h2><p>This is not a pool: the value of its key
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
    ${page.list.length === 0 ? html`<p>None are lent.</p>` : html`<${Table} title="Lent"
      head=${["value", "state", "to", "token", "time left, at least"]}
      rows=${page.list.map((l) => [named(l.name.slice(base.length + 5)),
        l.delayed ? "kept back: its holder died" : "lent", holder(l.id), l.token, left(l.id)])} />`}`}${turn}
    ${past && past.list.length > 0 && html`<${Table} title="Free, previously held"
      head=${["value", "last held by"]}
      rows=${past.list.map((kv) => [named(lastPart(kv)), value(kv)])} />`}${past && turnPast}`;
}

function Nodes({ group }) {
  const base = group.name + "/";
  const [page, turn] = usePage(async (from, signal) => {
    const [[known, order], up, role] = await Promise.all([
      ask([pageOf(base + "known/", from), oneOf(base + "order")], signal),
      live.list({ name_prefix: base + "up/" }, signal),
      live.list({ name_prefix: base + "primary", page_size: 1 }, signal),
    ]);
    const byID = new Map(up.leases.filter((l) => !l.delayed).map((l) => [l.name.slice(base.length + 3), l]));
    const { list, next } = cut(known, base + "known/");
    const nodes = list.map((kv) => ({ id: lastPart(kv), kv }));
    // A node that has just joined is not recorded yet.
    for (const id of byID.keys()) {
      if (!from && !next && !nodes.some((n) => n.id === id)) nodes.push({ id });
    }
    return {
      nodes: nodes.map((n) => ({ ...n, lease: byID.get(n.id) })), next,
      primary: role.leases.find((l) => l.name === base + "primary" && !l.delayed),
      order: decoded(fromBase64(order.kvs[0]?.value)),
    };
  });
  // As in package nodes, a healthy node renews when two thirds of the TTL are left.
  const state = (l) => {
    if (!l) return "down";
    return Number(l.remaining_ms || 0) < Number(l.ttl_ms) / 2 ? "suspect" : "alive";
  };
  const part = (id) => [
    page.primary?.owner === id && "primary", page.order === id && "next primary by order",
  ].filter(Boolean).join(", ");
  return html`<h2>Nodes ${named(group.name)}</h2>
    ${page && html`<${Facts} list=${[
      ["primary", page.primary ? named(page.primary.owner) : "none"],
      ...page.primary ? [
        ["token of the role", page.primary.token], ["the role's lease", holder(page.primary.id)],
        ["time left, at least", left(page.primary.id)],
      ] : [],
    ]} /><${Table} title="Nodes"
      head=${["ID", "state", "role", "lease", "token", "time left, at least", "metadata"]}
      rows=${page.nodes.map(({ id, kv, lease: l }) => [named(id), stateMark(state(l)), part(id),
        l && holder(l.id), l?.token, l && left(l.id), value(kv)])} />`}${turn}`;
}

const details = { members: Members, queue: Queue, pool: Pool, nodes: Nodes };
