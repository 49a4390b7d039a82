// Loss curves: means over seeds with bands, training and validation, readout by pointer and arrow keys.

figure("loss", (node) => {
  const kinds = {validation: {x: "ex", y: "ey"}, training: {x: "x", y: "y"}};
  const has = (kind) => data.curves.some((curve) => curve[kinds[kind].y].length > 1);
  const seeds = new Set(data.curves.map((curve) => curve.seed)).size;
  const each = (name) => data.curves.every((curve) => curve[name] > 0);
  const state = {
    show: has("validation") ? "validation" : "training",
    part: "0.1",
    unit: "steps",
    logY: false,
    logX: false,
    single: false,
    smooth: 0.8,
    hidden: new Set(),
    bright: null,
    cursor: null
  };
  const shown = () => (state.show === "both" ? ["validation", "training"] : [state.show]);

  // Debiased exponential mean; a gap stays a gap.
  function smoothed(values, weight) {
    let sum = 0, mass = 0;
    return values.map((value) => {
      if (!isNumber(value)) return null;
      sum = sum * weight + value * (1 - weight);
      mass = mass * weight + (1 - weight);
      return sum / mass;
    });
  }
  function at(run, x) {
    if (x < run.x[0] || x > run.x[run.x.length - 1]) return null;
    let low = 0, high = run.x.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (run.x[middle] <= x)
        low = middle;
      else
        high = middle;
    }
    const [a, b] = [run.y[low], run.y[high]];
    if (run.x[low] === x || high === low) return a;
    if (run.x[high] === x) return b;
    return isNumber(a) && isNumber(b) ? a + ((b - a) * (x - run.x[low])) / (run.x[high] - run.x[low]) : null;
  }
  function seriesOf(kind) {
    return mechanisms
        .map((_, m) => {
          const runs = data.curves.filter((curve) => curve.m === m && curve[kinds[kind].y].length).map((curve) => {
            const factor = state.unit === "tokens" ? curve.tokens : state.unit === "seconds" ? curve.seconds : 1;
            const y = curve[kinds[kind].y];
            return {
              x: data.axes[curve[kinds[kind].x]].map((step) => step * factor),
              seed: curve.seed,
              y: kind === "training" && state.smooth > 0 ? smoothed(y, state.smooth) : y
            };
          });
          if (!runs.length) return null;
          const mean = {x: runs[0].x, y: [], low: [], high: []};
          for (const x of mean.x) {
            const values = runs.map((run) => at(run, x));
            const ok = values.every(isNumber);
            mean.y.push(ok ? values.reduce((a, b) => a + b, 0) / values.length : null);
            mean.low.push(ok ? Math.min(...values) : null);
            mean.high.push(ok ? Math.max(...values) : null);
          }
          return {m, kind, runs, mean};
        })
        .filter(Boolean);
  }
  // The mean of the runs' last values; none when a run ended without a number.
  function finalOf(series) {
    const last = series.runs.map((run) => run.y[run.y.length - 1]);
    return last.every(isNumber) ? last.reduce((a, b) => a + b, 0) / last.length : null;
  }

  function path(xs, ys, position) {
    let text = "", pen = "M";
    xs.forEach((x, i) => {
      if (!isNumber(ys[i]) || (state.logX && x <= 0)) {
        pen = "M";
        return;
      }
      text += `${pen}${position.x(x).toFixed(1)} ${position.y(ys[i]).toFixed(1)}`;
      pen = "L";
    });
    return text;
  }
  function bandPath({x, low, high}, position) {
    const good = x.map((_, i) => i).filter((i) => isNumber(low[i]) && !(state.logX && x[i] <= 0));
    const point = (values) => (i) => `${position.x(x[i]).toFixed(1)} ${position.y(values[i]).toFixed(1)}`;
    return good.length < 2 ? "" : `M${good.map(point(high)).join("L")}L${good.reverse().map(point(low)).join("L")}Z`;
  }

  // The part of the horizontal axis that is shown, and the range of what is seen there.
  function ranges(all) {
    const xs = all.flatMap((series) => [series.mean.x[0], series.mean.x[series.mean.x.length - 1]]);
    const last = Math.max(...xs), first = Math.min(...xs);
    let from = Math.max(state.part === "0" ? first : 0, last * Number(state.part));
    if (state.logX && from <= 0) from = Math.min(...all.flatMap((series) => series.mean.x.filter((x) => x > 0)));
    let low = Infinity, high = -Infinity;
    for (const {mean} of all)
      mean.x.forEach((x, i) => {
        if (x < from || !isNumber(mean.y[i])) return;
        low = Math.min(low, mean.low[i]);
        high = Math.max(high, mean.high[i]);
      });
    if (!(low < high)) [low, high] = isNumber(low) && low < Infinity ? [low - 0.5, low + 0.5] : [0, 1];
    const pad = (high - low) * 0.05;
    return {
      from,
      last: Math.max(last, from + 1e-9),
      low: state.logY ? Math.max(low - pad, low * 0.97) : low - pad,
      high: high + pad
    };
  }

  const chart = svg(
      "svg", {class: "chart", tabindex: "0", role: "slider", "aria-label": "Loss curves; arrow keys move the reading"});
  const legend = html("div", {class: "legend"});
  const smoothing = html("input", {
    type: "range",
    min: 0,
    max: 0.98,
    step: 0.02,
    value: state.smooth,
    "aria-label": "Smoothing of the training loss",
    oninput: () => set("smooth", Number(smoothing.value))
  });
  const smoothingLabel = html("label", {}, "Smoothing", smoothing);
  function set(name, value) {
    state[name] = value;
    draw();
  }
  const controls = html(
      "div", {class: "controls"},
      has("validation") && has("training") ?
          chooser(
              "Loss", [["validation", "validation"], ["training", "training"], ["both", "both"]], state.show,
              (v) => set("show", v)) :
          null,
      chooser(
          "Part", [["0", "whole run"], ["0.1", "without the first tenth"], ["0.5", "last half"]], state.part,
          (v) => set("part", v)),
      each("tokens") || each("seconds") ?
          chooser(
              "Against",
              [
                ["steps", "steps"], ...(each("tokens") ? [["tokens", "training tokens"]] : []),
                ...(each("seconds") ? [["seconds", "seconds"]] : [])
              ],
              state.unit,
              (v) => {
                state.cursor = null;
                set("unit", v);
              }) :
          null,
      checkbox("log loss", false, (v) => set("logY", v)), checkbox(data.by_tokens ? "log tokens" : "log steps", false, (v) => set("logX", v)),
      seeds > 1 ? checkbox("every seed", false, (v) => set("single", v)) : null,
      has("training") ? smoothingLabel : null);
  node.replaceChildren(controls, html("div", {class: "with-legend"}, html("div", {}, chart), legend));

  let view = null;
  function drawSeries(series, position, clip) {
    const group = svg("g", {class: colourClass(series.m), "data-m": series.m, "clip-path": clip});
    const training = series.kind === "training" ? " training" : "";
    if (state.single)
      for (const run of series.runs) group.append(svg("path", {class: "line thin", d: path(run.x, run.y, position)}));
    else if (series.runs.length > 1)
      group.append(svg("path", {class: "band", d: bandPath(series.mean, position)}));
    if (!state.single || series.runs.length === 1)
      group.append(svg("path", {class: "line" + training, d: path(series.mean.x, series.mean.y, position)}));
    return group;
  }
  // A few marks along each line, shifted from line to line so that they do not hide each other.
  function drawSpots(series, position, order) {
    const group = svg("g", {"data-m": series.m});
    const {from, last} = view;
    for (let i = 0; i < 5; ++i) {
      const wanted = from + ((last - from) * (i + (order + 1) / (mechanisms.length + 1))) / 5;
      const index = series.mean.x.findIndex((x) => x >= wanted);
      const x = series.mean.x[index], y = series.mean.y[index];
      if (index >= 0 && isNumber(y) && x >= from && y <= view.high)
        group.append(spot(series.m, position.x(x), position.y(y)));
    }
    return group;
  }

  function draw() {
    const width = Math.max(280, chart.parentNode.clientWidth),
          height = Math.round(Math.max(270, Math.min(430, width * 0.58)));
    const margin = {left: 40, right: 18, top: 24, bottom: 38};
    const everything = shown().flatMap(seriesOf);
    const visible = everything.filter((series) => !state.hidden.has(series.m));
    smoothingLabel.hidden = state.show === "validation";
    view = {...ranges(visible.length ? visible : everything), width, height, margin, visible, everything};
    view.x = scale(view.from, view.last, margin.left, width - margin.right, state.logX);
    view.y = scale(view.low, view.high, height - margin.bottom, margin.top, state.logY);
    const xTicks = ticks(view.from, view.last, width / 95, state.logX),
          yTicks = ticks(view.low, view.high, height / 55, state.logY);
    chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    chart.replaceChildren(
        svg("clipPath", {id: "loss-clip"}, svg("rect", {
              x: margin.left,
              y: margin.top - 4,
              width: width - margin.left - margin.right + 6,
              height: height - margin.top - margin.bottom + 4
            })),
        frame(
            width, height, margin, {
              position: view.x,
              ticks: xTicks,
              text: (v) => (v >= 1e5 ? quantity(v).replace("\u00a0", "") : whole(v)),
              label: {steps: data.by_tokens ? "training tokens" : "step", tokens: "training tokens", seconds: "seconds of training"}[state.unit]
            },
            {
              position: view.y,
              ticks: yTicks,
              text: tickText(yTicks),
              label: state.show === "both" ? "loss, nats a token: bold validation, thin training" :
                                             `${state.show} loss, nats a token`
            }),
        ...visible.map((series) => drawSeries(series, view, "url(#loss-clip)")),
        ...visible.filter((series) => series.kind === shown()[0]).map((series, i) => drawSpots(series, view, i)),
        svg("g", {class: "reading"}));
    read(state.cursor);
    highlight();
  }

  // The list beside the chart, best first: it names the lines, shows values and switches lines.
  function drawLegend(text, values) {
    const order = mechanisms.map((_, m) => m).filter((m) => data.curves.some((curve) => curve.m === m));
    const final = (m) => {
      const series = view.everything.find((s) => s.m === m);
      return series ? finalOf(series) ?? 1e9 : 1e9;
    };
    order.sort((a, b) => final(a) - final(b));
    const head = html(
        "div", {class: "where"}, html("span", {}, text),
        state.show === "both" ? [html("span", {class: "value"}, "valid."), html("span", {class: "value"}, "train.")] :
                                null);
    const focused = legend.contains(document.activeElement) ? document.activeElement.dataset.m : null;
    legend.replaceChildren(head, ...order.map((m) => {
      const bright = (value) => () => {
        if (state.bright !== value) {
          state.bright = value;
          highlight();
        }
      };
      return html(
          "button", {
            type: "button",
            "data-m": m,
            "aria-pressed": String(!state.hidden.has(m)),
            onclick: () => {
              state.hidden.has(m) ? state.hidden.delete(m) : state.hidden.add(m);
              draw();
            },
            onpointerenter: bright(m),
            onpointerleave: bright(null),
            onfocus: bright(m),
            onblur: bright(null)
          },
          markOf(m), html("span", {class: "name"}, mechanisms[m].name),
          shown().map((kind) => html("span", {class: "value"}, lossText(values(m, kind)))));
    }));
    if (focused !== null) legend.querySelector(`[data-m="${focused}"]`)?.focus({preventScroll: true});
  }
  function highlight() {
    for (const part of chart.querySelectorAll("g[data-m]"))
      part.classList.toggle("dim", state.bright !== null && Number(part.dataset.m) !== state.bright);
  }

  const longest = () => view.visible.reduce((a, b) => (!a || b.mean.x.length > a.mean.x.length ? b : a), null)
                            ?.mean.x.filter((v) => v >= view.from) ??
      [];

  // Values at the grid place nearest to x, or the last ones.
  function read(x) {
    const group = chart.querySelector(".reading"), grid = longest();
    const place =
        x === null || !grid.length ? null : grid.reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a));
    state.cursor = place;
    const value = (m, kind) => {
      const series = view.everything.find((s) => s.m === m && s.kind === kind);
      return !series || state.hidden.has(m) ? null : place === null ? finalOf(series) : at(series.mean, place);
    };
    const unit = {steps: data.by_tokens ? "token" : "step", tokens: "token", seconds: "second"}[state.unit];
    const text = place === null ? "at the end" : `at ${unit} ${whole(place)}`;
    drawLegend(text, value);
    group.replaceChildren();
    chart.setAttribute("aria-valuemin", Math.round(view.from));
    chart.setAttribute("aria-valuemax", Math.round(view.last));
    chart.setAttribute("aria-valuenow", Math.round(place ?? view.last));
    const names = view.visible.filter((s) => s.kind === shown()[0])
                      .map((s) => `${mechanisms[s.m].name} ${lossText(value(s.m, s.kind))}`);
    chart.setAttribute("aria-valuetext", `${text}: ${names.join(", ")}`);
    if (place === null) return;
    const px = view.x(place);
    group.append(
        svg("line", {class: "cursor", x1: px, x2: px, y1: view.margin.top, y2: view.height - view.margin.bottom}));
    for (const series of view.visible) {
      const y = at(series.mean, place);
      if (isNumber(y) && y <= view.high && y >= view.low) group.append(spot(series.m, px, view.y(y)));
    }
  }
  const pointed = (event) => {
    const box = chart.getBoundingClientRect(), pixel = ((event.clientX - box.left) / box.width) * view.width;
    read(view.x.invert(Math.min(view.width - view.margin.right, Math.max(view.margin.left, pixel))));
  };
  chart.addEventListener("pointermove", pointed);
  chart.addEventListener("pointerdown", pointed);
  chart.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") read(null);
  });
  chart.addEventListener("keydown", (event) => {
    const grid = longest();
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
    if (!move || !grid.length) return;
    event.preventDefault();
    const now = state.cursor === null ? grid.length - 1 : grid.indexOf(state.cursor);
    read(grid[Math.max(0, Math.min(grid.length - 1, now + move))]);
  });
  redrawn(chart.parentNode, draw);
});
