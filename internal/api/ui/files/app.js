// The frame of the page: which view is visible, who is logged in, and whether the cluster confirms
// what is shown.

import { call, members, relay, who } from "./api.js";
import { live, now } from "./live.js";
import { Questions } from "./ask.js";
import { span } from "./text.js";
import { html, render, useChanges, useEffect, usePolling, useState } from "./parts.js";
import { Overview } from "./view_overview.js";
import { LeasesView } from "./view_leases.js";
import { LeaseView } from "./view_lease.js";
import { EventsView } from "./view_events.js";
import { QueuesView } from "./view_queues.js";
import { GroupsView } from "./view_groups.js";
import { CachesView } from "./view_caches.js";
import { KeysView } from "./view_keys.js";
import { PlanView } from "./view_plan.js";
import { AccessView } from "./view_access.js";

const tabs = [
  ["overview", "Overview", Overview],
  ["leases", "Leases", LeasesView],
  ["events", "Events", EventsView],
  ["queues", "Locks and elections", QueuesView],
  ["groups", "Members, queues, pools, nodes", GroupsView],
  ["caches", "Caches", CachesView],
  ["keys", "Keys", KeysView],
  ["plan", "Plan", PlanView],
  ["access", "Access", AccessView],
];
const views = new Map([...tabs.map(([path, , view]) => [path, view]), ["lease", LeaseView]]);

live.start();
addEventListener("login", () => live.start());

const place = () => {
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { view: views.has(view) ? view : "overview", rest: rest.join("/") };
};

// Elsewhere has links to the pages of the other members. The browser lets this page call only the
// member or the relay that it came from, so it cannot switch on its own.
function Elsewhere({ known }) {
  const others = known.flatMap((m) =>
    m.urls.filter((u) => /^https?:/.test(u) && new URL(u).host !== location.host)
      .map((u) => ({ name: m.name || m.id, href: new URL("ui/" + location.hash, u).href })));
  if (others.length === 0) return null;
  return html`${relay ? "Members" : "Other members"}:
    ${others.map((o) => html` <a href=${o.href} rel="noreferrer"><bdi>${o.name}</bdi></a>`)}`;
}

// Confirmed shows in one line whether the cluster confirms what is shown.
function Confirmed({ known }) {
  useChanges();
  // The stream of events stays open while there is no leader, but delivers nothing.
  const [led = true] = usePolling(async () => live.state !== "live" ||
    Number((await call("v3/maintenance/status")).leader || 0) !== 0, 5000);
  const { failure } = live;
  const state = live.state === "live" && !led ? "leaderless" : live.state;
  const here = html`${relay && "a relay, "}<bdi>${location.host}</bdi>`;
  const text = {
    live: html`Connected to ${here}.`,
    leaderless: html`<strong>Connected to ${here}${relay ? ". The member behind it" : ", which"}
      ${" "}has no leader.</strong>
      ${" "}Until a member leads, nothing changes, and what is shown gets older.`,
    lost: html`<strong>This ${relay ? "relay, or the member behind it," : "member"} has been lost for
      ${" "}${span(now() - live.since)}. The page is retrying.</strong>
      ${" "}What is shown is its last report. ${failure && failure.message + ". "}<${Elsewhere} known=${known} />`,
    denied: html`${failure?.anonymous ? "Log in" : failure?.message}: <a href="#/access">who am I?</a>`,
  }[state] || "Reading the leases, " + live.listed + " so far.";
  const warn = ["leaderless", "lost", "denied"].includes(state);
  return html`<p class=${"line" + (warn ? " warn" : "")} role="status" data-state=${state}>${text}</p>`;
}

function App() {
  const [at, go] = useState(place);
  const [login, setLogin] = useState(who);
  useEffect(() => {
    addEventListener("hashchange", () => go(place()));
    addEventListener("login", () => setLogin(who()));
  }, []);
  // The addresses of the members are needed when this one is gone: then the last known ones are
  // shown.
  const [known = []] = usePolling(async () => (live.state === "denied" ? [] : members()), 60_000, [login]);
  const tab = at.view === "lease" ? "leases" : at.view;
  const name = tabs.find(([path]) => path === tab)[1];
  useEffect(() => {
    document.title = name + " · Leasehold";
    // On a narrow screen, the views are in one scrolling row.
    document.querySelector("header nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [name]);
  const View = views.get(at.view);
  // A view restarts for another user: nothing of the previous user's remains on the screen.
  return html`
    <a class="skip" href="#main" onClick=${(e) => {
      e.preventDefault();
      document.getElementById("main").focus();
    }}>Skip to content</a>
    <header>
      <span class="brand">Leasehold</span>
      <nav aria-label="Views">
        ${tabs.map(([path, title]) => html`<a key=${path} href=${"#/" + path}
          aria-current=${path === tab ? "page" : null}>${title}</a>`)}
      </nav>
      <a class="me" href="#/access">${login ? html`<bdi>${login.user || "by token"}</bdi>` : "not logged in"}</a>
    </header>
    <${Confirmed} known=${known} />
    <main id="main" tabindex="-1">
      <h1>${name}</h1>
      <${View} key=${at.view + (login?.token || "")} rest=${at.rest} />
    </main>
    <${Questions} />`;
}

render(html`<${App} />`, document.getElementById("app"));
