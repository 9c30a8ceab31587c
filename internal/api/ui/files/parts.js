// The parts of views.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { clock, escaped, fromBase64, hexID, shown, span } from "./text.js";
import { live, now, remaining } from "./live.js";
import { read } from "./read.js";

export * from "./vendor/htm-preact.js";

// mayAct says whether the page offers actions: serve --ui=read-only turns that off.
export const mayAct = document.querySelector("meta[name=leasehold-acts]").content === "on";

// useChanges redraws a view after changes and, while it is visible, every second.
export function useChanges() {
  const [, set] = useState(0);
  useEffect(() => {
    const again = () => set((n) => n + 1);
    const end = live.subscribe(again);
    const t = setInterval(() => document.hidden || again(), 1000);
    return () => {
      end();
      clearInterval(t);
    };
  }, []);
}

// usePolling calls f at once, and then again some time after each response, while the view is
// visible. f gets a signal that ends with the view and, if needs are unchanged, its last result.
// usePolling returns the last result, the last error, and a function that calls f now.
export function usePolling(f, ms, needs = []) {
  const [last, set] = useState({});
  const latest = useRef({});
  latest.current.f = f;
  useEffect(() => {
    const stopped = new AbortController();
    let [timer, runs, answer] = [0, 0];
    const run = async () => {
      const mine = ++runs;
      clearTimeout(timer);
      let err = null;
      try {
        if (!document.hidden) answer = await latest.current.f(stopped.signal, answer);
      } catch (why) {
        err = why;
      }
      if (stopped.signal.aborted || mine !== runs) return;
      set((s) => ({ answer: answer ?? s.answer, err }));
      timer = setTimeout(run, ms);
    };
    latest.current.run = run;
    run();
    return () => {
      stopped.abort();
      clearTimeout(timer);
    };
  }, needs);
  return [last.answer, last.err, () => latest.current.run()];
}

// when formats a revision, and the time of day at which the page learned of it, if it did.
export const when = (revision, at) => "revision " + revision + (at ? ", " + clock(at) : "");

// useFound searches the keys repeatedly for what programs keep there: find returns it, and dated
// returns the keys whose age a view shows.
export function useFound(find, dated) {
  const [prefix, setPrefix] = useState("");
  const id = (kv) => kv.key + kv.create_revision;
  const [{ list, more, at, seen } = {}, err] = usePolling(async (signal, last) => {
    const asked = now();
    const r = await read(prefix, true, signal);
    const found = find(r.kvs);
    const came = (kv) => (last ? last.seen.get(id(kv)) ?? Date.now() : 0);
    return {
      list: found, more: r.more, at: asked, seen: new Map(dated(found, r.kvs).map((kv) => [id(kv), came(kv)])),
    };
  }, 3000, [prefix]);
  return {
    list, err,
    search: html`<${Search} label="Key prefix" value=${prefix} set=${setPrefix} />`,
    age: list && "as of " + span(now() - at) + " ago." +
      (more ? " There are more keys than the page examines: enter a prefix." : ""),
    // Keys have no time of day: it is known only for keys that appeared while the page was open.
    since: (kv) => when(kv.create_revision, seen.get(id(kv))),
  };
}

// named shows a text from a user: a key, a name, an owner. The text has its own direction, and
// hidden characters are shown.
export const named = (text) => html`<bdi class="name">${escaped(text || "")}</bdi>`;

// value shows the beginning of a key's value.
export const value = (kv) => named(shown(fromBase64(kv?.value).slice(0, 200)));

// leaseLink is a link to a lease.
export const leaseLink = (id) => html`<a class="id" href=${"#/lease/" + hexID(id)}>${hexID(id)}</a>`;

// holder names the current or past holder of a lease, as far as the page knows it.
export function holder(id) {
  const l = live.leases.get(id) || live.log.findLast((e) => e.lease?.id === id)?.lease;
  return html`${leaseLink(id)} ${l && named(l.owner || l.name)}`;
}

// trouble shows an error.
export const trouble = (err) =>
  err && html`<p class="line warn" role="alert">${escaped(err.message)}</p>`;

// asking is what a view shows before the first response.
export const asking = (err) => trouble(err) || html`<p class="asking" role="status">Asking</p>`;

