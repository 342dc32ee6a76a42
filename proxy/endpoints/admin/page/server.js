// What the page asks the proxy for.

const TOKEN = "disagg-proxy admin token";
const SECONDS = 10;

export class TokenNeeded extends Error {}

// An answer that is not 2xx; the message is the proxy's.
export class Refused extends Error {}

// Kept until the tab is closed.
export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

async function ask(path, options, seconds = SECONDS) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  const signal = seconds === null ? null : AbortSignal.timeout(seconds * 1000);
  const answer = await fetch(path, { ...options, headers, signal, cache: "no-store", redirect: "error" });
  if (answer.status === 401) {
    sessionStorage.removeItem(TOKEN);
    throw new TokenNeeded();
  }
  const body = await answer.json();
  if (!answer.ok) throw new Refused(body.error?.message ?? `status ${answer.status}`);
  return body;
}

export function readStatus() {
  return ask("/admin/status", {});
}

export function changeWorker(action, worker) {
  return post(`/admin/workers/${action}`, { workers: [worker] });
}

// Answered when nothing runs any more, however long that takes; the pause begins at once.
export function pause() {
  return post("/admin/pause", {}, null);
}

export function resume() {
  return post("/admin/resume", {});
}

function post(path, body, seconds = SECONDS) {
  const headers = { "content-type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body) }, seconds);
}
