// Access: the current principal and its permissions; all users, roles, limits, and this member's
// bindings, for principals that may see them.

import { call, logIn, logOut, quiet, server, useToken, who } from "./api.js";
import { Form } from "./ask.js";
import { asked } from "./health.js";
import { Facts, html, named, Table, trouble, usePolling } from "./parts.js";
import { date, number, range } from "./text.js";

// word formats a constant of the API for display.
const word = (constant) => (constant || "").replace(/^[A-Z]+_/, "").replaceAll("_", " ").toLowerCase();

const most = 200; // users, and roles, that are asked for

// rights reads the principal and its permissions, and those of all others if it may see them.
async function rights() {
  const out = await call("v1/access/whoami");
  const own = out.roles || [];
  out.roles = own.map((r) => ({ role: r.name, perm: r.keys || [] }));
  out.names = own.flatMap((r) => r.names || []);
  // Only root may see the rest. It is not requested for others, because each refusal goes to the
  // audit log.
  if (!out.enabled || own.some((r) => r.name === "root")) {
    const users = await quiet(call("v3/auth/user/list"));
    out.users = users && [];
    for (const name of users?.users || []) {
      if (out.users.length >= most) out.more = true;
      else out.users.push({ name, roles: (await quiet(call("v3/auth/user/get", { name })))?.roles || [] });
    }
    out.limits = await quiet(call("v1/access/limits/list"));
    out.bindings = await quiet(call("v1/access/bindings/list"));
    out.names = (await quiet(call("v1/access/names/list")))?.permissions;
    const roles = (await quiet(call("v3/auth/role/list")))?.roles || [];
    out.more ||= roles.length > most || out.limits?.usages?.length > most;
    out.roles = [];
    for (const role of roles.slice(0, most)) {
      const got = role === "root" ? {} : await quiet(call("v3/auth/role/get", { role }));
      out.roles.push({ role, perm: got && (got.perm || []) });
    }
  }
  return out;
}

// Roles shows the permissions of roles on keys, and on lease names if they are known.
function Roles({ roles, names, title }) {
  const keys = ({ role, perm }) => (role === "root" ? "everything" : !perm ? "not told"
    : html`<ul>${perm.map((p) => html`<li>${word(p.kind || p.permType || "READ")}: ${named(range(p))}</li>`)}</ul>`);
  const leases = ({ role }) => (role === "root" ? "everything" : html`<ul>
    ${names.filter((p) => p.role === role).map((p) => html`<li>${word(p.kind)}: ${named(p.name)}${
      p.prefix ? " and all that begin with it" : ""}</li>`)}</ul>`);
  return html`<${Table} title=${title} head=${["role", "keys"].concat(names ? "lease names" : [])}
    rows=${roles.map((r) => [named(r.role), keys(r)].concat(names ? leases(r) : []))} />`;
}

// whose shows the holder of limits.
const whose = (l) => (l.user ? html`user ${named(l.user)}` : l.role ? html`role ${named(l.role)}` : "everybody");

// Limits shows the limits and the usage of principals.
function Limits({ limits = [], usages = [] }) {
  const rows = limits.flatMap((l) => (l.limits || []).map((x) => [
    whose(l), word(x.resource), x.max < 0 ? "no limit" : number(x.max)]));
  return html`${rows.length > 0 && html`<${Table} title="Limits" head=${["of", "what", "most"]} rows=${rows} />`}
    ${usages.length > 0 && html`<${Table} title="Usage and limits"
      head=${["who", "leases", "keys on leases", "bytes"]} rows=${usages.slice(0, most).map((u) => [
        named(u.principal), number(u.leases), number(u.lease_keys), number(u.bytes)])} />`}`;
}

// which describes the callers that match a binding.
const which = ({ spiffe, dns, issuer, claims = {} }) => html`
  ${issuer ? "token of issuer " : "certificate of "}${named(spiffe || dns || issuer)}
  ${Object.entries(claims).map(([k, v]) => html`, ${named(k + "=" + v)}`)}`;

// Bindings shows how this member maps externally identified callers to principals.
function Bindings({
  file, sha256, loaded_unix_ms: at, load_error: refused, common_names: names, issuers = [], bindings = [],
}) {
  if (!file) return null;
  return html`<${Table} title=${"Bindings of " + asked} head=${["caller", "is"]} rows=${bindings.map((b) => [
      which(b), b.user ? html`user ${named(b.user)}` : html`has ${named((b.roles || []).join(", "))}`])} />
    <${Table} title="Issuers" head=${["issuer", "URL", "for", "name claim"]} rows=${issuers.map((i) => [
      named(i.name), named(i.url), named((i.audiences || []).join(", ")), named(i.name_claim)])} />
    ${refused && html`<p class="line warn" role="alert">The current file is invalid: ${named(refused)}</p>`}
    <p class="faint">From ${named(file)}, as read on ${date(Number(at))}; its SHA-256
      begins with ${sha256.slice(0, 12)}. If no binding matches, the common name of a certificate is
      ${names ? " a" : " no"} user. Each member has its own file: leasehold auth bindings --cluster
      compares them.</p>`;
}

// All shows the users, the permissions of users and roles, and the usage.
const All = ({ found: { users, roles, names, limits, bindings, more } }) => html`
  ${users?.length > 0 && html`<${Table} title="Users" head=${["user", "roles"]} rows=${users.map((u) => [
    named(u.name), named(u.roles.join(", "))])} />`}
  ${roles?.length > 0 && html`<${Roles} roles=${roles} names=${names}
    title=${users ? "Roles" : "Permissions of your roles"} />`}
  <${Limits} ...${limits} />
  <${Bindings} ...${bindings} />
  ${more && html`<p class="faint">The first ${most} of each: see leasehold user list, role list, auth limits.</p>`}`;

const Login = () => html`<div class="logins">
  <${Form} class="card" verb="Log in" act=${(v) => logIn(v.user, v.password)} fields=${[
    { name: "user", label: "User", known: "username" },
    { name: "password", label: "Password", kind: "password", known: "current-password" },
  ]}><h2>Log in with a password</h2><//>
  <${Form} class="card" verb="Use token" act=${(v) => useToken(v.token)} fields=${[{
    name: "token", label: "Token", kind: "password",
    hint: "a simple token, or one from an issuer that the cluster trusts",
  }]}><h2>Log in with a token</h2><//></div>`;

// evidences are the ways in which the member identifies a principal.
const evidences = { TOKEN: "token", ISSUER_TOKEN: "token from an issuer", CERTIFICATE: "certificate" };

// known shows how a principal was identified.
const known = ({ evidence = "", bound, is_user: user }) => evidences[evidence.slice("EVIDENCE_".length)] +
  (bound ? ", which is bound to " + (user ? "this user" : "roles") : user ? "" : ", and no user");

export function AccessView() {
  const login = who();
  const [found, err] = usePolling(rights, 30_000);
  const open = found && !found.enabled && html`<p>Access control is not enabled: anyone who can reach this
    ${" "}${server} has full access.</p>`;
  if (!login) return html`${open}<${Login} />${found && html`<${All} found=${found} />`}`;
  return html`${open}
    ${found?.principal && html`<${Facts} list=${[["you are", named(found.principal)], ["known by", known(found)]]} />`}
    <p>The login is kept in this tab, and ends with it.</p>
    <button onClick=${logOut}>Log out</button>
    ${trouble(err)}
    ${found?.enabled && found.roles.length === 0 && html`<p>It has no roles and no permissions on keys.</p>`}
    ${found && html`<${All} found=${found} />`}`;
}
