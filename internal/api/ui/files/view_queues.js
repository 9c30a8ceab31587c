// Locks and elections: who holds what, and who waits.

import { html, useRef, useState } from "./vendor/htm-preact.js";
import { live, now } from "./live.js";
import { holder, left, named, Search, Table, trouble, useChanges, usePolling } from "./parts.js";
import { parts, queuesOf } from "./queues.js";
import { read } from "./read.js";
import { clock, fromAddress, inAddress, number, span, utf8 } from "./text.js";

export function QueuesView({ rest }) {
  useChanges();
  const [prefix, setPrefix] = useState("");
  const [{ list, more, at }, set] = useState({});
  const held = useRef(new Map()); // by queue: the holder's key, and when the page first saw it
  const err = usePolling(async (signal) => {
    const asked = now();
    const r = await read(utf8(prefix), true, signal);
    const queues = queuesOf(r.kvs);
    for (const q of queues) {
      const k = q.holder ? q.holder.kv.key + q.holder.kv.create_revision : "";
      if (held.current.get(q.name)?.k !== k) {
        const handed = held.current.has(q.name);
        held.current.set(q.name, { k, since: handed ? Date.now() : 0 });
      }
    }
    set({ list: queues, more: r.more, at: asked });
  }, 3000, [prefix]);
  const open = rest ? new TextDecoder().decode(fromAddress(rest)) : null;
  const chosen = open === null ? null : list?.find((q) => q.name === open);
  const since = (q) => {
    const at = clock(held.current.get(q.name)?.since);
    return "revision " + q.holder.kv.create_revision + (at && ", " + at);
  };
  return html`
    <div class="tools" role="search"><${Search} label="Keys that begin with" value=${prefix} set=${setPrefix} /></div>
    ${trouble(err)}
    ${!list ? html`<p>Asking.</p>` : html`
      <p class="faint" data-count=${list.length}>${number(list.length)} wait queues,
        as of ${span(now() - at)} ago.
        ${more ? " There are more keys than the page looks through: give a prefix." : ""}
        ${" "}The fencing token of a lock is told to its holder only; tokens rise with the revision
        at which the holder took its place.</p>
      <${Table} title="Wait queues" head=${["name", "kind", "holder", "since", "waiting"]}
        rows=${list.slice(0, 1000).map((q) => [html`<a href=${"#/queues/" + inAddress(utf8(q.name))}
          aria-current=${q === chosen ? "true" : null}>${named(q.name)}</a>`,
        q.candidates.length ? "election" : "lock",
        q.holder ? holder(q.holder.lease) : "nobody",
        q.holder ? since(q) : "", number(q.waiters.length)])} />`}
    ${open !== null && list && !chosen && html`<p>Nobody holds ${named(open)} now, and
      nobody waits for it.</p>`}
    ${chosen && html`<${Queue} key=${chosen.name} queue=${chosen} />`}`;
}

// Queue shows one queue: who holds, who waits, in order, with what they say.
function Queue({ queue: q }) {
  const [values, set] = useState(new Map());
  const err = usePolling(async (signal) => {
    const got = new Map();
    for (const prefix of [q.prefix, q.name + "~"]) {
      for (const kv of (await read(utf8(prefix), false, signal)).kvs) got.set(kv.key, kv);
    }
    await live.ask(q.tickets.concat(q.candidates).map((t) => t.lease), signal);
    set(got);
  }, 2000, [q.name]);
  return html`<h2>In the queue of ${named(q.name)}</h2>
    ${trouble(err)}
    <${Table} title="In the order in which they came"
      head=${["place", "what", "lease", "its token", "time left, at least", "since revision", "value"]}
      rows=${parts(q, values).slice(0, 1000).map((t, i) => [
        i + 1, t.role + (t.priority ? ", priority " + t.priority : ""),
        holder(t.lease), live.leases.get(t.lease)?.token || "", left(t.lease), t.kv.create_revision,
        named(t.value.slice(0, 200))])} />`;
}
