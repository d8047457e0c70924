"use strict";

const byId = (id) => document.getElementById(id);
const status = byId("status");

// Elements are made one by one: texts of documents are never read as HTML.
function element(name, text = "", properties = {}) {
  const made = Object.assign(document.createElement(name), properties);
  made.textContent = text;
  return made;
}

async function call(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (byId("token").value) headers.Authorization = `Bearer ${byId("token").value}`;
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  if (answer.status === 401) byId("secret").hidden = false;
  const content = answer.status === 204 ? {} : await answer.json();
  if (!answer.ok) throw new Error(content.error.message);
  return content;
}

let towers = [];

async function listTowers() {
  towers = (await call("/towers")).towers;
  const legend = byId("towers").firstElementChild;
  byId("towers").replaceChildren(legend);
  towers.forEach((tower, number) => {
    const label = element("label", ` ${tower.name}`);
    label.prepend(element("input", "", { type: "checkbox", name: "tower", value: tower.name, checked: number < 2 }));
    byId("towers").append(label);
  });
}

function chosen() {
  return [...document.querySelectorAll("[name=tower]:checked")].map((box) => box.value);
}

function moved(rank, before) {
  if (before === undefined) return "";
  if (before === 0) return "new";
  if (before === rank) return "same rank";
  return `${before > rank ? "up" : "down"} from ${before}`;
}

// An example needs a document that answers: thumbs down wait for the first thumb up of their question.
let judged = { query: "", answer: undefined, others: [] };

async function judge(query, tower, side, document) {
  if (judged.query !== query) judged = { query, answer: undefined, others: [] };
  if (side === "neg" && judged.answer === document) throw new Error("this result is kept as an answer already");
  if (side === "pos") judged.answer = document;
  else judged.others.push(document);
  judged.others = judged.others.filter((other) => other !== judged.answer);
  if (judged.answer === undefined) return false;
  await call("/preferences", { query, tower, pos: [judged.answer], neg: judged.others });
  judged.others = [];
  return true;
}

function thumbs(query, tower, hit) {
  const group = element("span", "", { className: "thumbs" });
  for (const [sign, side, told] of [["+", "pos", "answers"], ["\u2212", "neg", "does not answer"]]) {
    const button = element("button", sign, { type: "button" });
    button.dataset.side = side;
    button.setAttribute("aria-label", `${hit.doc_id} ${told} the question`);
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", async () => {
      try {
        const kept = await judge(query, tower, side, hit.text || hit.doc_id);
        button.setAttribute("aria-pressed", "true");
        status.textContent = `${kept ? "kept" : "kept once another result answers"}: ${hit.doc_id} ${told}`;
      } catch (fault) {
        status.textContent = fault.message;
      }
    });
    group.append(button);
  }
  return group;
}

function column(query, name, hits, first) {
  const section = element("section");
  section.setAttribute("aria-label", name);
  const tower = towers.find((each) => each.name === name);
  section.append(element("h2", name));
  const gain = tower.validation_gain_percent;
  const told = gain === null ? tower.source : `${tower.source}; validation ${gain.toFixed(1)} %`;
  section.append(element("p", told, { className: "note" }));
  const list = element("ol");
  hits.forEach((hit, place) => {
    const item = element("li", "", { tabIndex: -1 });
    const before = first && first.findIndex((each) => each.doc_id === hit.doc_id) + 1;
    const line = `${hit.score.toFixed(4)} ${first ? moved(place + 1, before) : ""}`;
    item.append(element("div", line, { className: "moved" }), element("div", hit.text || hit.doc_id));
    item.append(thumbs(query, name, hit));
    list.append(item);
  });
  section.append(hits.length ? list : element("p", "no hits"));
  return section;
}

async function search(event) {
  event.preventDefault();
  const query = byId("query").value.trim();
  if (!query) return;
  status.textContent = "searching";
  try {
    if (!towers.length) await listTowers();
    const names = chosen();
    const fuse = byId("fuse").checked;
    const answers = await Promise.all(names.map((tower) => call("/search", { query, tower, fuse, k: 10 })));
    const first = answers.length ? answers[0].hits : [];
    byId("columns").replaceChildren(
      ...answers.map((answer, place) => column(query, names[place], answer.hits, place ? first : undefined)),
    );
    status.textContent = names.length ? `${names.length} towers searched` : "choose a tower";
  } catch (fault) {
    status.textContent = fault.message;
  }
}

function move(rows, columns) {
  const lists = [...document.querySelectorAll("#columns ol")];
  if (!lists.length) return;
  const item = document.activeElement.closest("#columns li");
  const at = item ? lists.indexOf(item.parentElement) : 0;
  const row = item ? [...item.parentElement.children].indexOf(item) + rows : 0;
  const list = lists[Math.min(Math.max(at + columns, 0), lists.length - 1)];
  list.children[Math.min(Math.max(row, 0), list.children.length - 1)].focus();
}

function press(side) {
  const item = document.activeElement.closest("#columns li");
  if (item) item.querySelector(`[data-side=${side}]`).click();
}

const keys = {
  "/": () => byId("query").focus(),
  j: () => move(1, 0),
  k: () => move(-1, 0),
  h: () => move(0, -1),
  l: () => move(0, 1),
  "+": () => press("pos"),
  "-": () => press("neg"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input:not([type=checkbox])") || !(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

byId("ask").addEventListener("submit", search);
byId("token").addEventListener("change", () => listTowers().catch((fault) => { status.textContent = fault.message; }));
listTowers().catch((fault) => { status.textContent = fault.message; });
