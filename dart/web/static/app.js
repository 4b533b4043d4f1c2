"use strict";
// What the page does beyond showing: it follows the run, goes from step to step, and reads charts at the pointer.

// ---- following the run: parts of the page come as server-sent events ----

const RETRY_MS = 5000;
const SILENT_MS = 40000;  // the server speaks every 15 s (`KEEP_ALIVE_S` of dart.web.app)
const LOST = "This page does not follow the run now. It tries again; if that does not help, reload the page.";

function follow() {
  const address = document.body.dataset.stream;
  const light = document.querySelector("[data-link]");
  if (!address || !light) return;
  const notice = document.querySelector("[data-unfollowed]");
  let source = null;
  let failures = 0;
  let retry = 0;
  let silence = 0;
  const shows = (state, title, text) => {
    light.classList.toggle("open", state === "open");
    light.classList.toggle("lost", state === "lost");
    light.title = title;
    if (notice.textContent !== text) notice.textContent = text;  // a screen reader announces every change
  };
  const opened = () => {
    heard();
    failures = 0;
    shows("open", "This page follows the run", "");
  };
  // A server that hangs, or a tunnel whose other end is gone, ends no connection.
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(unheard, SILENT_MS);
  };
  const unheard = () => {
    if (!source) return;
    failures += 1;
    shows("lost", LOST, LOST);
    source.close();
    source = null;
    listen();
  };
  // Each stream ends after ten minutes. That is the first failure, and only the light shows it.
  const failed = ({ target }) => {
    const isRefused = target.readyState === EventSource.CLOSED;  // then the browser does not try again
    failures += 1;
    shows("lost", LOST, isRefused || failures > 1 ? LOST : "");
    if (!isRefused) return;
    source = null;
    clearTimeout(retry);  // a look at the page listens at once, and may have set one
    retry = setTimeout(listen, RETRY_MS);
  };
  // Browsers keep few connections to one server: a page that nobody sees leaves its own to the others.
  const listen = () => {
    if (document.hidden) { source?.close(); source = null; }
    if (document.hidden || source) return;
    source = new EventSource(address);
    heard();
    source.onopen = opened;
    source.addEventListener("alive", heard);
    source.onerror = failed;
    source.onmessage = (event) => { heard(); offer(JSON.parse(event.data)); };
  };
  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", () => { source?.close(); source = null; });
  addEventListener("pageshow", listen);
  listen();
}

// What changes waits while the reader presses on the page, has just marked something or read a chart by the keys, or
// chooses from a part.
const PRESS_MS = 1500;
const MARK_MS = 10000;
const waiting = new Map();
let heldUntil = 0;

function offer(part) {
  waiting.set(part.name, part);
  catchUp();
}

function catchUp() {
  if (performance.now() < heldUntil) return;
  for (const part of waiting.values()) {
    const place = document.getElementById(`part-${part.name}`);
    if (place?.contains(document.activeElement) && document.activeElement.matches("select, input")) continue;
    waiting.delete(part.name);
    if (place) replace(place, part.html);
  }
}

function hold(milliseconds) {
  heldUntil = performance.now() + milliseconds;
  setTimeout(catchUp, milliseconds + 1);
}

addEventListener("pointerdown", () => hold(PRESS_MS), true);
addEventListener("pointerup", () => hold(0), true);  // a click comes before what is due then
addEventListener("focusout", () => setTimeout(catchUp));
document.addEventListener("selectionchange", () => hold(getSelection().isCollapsed ? 0 : MARK_MS));

function replace(place, html) {
  const wanted = document.createElement("template");
  wanted.innerHTML = html;
  const read = [...place.querySelectorAll("[data-keep-end]")].filter(isRead);
  become(place, wanted.content);
  announce();
  place.querySelectorAll("[data-keep-end]").forEach((log) => { if (!read.includes(log)) log.scrollTop = log.scrollHeight; });
  if (lastPointer) readChart({ target: document.elementFromPoint(lastPointer.clientX, lastPointer.clientY), clientX: lastPointer.clientX });
}

