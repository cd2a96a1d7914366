// The time axis: position and what of it is in view, tokens per second, surprise. All lanes share the axes, so
// that two policies can be compared at the same stream position or the same moment.

import { Painter, fit, palette } from './canvas.js';
import { el, number } from './dom.js';

const kPad = 34;  // room for the labels of the y axis

// A round upper end for an axis.
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 5, 8, 10].map((step) => step * power).find((step) => step >= value);
}
const short = (value) => (value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${Math.round(value / 1e3)}k`
  : value >= 10 || value === 0 ? number(value) : value.toFixed(1));

export class TimeLine {
  constructor(lanes) {
    this.lanes = lanes;
    this.axis = 'at';
    this.hover = -1;  // share of the axis, or -1
    this.painter = new Painter(() => this.draw());
    this.charts = [
      { key: 'position', title: 'Position', unit: '', area: true },
      { key: 'speed', title: 'Tokens per second', unit: '/s' },
      { key: 'surprise', title: 'Surprise', unit: ' bits' },
    ];
    this.root = el('section', { class: 'instrument over-time', 'aria-label': 'Time axis' });
    this.axisButton = el('button', { type: 'button', class: 'link', onclick: () => {
      this.axis = this.axis === 'at' ? 'position' : 'at';
      this.request();
    } });
    this.root.append(el('div', { class: 'instrument-head' }, el('h2', {}, 'Over time'), this.axisButton));
    for (const chart of this.charts) {
      chart.canvas = el('canvas', { class: 'chart', role: 'img', 'aria-label': chart.title });
      chart.value = el('output', { class: 'value' });
      chart.canvas.addEventListener('pointermove', (event) => {
        this.hover = (event.offsetX - kPad) / Math.max(1, chart.canvas.clientWidth - kPad);
        this.request();
      });
      chart.canvas.addEventListener('pointerleave', () => { this.hover = -1; this.request(); });
      this.root.append(el('div', { class: 'chart-head' }, el('h3', { class: 'chart-title' }, chart.title), chart.value),
        chart.canvas);
    }
    this.note = el('p', { class: 'note' },
      'The band in the first chart is what the model sees: from the start of the window to the newest token. ' +
      'Surprise is −log₂ of the probability of each written token; when a stream breaks, it jumps.');
    this.root.append(this.note);
    new ResizeObserver(() => this.request()).observe(this.root);
    addEventListener('ballast-theme', () => this.request());
  }

  request() {
    this.painter.request();
  }

  range(lanes) {
    let from = Infinity;
    let to = -Infinity;
    for (const { state } of lanes) {
      const { samples } = state;
      if (!samples.length) continue;
      from = Math.min(from, samples[0][this.axis]);
      to = Math.max(to, samples[samples.length - 1][this.axis]);
    }
    return from <= to ? { from, to: Math.max(to, from + 1e-6) } : null;
  }

  draw() {
    if (!this.root.clientHeight) return;  // not shown
    const lanes = this.lanes();
    const p = palette();
    const range = this.range(lanes);
    this.axisButton.textContent = this.axis === 'at' ? 'by seconds of activity' : 'by stream position';
    this.axisButton.setAttribute('aria-label', `Axis: ${this.axisButton.textContent}. Change.`);
    for (const chart of this.charts) this.drawChart(chart, lanes, range, p);
  }

  drawChart(chart, lanes, range, p) {
    const { ctx, w, h } = fit(chart.canvas);
    const bottom = h - 6;
    const values = lanes.flatMap(({ state }) => state.samples.map((sample) => sample[chart.key] || 0));
    const high = ceiling(values.reduce((a, b) => Math.max(a, b), 0));
    const y = (value) => 5 + (1 - value / high) * (bottom - 5);
    ctx.font = `10px ${p.sans}`;
    ctx.textAlign = 'right';
    ctx.textBaseline = 'middle';
    for (const value of [0, high / 2, high]) {
      ctx.fillStyle = p.rule;
      ctx.fillRect(kPad, Math.round(y(value)), w - kPad, 1);
      ctx.fillStyle = p.muted;
      if (range) ctx.fillText(short(value), kPad - 5, y(value));
    }
    if (!range) { chart.value.textContent = ''; return; }
    const x = (value) => kPad + ((value - range.from) / (range.to - range.from)) * (w - kPad - 2);
    for (const lane of lanes) {
      if (chart.area) this.area(ctx, lane, x, y, p);
      this.line(ctx, chart, lane, x, y, p);
    }
    this.rollOver(ctx, lanes, x, range, h, p, chart);
    this.say(chart, lanes, range, ctx, x, h, p);
  }

  area(ctx, { state, colour }, x, y, p) {
    const { samples } = state;
    ctx.fillStyle = p[colour];
    ctx.globalAlpha = 0.2;
    ctx.beginPath();
    samples.forEach((sample, i) => ctx[i ? 'lineTo' : 'moveTo'](x(sample[this.axis]), y(sample.position)));
    for (let i = samples.length - 1; i >= 0; --i) ctx.lineTo(x(samples[i][this.axis]), y(samples[i].start));
    ctx.fill();
    ctx.globalAlpha = 1;
  }

  line(ctx, chart, { state, colour }, x, y, p) {
    ctx.strokeStyle = p[colour];
    ctx.lineWidth = 1.5;
    ctx.lineJoin = 'round';
    ctx.beginPath();
    let pen = false;
    for (const sample of state.samples) {
      const value = sample[chart.key];
      if (value === null) continue;  // nothing was written then
      ctx[pen ? 'lineTo' : 'moveTo'](x(sample[this.axis]), y(value));
      pen = true;
    }
    ctx.stroke();
  }

  // The moment at which the cache was full and the first token left.
  rollOver(ctx, lanes, x, range, h, p, chart) {
    const { state } = lanes[0];
    if (state.rollOver < 0) return;
    const sample = state.samples.find((each) => each.position >= state.rollOver);
    const at = this.axis === 'position' ? state.rollOver : sample?.at;
    if (at === undefined || at < range.from) return;
    const left = x(at);
    ctx.strokeStyle = p.ink;
    ctx.lineWidth = 1;
    ctx.setLineDash([3, 3]);
    ctx.beginPath();
    ctx.moveTo(left, 0);
    ctx.lineTo(left, h - 4);
    ctx.stroke();
    ctx.setLineDash([]);
    if (chart.key !== 'position') return;
    ctx.fillStyle = p.ink;
    const fits = left + 56 < ctx.canvas.clientWidth;
    ctx.textAlign = fits ? 'left' : 'right';
    ctx.fillText('roll-over', left + (fits ? 4 : -4), 10);
  }

  say(chart, lanes, range, ctx, x, h, p) {
    const hovering = this.hover >= 0 && this.hover <= 1;
    const at = hovering ? range.from + this.hover * (range.to - range.from) : Infinity;
    const parts = [];
    for (const { state } of lanes) {
      const known = state.samples.filter((sample) => sample[chart.key] !== null && sample[this.axis] <= at);
      const sample = known[known.length - 1];
      if (sample) parts.push(short(sample[chart.key]) + chart.unit);
    }
    chart.value.textContent = parts.join('  |  ');
    chart.canvas.setAttribute('aria-label', `${chart.title}: ${parts.join(', ') || 'nothing yet'}`);
    if (!hovering) return;
    ctx.fillStyle = p.ink;
    ctx.fillRect(Math.round(x(at)), 0, 1, h);
  }
}
