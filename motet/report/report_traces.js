// Small charts of one quantity each over the steps: a line, or one for each layer or part of the model.

figure("traces", (node) => {
  // Layers, however many, from one colour to another, so that neighbours look alike; other lines have colours of their own.
  function colour(i, lines) {
    if (lines.length === 1) return "var(--c0)";
    if (!lines[0].name.startsWith("layer ")) return `var(--c${1 + (i % 7)})`;
    return `color-mix(in oklab, var(--c1), var(--c4) ${Math.round((100 * i) / (lines.length - 1))}%)`;
  }
  // Nor does colour alone tell them apart.
  const kDashes = ["none", "7 3", "2 3", "8 3 2 3", "14 4", "4 6"];
  function draw(element, i, lines) {
    element.style.stroke = colour(i, lines);
    if (lines.length > 1 && !lines[0].name.startsWith("layer ")) element.style.strokeDasharray = kDashes[i % kDashes.length];
    return element;
  }
  const number = (value) => quantity(value).replace("\u00a0", "").replace("-", "−");

  function traceChart(trace) {
    const lines = trace.lines.map((line) => ({...line, x: data.axes[line.x]})).filter((line) => line.x.length);
    const shown = (value) => isNumber(value) && !(trace.logarithmic && value <= 0);
    const values = lines.flatMap((line) => line.y.filter(shown));
    if (!values.length) return null;
    const chart = svg("svg", {class: "chart", tabindex: "0", role: "slider", "aria-label": `${trace.title} over steps`});
    const holder = html("div", {}, chart), readout = html("p", {class: "readout"});
    const steps = lines.reduce((a, b) => (b.x.length > a.length ? b.x : a), []);
    const first = steps[0], last = Math.max(steps[steps.length - 1], first + 1e-9);
    let low = Math.min(...values), high = Math.max(...values), view = null, cursor = null;
    if (!trace.logarithmic || low === high) {
      const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
      [low, high] = [low - pad, high + pad];
    }

    function read(index) {
      cursor = index;
      const at = index === null ? steps.length - 1 : index, step = steps[at];
      const valueOf = (line) => line.y[line.x.indexOf(step)];
      readout.replaceChildren(
          html("span", {}, index === null ? "at the end:" : `at step ${whole(step)}:`),
          ...lines.map((line, i) => {
            const stroke = draw(svg("path", {class: "line", d: "M0 3H24"}), i, lines);
            return html(
                "span", {}, lines.length > 1 ? svg("svg", {class: "pen", viewBox: "0 0 24 6"}, stroke) : null,
                `${line.name} `, html("b", {}, number(valueOf(line))));
          }));
      chart.setAttribute("aria-valuemin", first);
      chart.setAttribute("aria-valuemax", steps[steps.length - 1]);
      chart.setAttribute("aria-valuenow", step);
      chart.setAttribute("aria-valuetext", readout.textContent);
      const group = chart.querySelector(".reading");
      group.replaceChildren();
      if (index === null) return;
      const px = view.x(step);
      group.append(svg("line", {class: "cursor", x1: px, x2: px, y1: view.top, y2: view.bottom}));
    }

    redrawn(holder, () => {
      const width = Math.max(240, holder.clientWidth), height = 190;
      const margin = {left: 46, right: 12, top: 12, bottom: 36};
      view = {
        width,
        left: margin.left,
        right: width - margin.right,
        top: margin.top,
        bottom: height - margin.bottom,
        x: scale(first, last, margin.left, width - margin.right),
        y: scale(low, high, height - margin.bottom, margin.top, trace.logarithmic)
      };
      const xTicks = ticks(first, last, width / 95).filter(Number.isInteger),
            yTicks = ticks(low, high, 4, trace.logarithmic);
      chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
      chart.replaceChildren(
          frame(
              width, height, margin, {
                position: view.x,
                ticks: xTicks,
                text: (v) => (v >= 1e5 ? quantity(v).replace("\u00a0", "") : whole(v)),
                label: "step"
              },
              {position: view.y, ticks: yTicks, text: tickText(yTicks), label: ""}),
          ...lines.map((line, i) => {
            let pen = "M";
            const d = line.x.map((x, at) => {
              if (!shown(line.y[at])) {
                pen = "M";
                return "";
              }
              const point = `${pen}${view.x(x).toFixed(1)} ${view.y(line.y[at]).toFixed(1)}`;
              pen = "L";
              return point;
            });
            if (line.x.length > 1) return draw(svg("path", {class: "line", d: d.join("")}), i, lines);
            const dot = svg("circle", {cx: view.x(line.x[0]), cy: view.y(line.y[0]), r: 3});
            dot.style.fill = colour(i, lines);
            return dot;
          }),
          svg("g", {class: "reading"}));
      read(cursor);
    });
    const pointed = (event) => {
      const box = chart.getBoundingClientRect();
      const pixel = Math.min(view.right, Math.max(view.left, ((event.clientX - box.left) / box.width) * view.width));
      const wanted = view.x.invert(pixel);
      read(steps.reduce((best, step, i) => (Math.abs(step - wanted) < Math.abs(steps[best] - wanted) ? i : best), 0));
    };
    chart.addEventListener("pointermove", pointed);
    chart.addEventListener("pointerdown", pointed);
    chart.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") read(null);
    });
    chart.addEventListener("keydown", (event) => {
      const move = {
        ArrowLeft: -1,
        ArrowDown: -1,
        ArrowRight: 1,
        ArrowUp: 1,
        PageDown: -10,
        PageUp: 10,
        Home: -1e9,
        End: 1e9
      }[event.key];
      if (event.key === "Escape") read(null);
      if (!move) return;
      event.preventDefault();
      read(Math.max(0, Math.min(steps.length - 1, (cursor === null ? steps.length - 1 : cursor) + move)));
    });
    const explanation = trace.explanation ? html("p", {class: "note"}, trace.explanation) : null;
    return html(
        "div", {class: "trace"}, html("h3", {}, trace.title, trace.unit ? html("small", {}, trace.unit) : null), holder,
        readout, explanation);
  }
  node.replaceChildren(html("div", {class: "traces"}, data.traces.map(traceChart)));
});