// A screen reader speaks the notices, and once why parts cannot be read, when one comes, goes or says something else, not
// when only a figure changes. The number in a name such as env-003 is no figure.
const FIGURE = /(?<![\w-])\d[\d.,:]*( ([KMG]i)?B)?/g;

function announce() {
  const spoken = document.querySelector("[data-spoken]");
  const said = [...document.querySelectorAll("#part-notices, [data-trouble]")].map((one) => one.textContent);
  const wanted = [...new Set(said)].join(" ").replace(/\s+/g, " ").trim();
  if (spoken.textContent.replace(FIGURE, "") !== wanted.replace(FIGURE, "")) spoken.textContent = wanted;
}

// Whether the reader has scrolled up in a log; at its end it goes on with the end.
function isRead(log) {
  return log.scrollTop + log.clientHeight < log.scrollHeight - 8;
}

// Change the content of a place only where it differs: what stays keeps the focus, and a screen reader its place.
function become(place, wanted) {
  let next = place.firstChild;
  for (const child of [...wanted.childNodes]) {
    const same = counterpart(child, next);
    if (!same) {
      place.insertBefore(child, next);
      continue;
    }
    while (next !== same) next = removed(next);
    next = same.nextSibling;
    if (same.nodeType === Node.TEXT_NODE) {
      if (same.data !== child.data) same.data = child.data;
    } else {
      adopt(same, child);
      become(same, child);
    }
  }
  while (next) next = removed(next);
}

// Rows and links are recognised by what they lead to, also where others come before them; all else by its place.
function counterpart(child, next) {
  const isSame = (node) => node.nodeName === child.nodeName && leadsTo(node) === leadsTo(child);
  let found = next;
  while (found && leadsTo(child) && !isSame(found)) found = found.nextSibling;
  return found && isSame(found) ? found : null;
}

function leadsTo(node) {
  if (!node.matches?.("a, tr, li")) return "";
  return (node.matches("a") ? node : node.querySelector("a"))?.getAttribute("href") ?? "";
}

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function adopt(element, wanted) {
  for (const { name } of [...element.attributes]) {
    if (!wanted.hasAttribute(name) && name !== "open") element.removeAttribute(name);  // details stay open
  }
  for (const { name, value } of wanted.attributes) {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
}

// ---- trajectories: one step at a time, all players of the page together ----

function play() {
  const players = [...document.querySelectorAll("[data-player]")];
  if (!players.length) return;
  const counts = players.map((player) => player.querySelectorAll("[data-step]").length);
  const last = Math.max(...counts);
  let current = 0;
  const show = (wanted) => {
    current = Math.min(last, Math.max(1, wanted));
    players.forEach((player, index) => showStep(player, Math.min(current, counts[index]), counts[index], current, last));
  };
  const go = (wanted) => {
    show(wanted);
    history.replaceState(null, "", `#${current}`);
  };
  players.forEach((player) => {
    player.classList.add("playing");
    player.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button?.dataset.go) go(current + Number(button.dataset.go));
      if (button?.dataset.to) go(Number(button.dataset.to));
    });
  });
  const keys = { ArrowLeft: () => current - 1, ArrowRight: () => current + 1, Home: () => 1, End: () => last };
  addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.matches?.("input, select, textarea")) return;
    event.preventDefault();
    go(keys[event.key]());
  });
  addEventListener("hashchange", () => show(Number(location.hash.slice(1)) || current));
  show(Number(location.hash.slice(1)) || 1);
}

