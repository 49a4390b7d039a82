// Learned maps over heads as small squares from layer to layer, and single numbers as lines over depth.

figure("mixing", (node) => {
  const groups = [];
  for (const matrix of data.matrices) {
    const flat = matrix.rows === 1;
    let group = groups.find((g) => g.flat === flat && g.label === matrix.label && (flat || g.m === matrix.m));
    if (!group) groups.push((group = {flat, label: matrix.label, m: matrix.m, list: []}));
    group.list.push(matrix);
  }
  groups.forEach((group) => group.list.sort((a, b) => a.layer - b.layer));

  function drawMaps(group) {
    const top = Math.max(...group.list.flatMap((matrix) => matrix.values.filter(isNumber).map(Math.abs)), 1e-9);
    const negative = group.list.some((matrix) => matrix.values.some((value) => value < 0));
    const ramp = html("span", {class: "scale"}), readout = html("p", {class: "readout"});
    const canvases = [];
    const reading = (matrix, i) => readout.replaceChildren(
        `Layer ${matrix.layer + 1}, from head `, html("b", {}, String(Math.floor(i / matrix.columns) + 1)), " to head ",
        html("b", {}, String((i % matrix.columns) + 1)), ": ", quantity(matrix.values[i]).replace("-", "−"));
    const maps = group.list.map((matrix) => {
      const canvas = html("canvas", {role: "img", "aria-label": `${group.label}, layer ${matrix.layer + 1}`});
      const cell = html("i", {}), field = html("div", {class: "field", tabindex: "0"}, canvas, cell);
      let at = 0;
      const move = (i) => {
        at = Math.max(0, Math.min(matrix.values.length - 1, i));
        const row = Math.floor(at / matrix.columns), column = at % matrix.columns;
        cell.style.cssText = `top:${(row / matrix.rows) * 100}%;height:${100 / matrix.rows}%;left:${
            (column / matrix.columns) * 100}%;width:${100 / matrix.columns}%`;
        cell.hidden = false;
        reading(matrix, at);
      };
      const follow = (event) => {
        const box = canvas.getBoundingClientRect(),
              part = (p, size) => Math.max(0, Math.min(size - 1, Math.floor(p * size)));
        move(
            part((event.clientY - box.top) / box.height, matrix.rows) * matrix.columns +
            part((event.clientX - box.left) / box.width, matrix.columns));
      };
      cell.hidden = true;
      field.addEventListener("pointermove", follow);
      field.addEventListener("pointerdown", follow);
      field.addEventListener("pointerleave", () => {
        cell.hidden = true;
      });
      field.addEventListener("keydown", (event) => {
        const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -matrix.columns, ArrowDown: matrix.columns}[event.key];
        if (!step) return;
        event.preventDefault();
        move(at + step);
      });
      canvases.push([canvas, matrix]);
      return html("div", {class: "map"}, field, html("div", {class: "caption"}, `layer ${matrix.layer + 1}`));
    });
    const paint = () => {
      for (const [canvas, matrix] of canvases) paintMap(canvas, matrix.values, matrix.rows, matrix.columns, top);
      paintScale(ramp, top, negative);
    };
    paint();
    repaints.push(paint);
    readout.append(`${group.list[0].rows} heads in, ${group.list[0].columns} heads out.`);
    return html(
        "div", {class: "group"}, html("h3", {}, markOf(group.m), `${mechanisms[group.m].name}: ${group.label}`, ramp),
        html("div", {class: "depth"}, maps), readout);
  }

  // One mark a head, and a line through the means, from the first layer to the last.
  function drawLines(group) {
    const chart = svg("svg", {class: "chart", role: "img", "aria-label": `${group.label} over depth`});
    const holder = html("div", {}, chart), of = [...new Set(group.list.map((matrix) => matrix.m))];
    const mean = (matrix) => {
      const good = matrix.values.filter(isNumber);
      return good.length ? good.reduce((a, b) => a + b, 0) / good.length : null;
    };
    const values = group.list.flatMap((matrix) => matrix.values).filter(isNumber);
    if (!values.length) return html("div", {});
    const several = group.list.some((matrix) => matrix.values.length > 1);
    const layers = Math.max(...group.list.map((matrix) => matrix.layer)) + 1;
    redrawn(holder, () => {
      const width = Math.max(260, Math.min(620, holder.clientWidth)), height = 220,
            margin = {left: 44, right: 14, top: 20, bottom: 36};
      let low = Math.min(...values, 0), high = Math.max(...values, 0);
      if (low === high) high = low + 1;
      const pad = (high - low) * 0.08;
      const x = scale(0.5, layers + 0.5, margin.left, width - margin.right),
            y = scale(low - (low < 0 ? pad : 0), high + pad, height - margin.bottom, margin.top);
      const yTicks = ticks(low - (low < 0 ? pad : 0), high + pad, 4), every = Math.ceil(layers / 12);
      chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
      chart.style.maxWidth = width + "px";
      const lines = of.map((m, order) => {
        const mine = group.list.filter((matrix) => matrix.m === m),
              shift = (order - (of.length - 1) / 2) * Math.min(10, 60 / of.length);
        const at = (matrix) => x(matrix.layer + 1) + shift, good = mine.filter((matrix) => mean(matrix) !== null);
        return svg(
            "g", {class: colourClass(m)}, svg("path", {
              class: "line",
              d: good.map((matrix, i) => `${i ? "L" : "M"}${at(matrix).toFixed(1)} ${y(mean(matrix)).toFixed(1)}`)
                     .join("")
            }),
            good.flatMap(
                (matrix) => several ?
                    matrix.values.filter(isNumber).map(
                        (value) =>
                            svg("circle", {class: "spot", cx: at(matrix), cy: y(value), r: 2.2, opacity: 0.55})) :
                    []),
            good.map((matrix) => {
              const mark = spot(m, at(matrix), y(mean(matrix)));
              mark.append(
                  svg("title", {}, `${mechanisms[m].name}, layer ${matrix.layer + 1}: ${quantity(mean(matrix))}`));
              return mark;
            }));
      });
      chart.replaceChildren(
          frame(
              width, height, margin, {
                position: x,
                ticks: Array.from({length: layers}, (_, i) => i + 1).filter((layer) => (layer - 1) % every === 0),
                text: String,
                label: "layer"
              },
              {position: y, ticks: yTicks, text: tickText(yTicks), label: ""}),
          ...lines);
    });
    return html(
        "div", {class: "group"},
        html("h3", {}, group.label, of.map((m) => html("small", {}, markOf(m), " " + mechanisms[m].name))), holder,
        several ? html("p", {class: "readout"}, "Small dots are heads; marks and lines are their means.") : null);
  }
  node.replaceChildren(
      html("div", {class: "groups"}, groups.map((group) => (group.flat ? drawLines(group) : drawMaps(group)))));
});
