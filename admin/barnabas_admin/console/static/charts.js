// Draws each figure's points with uPlot over the line that the page has already, with a cursor that reads them.
"use strict";
(() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
  const read = (value) => (value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: 2 }));

  const clock = (seconds, upTo) => new Date(seconds * 1000).toISOString().slice(11, upTo);
  // Ticks that are less than a minute apart would all read alike without their seconds.
  const clocks = (plot, ticks) => ticks.map((each) => clock(each, ticks.length > 1 && ticks[1] - ticks[0] < 60 ? 19 : 16));

  // light-dark() is resolved by the browser on an element, not in a custom property.
  const resolved = (name) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found || color(name);
  };

  const draw = (figure) => {
    const points = JSON.parse(figure.dataset.points);
    if (points.length < 2 || figure.querySelector(".uplot")) return;
    const place = figure.querySelector(".plot");
    const line = resolved("--accent");
    const quiet = resolved("--quiet");
    const grid = { stroke: resolved("--line"), width: 1 };
    const since = Number(figure.dataset.since);
    const until = Number(figure.dataset.until);
    new uPlot({
      width: place.clientWidth,
      height: 150,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      padding: [8, 28, 0, 0],
      legend: { live: true },
      scales: { x: { range: [since, until] }, y: { range: (plot, least, most) => [0, (most || 1) * 1.08] } },
      axes: [{ stroke: quiet, grid, space: 90, values: clocks }, { stroke: quiet, grid, size: 64, values: (plot, ticks) => ticks.map(read) }],
      series: [
        { label: "UTC", value: (plot, at) => (at == null ? "–" : clock(at, 19)) },
        { label: figure.dataset.unit, stroke: line, width: 2, value: (plot, value) => read(value), spanGaps: false },
      ],
    }, [points.map((each) => each[0]), points.map((each) => each[1])], place);
    figure.classList.add("drawn");
  };

  const drawAll = () => document.querySelectorAll("figure.chart").forEach(draw);
  document.addEventListener("DOMContentLoaded", drawAll);
  document.addEventListener("htmx:afterSettle", drawAll);
  let resizing;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => {
      document.querySelectorAll("figure.chart .uplot").forEach((each) => each.remove());
      drawAll();
    }, 200);
  });
})();
