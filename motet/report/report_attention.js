// Heat maps: packed pictures, colours, and the linked view of every head before and after mixing.

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const levels = new Map([...alphabet].map((character, i) => [character, i]));

// The values of a picture, NaN where they were not finite, undefined where a causal picture has none. See packed() in
// html_data.cpp.
function unpack(picture) {
  if (picture.values) return picture.values;
  const {rows, columns, data: text, scale: top} = picture, values = new Array(rows * columns);
  let at = 0;
  for (let row = 0; row < rows; ++row) {
    const end = picture.causal ? Math.min(columns, Math.max(0, row + 1 + columns - rows)) : columns;
    for (let column = 0; column < end; ++column, at += 2) {
      const level = levels.get(text[at]) * 64 + levels.get(text[at + 1]);
      values[row * columns + column] = picture.signed ? ((level - 2048) / 2047) * top : (level / 4095) * top;
    }
  }
  picture.values = values;
  return values;
}

// Blue for positive, orange for negative numbers, by the square root of their size, so that small weights show.
const ramps = {
  light: {
    zero: [238, 240, 244],
    positive: [[143, 178, 226], [44, 99, 182], [10, 30, 82]],
    negative: [[240, 178, 128], [203, 92, 18], [92, 32, 0]]
  },
  dark: {
    zero: [34, 39, 46],
    positive: [[37, 78, 140], [78, 148, 232], [222, 238, 255]],
    negative: [[120, 60, 18], [226, 122, 48], [255, 229, 206]]
  },
};
const missingColour = [170, 60, 160];
function colourOf(value, top) {
  if (!isNumber(value)) return missingColour;
  const ramp = ramps[isDark() ? "dark" : "light"], stops = [ramp.zero, ...(value < 0 ? ramp.negative : ramp.positive)];
  const place = Math.sqrt(Math.min(1, Math.abs(value) / (top || 1))) * (stops.length - 1);
  const i = Math.min(stops.length - 2, Math.floor(place));
  return stops[i].map((channel, c) => Math.round(channel + (stops[i + 1][c] - channel) * (place - i)));
}

