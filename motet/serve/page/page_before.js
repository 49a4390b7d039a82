// Between the report's helpers and its figure of attention: the figure is kept, and drawn when there is something to draw.

let drawAttention = null;
figure = (name, draw) => {
  if (name === "attention") drawAttention = draw;
};
