// The list: which questions pass the filters, and as many rows as fit the window.

const ROW = 58;
let index = null;
let searchable = [];
let listed = [];
let active = -1;

const chosen = () => ({ view: find("view").selectedIndex, reader: find("reader").selectedIndex });
const said = (reader, view, question, metric = index.headline) => index.verdicts[metric][reader][view][question];

/** Outcomes to filter by, for the view and reader that are chosen: name -> [what it is called, test of a question number]. */
function outcomes() {
  const { view, reader } = chosen();
  const groups = new Map();
  const add = (group, name, words, test) => {
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push([name, words, test]);
  };
  const differ = (marks) => marks.includes("1") && marks.includes("0");
  add("This view and reader", "", "any", () => true);
  add("This view and reader", "right", "right", (q) => said(reader, view, q) === "1");
  add("This view and reader", "wrong", "wrong", (q) => said(reader, view, q) === "0");
  add("Disagreement", "views", "views disagree", (q) => differ(index.views.map((_, v) => said(reader, v, q))));
  if (index.readers.length > 1)
    add("Disagreement", "readers", "readers disagree", (q) => differ(index.readers.map((_, r) => said(r, view, q))));
  add("Disagreement", "metrics", "metrics disagree", (q) => differ(index.metrics.map((m) => said(reader, view, q, m))));
  const against = (kind, names, own, other) =>
    names.forEach((name, at) => {
      if (at === own) return;
      add(`Against another ${kind}`, `${kind}+${at}`, `only right here, not ${name}`, (q) => said(reader, view, q) === "1" && other(at, q) === "0");
      add(`Against another ${kind}`, `${kind}-${at}`, `only right with ${name}`, (q) => said(reader, view, q) === "0" && other(at, q) === "1");
    });
  against("view", index.views, view, (v, q) => said(reader, v, q));
  against("reader", index.readers, reader, (r, q) => said(r, view, q));
  add("Labels", "flagged", "flagged by a label screen", (q) => index.questions[q][6] > 0);
  return groups;
}

/** Offer the outcomes anew, since they name the other views and readers; what was chosen stays if it is still there. */
function offerOutcomes() {
  const select = find("outcome");
  const before = select.value;
  const groups = [...outcomes()].map(([label, options]) =>
    make("optgroup", { label }, ...options.map(([value, words]) => make("option", { value }, words))),
  );
  select.replaceChildren(...groups);
  select.value = before;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

/** List the questions that pass every filter; the active one stays active if it is among them. */
function filter() {
  const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const hops = find("hops").value;
  const length = find("length").value;
  const test = [...outcomes().values()].flat().find(([name]) => name === find("outcome").value)[2];
  const before = listed[active];
  listed = index.questions.flatMap((question, number) =>
    (!hops || question[2] === hops) &&
    (!length || index.histories[question[4]][1] === length) &&
    words.every((word) => searchable[number].includes(word)) &&
    test(number)
      ? [number]
      : [],
  );
  active = listed.indexOf(before);
  find("count").textContent = `${listed.length.toLocaleString("en")} of ${count(index.questions.length, "question", "questions")}`;
  find("rows").style.height = `${listed.length * ROW}px`;
  if (active < 0) find("list").scrollTop = 0;
  draw();
}

/** Draw the rows in sight, and a few around them. */
function draw() {
  const list = find("list");
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 5);
  const last = Math.min(listed.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 5);
  const rows = [];
  for (let at = first; at < last; at += 1) rows.push(row(at));
  find("rows").replaceChildren(...rows);
  if (active >= first && active < last) list.setAttribute("aria-activedescendant", `row-${listed[active]}`);
  else list.removeAttribute("aria-activedescendant");
}

function row(at) {
  const number = listed[at];
  const [id, text, hops, exact, history] = index.questions[number];
  const { view, reader } = chosen();
  const made = make(
    "div",
    {
      class: "row",
      role: "option",
      id: `row-${number}`,
      "aria-selected": String(at === active),
      "aria-setsize": listed.length,
      "aria-posinset": at + 1,
      onclick: () => {
        activate(at);
        read(true);
      },
    },
    verdict(said(reader, view, number)),
    make("span", {}, text),
    make("span", {}, make("small", {}, [id, hops === "all" ? null : hops, exact ? count(exact, "hop", "hops") : null, index.histories[history][1]].filter(Boolean).join(" · "))),
  );
  made.style.top = `${at * ROW}px`;
  return made;
}

/** Make one row of the list the active one and bring it into sight. */
function activate(at) {
  if (!listed.length) return;
  active = Math.min(Math.max(at, 0), listed.length - 1);
  const list = find("list");
  if (active * ROW < list.scrollTop) list.scrollTop = active * ROW;
  else if ((active + 1) * ROW > list.scrollTop + list.clientHeight) list.scrollTop = (active + 1) * ROW - list.clientHeight;
  draw();
}

/** Keys of the list. Where both panes are in sight, going through the list reads at once. */
function listKey(event) {
  const page = Math.max(1, Math.floor(find("list").clientHeight / ROW) - 1);
  const to = { ArrowDown: active + 1, ArrowUp: active < 0 ? 0 : active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: listed.length - 1 }[event.key];
  if (to !== undefined) {
    event.preventDefault();
    activate(to);
    if (sideBySide()) read(false);
  } else if (event.key === "Enter" && listed.length) {
    event.preventDefault();
    if (active < 0) activate(0);
    read(true);
  }
}

const sideBySide = () => window.matchMedia("(min-width: 60.01rem)").matches;
