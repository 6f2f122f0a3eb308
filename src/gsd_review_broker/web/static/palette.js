// Finds commands, pages and files by a few letters of their name; other text is searched for.
import { openFile, remark } from "./review.js";

const palette = document.getElementById("palette");
const input = document.getElementById("command");
const list = document.getElementById("commands");
let shown = [], at = 0;

function all(doing) {
  const pages = [...document.querySelectorAll(".top nav a")].map((link) => [`Go to ${link.firstChild.textContent}`, () => link.click()]);
  const rows = [...document.querySelectorAll("details.file")].map((file) => [file.dataset.path, () => { file.open = true; file.scrollIntoView(); }]);
  const commands = [["Dark or light", doing.theme], ["Keys", doing.help]];
  if (document.getElementById("files")) commands.push(["Open every file", doing.every]);
  for (const id of ["approve", "request"]) {
    const button = document.getElementById(id);
    if (button) commands.push([`Go to: ${button.textContent}`, () => { button.scrollIntoView({ block: "center" }); button.focus(); }]);
  }
  return [...pages, ...commands, ...rows];
}
function show(doing) {
  const words = input.value.trim().toLowerCase();
  shown = all(doing).filter(([name]) => words.split(/\s+/).every((word) => name.toLowerCase().includes(word))).slice(0, 12);
  // The same as a click on the line's number.
  const [, path, line] = words.match(/^(.+):(\d+)$/) || [];
  const file = path && [...document.querySelectorAll("details.file")].find((one) => one.dataset.path.toLowerCase().includes(path));
  if (file) shown.unshift([`Comment on ${file.dataset.path}:${line}`, async () => { await openFile(file); remark(`${file.id}n${line}`); }]);
  if (words) shown.push([`Search reviews for “${input.value.trim()}”`, () => { location.href = `/reviews?q=${encodeURIComponent(input.value.trim())}`; }]);
  at = 0;
  list.replaceChildren(...shown.map(([name], index) => {
    const row = document.createElement("li");
    row.id = `command-${index}`;
    row.role = "option";
    row.textContent = name;
    row.onclick = () => run(index);
    return row;
  }));
  mark();
}
function mark() {
  [...list.children].forEach((row, index) => row.setAttribute("aria-selected", index === at));
  input.setAttribute("aria-activedescendant", shown.length ? `command-${at}` : "");
  list.children[at]?.scrollIntoView({ block: "nearest" });
}
function run(index) {
  palette.close();
  shown[index]?.[1]();
}
export function openPalette(doing) {
  input.value = "";
  input.oninput = () => show(doing);
  show(doing);
  palette.showModal();
  input.focus();
}
input.addEventListener("keydown", (event) => {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by) { at = (at + by + shown.length) % shown.length; mark(); event.preventDefault(); }
  if (event.key === "Enter") { event.preventDefault(); run(at); }
});
