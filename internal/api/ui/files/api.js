// The JSON API of the member or the relay, called as the logged-in user. All addresses are relative
// to the page, so that it works behind a path prefix.

import { memberID, object } from "./text.js";

// root is the address of the API: one step above /ui/.
const root = new URL("../", document.baseURI);

// server is what serves the page and its API: "member", or "relay", which forwards to a member.
export const server = document.querySelector("meta[name=leasehold-server]").content;
export const relay = server === "relay";

// answersWithin is how long a call may take. It is longer than the server's own timeout.
const answersWithin = 20_000;

// The login is kept in this tab, and ends with it.
const key = "leasehold.login";

let login = JSON.parse(sessionStorage.getItem(key) || "null");

// who returns the login, {user, token}, or null if there is none.
export const who = () => login;

function keep(l) {
  login = l;
  if (l) sessionStorage.setItem(key, JSON.stringify(l));
  else sessionStorage.removeItem(key);
  globalThis.dispatchEvent(new Event("login"));
}

// Failure is an error response, or a missing response.
class Failure extends Error {
  constructor(status, body) {
    super(body?.message || `the ${server} responded with status ${status}`);
    const detail = body?.details?.find((d) => d["@type"]?.endsWith("leasehold.v1.Error"));
    this.reason = detail?.reason || "";
    // etcd's API answers 400 to a call without a login.
    const nameless = /user name is empty|invalid auth token/;
    this.anonymous = status === 401 || status === 400 && nameless.test(this.message);
    this.denied = status === 403;
  }
}

const headers = (as) => {
  const h = { "Content-Type": "application/json" };
  if (as) h.Authorization = as.token;
  return h;
};

async function ask(path, options) {
  try {
    return await fetch(new URL(path, root), {
      cache: "no-store", credentials: "same-origin", redirect: "error", ...options,
    });
  } catch (err) {
    if (options.signal?.aborted && err.name === "AbortError") throw err;
    throw new Failure(0, { message: `the ${server} does not respond` });
  }
}

// refused drops a login that the cluster no longer accepts. A failed call with an earlier login
// does not affect the current one.
function refused(f, made) {
  if (f.anonymous && login && login === made) keep(null);
  return f;
}

// failure reads the reason for a failed call.
async function failure(answer, made) {
  const text = await answer.text().catch(() => "");
  let body = object(text);
  // A response that is not from the API is from a proxy, or from the check in front of the API,
  // which says what to do.
  if (!body && answer.headers.get("Content-Type")?.startsWith("text/plain")) {
    body = { message: text.slice(0, 300) };
  }
  return refused(new Failure(answer.status, body), made);
}

// call makes one call, and returns the response.
export async function call(path, body = {}, signal, made = login) {
  const late = AbortSignal.timeout(answersWithin);
  const answer = await ask(path, {
    method: "POST", headers: headers(made), body: JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, late]) : late,
  });
  if (!answer.ok) throw await failure(answer, made);
  try {
    return await answer.json();
  } catch {
    throw new Failure(0, { message: "the response was cut short" });
  }
}

// get fetches a page of the member. It returns error responses like any other.
export async function get(path) {
  const answer = await ask(path, { signal: AbortSignal.timeout(answersWithin) });
  return { status: answer.status, text: await answer.text() };
}

// members returns the members of the cluster, as this member knows them.
export async function members() {
  const r = await call("v3/cluster/member/list", { linearizable: false });
  return (r.members || []).map((m) => ({
    id: memberID(m.ID), name: m.name || "", urls: m.clientURLs || [], learner: m.isLearner,
  }));
}

// quiet returns the result of a call, or null if it fails.
export const quiet = (answer) => answer.catch(() => null);

// statuses maps the codes that end a stream to HTTP statuses.
const statuses = { 3: 400, 7: 403, 14: 503, 16: 401 };

// stream makes a call, and yields each message as it arrives.
export async function* stream(path, body, signal) {
  const made = login;
  const answer = await ask(path, {
    method: "POST", headers: headers(made), body: JSON.stringify(body), signal,
  });
  if (!answer.ok) throw await failure(answer, made);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const broken = (err) => {
    throw signal?.aborted ? err : new Failure(0, { message: "the stream was interrupted" });
  };
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(broken);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const { error, result } of lines.filter(Boolean).map((line) => JSON.parse(line))) {
        if (error) throw refused(new Failure(statuses[error.code] || 500, error), made);
        yield result;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // nobody reads on
  }
}

// logIn logs in with a password.
export async function logIn(user, password) {
  const r = await call("v3/auth/authenticate", { name: user, password });
  keep({ user, token: r.token });
}

// useToken logs in with a token from elsewhere, if the member accepts it.
export async function useToken(text) {
  const token = text.trim();
  const { principal } = await call("v1/access/whoami", {}, undefined, { token });
  keep({ user: principal, token });
}

// logOut drops the login.
export const logOut = () => keep(null);
