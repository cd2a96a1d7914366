// The strip of slots: pinned at left, then the ring with its write head, what is evicted sinks below it. Under
// it the lens: a few slots with their text. One slot is selected by pointer, touch or arrow keys; otherwise the
// lens follows the write head.

import { Painter, fit, mix, palette } from './canvas.js';
import { CacheState } from './cache_state.js';
import { el, number, reducedMotion } from './dom.js';

const kTop = 9;      // room for the write head's mark
const kCells = 26;   // height of the cells
const kShades = 64;

export function visible(text) {
  return text === null || text === undefined ? '…' : text.replace(/ /g, '·').replace(/\n/g, '⏎').replace(/\t/g, '⇥') || '∅';
}

export class Strip {
  constructor(state, name) {
    this.state = state;
    this.selected = -1;   // a slot, or -1: follow the write head
    this.held = false;    // by click or key: pointer movements no longer matter
    this.base = new Painter(() => this.draw());
    this.strip = el('canvas', {
      class: 'strip', tabindex: '0', role: 'slider', 'aria-label': `Slots of the cache, ${name}`,
      'aria-valuemin': '0', 'aria-valuemax': '0', 'aria-valuenow': '0', 'aria-valuetext': 'empty',
    });
    this.lens = el('canvas', { class: 'lens', 'aria-hidden': 'true' });
    this.readout = el('p', { class: 'readout' });
    this.root = el('div', { class: 'strip-box' }, this.strip, this.lens, this.readout);
    this.listen();
  }

  listen() {
    const { strip, lens } = this;
    strip.addEventListener('pointermove', (event) => {
      if (!this.held) this.select(this.slotAt(event.offsetX));
    });
    strip.addEventListener('pointerdown', (event) => {
      this.held = false;
      this.select(this.slotAt(event.offsetX));
      this.held = true;
    });
    strip.addEventListener('pointerleave', () => { if (!this.held) this.select(-1); });
    strip.addEventListener('blur', () => this.release());
    strip.addEventListener('keydown', (event) => this.key(event));
    lens.addEventListener('pointerdown', (event) => {
      if (!this.state.view) return;
      const { first, cell } = this.lensRange();
      this.select(Math.min(this.state.view.context - 1, first + Math.floor(event.offsetX / cell)));
      this.held = true;
      strip.focus({ preventScroll: true });
      this.held = true;
    });
    new ResizeObserver(() => this.request()).observe(this.root);
    addEventListener('ballast-theme', () => this.request());
  }

  key(event) {
    const { view } = this.state;
    if (!view) return;
    const from = this.selected >= 0 ? this.selected : this.state.writeSlot();
    const page = Math.max(1, Math.round(view.context / 16));
    const moves = { ArrowLeft: from - 1, ArrowRight: from + 1, ArrowDown: from - 1, ArrowUp: from + 1,
      PageDown: from - page, PageUp: from + page, Home: 0, End: view.context - 1 };
    if (event.key === 'Escape' && this.held) {
      event.stopPropagation();
      this.release();
    } else if (event.key in moves) {
      event.preventDefault();
      this.held = true;
      this.select(Math.max(0, Math.min(view.context - 1, moves[event.key])));
    }
  }

  release() {
    this.held = false;
    this.select(-1);
  }
  select(slot) {
    if (slot === this.selected) return;
    this.selected = slot;
    this.request();
  }
  request() {
    this.base.request();
  }

  // Pinned slots are drawn wider than they are, or four of 8192 would be less than a pixel.
  geometry(w) {
    const { sinks, context } = this.state.view;
    const pinned = sinks === 0 ? 0 : Math.min(w / 3, Math.max((w * sinks) / context, Math.min(sinks * 6, 30)));
    const gap = sinks === 0 ? 0 : 5;
    return { pinned, ring: pinned + gap, width: w - pinned - gap, sinks, window: context - sinks };
  }
  xOf(slot, g) {
    return slot < g.sinks ? (slot * g.pinned) / g.sinks : g.ring + ((slot - g.sinks) * g.width) / g.window;
  }
  slotAt(x) {
    if (!this.state.view) return -1;
    const g = this.geometry(this.strip.clientWidth);
    if (x < g.ring) return Math.max(0, Math.min(g.sinks - 1, Math.floor((x * g.sinks) / (g.pinned || 1))));
    return Math.min(g.sinks + g.window - 1, g.sinks + Math.floor(((x - g.ring) * g.window) / g.width));
  }

  draw() {
    if (!this.strip.clientWidth) return;  // not shown
    const now = performance.now();
    const { ctx, w, h } = fit(this.strip);
    const p = palette();
    if (!this.state.view) {
      ctx.fillStyle = p.empty;
      ctx.fillRect(0, kTop, w, kCells);
      this.readout.textContent = 'No tokens yet.';
      fit(this.lens);
      return;
    }
    const g = this.geometry(w);
    this.drawCells(ctx, w, g, p);
    this.drawGhosts(ctx, g, p, now);
    this.drawHead(ctx, g, p, h);
    this.drawLens(p, now);
    this.say();
    if (this.state.hasGhosts(now)) this.request();
  }

  colour(info, p) {
    if (info.kind === 'pinned') return p.brass;
    if (info.kind !== 'live') return p.empty;
    if (!this.shades || this.shadesOf !== p) {
      this.shades = Array.from({ length: kShades }, (_, i) => mix(p.deep, p.shoal, i / (kShades - 1)));
      this.shadesOf = p;
    }
    const age = info.age / Math.max(1, this.state.view.context - this.state.view.sinks);
    return this.shades[Math.min(kShades - 1, Math.floor(age * kShades))];
  }

