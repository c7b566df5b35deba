// What the other parts are made with: elements whose children are text, and islands that are decoded when first asked for.

const find = (id) => document.getElementById(id);

/** A new element; strings among the children become text, never markup. */
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const opened = new Map();

/** The content of an island; it stays open. */
function island(name) {
  if (!opened.has(name)) opened.set(name, unpack(find(`island-${name}`)));
  return opened.get(name);
}

async function unpack(script) {
  const packed = atob(script.textContent);
  const bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at += 1) bytes[at] = packed.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/** A verdict as a mark that is read aloud, too. */
function verdict(right) {
  const [sign, word] = { 1: ["✓", "right"], 0: ["✗", "wrong"], "-": ["–", "not asked"] }[right];
  const kind = { 1: "is-right", 0: "is-wrong", "-": "quiet" }[right];
  return make("span", { class: `verdict ${kind}`, role: "img", "aria-label": word }, sign);
}

const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
