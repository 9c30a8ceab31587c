// Locks and elections: holders, waiters, and past ones.

import { live } from "./live.js";
import {
  asking, holder, html, left, named, Table, trouble, useChanges, useFound, usePolling, value, when,
} from "./parts.js";
import { departures, parts, queuesOf, readQueue } from "./queues.js";
import { endings } from "./read.js";
import { base64, decoded, fromAddress, inAddress, number } from "./text.js";

const most = 100; // of those who left that are shown

// words maps the reason why a ticket left to a word.
const words = {
  CAUSE_DELETED: "it was released", CAUSE_EXPIRED: "its lease expired", CAUSE_REVOKED: "its lease was revoked",
};

export function QueuesView({ rest }) {
  useChanges();
  const { list, err, search, age, since } = useFound(queuesOf,
    (queues) => queues.filter((q) => q.holder).map((q) => q.holder.kv));
  const open = rest ? decoded(fromAddress(rest)) : null;
  const chosen = list?.find((q) => q.name === open);
  return html`
    <div class="tools" role="search">${search}</div>
    ${!list ? asking(err) : html`${trouble(err)}
      <p class="faint" data-count=${list.length}>${number(list.length)} wait queues, ${age}
        ${" "}The fencing token of a lock is returned only to its holder; tokens rise with the revision
        at which the holder took its place.</p>
      <${Table} title="Wait queues" head=${["name", "kind", "holder", "since", "waiting"]}
        rows=${list.slice(0, 1000).map((q) => [html`<a href=${"#/queues/" + inAddress(base64(q.name))}
          aria-current=${q === chosen ? "true" : null}>${named(q.name)}</a>`,
        q.candidates.length ? "election" : "lock",
        q.holder ? holder(q.holder.lease) : "nobody",
        q.holder ? since(q.holder.kv) : "", number(q.waiters.length)])} />`}
    ${open && list && html`<${Queue} key=${open} name=${open} prefix=${chosen?.prefix || open + "/"} />`}`;
}

// Queue shows one queue: the holders and the waiters, in order, with their values, and those that
// left.
function Queue({ name, prefix }) {
  const [found, err] = usePolling(async (signal, last) => {
    const { queue, kvs, revision } = await readQueue({ name, prefix }, false, signal);
    const tickets = queue?.tickets || [];
    await live.ask((queue?.waiters || []).concat(tickets).map((t) => t.lease), signal);
    // If no key has changed since, nobody has left.
    const ended = last?.ended.next > revision ? last.ended : await endings(prefix, last?.ended, signal);
    const past = departures(prefix, tickets, ended.list.slice(-most), revision);
    return { queue, values: new Map(kvs.map((kv) => [kv.key, kv])), ended, past };
  }, 2000, [prefix]);
  if (!found) return asking(err);
  const { queue, values, ended, past } = found;
  return html`<h2>In the queue of ${named(name)}</h2>
    ${trouble(err)}
    ${!queue ? html`<p>Nobody holds it, and nobody is waiting for it.</p>`
      : html`<${Table} title="In order of arrival"
      head=${["place", "what", "lease", "its token", "time left, at least", "since revision", "value"]}
      rows=${parts(queue, values).slice(0, 1000).map((t, i) => [
        i + 1, t.role + (t.priority ? ", priority " + t.priority : ""),
        holder(t.lease), live.leases.get(t.lease)?.token || "", left(t.lease), t.kv.create_revision,
        named(t.value.slice(0, 200))])} />`}
    ${past.length > 0 && html`<${Table} title="Departures, latest first"
      head=${["at", "place", "lease", "since revision", "why", "then held by", "value"]}
      rows=${past.map((t) => [when(t.end, t.at), t.place, holder(t.lease), t.kv.create_revision,
        words[t.cause], t.place > 1 ? "" : t.next ? holder(t.next.lease) : "nobody", value(t.kv)])} />`}
    ${ended.from > 1 && html`<p class="faint">Revisions before ${ended.from} have been compacted.</p>`}`;
}
