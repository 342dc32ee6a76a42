// Looks at the proxy each second and shows what it tells.

import {
  History, bucketsBetween, countsOfRequests, countsOfWorkers, failedLegs, keyOf, quantile, shownBytes, shownCount,
  shownDuration, shownRate, shownSeconds,
} from "./figures.js";
import { Refused, TokenNeeded, changeWorker, keepToken, pause, readStatus, resume } from "./server.js";
import { badgesOf, element, setText, showBars, showRows } from "./tables.js";

const EVERY = 1000;
const MOST_ROWS = 400;

const at = (id) => document.getElementById(id);
const lately = new History(10);
const minute = new History(60);
const buttons = new Map();
let latest = null;
let lostSince = null;

// Looking

async function look() {
  try {
    const status = await readStatus();
    connected();
    show(status);
  } catch (error) {
    if (error instanceof TokenNeeded) await askToken();
    else lost(error);
  }
  setTimeout(look, EVERY);
}

function connected() {
  lostSince = null;
  at("connection").dataset.state = "live";
  setText(at("connection"), "live");
  delete at("content").dataset.stale;
}

function lost(error) {
  lostSince ??= new Date();
  at("connection").dataset.state = "lost";
  const why = error instanceof Refused ? ` (${error.message})` : "";
  setText(at("connection"), `connection lost at ${lostSince.toLocaleTimeString()}${why}, trying again`);
  at("content").dataset.stale = "";
  at("pause").disabled = true;
  for (const button of buttons.values()) button.disabled = true;
}

// Showing

function show(status) {
  const now = performance.now() / 1000;
  const counts = countsOfRequests(status);
  if (minute.last && counts.requests < minute.last.counts.requests) {
    // Another proxy, whose counts began anew.
    minute.clear();
    lately.clear();
  }
  minute.add(now, counts);
  lately.add(now, { ...counts, workers: countsOfWorkers(status) });
  latest = status;
  setText(at("version"), status.version);
  showPause(status);
  showNow(status);
  showWorkers(status);
  showFirstByte(status);
  showProcesses(status);
  showSources(status);
  showErrors(status);
}

function showPause(status) {
  at("paused").hidden = !status.paused;
  setText(at("pause"), status.paused ? "Resume" : "Pause");
  at("pause").disabled = false;
}

function showNow(status) {
  setText(at("in_flight"), shownCount(status.in_flight));
  setText(at("queued"), shownCount(status.queued));
  setText(at("request_rate"), shownRate(lately.rate((counts) => counts.requests)));
  setText(at("error_rate"), shownRate(lately.rate((counts) => counts.errors)));
  setText(at("overhead"), shownSeconds(lately.mean((counts) => counts.overhead)));
}

function showWorkers(status) {
  const wanted = at("filter").value.trim().toLowerCase();
  const found = status.workers.filter((worker) =>
    `${keyOf(worker)} ${Object.keys(worker.states).join(" ")}`.toLowerCase().includes(wanted),
  );
  const rows = found.slice(0, MOST_ROWS);
  const note = found.length > rows.length ? `the first ${rows.length} of ${found.length}` : `${found.length}`;
  setText(at("workers_note"), status.workers.length > found.length ? `${note} of ${status.workers.length}` : note);
  showRows(at("workers"), rows, keyOf, cellsOfWorker, "no workers");
  const known = new Set(status.workers.map(keyOf));
  for (const key of buttons.keys()) if (!known.has(key)) buttons.delete(key);
}

function cellsOfWorker(worker) {
  const counts = (read) => (looked) => read(looked.workers.get(keyOf(worker)));
  const rising = lately.rise(counts((own) => own?.failed)) > 0;
  return [
    worker.role,
    worker.worker,
    badgesOf(worker.states),
    badgesOf(worker.breakers),
    shownCount(worker.in_flight),
    shownRate(lately.rate(counts((own) => own?.placed))),
    shownSeconds(lately.mean(counts((own) => own?.latency))),
    [[shownCount(failedLegs(worker)), rising ? "rising" : ""]],
    buttonOf(worker),
  ];
}

function buttonOf(worker) {
  const key = keyOf(worker);
  const button = buttons.get(key) ?? element("button", { type: "button" });
  buttons.set(key, button);
  const action = worker.held ? "resume" : "drain";
  setText(button, worker.held ? "Resume" : "Drain");
  button.ariaLabel = `${button.textContent} ${worker.role} worker ${worker.worker}`;
  button.disabled = false;
  button.onclick = () => confirmWorker(action, worker);
  return button;
}

