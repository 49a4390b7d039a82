// Helpers of the report's figures, the sortable table and the copy buttons. The scripts are joined into one function.

const data = JSON.parse(document.getElementById("report-data").textContent);
const mechanisms = data.mechanisms;
const svgNamespace = document.querySelector("svg").namespaceURI;

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on"))
      node.addEventListener(name.slice(2), value);
    else if (name === "style")  // a policy of the page's may forbid the attribute
      node.style.cssText = value || "";
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const html = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(svgNamespace, tag), attributes, children);

const colourClass = (m) => "c" + mechanisms[m].colour;
const shapeOf = (m) => "#mark" + mechanisms[m].shape;
const markOf = (m) =>
    svg("svg", {class: "mark " + colourClass(m), viewBox: "-6 -6 12 12", "aria-hidden": "true"},
        svg("use", {href: shapeOf(m)}));
const spot = (m, x, y, size) => svg("use", {
  href: shapeOf(m),
  class: "spot " + colourClass(m),
  transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${size || 1})`
});

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const whole = (value) => Math.round(value).toLocaleString("en-US");
const lossText = (value) => (isNumber(value) ? value.toFixed(3) : "–");

// Four significant digits with a metric prefix: 1.234 M.
function quantity(value, unit) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  const [step, prefix] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]].find(([s]) => size >= s) || [1, ""];
  const scaled = value / step;
  const text = size > 0 && size < 1e-3 ? value.toExponential(2) : String(parseFloat(scaled.toPrecision(4)));
  return text + (prefix || unit ? "\u00a0" : "") + prefix + (unit || "");
}

// Round numbers of a linear axis, or 1-2-5 of a logarithmic one.
function ticks(low, high, count, logarithmic) {
  const list = [];
  if (logarithmic && high / low > 3) {
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); ++decade)
      for (const digit of high / low > 1e4 ? [1] : high / low > 80 ? [1, 3] : [1, 2, 5]) {
        const value = digit * 10 ** decade;
        if (value >= low && value <= high) list.push(value);
      }
    if (list.length > 1) return list;
    list.length = 0;
  }
  const raw = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999);
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) list.push(i * step);
  return list;
}

// Where a value lies between two pixels.
function scale(low, high, from, to, logarithmic) {
  const f = logarithmic ? Math.log : (value) => value;
  const base = f(low), span = f(high) - base || 1;
  const position = (value) => from + ((f(value) - base) / span) * (to - from);
  position.invert = (pixel) => {
    const value = base + ((pixel - from) / (to - from)) * span;
    return logarithmic ? Math.exp(value) : value;
  };
  return position;
}

// Axis lines, grid, ticks and labels of a chart. x and y: {position, ticks, text, label}.
function frame(width, height, margin, x, y) {
  const group = svg("g", {});
  for (const value of y.ticks) {
    const at = y.position(value);
    group.append(
        svg("line", {class: "grid", x1: margin.left, x2: width - margin.right, y1: at, y2: at}),
        svg("text", {x: margin.left - 7, y: at + 4, "text-anchor": "end"}, y.text(value)));
  }
  let end = -Infinity;
  for (const value of x.ticks) {
    const at = x.position(value), text = x.text(value), half = text.length * 3.4;
    group.append(
        svg("line", {class: "axis", x1: at, x2: at, y1: height - margin.bottom, y2: height - margin.bottom + 4}));
    if (at - half < end + 4 || at + half > width + 2) continue;
    end = at + half;
    group.append(svg("text", {x: at, y: height - margin.bottom + 17, "text-anchor": "middle"}, text));
  }
  group.append(
      svg("line", {
        class: "axis",
        x1: margin.left,
        x2: width - margin.right,
        y1: height - margin.bottom,
        y2: height - margin.bottom
      }),
      svg("text", {x: width - margin.right, y: height - 3, "text-anchor": "end", class: "label"}, x.label),
      svg("text", {x: 0, y: 11, class: "label"}, y.label));
  return group;
}

// Tick labels with as many digits as tell neighbours apart.
function tickText(list) {
  const step = list.length > 1 ? Math.min(...list.slice(1).map((value, i) => value - list[i])) : 1;
  const biggest = Math.max(...list.map(Math.abs), 1e-12);
  if (biggest >= 1e4 || biggest < 1e-3) return (value) => quantity(value).replace("\u00a0", "");
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9)));
  const more = Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 ? 1 : 0;
  return (value) => value.toFixed(digits + more);
}

// A labelled <select>; `options` is [[value, text]...].
function chooser(label, options, value, change) {
  const select = html(
      "select", {onchange: () => change(select.value)},
      options.map(([key, text]) => html("option", {value: key, selected: String(key) === String(value)}, text)));
  return html("label", {}, label, select);
}
function checkbox(label, value, change) {
  const box = html("input", {type: "checkbox", checked: value, onchange: () => change(box.checked)});
  return html("label", {}, box, label);
}

// Draws again when the width of `node` changes, and around printing (`printing` forces the light colours).
let printing = false;
function redrawn(node, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(node.clientWidth - width) < 1) return;
    width = node.clientWidth;
    requestAnimationFrame(draw);
  }).observe(node);
}
const darkScheme = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => darkScheme.matches && !printing;
const repaints = [];
darkScheme.addEventListener("change", () => repaints.forEach((paint) => paint()));
addEventListener("beforeprint", () => {
  printing = true;
  repaints.forEach((paint) => paint());
});
addEventListener("afterprint", () => {
  printing = false;
  repaints.forEach((paint) => paint());
});

// Runs the script of one figure; a mistake in it leaves the rest of the page alone.
function figure(name, draw) {
  const node = document.querySelector(`[data-figure="${name}"]`);
  if (!node) return;
  try {
    draw(node);
  } catch (error) {
    node.replaceChildren(html("p", {class: "missing"}, "This figure could not be drawn: " + error.message));
    console.error(error);
  }
}

function makeSortable(table) {
  const body = table.tBodies[0], original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column], value = cell && parseFloat(cell.dataset.value);
    if (!heads[column].classList.contains("number")) return cell ? cell.textContent : "";
    return Number.isNaN(value) ? null : value;
  };
  heads.forEach((head, column) => {
    const button = html("button", {type: "button"}, ...head.childNodes);
    button.addEventListener("click", () => {
      const next = {"": "ascending", ascending: "descending", descending: ""}[head.getAttribute("aria-sort") || ""];
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (next) head.setAttribute("aria-sort", next);
      const sign = next === "descending" ? -1 : 1;
      const rows = next ? [...original].sort((a, b) => {
        const [p, q] = [key(a, column), key(b, column)];
        if (p === null || q === null) return (p === null) - (q === null);
        return sign * (typeof p === "string" ? p.localeCompare(q) : p - q);
      }) :
                          original;
      body.append(...rows);
    });
    head.append(button);
  });
}
document.querySelectorAll(".scroll table").forEach(makeSortable);

async function copyText(source) {
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    getSelection().selectAllChildren(source);
    document.execCommand("copy");
  }
}
document.querySelectorAll("[data-copy]").forEach((source) => {
  const button =
      html("button", {type: "button", class: "plain", "aria-label": "Copy the " + source.dataset.copy}, "Copy");
  button.addEventListener("click", async () => {
    await copyText(source);
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1500);
  });
  source.previousElementSibling.append(button);
});
