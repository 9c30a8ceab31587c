// The JSON API of the member or the relay, as the user who is logged in. All addresses are relative to the page, so
// that it works behind a prefix.

import { memberID, object } from "./text.js";

// root is where the API is: one step above /ui/.
const root = new URL("../", document.baseURI);

// server says what the page came from and asks: "member", or "relay", which asks a member.
export const server = document.querySelector("meta[name=leasehold-server]").content;
export const relay = server === "relay";

// answersWithin is how long a call may take. It is above what the server needs to say that it does
// not know.
const answersWithin = 20_000;

// The login stays in this tab, and ends with it.
const key = "leasehold.login";

let login = JSON.parse(sessionStorage.getItem(key) || "null");

// who returns the login, null if there is none: {user, token}.
export const who = () => login;

function keep(l) {
  login = l;
  if (l) sessionStorage.setItem(key, JSON.stringify(l));
  else sessionStorage.removeItem(key);
  globalThis.dispatchEvent(new Event("login"));
}

// Failure is an answer that is an error, or none at all.
class Failure extends Error {
  constructor(status, body) {
    super(body?.message || `the ${server} answered with status ${status}`);
    const detail = body?.details?.find((d) => d["@type"]?.endsWith("leasehold.v1.Error"));
    this.reason = detail?.reason || "";
    // etcd's API says 400 to a call without a login.
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
    throw new Failure(0, { message: `the ${server} does not answer` });
  }
}

// refused forgets a login that the cluster does not know any more. A call that was made as another
// login says nothing of this one.
function refused(f, made) {
  if (f.anonymous && login && login === made) keep(null);
  return f;
}

// failure reads why a call failed.
async function failure(answer, made) {
  const text = await answer.text().catch(() => "");
  let body = object(text);
  // One that is not of the API is of a proxy, or of the guard before it, which says what to do.
  if (!body && answer.headers.get("Content-Type")?.startsWith("text/plain")) {
    body = { message: text.slice(0, 300) };
  }
  return refused(new Failure(answer.status, body), made);
}

// call asks once, and returns the answer.
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
    throw new Failure(0, { message: "the answer was cut short" });
  }
}

// get reads a page of the member. An answer that is an error is an answer, too.
export async function get(path) {
  const answer = await ask(path, { signal: AbortSignal.timeout(answersWithin) });
  return { status: answer.status, text: await answer.text() };
}

// members asks for the members of the cluster, as this one knows them.
export async function members() {
  const r = await call("v3/cluster/member/list", { linearizable: false });
  return (r.members || []).map((m) => ({
    id: memberID(m.ID), name: m.name || "", urls: m.clientURLs || [], learner: m.isLearner,
  }));
}

// quiet is what a call answers, null if it fails.
export const quiet = (answer) => answer.catch(() => null);

// statuses are those of HTTP for the codes by which a stream ends.
const statuses = { 3: 400, 7: 403, 14: 503, 16: 401 };

// stream asks, and yields each message as it comes.
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

// logIn logs in by a password.
export async function logIn(user, password) {
  const r = await call("v3/auth/authenticate", { name: user, password });
  keep({ user, token: r.token });
}

// useToken logs in by a token that something else made, if the member takes it.
export async function useToken(text) {
  const token = text.trim();
  const { principal } = await call("v1/access/whoami", {}, undefined, { token });
  keep({ user: principal, token });
}

// logOut forgets the login.
export const logOut = () => keep(null);