function showStep(player, number, count, current, last) {
  player.querySelectorAll("[data-step]").forEach((step) => {
    const apart = Number(step.dataset.step) - number;
    step.classList.toggle("current", apart === 0);
    if (Math.abs(apart) <= 1) step.querySelector("img")?.setAttribute("loading", "eager");  // what comes next is there
  });
  player.querySelectorAll("[data-to]").forEach((button) => {
    const isCurrent = button.classList.toggle("current", Number(button.dataset.to) === number);
    button.setAttribute("aria-current", isCurrent ? "step" : "false");
  });
  player.querySelector("[data-where]").textContent = `step ${number} of ${count}`;
  player.querySelector("[data-go='-1']").disabled = current <= 1;
  player.querySelector("[data-go='1']").disabled = current >= last;
}

// ---- filters ----

// The keys change a choice at each press, so a choice by the keys waits for the button of its form.
function submitChoice(event) {
  if (!event.target.matches(":focus-visible")) event.target.closest("[data-submit-on-change]")?.requestSubmit();
}

// ---- charts: the figures of a moment, at the pointer or by the keys ----

const readouts = new WeakMap();
let lastPointer = null;

function rowsOf(chart) {
  const json = chart.dataset.readout;
  if (readouts.get(chart)?.json !== json) readouts.set(chart, { json, rows: JSON.parse(json) });
  return readouts.get(chart).rows;
}

function readChart(event) {
  const plot = event.target?.closest?.("[data-readout] .plot");
  if (!plot) return;
  const rows = rowsOf(plot.closest("[data-readout]"));
  if (!rows.length) return;
  const box = plot.getBoundingClientRect();
  const at = 1000 * (event.clientX - box.left) / box.width;
  showRow(plot, rows.reduce((best, row) => Math.abs(row[0] - at) < Math.abs(best[0] - at) ? row : best));
}

function showRow(plot, [x, moment, figures]) {
  const chart = plot.closest("[data-readout]");
  const pointer = plot.querySelector(".pointer");
  pointer.setAttribute("x1", `${x / 10}%`);
  pointer.setAttribute("x2", `${x / 10}%`);
  pointer.setAttribute("visibility", "visible");
  chart.querySelector("[data-moment]").textContent = moment;
  chart.querySelectorAll("[data-value]").forEach((place, index) => {
    place.dataset.last ??= place.textContent;
    place.textContent = figures[index] ?? "–";
  });
}

function leaveChart(event) {
  const chart = event.target.closest?.("[data-readout]");
  if (chart && !chart.contains(event.relatedTarget)) showLast(chart);
}

function showLast(chart) {
  chart.querySelector(".pointer")?.setAttribute("visibility", "hidden");
  chart.querySelector("[data-moment]").textContent = "";
  chart.querySelectorAll("[data-value]").forEach((place) => { place.textContent = place.dataset.last ?? place.textContent; });
}

// A plot is a slider over its moments.
function stepChart(event) {
  const plot = event.target.closest?.("[data-readout] .plot");
  if (!plot || event.altKey || event.ctrlKey || event.metaKey) return;
  const chart = plot.closest("[data-readout]");
  const last = rowsOf(chart).length - 1;
  const now = Number(plot.getAttribute("aria-valuenow"));
  const wanted = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last }[event.key];
  if (event.key === "Escape") showLast(chart);
  if (wanted === undefined) return;
  event.preventDefault();
  hold(MARK_MS);
  choose(plot, chart, Math.min(last, Math.max(0, wanted)));
}

function choose(plot, chart, number) {
  showRow(plot, rowsOf(chart)[number]);
  const lines = [...chart.querySelectorAll(".legend li:not(.moment)")].map((line) => line.textContent.trim());
  plot.setAttribute("aria-valuenow", number);
  plot.setAttribute("aria-valuetext", `${chart.querySelector("[data-moment]").textContent}: ${lines.join(", ")}`);
}

document.addEventListener("pointermove", (event) => { lastPointer = event; readChart(event); });
document.addEventListener("pointerout", leaveChart);
document.addEventListener("focusout", leaveChart);
document.addEventListener("keydown", stepChart);
document.addEventListener("change", submitChoice);
document.querySelectorAll("[data-keep-end]").forEach((log) => { log.scrollTop = log.scrollHeight; });
play();
follow();
