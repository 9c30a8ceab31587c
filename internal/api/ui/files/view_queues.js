// Locks and elections: who holds what, and who waits.

import { html, useRef, useState } from "./vendor/htm-preact.js";
import { now } from "./live.js";
import { Holder, Left, Name, Trouble, useChanges, useEvery, usePolling } from "./parts.js";
import { parts, queuesOf } from "./queues.js";
import { read } from "./read.js";
import { fromAddress, inAddress, number, span, utf8 } from "./text.js";

export function QueuesView({ live, rest }) {
  useChanges(live);
  useEvery(1000);
  const [prefix, setPrefix] = useState("");
  const [{ list, more, at, err }, set] = useState({});
  const held = useRef(new Map()); // by queue: the holder's key, and when the page first saw it
  usePolling(async (signal) => {
    const asked = now();
    try {
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
    } catch (why) {
      if (!signal.aborted) set((s) => ({ ...s, err: why }));
    }
  }, 3000, [prefix]);
  const open = rest ? new TextDecoder().decode(fromAddress(rest)) : null;
  const chosen = open === null ? null : list?.find((q) => q.name === open);
  const since = (q) => {
    const seen = held.current.get(q.name);
    return "revision " + q.holder.kv.create_revision +
      (seen?.since ? ", " + new Date(seen.since).toLocaleTimeString("en-GB") : "");
  };
  return html`
    <div class="tools" role="search"><label>Keys that begin with${" "}
      <input type="search" value=${prefix} spellcheck="false"
        onInput=${(e) => setPrefix(e.target.value)} /></label></div>
    <${Trouble} err=${err} />
    ${!list ? html`<p>Asking.</p>` : html`
      <p class="faint" data-count=${list.length}>${number(list.length)} wait queues,
        as of ${span(now() - at)} ago.
        ${more ? " There are more keys than the page looks through: give a prefix." : ""}
        ${" "}The fencing token of a lock is told to its holder only; tokens rise with the revision
        at which the holder took its place.</p>
      <div class="wide" tabindex="0" role="region" aria-label="Wait queues"><table>
        <caption>Wait queues</caption>
        <thead><tr><th scope="col">name</th><th scope="col">kind</th><th scope="col">holder</th>
          <th scope="col">since</th><th scope="col">waiting</th></tr></thead>
        <tbody>${list.slice(0, 1000).map((q) => html`<tr key=${q.name}>
          <th scope="row"><a href=${"#/queues/" + inAddress(utf8(q.name))}
            aria-current=${q === chosen ? "true" : null}><${Name} text=${q.name} /></a></th>
          <td>${q.candidates.length ? "election" : "lock"}</td>
          <td>${q.holder ? html`<${Holder} lease=${q.holder.lease} live=${live} />` : "nobody"}</td>
          <td>${q.holder ? since(q) : ""}</td>
          <td>${number(q.waiters.length)}</td></tr>`)}</tbody></table></div>`}
    ${open !== null && list && !chosen && html`<p>Nobody holds <${Name} text=${open} /> now, and
      nobody waits for it.</p>`}
    ${chosen && html`<${Queue} key=${chosen.name} queue=${chosen} live=${live} />`}`;
}

// Queue shows one queue: who holds, who waits, in order, with what they say.
function Queue({ queue: q, live }) {
  const [{ values, err }, set] = useState({ values: new Map() });
  usePolling(async (signal) => {
    try {
      const got = new Map();
      for (const prefix of [q.prefix, q.name + "~"]) {
        for (const kv of (await read(utf8(prefix), false, signal)).kvs) got.set(kv.key, kv);
      }
      await live.ask(q.tickets.concat(q.candidates).map((t) => t.lease), signal);
      set({ values: got });
    } catch (why) {
      if (!signal.aborted) set((s) => ({ ...s, err: why }));
    }
  }, 2000, [q.name]);
  const token = (id) => live.leases.get(id)?.token || "";
  return html`<h2>In the queue of <${Name} text=${q.name} /></h2>
    <${Trouble} err=${err} />
    <div class="wide" tabindex="0" role="region" aria-label="In the queue"><table>
      <caption>In the order in which they came</caption>
      <thead><tr><th scope="col">place</th><th scope="col">what</th><th scope="col">lease</th>
        <th scope="col">its token</th><th scope="col">time left, at least</th>
        <th scope="col">since revision</th><th scope="col">value</th></tr></thead>
      <tbody>${parts(q, values).slice(0, 1000).map((t, i) => html`<tr key=${t.kv.key}>
        <td>${i + 1}</td><td>${t.role}${t.priority ? ", priority " + t.priority : ""}</td>
        <td><${Holder} lease=${t.lease} live=${live} /></td><td>${token(t.lease)}</td>
        <td><${Left} lease=${t.lease} live=${live} /></td>
        <td>${t.kv.create_revision}</td><td><${Name} text=${t.value.slice(0, 200)} /></td>
      </tr>`)}</tbody></table></div>`;
}
