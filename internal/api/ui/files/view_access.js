// Access: who is logged in, and what it may do; all users, roles and limits for those who may see them.

import { html, useState } from "./vendor/htm-preact.js";
import { call, logIn, logOut, useToken, who } from "./api.js";
import { Facts, named, Table, trouble, usePolling } from "./parts.js";
import { fromBase64, number, shown } from "./text.js";

// word writes a constant of the API for people.
const word = (constant) => (constant || "").replace(/^[A-Z]+_/, "").replaceAll("_", " ").toLowerCase();

// keysOf writes the range of a permission on keys.
function keysOf(p) {
  const from = fromBase64(p.key);
  if (!p.range_end) return shown(from);
  const end = fromBase64(p.range_end);
  if (end.length === 1 && end[0] === 0) return "all from \"" + shown(from) + "\" on";
  return "[" + shown(from) + ", " + shown(end) + ")";
}

const most = 200; // users, and roles, that are asked for

// rights finds out what a user may do, and all users, roles and limits, as far as that user may be told.
async function rights(user) {
  const status = await call("v3/auth/status").catch(() => null);
  const out = { enabled: status ? status.enabled === true : true, roles: null, names: null, users: null };
  if (out.enabled && !who()) return out;
  const quiet = (path, body) => call(path, body).catch(() => null);
  let why = null;
  const own = user && out.enabled ? await call("v3/auth/user/get", { name: user }).catch((err) => {
    why = err;
  }) : null;
  let roles = own?.roles || [];
  // Only root may see the rest. Another is not asked for it: each refusal is in the audit log.
  if (!own || roles.includes("root")) {
    const users = await quiet("v3/auth/user/list");
    if (!users && why) throw why;
    out.users = users && [];
    for (const name of users?.users || []) {
      if (out.users.length >= most) out.more = true;
      else out.users.push({ name, roles: (await quiet("v3/auth/user/get", { name }))?.roles || [] });
    }
    out.limits = await quiet("v1/access/limits/list");
    out.names = (await quiet("v1/access/names/list"))?.permissions || null;
    roles = (await quiet("v3/auth/role/list"))?.roles || roles;
  }
  out.more ||= roles.length > most || out.limits?.uses?.length > most;
  out.roles = [];
  for (const role of roles.slice(0, most)) {
    const got = role === "root" ? {} : await quiet("v3/auth/role/get", { role });
    out.roles.push({ role, perm: got && (got.perm || []) });
  }
  return out;
}

// Roles shows what roles may do with keys, and with names of leases if that was told.
function Roles({ roles, names, title }) {
  const keys = ({ role, perm }) => (role === "root" ? "everything" : !perm ? "not told"
    : html`<ul>${perm.map((p) => html`<li>${word(p.permType || "READ")}: ${named(keysOf(p))}</li>`)}</ul>`);
  const leases = ({ role }) => (role === "root" ? "everything" : html`<ul>
    ${names.filter((p) => p.role === role).map((p) => html`<li>${word(p.kind)}: ${named(p.name)}${
      p.prefix ? " and all that begin with it" : ""}</li>`)}</ul>`);
  return html`<${Table} title=${title} head=${["role", "keys"].concat(names ? "names of leases" : [])}
    rows=${roles.map((r) => [named(r.role), keys(r)].concat(names ? leases(r) : []))} />`;
}

// whose says to whom limits apply.
const whose = (l) => (l.user ? html`user ${named(l.user)}` : l.role ? html`role ${named(l.role)}` : "everybody");

// Limits shows how much principals may have, and what they have.
function Limits({ limits = [], uses = [] }) {
  const rows = limits.flatMap((l) => (l.limits || []).map((x) => [
    whose(l), word(x.resource), x.most < 0 ? "no limit" : number(x.most)]));
  return html`${rows.length > 0 && html`<${Table} title="Limits" head=${["of", "what", "most"]} rows=${rows} />`}
    ${uses.length > 0 && html`<${Table} title="Who has how much"
      head=${["who", "leases", "keys on leases", "bytes"]} rows=${uses.slice(0, most).map((u) => [
        named(u.principal), number(u.leases), number(u.lease_keys), number(u.bytes)])} />`}`;
}

// All shows the users, what they and the roles may do, and what they have.
const All = ({ found: { users, roles, names, limits, more } }) => html`
  ${users?.length > 0 && html`<${Table} title="Users" head=${["user", "roles"]} rows=${users.map((u) => [
    named(u.name), named(u.roles.join(", "))])} />`}
  ${roles?.length > 0 && html`<${Roles} roles=${roles} names=${names}
    title=${users ? "Roles" : "What the roles of this user may do"} />`}
  <${Limits} ...${limits} />
  ${more && html`<p class="faint">The first ${most} of each: see leasehold user list, role list, auth limits.</p>`}`;

function Login() {
  const [err, fail] = useState(null);
  const [busy, work] = useState(false);
  const submit = (act) => async (e) => {
    e.preventDefault();
    const values = Object.fromEntries(new FormData(e.currentTarget));
    fail(null);
    work(true);
    try {
      await act(values);
    } catch (why) {
      fail(why);
    }
    work(false);
  };
  return html`<div class="logins">
    <form class="card" onSubmit=${submit((v) => logIn(v.user, v.password))}>
      <h2>Log in by password</h2>
      <label>User <input name="user" autocomplete="username" spellcheck="false" required /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password"
        required /></label>
      <button disabled=${busy}>Log in</button></form>
    <form class="card" onSubmit=${submit((v) => useToken(v.token))}>
      <h2>Log in by token</h2>
      <label>Token <input name="token" type="password" autocomplete="off" required /></label>
      <p class="faint">A simple token, or one of an issuer that the cluster trusts.</p>
      <button>Use it</button></form></div>${trouble(err)}`;
}

export function AccessView() {
  const login = who();
  const [found, set] = useState(null);
  const err = usePolling(async (signal) => {
    const got = await rights(login?.user);
    if (!signal.aborted) set(got);
  }, 30_000);
  const open = found && !found.enabled && html`<p>Access control is not enabled: everybody that reaches this
    member may do everything.</p>`;
  if (!login) return html`${open}<${Login} />${found && html`<${All} found=${found} />`}`;
  return html`${open}
    <${Facts} list=${[["user", named(login.user || "the one of the token")]]} />
    <p>The login is kept in this tab, and goes with it.</p>
    <button onClick=${logOut}>Log out</button>
    ${trouble(err)}
    ${found?.enabled && found.roles.length === 0 && html`<p>It has no role, and may do nothing with keys.</p>`}
    ${found && html`<${All} found=${found} />`}`;
}
