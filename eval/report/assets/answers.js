// One question: what is asked, the chain, what each reader said with each view, and why it was scored so.

let reading = null; // {number, told, view, reader}
let turn = 0;

/** Show the active question; `enter` moves the focus into it. */
async function read(enter) {
  const number = listed[active];
  if (number === undefined) return;
  const mine = (turn += 1);
  const block = await island(`answers-${Math.floor(number / index.block)}`);
  if (mine !== turn) return; // another question was chosen meanwhile
  reading = { number, told: block[number % index.block], ...chosen() };
  find("panes").classList.add("reading");
  drawQuestion();
  find("detail").scrollTop = 0;
  location.replace(`#q=${encodeURIComponent(index.questions[number][0])}`);
  if (enter) {
    find("detail").focus({ preventScroll: sideBySide() });
    if (!sideBySide()) find("detail").scrollIntoView();
  }
}

/** Back to the list. */
function leave() {
  find("panes").classList.remove("reading");
  find("list").focus();
  draw();
}

function drawQuestion() {
  const { number, told } = reading;
  const [id, text, hops, exact, history, golds] = index.questions[number];
  const [name, length] = index.histories[history];
  const facts = [id, hops === "all" ? null : { sh: "single-hop", mh: "multi-hop" }[hops], exact ? count(exact, "hop", "hops") : null, `history ${name}`, length === name ? null : length];
  find("detail").replaceChildren(
    make("button", { type: "button", id: "back", onclick: leave }, "← Back to the list"),
    make("h3", {}, text),
    make("p", { class: "quiet note" }, facts.filter(Boolean).join(" · ")),
    make("p", { class: "golds" }, "Gold: ", make("strong", {}, golds.join(" | "))),
    ...told.findings.map(([screen, gold, detail]) => make("p", { class: "note" }, `Label screen ${screen}, gold “${gold}”: ${detail}`)),
    ...drawChain(told.chain),
    make("h4", {}, "What was said"),
    drawAnswers(),
    make("section", { id: "why", "aria-live": "polite" }),
    make("section", { id: "evidence" }),
  );
  drawChosen();
}

function drawChain(chain) {
  if (!chain.length) return [make("h4", {}, "Chain"), make("p", { class: "quiet note" }, "No subject of the history is named in the question, so cmc reaches no key.")];
  const step = ([depth, subject, relation, value, record, earlier]) =>
    make(
      "li",
      { class: `depth-${Math.min(depth + 1, 5)}` },
      `${subject} `,
      make("span", { class: "quiet", title: relation }, `— ${index.relations[relation] || relation} → `),
      make("strong", {}, value),
      make("span", { class: "quiet" }, ` [${record}]`),
      ...earlier.flatMap(([at, old]) => ["  ", make("del", {}, old), make("span", { class: "quiet" }, ` [${at}]`)]),
    );
  const list = make("ul", { class: "chain" }, ...chain.slice(0, 25).map(step));
  const parts = [make("h4", {}, `Chain: the ${count(chain.length, "key", "keys")} that cmc walks`), list];
  if (chain.length > 25) {
    const more = make("button", { type: "button", onclick: () => { list.append(...chain.slice(25).map(step)); more.remove(); } }, `Show all ${chain.length}`);
    parts.push(more);
  }
  return parts;
}

function drawAnswers() {
  const { number, told } = reading;
  const cell = (reader, view) => {
    const answer = told.answers[reader][view];
    if (!answer) return make("td", { class: "quiet" }, "not asked");
    const choose = () => { Object.assign(reading, { reader, view }); drawChosen(); };
    const shown = answer[1] === "error" ? "no answer" : answer[0].trim() || "(nothing)";
    const button = make("button", { type: "button", "data-cell": `${reader} ${view}`, onclick: choose }, verdict(said(reader, view, number)), make("span", { class: "said" }, shown.slice(0, 300)));
    return make("td", {}, button);
  };
  const head = make("tr", {}, make("th", { scope: "col" }, "view"), ...index.readers.map((name) => make("th", { scope: "col" }, name)));
  const rows = index.views.map((name, view) => make("tr", {}, make("th", { scope: "row" }, name), ...index.readers.map((_, reader) => cell(reader, view))));
  return make("div", { class: "scroll answers", role: "region", "aria-label": "Answers", tabindex: "0" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

/** What hangs on the chosen view and reader. */
function drawChosen() {
  for (const button of find("detail").querySelectorAll("[data-cell]"))
    button.setAttribute("aria-pressed", String(button.dataset.cell === `${reading.reader} ${reading.view}`));
  find("why").replaceChildren(...why());
  drawEvidence();
}

function why() {
  const { number, told, view, reader } = reading;
  const answer = told.answers[reader][view];
  const heading = make("h4", {}, `${index.readers[reader]} with ${index.views[view]}`);
  if (!answer) return [heading, make("p", { class: "quiet" }, "This reader was not asked with this view.")];
  const [text, reason, cut, error, whole, parsed] = answer;
  const parts = [heading, make("div", { class: "output", tabindex: "0", role: "group", "aria-label": "Output" }, text || "(nothing)")];
  const piped = view >= told.packets.length;
  const ended = { stop: piped ? "" : "It ended by itself.", length: "It was cut at the output cap.", error: `The generation failed, which counts as wrong: ${error}` }[reason];
  parts.push(make("p", { class: "note" }, `${ended ?? reason}${cut && !piped ? ` The input cap cut ${count(cut, "record", "records")} of its evidence.` : ""}`));
  const rows = index.metrics.map((metric) =>
    make("tr", {}, make("th", { scope: "row" }, metric), make("td", {}, verdict(said(reader, view, number, metric))), make("td", {}, index.reasons[metric] ?? "A metric of a third party.")),
  );
  const head = make("tr", {}, ...["metric", "verdict", "what counts"].map((name) => make("th", { scope: "col" }, name)));
  parts.push(make("div", { class: "scroll", role: "region", "aria-label": "Verdicts", tabindex: "0" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
  const normal = (label, content) => [make("p", { class: "note" }, label), make("div", { class: "normal" }, ...(typeof content === "string" ? marked(content, told.golds) : content))];
  parts.push(...normal("Golds, normalised", [told.golds.join(" | ")]), ...normal(parsed === null ? "Output, normalised; parsed, it is the same" : "Output, normalised", whole));
  if (parsed !== null) parts.push(...normal("Output, parsed and normalised", parsed));
  return parts;
}

/** A text with the golds in it marked. */
function marked(text, golds) {
  const parts = [];
  let at = 0;
  while (at < text.length) {
    const hits = golds.filter(Boolean).map((gold) => [text.indexOf(gold, at), gold]).filter(([place]) => place >= 0);
    if (!hits.length) break;
    const [place, gold] = hits.reduce((a, b) => (b[0] < a[0] || (b[0] === a[0] && b[1].length > a[1].length) ? b : a));
    parts.push(text.slice(at, place), make("mark", {}, gold));
    at = place + gold.length;
  }
  return [...parts, text.slice(at) || (parts.length ? "" : "(nothing)")];
}