// timeLeft shows how long a lease will certainly stay valid. It counts down only while the page
// hears from the cluster; otherwise it shows the last known value and its age.
export function timeLeft(lease) {
  if (!lease) return "not known";
  const { ms, age } = remaining(lease, live.upTo());
  if (age === null) return html`<span class="faint">asking</span>`;
  if (live.state === "lost") {
    return html`<span class="faint">was ${span(lease.remaining_ms)},
      ${" "}${span(now() - lease.asked)} ago</span>`;
  }
  if (ms === null) return html`<span class="faint">not known</span>`;
  return html`<span>${span(ms)}</span>${age > 5000 &&
    html` <span class="faint">asked ${span(age)} ago</span>`}`;
}

// left is timeLeft for a lease ID.
export const left = (id) => timeLeft(live.leases.get(id));

// stateMark shows a state by a word and a mark.
export const stateMark = (state) => html`<span class=${"state " + state}>${state}</span>`;

// useNarrow reports whether the screen is as narrow as a phone's: see style.css.
export function useNarrow() {
  const [media] = useState(() => matchMedia("(max-width: 40rem)"));
  const [narrow, set] = useState(media.matches);
  useEffect(() => {
    const change = () => set(media.matches);
    media.addEventListener("change", change);
    return () => media.removeEventListener("change", change);
  }, []);
  return narrow;
}

// Search and Choice are filters. list has the values of a choice, each with its label.
export const Search = ({ label, set, ...rest }) => html`<label>${label + " "}<input type="search"
  spellcheck="false" ...${rest} onInput=${(e) => set(e.target.value)} /></label>`;

export const Choice = ({ label, value, set, list }) => html`<label>${label + " "}<select value=${value}
  onChange=${(e) => set(e.target.value)}>
  ${list.map(([v, word]) => html`<option value=${v}>${word}</option>`)}</select></label>`;

// Rows shows a long list: only the visible rows are in the page. row(i) returns the cells of a row;
// seen(from, to) is called with the visible rows.
export function Rows({ label, head, count, row, seen, widths }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600, bar: 0 });
  const step = 32; // as style.css has it
  const look = () => {
    const el = box.current;
    setView({ top: el.scrollTop, height: el.clientHeight, bar: el.offsetWidth - el.clientWidth });
  };
  useEffect(() => {
    const sizes = new ResizeObserver(look);
    sizes.observe(box.current);
    look();
    return () => sizes.disconnect();
  }, []);
  const from = Math.min(Math.max(0, Math.floor(view.top / step) - 4), Math.max(0, count - 1));
  const to = Math.min(count, Math.ceil((view.top + view.height) / step) + 4);
  useEffect(() => seen?.(from, to), [from, to, count]);
  const rows = [];
  for (let i = from; i < to; i++) {
    rows.push(html`<div role="row" class="row" key=${i} aria-rowindex=${i + 2}
      style=${{ transform: "translateY(" + i * step + "px)", gridTemplateColumns: widths }}>
      ${row(i).map((cell) => html`<span role="cell">${cell}</span>`)}</div>`);
  }
  return html`<p class="faint sideways">Scroll sideways for more columns.</p>
    <div class="rows" role="table" aria-label=${label} aria-rowcount=${count + 1}>
    <div role="rowgroup" class="head" style=${{ paddingRight: view.bar + "px" }}>
      <div role="row" class="row" aria-rowindex="1" style=${{ gridTemplateColumns: widths }}>
      ${head.map((h) => html`<span role="columnheader">${h}</span>`)}</div></div>
    <div class="body" ref=${box} tabindex="0" role="rowgroup" aria-label=${label + ", rows"} onScroll=${look}>
      <div class="all" role="presentation" style=${{ height: count * step + "px" }}>${rows}</div>
    </div></div>`;
}

// Facts shows pairs of a label and a value.
export const Facts = ({ list }) => html`<dl class="facts">
  ${list.filter((x) => x).map(([k, v]) => html`<div key=${k}><dt>${k}</dt><dd>${v}</dd></div>`)}
</dl>`;

// Table shows rows under a title. The first cell of a row is its heading.
export const Table = ({ title, head, rows }) => html`<div class="wide" tabindex="0" role="region"
  aria-label=${title}><table><caption>${title}</caption>
  <thead><tr>${head.map((h) => html`<th scope="col">${h}</th>`)}</tr></thead>
  <tbody>${rows.map(([first, ...cells]) => html`<tr><th scope="row">${first}</th>
    ${cells.map((c) => html`<td>${c}</td>`)}</tr>`)}</tbody></table></div>`;