  // One rectangle per slot, or per pixel column when slots are narrower than that.
  drawCells(ctx, w, g, p) {
    const range = (first, count, left, width) => {
      const columns = Math.min(count, Math.max(1, Math.floor(width)));
      const size = width / columns;
      const gap = size >= 4 ? 1 : 0;
      for (let i = 0; i < columns; ++i) {
        const slot = first + Math.floor((i * count) / columns);
        ctx.fillStyle = this.colour(this.state.slot(slot), p);
        ctx.fillRect(left + i * size, kTop, size - gap + (gap ? 0 : 0.3), kCells);
      }
    };
    if (g.sinks > 0) range(0, g.sinks, 0, g.pinned);
    range(g.sinks, g.window, g.ring, g.width);
  }

  drawGhosts(ctx, g, p, now) {
    const calm = reducedMotion();
    const size = Math.max(1.5, Math.min(8, g.width / g.window - 1));
    ctx.fillStyle = p.coral;
    for (const ghost of this.state.ghosts) {
      const fade = CacheState.fade(ghost, now);
      if (fade >= 1) continue;
      ctx.globalAlpha = 1 - fade;
      ctx.fillRect(this.xOf(ghost.slot, g), kTop + kCells + 2 + (calm ? 0 : fade * 10), size, calm ? 6 : 4);
    }
    ctx.globalAlpha = 1;
  }

  drawHead(ctx, g, p, h) {
    const { first, count } = this.lensRange();
    const left = this.xOf(first, g);
    const last = Math.min(first + count, g.sinks + g.window);
    const right = last >= g.sinks + g.window ? g.ring + g.width : this.xOf(last, g);
    ctx.strokeStyle = p.muted;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(left + 0.5, h - 5);
    ctx.lineTo(left + 0.5, h - 0.5);
    ctx.lineTo(right - 0.5, h - 0.5);
    ctx.lineTo(right - 0.5, h - 5);
    ctx.stroke();
    const slot = this.state.writeSlot();
    if (slot >= g.sinks + g.window) return;
    const x = this.xOf(slot, g);
    ctx.fillStyle = p.ink;
    ctx.beginPath();
    ctx.moveTo(x - 5, 0);
    ctx.lineTo(x + 5, 0);
    ctx.lineTo(x, 7);
    ctx.fill();
    ctx.fillRect(x - 0.75, 6, 1.5, kCells + 5);
  }

  lensRange() {
    const w = this.lens.clientWidth || 600;
    const { context } = this.state.view;
    const count = Math.max(3, Math.min(context, Math.floor(w / 58)));
    const centre = this.selected >= 0 ? this.selected : this.state.writeSlot();
    const first = Math.max(0, Math.min(context - count, centre - Math.floor(count / 2)));
    return { first, count, cell: w / count };
  }

  drawLens(p) {
    const { ctx, h } = fit(this.lens);
    const { first, count, cell } = this.lensRange();
    const write = this.state.writeSlot();
    ctx.textBaseline = 'middle';
    for (let i = 0; i < count; ++i) {
      const slot = first + i;
      const info = this.state.slot(slot);
      const x = i * cell;
      const chosen = slot === this.selected;
      ctx.fillStyle = this.colour(info, p);
      ctx.fillRect(x, 0, cell - 2, 3);
      ctx.fillStyle = p.panel;
      ctx.fillRect(x, 3, cell - 2, h - 3);
      ctx.save();
      ctx.beginPath();
      ctx.rect(x + 3, 0, cell - 8, h);
      ctx.clip();
      ctx.fillStyle = info.kind === 'pinned' || info.kind === 'live' ? p.ink : p.faint;
      ctx.font = `12px ${p.mono}`;
      if (info.kind !== 'empty') ctx.fillText(visible(info.text), x + 5, 16);
      ctx.fillStyle = p.muted;
      ctx.font = `10px ${p.sans}`;
      ctx.fillText(info.kind === 'empty' ? 'free' : number(info.position), x + 5, 32);
      ctx.restore();
      if (slot === write) {
        ctx.fillStyle = p.ink;
        ctx.fillRect(x - 2, 0, 2, h);
      }
      if (chosen) {
        ctx.strokeStyle = p.ink;
        ctx.lineWidth = 1.5;
        ctx.strokeRect(x + 0.75, 0.75, cell - 3.5, h - 1.5);
      }
    }
  }

  // The selected slot in words; for eyes below the lens, for screen readers as the slider's value.
  say() {
    const { context } = this.state.view;
    const following = this.selected < 0;
    const slot = following ? this.state.writeSlot() : this.selected;
    let text;
    if (following) {
      text = 'The lens follows the write head. Point at a slot, or focus the strip and use the arrow keys.';
    } else {
      const info = this.state.slot(slot);
      const kind = { pinned: 'pinned for ever', live: 'in the window', gone: 'dropped, waiting to be overwritten',
        empty: 'still free' }[info.kind];
      text = info.kind === 'empty' ? `slot ${number(slot)} · ${kind}`
        : `“${visible(info.text)}” · slot ${number(slot)}, ${kind} · stream position ${number(info.position)}` +
          (info.kind === 'gone' ? '' : ` · in-cache position ${number(info.cache)}`) +
          ` · age ${number(info.age)} ${info.age === 1 ? 'token' : 'tokens'}`;
    }
    if (text !== this.readout.textContent) this.readout.textContent = text;
    if (document.activeElement !== this.strip) return;
    this.strip.setAttribute('aria-valuemax', String(context - 1));
    this.strip.setAttribute('aria-valuenow', String(Math.min(slot, context - 1)));
    this.strip.setAttribute('aria-valuetext', text);
  }
}
