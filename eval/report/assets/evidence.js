// The evidence of the chosen view, or how the chosen pipeline went: whole records, current and superseded ones told apart.

const AT_ONCE = 200;

/** Show what the chosen view showed of the history. */
async function drawEvidence() {
  const mine = reading;
  const { number, told, view, reader } = mine;
  const history = await island(`history-${index.questions[number][4]}`);
  if (mine !== reading || view !== reading.view || reader !== reading.reader) return;
  if (view >= told.packets.length) {
    find("evidence").replaceChildren(...drawTrace(told.traces[reader][view - told.packets.length], history));
    return;
  }
  const [evidence, dropped, characters, fallback] = told.packets[view];
  const walked = new Set(told.chain.map((step) => step[4]));
  const old = new Set(told.chain.flatMap((step) => step[5].map(([record]) => record)));
  const records = expand(history.evidence[evidence]).map((at) => history.records[at]);
  const kinds = {
    all: ["all records", () => true],
    chain: ["records of the chain's keys", ([position]) => walked.has(position) || old.has(position)],
    current: ["current records", ([, , status]) => status === null],
    stale: ["superseded records", ([, , status]) => typeof status === "number"],
    plain: ["records without a fact", ([, , status]) => status === false],
  };
  const options = Object.entries(kinds).map(([value, [words, test]]) => make("option", { value }, `${words} (${records.filter(test).length.toLocaleString("en")})`));
  const select = make("select", { id: "records" }, ...options);
  const notes = [`${count(records.length, "record", "records")}, ${count(characters, "character", "characters")}.`];
  if (records.some(([position]) => walked.has(position))) notes.push("Bold: on cmc's chain. Superseded: a later record states another value of the same key.");
  if (dropped) notes.push(`The budget cut ${count(dropped, "record", "records")}.`);
  if (fallback) notes.push(`Nothing was chosen, or the parse is not complete: this is the fallback ${fallback}.`);
  const place = make("div");
  const show = () => place.replaceChildren(...listRecords(records.filter(kinds[select.value][1]), walked));
  select.addEventListener("change", show);
  find("evidence").replaceChildren(
    make("h4", {}, `Evidence of ${index.views[view]}`),
    make("p", { class: "note" }, notes.join(" ")),
    ...(records.length ? [make("div", { class: "bar" }, make("label", {}, "Show ", select)), make("p", { class: "note" }, `Heading: ${index.heading}`)] : []),
    place,
  );
  show();
}

/** Runs, [start, length, gap, length...], as numbers. */
function expand(runs) {
  const numbers = [];
  let end = 0;
  for (let at = 0; at < runs.length; at += 2) {
    const start = end + runs[at];
    end = start + runs[at + 1];
    for (let number = start; number < end; number += 1) numbers.push(number);
  }
  return numbers;
}

function listRecords(records, walked) {
  const item = ([position, line, status]) => {
    const stale = typeof status === "number";
    const names = [stale ? "stale" : null, walked.has(position) ? "walked" : null].filter(Boolean).join(" ");
    const note = stale ? make("small", {}, `superseded by [${status}]`) : status === false ? make("small", { class: "plain" }, "no fact") : null;
    return make("li", { class: names || null }, `${line} `, note);
  };
  if (!records.length) return [make("p", { class: "quiet" }, "None.")];
  const list = make("ol", { class: "records" }, ...records.slice(0, AT_ONCE).map(item));
  if (records.length <= AT_ONCE) return [list];
  const more = make("button", { type: "button", onclick: () => { list.append(...records.slice(AT_ONCE).map(item)); more.remove(); } }, `Show all ${records.length.toLocaleString("en")}`);
  return [list, more];
}