function showFirstByte(status) {
  const { bounds, counts } = status.first_byte;
  const buckets = minute.looks.length > 1 ? bucketsBetween(minute.first.counts.firstByte, counts) : null;
  const upTo = (share) => shownSeconds(quantile(share, buckets, bounds));
  setText(at("first_byte_median"), buckets ? upTo(0.5) : "–");
  const note = buckets ? `last minute: p50 ${upTo(0.5)}, p95 ${upTo(0.95)}, p99 ${upTo(0.99)}` : "";
  setText(at("first_byte_note"), note);
  showBars(at("first_byte"), buckets, bounds, shownSeconds);
}

function showProcesses(status) {
  showRows(at("processes"), status.processes, (process) => String(process.process), (process) => [
    process.pid === undefined ? String(process.process) : `${process.process} (pid ${process.pid})`,
    badgesOf({ [stateOf(process)]: 1 }),
    shownDuration(process.uptime_seconds),
    shownCount(process.restarts),
    shownSeconds(process.loop_lag_seconds),
    shownBytes(process.rss_bytes),
    shownCount(process.in_flight),
  ]);
}

function stateOf(process) {
  if (process.error !== undefined) return "gone";
  if (process.draining) return "draining";
  if (!process.ready) return "not ready";
  return process.paused ? "paused" : "serving";
}

// A lost source keeps its last list in force.
function showSources(status) {
  at("discovery").hidden = !status.discovery.length;
  showRows(at("sources"), status.discovery, (source) => source.source, (source) => [
    source.source,
    badgesOf({ [source.problem === null ? "in step" : "lost"]: 1 }),
    shownCount(source.workers),
    shownDuration(source.age_seconds),
    shownCount(source.errors),
    source.problem ?? "–",
  ]);
}

function showErrors(status) {
  const errors = status.recent_errors;
  setText(at("errors_note"), errors.length ? String(errors.length) : "");
  const key = (error) => `${error.process} ${error.time} ${error.request_id}`;
  showRows(at("errors"), errors, key, (error) => [
    new Date(error.time * 1000).toLocaleTimeString("en-GB"),
    String(error.status),
    error.error,
    error.worker || "–",
    error.route,
    error.request_id,
  ]);
}

// Acting

function confirmWorker(action, worker) {
  const name = `${worker.role} worker ${worker.worker}`;
  const other = latest.workers.some((each) => each.worker === worker.worker && each.role !== worker.role);
  const roles = other ? " This holds for both of its roles." : "";
  const text =
    action === "drain"
      ? `What runs on it (${worker.in_flight} now) goes on, new legs go elsewhere until it is resumed.${roles}`
      : `It gets new legs again.${roles}`;
  confirm(`${action === "drain" ? "Drain" : "Resume"} ${name}?`, text, action === "drain" ? "Drain" : "Resume", () =>
    changeWorker(action, worker.worker),
  );
}

function confirmPause() {
  if (latest.paused) confirm("Resume the proxy?", "Requests that wait go on.", "Resume", resume);
  else confirm("Pause the proxy?", "Running requests end; new ones wait until the proxy is resumed.", "Pause", pause);
}

function confirm(title, text, verb, act) {
  setText(at("confirm_title"), title);
  setText(at("confirm_text"), text);
  setText(at("confirm_yes"), verb);
  at("confirm_yes").onclick = async () => {
    at("confirm").close();
    await perform(act, title);
  };
  at("confirm").showModal();
}

async function perform(act, title) {
  at("failure").hidden = true;
  try {
    await act();
    show(await readStatus());
  } catch (error) {
    if (error instanceof TokenNeeded) return; // the next look asks for it
    const why = error instanceof Refused ? error.message : "no answer";
    setText(at("failure"), `${title.replace("?", "")}: failed, ${why}`);
    at("failure").hidden = false;
  }
}

function askToken() {
  at("connection").dataset.state = "waiting";
  setText(at("connection"), "the admin token is needed");
  const dialog = at("token");
  return new Promise((resolve) => {
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      keepToken(at("token_value").value.trim());
      at("token_value").value = "";
      dialog.onclose = null;
      dialog.close();
      resolve();
    };
    // Without it there is nothing to see: Escape only asks again.
    dialog.onclose = () => dialog.showModal();
    dialog.showModal();
  });
}

at("confirm_no").onclick = () => at("confirm").close();
at("pause").onclick = confirmPause;
at("filter").oninput = () => latest && showWorkers(latest);
look();
