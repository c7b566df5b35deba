// Open the index, then listen.

function listen() {
  for (const id of ["view", "reader"])
    find(id).addEventListener("change", () => {
      offerOutcomes();
      filter();
      if (reading) {
        Object.assign(reading, chosen());
        drawChosen();
      }
    });
  for (const id of ["hops", "length", "outcome"]) find(id).addEventListener("change", filter);
  find("search").addEventListener("input", filter);
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  find("search").addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      find("list").focus();
      if (active < 0) activate(0);
    }
  });
  find("list").addEventListener("keydown", listKey);
  find("list").addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  find("detail").addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      find("search").focus();
    }
  });
  window.addEventListener("resize", draw);
}

async function start() {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old to unpack the questions; any of 2023 or later can");
  index = await island("index");
  searchable = index.questions.map(([id, text, , , , golds]) => [id, text, ...golds].join("\n").toLowerCase());
  find("browser").hidden = false;
  offerOutcomes();
  filter();
  listen();
  const named = /^#q=(.*)$/.exec(location.hash);
  const at = named ? index.questions.findIndex(([id]) => id === decodeURIComponent(named[1])) : -1;
  if (at >= 0) {
    activate(listed.indexOf(at));
    await read(true);
  }
}

start().catch((error) => {
  find("trouble").textContent = `The questions cannot be shown: ${error.message}`;
  find("trouble").hidden = false;
});
