// Scripts of every page: live updates, keys, commands, theme. Every page also works without them.
import { connect } from "./stream.js";
import { openPalette } from "./palette.js";
import { everyFile, holdForm, openFile, placeThreads, remark, restoreDraft, startReview, wholeFile } from "./review.js";

const body = document.body;
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// Times: how long ago, and how long until.
const units = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
function ago(seconds) {
  const [size, unit] = units.find(([size]) => Math.abs(seconds) >= size) || [1, "second"];
  return Math.abs(seconds) < 5 ? "now" : relative.format(-Math.round(seconds / size), unit);
}
function tellTimes() {
  const now = Date.now();
  for (const time of $$("time")) time.textContent = ago((now - Date.parse(time.dateTime)) / 1000);
  for (const until of $$("[data-until]")) {
    const left = Math.max(0, Math.floor((until.dataset.until - now) / 1000));
    until.textContent = left ? `in ${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` : "now";
  }
}

// Live updates: when something happens, the page is fetched again and its live parts are replaced.
// Not more often than this, to spare a busy broker; nobody reads faster.
// One at a time: an older answer must not come last.
let last = 0, planned = null, isLooking = false, isWanted = false;
function refresh() {
  if (isLooking) { isWanted = true; return; }
  const pause = document.hidden ? 5000 : 600;
  planned ??= setTimeout(look, Math.max(0, last + pause - performance.now()));
}
async function look() {
  planned = null;
  isLooking = true;
  try {
    const answer = await fetch(body.dataset.source || location.href, { signal: AbortSignal.timeout(30000) });
    if (answer.ok) take(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch { /* the broker is away; the stream tells when it is back */ }
  isLooking = false;
  last = performance.now();
  if (isWanted) { isWanted = false; refresh(); }
}
function take(news) {
  const decision = $("#decision"), next = $("#decision", news);
  // The verdict must apply to the content that is shown.
  const isStale = decision && next && decision.dataset.revision !== next.dataset.revision;
  if (isStale) $("#stale").hidden = false;
  for (const part of $$("[data-live]")) {
    const fresh = $(`[data-live="${part.dataset.live}"]`, news);
    if (!fresh || (part === decision && (isStale || holdForm(part, fresh))) || part.outerHTML === fresh.outerHTML) continue;
    swap(part, fresh);
  }
  // Update forms outside those parts: the broker was restarted, or a claim began since.
  for (const name of isStale ? ["token"] : ["token", "claim_generation"]) {
    const value = $(`[name=${name}]`, news)?.value;
    for (const form of value ? [document, $("#remark-form")?.content] : []) form && $$(`[name=${name}]`, form).forEach((field) => { field.value = value; });
  }
  restoreDraft();
  if ($("#placed", news)) placeThreads($$("#placed > .thread", news), swap);
  const count = Number($('[data-live="count"]', news)?.textContent || 0);
  tellCount(count);
  tellTimes();
}
// Keep what was typed, opened and focused.
export function swap(part, fresh) {
  fresh = document.importNode(fresh, true);
  const typed = $$("textarea, input:not([type=hidden]), select", part).filter((field) => field.id && field.value !== (field.defaultValue ?? ""));
  const opened = $$("details", part).map((one) => one.open);
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  part.replaceWith(fresh);
  $$("details", fresh).forEach((one, index) => { if (opened[index]) one.open = true; });
  for (const field of typed) { const same = document.getElementById(field.id); if (same) same.value = field.value; }
  if (focused?.id) document.getElementById(focused.id)?.focus({ preventScroll: true });
}
let known = Number($('[data-live="count"]')?.textContent || 0);
function tellCount(count) {
  document.title = (count ? `(${count}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  if (count > known) {
    $("#news").textContent = "A new entry in the inbox";
    if (localStorage.getItem("notify") && Notification.permission === "granted" && document.hidden) {
      const note = new Notification("Tandem", { body: `${count} in the inbox`, tag: "inbox" });
      note.onclick = () => { window.focus(); location.href = "/"; };
    }
  }
  known = count;
}
connect({
  last: body.dataset.last,
  onEvent(event) { if (!body.dataset.review || !event || event.review_id === body.dataset.review || /^(human|verdict|message)/.test(event.event_type)) refresh(); },
  onState(isOn) { const dot = $("#pulse"); dot.hidden = false; dot.classList.toggle("on", isOn); dot.title = isOn ? "live" : "the broker is away"; },
});

// Buttons.
const doing = {
  theme() {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const next = (document.documentElement.dataset.theme || dark) === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
  },
  help() { $("#help").showModal(); },
  palette() { openPalette(doing); },
  every() { everyFile(); },
  cancel() { $("#remark")?.closest("tr").remove(); },
  async copy(button) {
    await navigator.clipboard.writeText($("code", button.parentElement).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  },
};
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (!button) return;
  event.preventDefault();
  doing[button.dataset.do](button);
});
// A form is sent once.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "1";
});
addEventListener("pageshow", () => $$("form[data-sent]").forEach((form) => delete form.dataset.sent));

const notify = $("#notify");
notify.checked = Boolean(localStorage.getItem("notify"));
notify.addEventListener("change", async () => {
  const granted = notify.checked && (await Notification.requestPermission()) === "granted";
  notify.checked = granted;
  granted ? localStorage.setItem("notify", "1") : localStorage.removeItem("notify");
});

// Keys.
function step(selector, by) {
  const rows = $$(selector).filter((row) => row.getClientRects().length);
  const at = rows.findIndex((row) => row.classList.contains("here"));
  const row = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))];
  if (!row) return;
  $$(".here").forEach((other) => other.classList.remove("here"));
  row.classList.add("here");
  row.scrollIntoView({ block: row.matches(".file") ? "start" : "center" });
  $("a, summary", row)?.focus({ preventScroll: true });
}
const spots = ".diff .thread, tr.a:not(tr.a + tr.a, tr.d + tr.a), tr.d:not(tr.d + tr.d), .read tr[id]";
const keys = {
  j: () => step("[data-row]", 1), k: () => step("[data-row]", -1),
  n: () => step(spots, 1), p: () => step(spots, -1),
  o() {
    const row = $(".here[data-row]") || $("[data-row]:has(:focus)");
    if (row?.matches(".file")) openFile(row, !row.open); else $("a", row || undefined)?.click();
  },
  e: () => everyFile(),
  x: () => wholeFile($(".file.here, .file:has(:focus)")),
  m: () => ($(".file:is(.here, :has(.here, :focus)) .turn") || $(".turn"))?.click(),
  a() { const button = $("#approve"); button?.scrollIntoView({ block: "center" }); button?.focus(); },
  r() { $("#request")?.scrollIntoView({ block: "center" }); $("#reason")?.focus(); },
  c() { const line = $("tr.here[id]") || $("tr:target"); if (line && remark(line.id)) return; const say = $("#say"); if (say) { say.closest("details").open = true; say.focus(); } },
  "?": doing.help, "/": doing.palette,
};
const singles = $("#singles");
singles.checked = !localStorage.getItem("nokeys");
singles.addEventListener("change", () => singles.checked ? localStorage.removeItem("nokeys") : localStorage.setItem("nokeys", "1"));
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); doing.palette(); return; }
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]")) return;
  if (event.target.matches("input:not([type=checkbox]), textarea, select")) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "Escape") doing.cancel();
  if (!keys[event.key] || !singles.checked) return;
  event.preventDefault();
  keys[event.key]();
});

const address = new URL(location);
address.searchParams.delete("done");
// After a refused verdict the address is the review's, so that a reload sends nothing.
if ($("#refused")) address.pathname = `/r/${body.dataset.review}`;
if (address.href !== location.href) history.replaceState(null, "", address);
tellTimes();
setInterval(tellTimes, 1000);
startReview();
// git had not answered when the page was rendered.
if ($("[data-again]")) setTimeout(refresh, 700);
// Changes without an event.
const every = $("[data-every]")?.dataset.every;
if (every) setInterval(() => document.hidden || refresh(), every * 1000);
