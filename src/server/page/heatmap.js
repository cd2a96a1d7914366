// Sink mass, layer by layer and head by head: how much of a head's attention rests on the pinned keys. A cell
// that is picked shows its history below.

import { Painter, fit, mix, palette } from './canvas.js';
import { el, number } from './dom.js';

const percent = (value) => `${(value * 100).toFixed(value < 0.0995 ? 1 : 0)}%`;

export class HeatMap {
  // `lanes()` -> [{name, state, colour}], the first is shown; all are drawn in the head's history.
  constructor(lanes) {
    this.lanes = lanes;
    this.hover = null;   // {layer, head}
    this.picked = null;
    this.painter = new Painter(() => this.draw());
    this.map = el('canvas', {
      class: 'heat', tabindex: '0', role: 'slider', 'aria-label': 'Sink mass by layer and head',
      'aria-valuemin': '0', 'aria-valuemax': '100', 'aria-valuenow': '0',
    });
    this.note = el('p', { class: 'note' });
    this.value = el('output', { class: 'value' });
    this.legend = el('canvas', { class: 'legend', role: 'img', 'aria-label': 'Colour scale from 0 to 100 percent' });
    this.line = el('canvas', { class: 'chart', role: 'img', 'aria-label': 'History of the chosen head' });
    this.lineBox = el('div', { class: 'head-history', hidden: true });
    this.lineTitle = el('h3', { class: 'chart-title' });
    this.lineBox.append(this.lineTitle, this.line);
    this.root = el('section', { class: 'instrument sink-mass', 'aria-label': 'Sink mass' },
      el('div', { class: 'instrument-head' }, el('h2', {}, 'Sink mass'), this.value),
      this.map, el('div', { class: 'scale' }, el('span', {}, '0'), this.legend, el('span', {}, '100% of attention')),
      this.note, this.lineBox);
    this.listen();
  }