// A canvas of one pixel a value; what no query sees stays clear.
function paintMap(canvas, values, rows, columns, top) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; ++i) {
    if (values[i] === undefined) continue;
    image.data.set(colourOf(values[i], top), i * 4);
    image.data[i * 4 + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

// The colour scale from -top (or 0) to top, with its ends named.
function paintScale(node, top, negative) {
  const canvas = html("canvas", {"aria-hidden": "true"}), steps = 128;
  paintMap(
      canvas, Array.from({length: steps}, (_, i) => (negative ? (2 * i) / (steps - 1) - 1 : i / (steps - 1)) * top), 1,
      steps, top);
  node.replaceChildren(html("span", {}, negative ? "−" + quantity(top) : "0"), canvas, html("span", {}, quantity(top)));
}

const weightText = (value) =>
    (value === undefined ? "not seen" :
         isNumber(value) ? value.toFixed(3).replace("-", "−") :
                           "not a number");

figure("attention", (node) => {
  const withPictures = mechanisms.map((_, m) => m).filter((m) => data.pictures.some((picture) => picture.m === m));
  const layersOf =
      (m) => [...new Set(data.pictures.filter((p) => p.m === m).map((p) => p.layer))].sort((a, b) => a - b);
  const mixed = (m) => data.pictures.some((p) => p.m === m && p.kind === "after");
  const start = withPictures.find(mixed) ?? withPictures[0];
  const state = {m: start, layer: layersOf(start)[0], row: 0, column: 0, head: {before: 0, after: 0}};
  const firstTokens = data.tokens.map((token) => token === "" ? "…" : token.replace(/\n/g, "⏎").replace(/\t/g, "⇥"));
  const tokenText = (i) => (firstTokens[i] === undefined ? `#${i + 1}` : firstTokens[i] === " " ? "␣" : firstTokens[i]);

  const layerLabel = html("span", {});
  const ramp = html("span", {class: "scale"});
  const controls = html(
      "div", {class: "controls"},
      chooser("Mechanism", withPictures.map((m) => [m, mechanisms[m].name]), state.m, (value) => {
        state.m = Number(value);
        if (!layersOf(state.m).includes(state.layer)) state.layer = layersOf(state.m)[0];
        build();
      }), layerLabel, ramp);
  const panels = html("div", {class: "panels"});
  const readout = html("p", {class: "readout reading-line", "aria-live": "polite"});
  const strips = html("div", {});
  node.replaceChildren(controls, panels, readout, strips);

  // What a picture is called where nothing around it says so: "head 1, before mixing".
  const headOf = (picture) => picture.label || "head " + (picture.head + 1);
  const fullName = (picture) => headOf(picture) + (mixed(picture.m) ? `, ${picture.kind} mixing` : ", weights");

  let shown = {before: [], after: []}, top = 1, fields = [];
  const kinds = () => ["before", "after"].filter((kind) => shown[kind].length);
  const value = (picture, row, column) => unpack(picture)[row * picture.columns + column];
  const keyOfQuery = (picture, row) => row + picture.columns - picture.rows;

  function choose(kind, index) {
    state.head[kind] = index;
    const other = kind === "before" ? "after" : "before", [here, there] = [shown[kind].length, shown[other].length];
    if (there) state.head[other] = Math.min(there - 1, Math.floor((index * there) / here));
    point(state.row, state.column);
  }

  function map(kind, picture, index) {
    const canvas = html("canvas", {role: "img", "aria-label": fullName(picture)});
    paintMap(canvas, unpack(picture), picture.rows, picture.columns, top);
    const row = html("i", {class: "row"}), cell = html("i", {});
    const field = html(
        "div", {
          class: "field",
          tabindex: index === 0 ? "0" : "-1",
          role: "group",
          "aria-label": `${fullName(picture)}; arrow keys move the reading`
        },
        canvas, row, cell);
    const follow = (event) => {
      const box = canvas.getBoundingClientRect();
      const inside = (part, size) => Math.max(0, Math.min(size - 1, Math.floor(part * size)));
      point(
          inside((event.clientY - box.top) / box.height, picture.rows),
          inside((event.clientX - box.left) / box.width, picture.columns), kind, index);
    };
    field.addEventListener("pointermove", follow);
    field.addEventListener("pointerdown", (event) => {
      choose(kind, index);
      follow(event);
    });
    field.addEventListener("keydown", (event) => {
      const [down, right] = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key] ||
          [0, 0];
      if (!down && !right) return;
      event.preventDefault();
      point(
          Math.max(0, Math.min(picture.rows - 1, state.row + down)),
          Math.max(0, Math.min(picture.columns - 1, state.column + right)));
    });
    const button = html(
        "button", {type: "button", onclick: () => choose(kind, index), "aria-label": fullName(picture)},
        headOf(picture));
    fields.push({kind, index, picture, row, cell, button, canvas});
    return html("div", {class: "map"}, button, field);
  }

  // All heads of the chosen mechanism and layer.
  function build() {
    const layers = layersOf(state.m);
    layerLabel.replaceChildren(chooser(
        "Layer", layers.map((layer) => [layer, `${layer + 1} of ${layers[layers.length - 1] + 1}`]), state.layer,
        (layer) => {
          state.layer = Number(layer);
          build();
        }));
    const here = data.pictures.filter((p) => p.m === state.m && p.layer === state.layer);
    for (const kind of ["before", "after"])
      shown[kind] = here.filter((p) => p.kind === kind).sort((a, b) => a.head - b.head);
    top = Math.max(...here.map((p) => p.scale || 0), 1e-9);
    fields = [];
    const titles =
        mixed(state.m) ? {before: "Before mixing", after: "After mixing"} : {before: "Weights", after: "Weights"};
    panels.className = "panels" + (kinds().length > 1 ? " two" : "");
    panels.replaceChildren(...kinds().map(
        (kind) => html(
            "div", {},
            html(
                "h3", {}, titles[kind],
                html(
                    "small", {},
                    `${mechanisms[state.m].name}, layer ${state.layer + 1}, ${shown[kind].length} head${
                        shown[kind].length > 1 ? "s" : ""}`)),
            html("div", {class: "maps"}, shown[kind].map((picture, index) => map(kind, picture, index))))));
    paintScale(ramp, top, here.some((p) => p.signed));
    for (const kind of kinds()) state.head[kind] = Math.min(state.head[kind], shown[kind].length - 1);
    const first = shown[kinds()[0]][0];
    if (state.row >= first.rows || state.row === 0) {
      state.row = first.rows - 1;
      state.column = strongest(shown[kinds()[0]][state.head[kinds()[0]]] || first, state.row);
    }
    point(state.row, state.column);
  }
  function strongest(picture, row) {
    let best = 0;
    for (let column = 0; column < picture.columns; ++column)
      if (Math.abs(value(picture, row, column) || 0) > Math.abs(value(picture, row, best) || 0)) best = column;
    return best;
  }

  // Moves the reading to a query and a key in every head.
  function point(row, column, kind, index) {
    [state.row, state.column] = [row, column];
    for (const field of fields) {
      const {rows, columns} = field.picture;
      field.row.style.cssText = `top:${(row / rows) * 100}%;height:${100 / rows}%`;
      field.cell.style.cssText =
          `top:${(row / rows) * 100}%;height:${100 / rows}%;left:${(column / columns) * 100}%;width:${100 / columns}%`;
      field.button.setAttribute("aria-pressed", String(state.head[field.kind] === field.index));
    }
    const reading = kinds().map((which) => {
      const at = which === kind ? index :
          kind ? Math.min(shown[which].length - 1, Math.floor((index * shown[which].length) / shown[kind].length)) :
                 state.head[which];
      const picture = shown[which][at];
      return `${headOf(picture)}${kinds().length > 1 ? ` ${which} mixing` : ""} ${
          weightText(value(picture, row, column))}`;
    });
    readout.replaceChildren(
        "Query ", html("b", {}, `${row + 1} “${tokenText(keyOfQuery(shown[kinds()[0]][0], row))}”`), " reads key ",
        html("b", {}, `${column + 1} “${tokenText(column)}”`), ": ", reading.join("; "), ".");
    drawStrips();
  }

  // The sample text, coloured by what the chosen query reads in the chosen heads.
  function drawStrips() {
    if (!firstTokens.length) return;
    const words = firstTokens.some((token) => [...token].length > 2);
    strips.replaceChildren(...kinds().map((kind) => {
      const picture = shown[kind][state.head[kind]], query = keyOfQuery(picture, state.row);
      const tokens = firstTokens.slice(0, picture.columns).map((token, column) => {
        const weight = value(picture, state.row, column), seen = weight !== undefined;
        const colour = seen ? colourOf(weight, top) : null;
        const dark = seen && colour[0] * 0.299 + colour[1] * 0.587 + colour[2] * 0.114 < 140;
        return html(
            "span", {
              class: (column === query ? "query " : "") + (seen ? "" : "later"),
              title: `${column + 1}: ${weightText(weight)}`,
              style: seen ? `background:rgb(${colour});color:${dark ? "#fff" : "#111"}` : null,
              onclick: () => point(Math.max(0, column + picture.rows - picture.columns), column)
            },
            words             ? token :
                token === "⏎" ? "⏎" :
                                token);
      });
      return html(
          "div", {class: "strip"},
          `What query ${state.row + 1} reads, ${headOf(picture)}${kinds().length > 1 ? `, ${kind} mixing` : ""}`,
          html("div", {class: "tokens" + (words ? " words" : "")}, tokens));
    }));
  }

  repaints.push(() => {
    for (const {canvas, picture} of fields) paintMap(canvas, unpack(picture), picture.rows, picture.columns, top);
    paintScale(ramp, top, [...shown.before, ...shown.after].some((p) => p.signed));
    drawStrips();
  });
  build();
});
