// Access: who is logged in, and what it may do.

import { html, useState } from "./vendor/htm-preact.js";
import { call, logIn, logOut, useToken, who } from "./api.js";
import { Facts, Name, Trouble, usePolling } from "./parts.js";
import { fromBase64, shown } from "./text.js";

// keysOf writes the range of a permission on keys.
function keysOf(p) {
  const from = fromBase64(p.key);
  if (!p.range_end) return shown(from);
  const end = fromBase64(p.range_end);
  if (end.length === 1 && end[0] === 0) return "all from \"" + shown(from) + "\" on";
  return "[" + shown(from) + ", " + shown(end) + ")";
}

// rights finds out what a user may do, as far as that user may be told.
async function rights(user) {
  const status = await call("v3/auth/status").catch(() => null);
  const out = { enabled: status ? status.enabled === true : true, roles: null, names: null };
  if (!out.enabled || !user) return out;
  const r = await call("v3/auth/user/get", { name: user });
  out.roles = [];
  for (const role of r.roles || []) {
    const got = await call("v3/auth/role/get", { role }).catch(() => null);
    out.roles.push({ role, perm: got ? got.perm || [] : null });
  }
  // Only root may be told the permissions on names.
  const names = await call("v1/access/names/list").catch(() => null);
  if (names) {
    const own = new Set(r.roles || []);
    out.names = (names.permissions || []).filter((p) => own.has(p.role));
  }
  return out;
}

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
      <button>Use it</button></form></div><${Trouble} err=${err} />`;
}

export function AccessView() {
  const login = who();
  const [{ found, err }, set] = useState({});
  usePolling(async (signal) => {
    try {
      const got = await rights(login?.user);
      if (!signal.aborted) set({ found: got });
    } catch (why) {
      if (!signal.aborted) set({ err: why });
    }
  }, 10_000);
  if (!login) {
    return html`${found && !found.enabled && html`<p>Access control is not enabled: everybody that
      reaches this member may do everything.</p>`}<${Login} />`;
  }
  return html`
    <${Facts} list=${[["user", html`<${Name} text=${login.user || "the one of the token"} />`]]} />
    <p>The login is kept in this tab, and goes with it.</p>
    <button onClick=${logOut}>Log out</button>
    <${Trouble} err=${err} />
    ${found?.roles && html`<h2>What this user may do with keys</h2>
      ${found.roles.length === 0 && html`<p>Nothing: it has no role.</p>`}
      ${found.roles.map(({ role, perm }) => html`<h3 key=${role}>Role <${Name} text=${role} /></h3>
        ${role === "root" ? html`<p>Everything.</p>`
          : perm === null ? html`<p>It may not be told.</p>`
            : html`<ul>${perm.map((p) => html`<li>${(p.permType || "READ").toLowerCase()}:
              ${" "}<${Name} text=${keysOf(p)} /></li>`)}</ul>`}`)}`}
    ${found?.names && html`<h2>What its roles may do with names of leases</h2>
      ${found.names.length === 0 ? html`<p class="faint">no more than root may</p>` : html`<ul>
        ${found.names.map((p) => html`<li>${(p.kind || "").replace("KIND_", "").toLowerCase()}:
          ${" "}<${Name} text=${p.name} />${p.prefix ? " and all that begin with it" : ""}</li>`)}
      </ul>`}`}`;
}
