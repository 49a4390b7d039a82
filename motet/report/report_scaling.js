// Loss over sizes against a cost that the reader chooses, both on logarithmic axes, with the laws through the points.

figure("scaling", (node) => {
  const {axes, points, lines} = data.scaling;
  const state = {axis: 0};
  const chart = svg("svg", {class: "chart", role: "group", "aria-label": "Loss over sizes, one line a mechanism"});
  const readout = html("p", {class: "readout", "aria-live": "polite"});
  node.replaceChildren(
      html(
          "div", {class: "controls"},
          chooser(
              "Against", axes.map((axis, i) => [i, axis.name]), 0,
              (value) => {
                state.axis = Number(value);
                draw();
              })),
      html("div", {}, chart), readout);

  const deviation = (point) => (isNumber(point.deviation) ? point.deviation : 0);
  const describe = (point) => readout.replaceChildren(
      html("b", {}, `${mechanisms[point.m].name}, ${point.size}`), `: loss ${lossText(point.loss)} ± `,
      lossText(deviation(point)), ...axes.map((axis, i) => `; ${axis.name} ${quantity(point.costs[i], axis.unit)}`), ".");
  // A range of a logarithmic axis with room on both sides.
  function widened(values) {
    const low = Math.min(...values), high = Math.max(...values), room = Math.max(Math.log(high / low) * 0.08, 0.005);
    return [low * Math.exp(-room), high * Math.exp(room)];
  }

  function draw() {
    const axis = axes[state.axis], cost = (point) => point.costs[state.axis];
    const shown = points.filter((point) => isNumber(point.loss) && isNumber(cost(point)) && cost(point) > 0);
    if (!shown.length) {
      chart.replaceChildren();
      readout.textContent = "No size has a value here.";
      return;
    }
    const width = Math.max(280, chart.parentNode.clientWidth),
          height = Math.round(Math.max(290, Math.min(430, width * 0.52)));
    const margin = {left: 46, right: 18, top: 24, bottom: 38};
    const [left, right] = widened(shown.map(cost));
    const [low, high] = widened(shown.flatMap((p) => [p.loss - deviation(p), p.loss + deviation(p)]));
    const x = scale(left, right, margin.left, width - margin.right, true),
          y = scale(low, high, height - margin.bottom, margin.top, true);
    const xTicks = ticks(left, right, width / 95, true), yTicks = ticks(low, high, height / 55, true);
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const laws = lines.filter((line) => line.axis === state.axis).map((line) => {
      const d = line.x.map((at, i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(line.y[i]).toFixed(1)}`).join("");
      return svg("path", {class: "line " + colourClass(line.m), d});
    });
    const drawn = shown.map((point) => {
      const px = x(cost(point)), d = deviation(point), show = () => describe(point);
      return svg(
          "g", {
            class: "point " + colourClass(point.m),
            tabindex: "0",
            role: "img",
            "aria-label": `${mechanisms[point.m].name}, ${point.size}: loss ${lossText(point.loss)}`,
            onpointerenter: show,
            onfocus: show,
            onclick: show
          },
          svg("circle", {cx: px, cy: y(point.loss), r: 10, fill: "transparent"}),
          d > 0 ? svg("line", {class: "bar", x1: px, x2: px, y1: y(point.loss - d), y2: y(point.loss + d)}) : null,
          spot(point.m, px, y(point.loss), 1.2));
    });
    chart.replaceChildren(
        frame(
            width, height, margin, {
              position: x,
              ticks: xTicks,
              text: tickText(xTicks),
              label: axis.name + (axis.unit ? ", " + axis.unit : "")
            },
            {position: y, ticks: yTicks, text: tickText(yTicks), label: "validation loss, nats a token"}),
        ...laws, ...drawn);
    describe(shown.reduce((a, b) => (b.loss < a.loss ? b : a)));
  }
  redrawn(chart.parentNode, draw);
});
