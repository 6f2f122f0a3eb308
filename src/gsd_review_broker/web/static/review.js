// The change: files that load when they are opened, remarks on a line, new threads while the page is open.
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const fileOf = (name) => document.getElementById(name.match(/^f\d+/)?.[0]);

async function load(file, link = file.querySelector("a[class=load]")) {
  if (!link || link.dataset.asked) return;
  link.dataset.asked = "1";
  const answer = await fetch(link.dataset.source);
  if (!answer.ok) { delete link.dataset.asked; link.textContent = "It did not come; try again"; return; }
  const holder = document.createElement("div");
  holder.className = "scroll";
  holder.append(...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes);
  const wider = link.matches(".around, .turn");
  (wider ? file.querySelector(".scroll") : link.parentElement).replaceWith(holder);
  if (wider) holder.querySelector("a")?.focus();
}
export const wholeFile = (file) => file && load(file, all("a.around", file).pop());
export async function openFile(file, open = true) {
  file.open = open;
  if (open) await load(file);
}
export async function everyFile() {
  for (let more; (more = document.querySelector("[data-more]")); ) await moreFiles(more);
  // Two at a time: the first files can be read while the others load.
  const waiting = all("details.file");
  const take = async () => { for (let file; (file = waiting.shift()); ) await openFile(file); };
  await Promise.all([take(), take()]);
}
async function moreFiles(link) {
  const page = new DOMParser().parseFromString(await (await fetch(link.href)).text(), "text/html");
  link.parentElement.replaceWith(...page.getElementById("files").children);
  watch();
}
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    if (target.matches("[data-more]")) moreFiles(target);
  }
}, { rootMargin: "600px" });
const watch = () => all("[data-more]").forEach((one) => seen.observe(one));

function below(line, content) {
  const row = document.createElement("tr"), cell = document.createElement("td");
  row.className = "t";
  cell.colSpan = 4;
  cell.append(content);
  row.append(cell);
  line.closest("tr").after(row);
  return cell;
}
// A remark on a line: the same form as without scripts.
export function remark(name) {
  const line = document.getElementById(name), form = document.getElementById("remark-form");
  const place = name.match(/^f(\d+)([on])(\d+)$/);
  if (!line || !form || !place) return false;
  document.getElementById("remark")?.closest("tr").remove();
  const cell = below(line, form.content.cloneNode(true));
  const path = fileOf(name).dataset.path;
  cell.querySelector("[name=at]").value = cell.querySelector("[name=back]").value = name;
  cell.querySelector("[name=path]").value = path;
  cell.querySelector("code").textContent = path;
  cell.querySelector("[data-line]").textContent = place[3];
  cell.querySelector("textarea").focus();
  return true;
}
export function placeThreads(threads, swap) {
  for (const fresh of threads) {
    const there = document.getElementById(fresh.id);
    if (there?.closest(".diff")) { if (there.outerHTML !== fresh.outerHTML) swap(there, fresh); continue; }
    const file = all("details.file").find((one) => one.dataset.path === fresh.dataset.path);
    const line = file && document.getElementById(file.id + fresh.dataset.side + fresh.dataset.line);
    if (line) below(line, document.importNode(fresh, true));
  }
}
// Text typed for the verdict is kept when the form is replaced: claims of others, newer revisions, another page.
const judging = () => all(".judge textarea");
const draftName = () => `draft-${document.body.dataset.review}`;
function keepDraft() {
  sessionStorage.setItem(draftName(), JSON.stringify(Object.fromEntries(judging().map((field) => [field.name, field.value]))));
}
export function restoreDraft() {
  const draft = JSON.parse(sessionStorage.getItem(draftName()) || "{}");
  for (const field of judging()) {
    if (field.value || !draft[field.name]) continue;
    field.value = draft[field.name];
    if (field.closest("details")) field.closest("details").open = true;
  }
}
// A form with text in it is not removed; it says why it cannot be sent.
export function holdForm(part, fresh) {
  if (fresh.querySelector(".judge") || !judging().some((field) => field.value.trim())) return false;
  const told = part.querySelector("#meanwhile");
  const text = `${fresh.querySelector(":scope > p:not([hidden])")?.textContent || "It can no longer be judged."} What you wrote is kept.`;
  // Screen readers announce only what is new.
  if (told.textContent !== text) told.textContent = text;
  told.hidden = false;
  all(".judge button", part).forEach((button) => { button.disabled = true; });
  return true;
}
async function goTo(hash) {
  const name = hash.slice(1), file = fileOf(name);
  if (file) await openFile(file);
  document.getElementById(name)?.scrollIntoView({ block: "center" });
}
export function startReview() {
  if (!document.getElementById("files")) return;
  if (document.querySelector(".said[data-judged]")) sessionStorage.removeItem(draftName());
  restoreDraft();
  if (document.getElementById("refused") && judging().length) keepDraft();
  document.addEventListener("input", ({ target }) => { if (target.matches(".judge textarea")) keepDraft(); });
  watch();
  document.addEventListener("toggle", ({ target }) => { if (target.matches?.("details.file") && target.open) load(target); }, true);
  document.addEventListener("click", (event) => {
    const link = event.target.closest(".diff a[href*='at=f'], a.load");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (link.matches(".load")) { event.preventDefault(); load(link.closest("details"), link); return; }
    if (remark(link.hash.slice(1))) { event.preventDefault(); history.replaceState(null, "", link.hash); }
  });
  addEventListener("hashchange", () => goTo(location.hash));
  if (location.hash.length > 1) goTo(location.hash);
}
