// How a pipeline came to its answer: what it retrieved, its candidates, its hops, and what the model said in each call.

const ANSWERED = {
  policy: "A policy in code chose the answer among the candidates.",
  model: "The answer is what the model said.",
  fallback: "It found no answer, so this is the direct one.",
  none: "It found no answer.",
};

function drawTrace(trace, history) {
  if (!trace) return [];
  const notes = [
    ANSWERED[trace.answered_by],
    trace.fault ? `A call was not answered as asked for: ${trace.fault}.` : null,
    trace.note ? `At no cost: ${trace.note}.` : null,
  ];
  const records = new Map(history.records.map((record) => [record[0], record]));
  const shown = trace.evidence.flatMap((position) => (records.has(position) ? [records.get(position)] : []));
  return [
    make("h4", {}, "How it went"),
    make("p", { class: "note" }, notes.filter(Boolean).join(" ")),
    ...(trace.hops.length ? [make("ol", { class: "hops" }, ...trace.hops.map(drawHop))] : drawCandidates(trace.candidates, trace.chosen)),
    make("h4", {}, `What the model said, in ${count(trace.calls.length, "call", "calls")}`),
    ...trace.calls.flatMap(drawCall),
    make("h4", {}, `Retrieved: ${count(trace.evidence.length, "record", "records")}`),
    ...(trace.dropped ? [make("p", { class: "note" }, `${count(trace.dropped, "more was", "more were")} left out for want of room.`)] : []),
    ...listRecords(shown, new Set()),
  ];
}

/** The candidates of one list; the one that was taken in bold, those that no policy saw with the reason. */
function drawCandidates(candidates, chosen) {
  if (candidates === null) return [];
  if (!candidates.length) return [make("p", { class: "note" }, "No candidate.")];
  const item = ({ position, entity, text, foreign }) =>
    make(
      "li",
      { class: position === chosen && !foreign ? "walked" : null },
      `[${position}] ${entity} `,
      make("span", { class: "quiet" }, foreign ? `${text} (left out: ${foreign})` : text),
    );
  const list = make("ol", { class: "records candidates" }, ...candidates.slice(0, AT_ONCE).map(item));
  const more = candidates.length > AT_ONCE ? [make("p", { class: "note" }, `${(candidates.length - AT_ONCE).toLocaleString("en")} more are not shown.`)] : [];
  return [make("p", { class: "note" }, `${count(candidates.length, "candidate", "candidates")}:`), list, ...more];
}

function drawHop({ query, resolved, candidates, chosen, answer, outcome, reason }) {
  return make(
    "li",
    {},
    `${resolved ?? query} `,
    make("strong", {}, answer ?? outcome),
    reason ? make("span", { class: "quiet" }, ` ${reason}`) : null,
    ...drawCandidates(candidates, chosen),
  );
}

function drawCall({ stage, input, output, text, finish_reason: reason, error }) {
  const ended = { length: ", cut at the output cap", error: `, failed: ${error}` }[reason] ?? "";
  return [
    make("p", { class: "note" }, `${stage}: ${input.toLocaleString("en")} in, ${output.toLocaleString("en")} out${ended}`),
    make("div", { class: "output", tabindex: "0", role: "group", "aria-label": `Output of ${stage}` }, text || "(nothing)"),
  ];
}
