// Validation loss against a cost that the reader chooses.

figure("cost", (node) => {
  const state = {axis: 0, log: false};
  const chart = svg("svg", {class: "chart", role: "group", "aria-label": "Loss against cost, one point a mechanism"});
  const readout = html("p", {class: "readout", "aria-live": "polite"});
  const set = (name) => (value) => {
    state[name] = value;
    draw();
  };
  node.replaceChildren(
      html(
          "div", {class: "controls"},
          chooser("Cost", data.cost_axes.map((axis, i) => [i, axis.name]), 0, (value) => set("axis")(Number(value))),
          checkbox("log cost", false, set("log"))),
      html("div", {}, chart), readout);

  const deviation = (point) => (isNumber(point.deviation) ? point.deviation : 0);
  // At least a tenth of the value is shown, so that a difference of a percent looks like one.
  function extent(values, least) {
    let low = Math.min(...values), high = Math.max(...values);
    const wanted = Math.max((high - low) * 1.24, Math.abs(high) * least, 1e-12), middle = (low + high) / 2;
    const positive = low > 0;
    [low, high] = [middle - wanted / 2, middle + wanted / 2];
    return [positive ? Math.max(low, Math.min(...values) * 0.5) : low, high];
  }
  // Those that no other mechanism beats on loss and on cost.
  function frontOf(points, cost, more) {
    const better = (a, b) => (more ? cost(a) >= cost(b) : cost(a) <= cost(b)) && a.loss <= b.loss &&
        (cost(a) !== cost(b) || a.loss !== b.loss);
    return points.filter((point) => !points.some((other) => better(other, point))).sort((a, b) => cost(a) - cost(b));
  }
  // The free place beside a point for its name: right, left, above, below, then farther.
  function place(point, text, taken, width, bounds) {
    const wide = text.length * 6.6, tries = [
      [10, 4, "start"], [-10, 4, "end"], [0, -12, "middle"], [0, 20, "middle"], [9, -9, "start"], [9, 17, "start"],
      [-9, -9, "end"], [-9, 17, "end"], [10, -20, "start"], [10, 30, "start"], [-10, -20, "end"], [-10, 30, "end"]
    ];
    let best = null;
    for (const [dx, dy, anchor] of tries) {
      const left = point.x + dx - (anchor === "end" ? wide : anchor === "middle" ? wide / 2 : 0);
      const box = {left, right: left + wide, top: point.y + dy - 10, bottom: point.y + dy + 3};
      const outside =
          box.left < bounds.left || box.right > width - 2 || box.top < bounds.top || box.bottom > bounds.bottom ? 4 : 0;
      const hits = taken
                       .filter(
                           (other) => box.left < other.right && box.right > other.left && box.top < other.bottom &&
                               box.bottom > other.top)
                       .length;
      if (!best || hits + outside < best.hits) best = {box, dx, dy, anchor, hits: hits + outside};
      if (!best.hits) break;
    }
    taken.push(best.box);
    return best;
  }

  function describe(point) {
    const spread = isNumber(point.deviation) ? ` ± ${lossText(point.deviation)}` : "";
    const inside = (name) => (/^[A-Z][a-z]/.test(name) ? name[0].toLowerCase() + name.slice(1) : name);
    const costs = data.cost_axes.map((axis, i) => `${inside(axis.name)} ${quantity(point.costs[i], axis.unit)}`);
    readout.replaceChildren(
        html("b", {}, mechanisms[point.m].name), `: loss ${lossText(point.loss)}${spread}; `, costs.join(", "), ".");
  }

  function draw() {
    const axis = data.cost_axes[state.axis], cost = (point) => point.costs[state.axis];
    const points = data.points.filter(
        (point) => isNumber(point.loss) && isNumber(cost(point)) && !(state.log && cost(point) <= 0));
    if (!points.length) {
      chart.replaceChildren();
      readout.textContent = "No mechanism has a value here.";
      return;
    }
    const width = Math.max(280, chart.parentNode.clientWidth),
          height = Math.round(Math.max(290, Math.min(430, width * 0.52)));
    const margin = {left: 46, right: 18, top: 24, bottom: 38};
    const [left, right] = extent(points.map(cost), 0.1);
    const [low, high] = extent(points.flatMap((p) => [p.loss - deviation(p), p.loss + deviation(p)]), 0.01);
    const x = scale(left, right, margin.left, width - margin.right, state.log),
          y = scale(low, high, height - margin.bottom, margin.top);
    const xTicks = ticks(left, right, width / 95, state.log), yTicks = ticks(low, high, height / 55);
    const front = frontOf(points, cost, axis.more_is_better);
    const bounds = {left: margin.left, top: margin.top - 6, bottom: height - margin.bottom - 2};
    const taken =
        points.map((p) => ({left: x(cost(p)) - 6, right: x(cost(p)) + 6, top: y(p.loss) - 6, bottom: y(p.loss) + 6}));
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const drawn = points.map((point) => {
      const px = x(cost(point)), py = y(point.loss), name = mechanisms[point.m].name, d = deviation(point);
      const at = place({x: px, y: py}, name, taken, width, bounds);
      const show = () => describe(point);
      return svg(
          "g", {
            class: "point " + colourClass(point.m),
            tabindex: "0",
            role: "img",
            "aria-label": `${name}: loss ${lossText(point.loss)}, ${axis.name} ${quantity(cost(point), axis.unit)}`,
            onpointerenter: show,
            onfocus: show,
            onclick: show
          },
          svg("circle", {cx: px, cy: py, r: 14, fill: "transparent"}),
          d > 0 ? svg("line", {class: "bar", x1: px, x2: px, y1: y(point.loss - d), y2: y(point.loss + d)}) : null,
          spot(point.m, px, py, 1.35),
          svg("text", {class: "label halo", x: px + at.dx, y: py + at.dy, "text-anchor": at.anchor}, name));
    });
    const corner = axis.more_is_better ? {x: width - margin.right - 4, anchor: "end", text: "better ↘"} :
                                         {x: margin.left + 6, anchor: "start", text: "↙ better"};
    chart.replaceChildren(
        frame(
            width, height, margin, {
              position: x,
              ticks: xTicks,
              text: tickText(xTicks),
              label: axis.name + (axis.unit ? ", " + axis.unit : "")
            },
            {position: y, ticks: yTicks, text: tickText(yTicks), label: "validation loss, nats a token"}),
        svg("text", {x: corner.x, y: height - margin.bottom - 8, "text-anchor": corner.anchor}, corner.text),
        svg("path", {
          class: "front",
          d: front.map((p, i) => `${i ? "L" : "M"}${x(cost(p)).toFixed(1)} ${y(p.loss).toFixed(1)}`).join("")
        }),
        ...drawn);
    const best = points.reduce((a, b) => (b.loss < a.loss ? b : a));
    describe(best);
  }
  redrawn(chart.parentNode, draw);
});