  listen() {
    const { map } = this;
    map.addEventListener('pointermove', (event) => this.at(this.cellAt(event)));
    map.addEventListener('pointerleave', () => this.at(null));
    map.addEventListener('click', (event) => this.pick(this.cellAt(event)));
    map.addEventListener('keydown', (event) => {
      const view = this.view();
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!view) return;
      if (event.key === 'Enter' || event.key === ' ') {
        event.preventDefault();
        this.pick(this.hover);
      } else if (step) {
        event.preventDefault();
        const from = this.hover || this.picked || { layer: 0, head: 0 };
        this.at({
          layer: Math.max(0, Math.min(view.layers - 1, from.layer + step[0])),
          head: Math.max(0, Math.min(view.heads - 1, from.head + step[1])),
        });
      }
    });
    map.addEventListener('blur', () => this.at(null));
    new ResizeObserver(() => this.request()).observe(this.root);
    addEventListener('ballast-theme', () => this.request());
  }

  view() {
    return this.lanes()[0]?.state.view;
  }
  request() {
    this.painter.request();
  }
  at(cell) {
    this.hover = cell;
    this.request();
  }
  pick(cell) {
    if (!cell) return;
    const same = this.picked && this.picked.layer === cell.layer && this.picked.head === cell.head;
    this.picked = same ? null : cell;
    this.lineBox.hidden = same;
    this.request();
  }

  grid() {
    const { layers, heads } = this.view();
    const left = 24;
    const bottom = 16;
    const w = this.map.clientWidth - left;
    const h = this.map.clientHeight - bottom;
    return { layers, heads, left, cw: w / heads, ch: h / layers, w, h };
  }
  cellAt(event) {
    if (!this.view()?.layers) return null;
    const g = this.grid();
    const head = Math.floor((event.offsetX - g.left) / g.cw);
    const layer = Math.floor(event.offsetY / g.ch);
    return head >= 0 && head < g.heads && layer >= 0 && layer < g.layers ? { layer, head } : null;
  }

  static colour(value, p) {
    const share = Math.max(0, Math.min(1, value));
    return share < 0.5 ? mix(p.cold, p.warm, share * 2) : mix(p.warm, p.hot, share * 2 - 1);
  }

  draw() {
    if (this.map.clientHeight < 40) return;  // not shown
    const p = palette();
    const lane = this.lanes()[0];
    const { ctx } = fit(this.map);
    this.drawLegend(p);
    const view = lane?.state.view;
    const mass = lane?.state.mass;
    if (!view || !mass) {
      this.note.textContent = view && view.sinks === 0 ? 'A plain window pins nothing, so no head has its sinks.'
        : 'Fills with the first tokens.';
      this.value.textContent = '';
      this.drawBlank(p);
      return;
    }
    const g = this.grid();
    const gap = g.cw > 6 && g.ch > 5 ? 1 : 0;
    for (let layer = 0; layer < g.layers; ++layer) {
      for (let head = 0; head < g.heads; ++head) {
        ctx.fillStyle = HeatMap.colour(mass[layer * g.heads + head], p);
        ctx.fillRect(g.left + head * g.cw, layer * g.ch, g.cw - gap, g.ch - gap + (gap ? 0 : 0.3));
      }
    }
    this.drawAxes(ctx, g, p);
    for (const [cell, width] of [[this.picked, 2], [this.hover, 1.5]]) {
      if (!cell) continue;
      ctx.strokeStyle = p.ink;
      ctx.lineWidth = width;
      ctx.strokeRect(g.left + cell.head * g.cw, cell.layer * g.ch, g.cw - gap, g.ch - gap);
    }
    this.say(mass, g, view);
    if (this.picked) this.drawLine(p);
  }

  // Before the first token: the place where it will be.
  drawBlank(p) {
    const { ctx, w, h } = fit(this.map);
    ctx.fillStyle = p.cold;
    for (let row = 0; row < 12; ++row) {
      for (let column = 0; column < 9; ++column) {
        ctx.fillRect(24 + (column * (w - 24)) / 9, (row * (h - 16)) / 12, (w - 24) / 9 - 1, (h - 16) / 12 - 1);
      }
    }
  }

  drawAxes(ctx, g, p) {
    ctx.fillStyle = p.muted;
    ctx.font = `10px ${p.sans}`;
    ctx.textAlign = 'right';
    ctx.textBaseline = 'middle';
    const every = Math.max(5, Math.ceil(18 / g.ch / 5) * 5);
    for (let layer = 0; layer < g.layers; layer += every) ctx.fillText(String(layer), g.left - 5, Math.max(6, (layer + 0.5) * g.ch));
    ctx.textAlign = 'center';
    ctx.textBaseline = 'alphabetic';
    const stride = Math.max(1, Math.ceil(16 / g.cw));
    for (let head = 0; head < g.heads; head += stride) {
      ctx.fillText(String(head), g.left + (head + 0.5) * g.cw, g.h + 13);
    }
    ctx.textAlign = 'left';
  }

  drawLegend(p) {
    const { ctx, w, h } = fit(this.legend);
    for (let x = 0; x < w; ++x) {
      ctx.fillStyle = HeatMap.colour(x / w, p);
      ctx.fillRect(x, 0, 1.3, h);
    }
  }

  say(mass, g, view) {
    const cell = this.hover || this.picked;
    let sum = 0;
    for (const value of mass) sum += value;
    this.note.textContent = view.sinks === 0 ? 'A plain window pins nothing, so no head has its sinks.'
      : 'Layers down, heads across: how much attention rests on the pinned tokens. Click a cell for its history.';
    const text = cell ? `layer ${cell.layer}, head ${cell.head}: ${percent(mass[cell.layer * g.heads + cell.head])}`
      : `mean ${percent(sum / mass.length)}`;
    if (text === this.value.textContent) return;
    this.value.textContent = text;
    this.map.setAttribute('aria-valuetext', text);
    this.map.setAttribute('aria-valuenow',
      String(Math.round(100 * (cell ? mass[cell.layer * g.heads + cell.head] : sum / mass.length))));
  }

  drawLine(p) {
    const { layer, head } = this.picked;
    const { ctx, w, h } = fit(this.line);
    this.lineTitle.textContent = `Layer ${layer}, head ${head} over the stream`;
    let from = Infinity;
    let to = 0;
    for (const { state } of this.lanes()) {
      if (!state.samples.length) continue;
      from = Math.min(from, state.samples[0].position);
      to = Math.max(to, state.samples[state.samples.length - 1].position);
    }
    const x = (position) => ((position - from) / Math.max(1, to - from)) * (w - 1);
    const y = (value) => 2 + (1 - value) * (h - 18);
    ctx.fillStyle = p.rule;
    for (const value of [0, 0.5, 1]) ctx.fillRect(0, Math.round(y(value)), w, 1);
    ctx.lineWidth = 1.5;
    ctx.lineJoin = 'round';
    for (const { state, colour } of this.lanes()) {
      const heads = state.view?.heads || 0;
      ctx.strokeStyle = p[colour];
      ctx.beginPath();
      let pen = false;
      for (const sample of state.samples) {
        if (!sample.mass) continue;
        const value = sample.mass[layer * heads + head];
        if (pen) ctx.lineTo(x(sample.position), y(value));
        else ctx.moveTo(x(sample.position), y(value));
        pen = true;
      }
      ctx.stroke();
    }
    ctx.fillStyle = p.muted;
    ctx.font = `10px ${p.sans}`;
    if (to > 0) {
      ctx.fillText(`position ${number(from)}`, 0, h - 3);
      ctx.textAlign = 'right';
      ctx.fillText(number(to), w, h - 3);
      ctx.textAlign = 'left';
    }
  }
}
