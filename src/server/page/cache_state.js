// What the page knows of one session's cache: filled from the events of GET /v1/sessions/{id}/cache.

import { cachePosition, slotOf, tokenIn } from './law.js';

const kSamples = 720;  // kept for the charts; halved in resolution when full, so any length fits
const kGhostLife = 1600;  // milliseconds that an evicted token takes to sink out of sight

export class CacheState {
  constructor() {
    this.reset();
  }

  reset() {
    this.view = null;
    this.cells = [];    // slot -> {position, text}
    this.ghosts = [];   // {slot, text, position, born}
    this.samples = [];  // {at, position, start, live, speed, surprise, mass}
    this.mass = null;   // smoothed sink mass, layers * heads
    this.rollOver = -1; // stream position at which the first token was evicted
    this.stride = 1;
    this.skipped = 0;
    this.seconds = 0;   // of activity: pauses do not count
    this.lastEvent = 0;
  }

  apply(view, now) {
    const old = this.view;
    const rewound = old && (view.position < old.position || view.context !== old.context || view.sinks !== old.sinks);
    if (rewound) this.reset();
    const { sinks, context } = view;
    const first = this.view === null;
    const fresh = view.fresh || [];
    this.evict(first ? null : old, view, fresh, now);
    for (const { position, text } of fresh) this.cells[slotOf(position, sinks, context)] = { position, text };
    this.view = { ...view, fresh: undefined, start: view.start ?? 0 };
    if (view.evicted_tokens > 0) this.rollOver = context;  // the first token that found the cache full
    this.sample(view, fresh, now, first);
  }

  // Tokens that left since the last view keep a ghost for a moment; a burst leaves a few, not thousands.
  evict(old, view, fresh, now) {
    this.ghosts = this.ghosts.filter((ghost) => now - ghost.born < kGhostLife);
    if (!old || fresh.length === 0) return;
    const from = Math.max(old.start, old.sinks, view.start - old.context);
    const gone = view.start - from;
    const step = Math.max(1, Math.ceil(gone / 64));
    for (let t = from; t < view.start && t < old.position; t += step) {
      const slot = slotOf(t, old.sinks, old.context);
      const cell = this.cells[slot];
      if (cell && cell.position === t) this.ghosts.push({ slot, text: cell.text, position: t, born: now });
    }
    if (this.ghosts.length > 400) this.ghosts.splice(0, this.ghosts.length - 400);
  }

  sample(view, fresh, now, first) {
    const gap = this.lastEvent ? (now - this.lastEvent) / 1000 : 0;
    this.lastEvent = now;
    if (!first && fresh.length === 0) return;
    this.seconds += Math.min(gap, 1);
    const mass = view.sink_mass?.length === view.layers * view.heads && view.layers > 0
      ? Float32Array.from(view.sink_mass) : null;
    if (mass && (fresh.length > 0 || this.mass === null)) {
      if (this.mass?.length !== mass.length) this.mass = mass.slice();
      else for (let i = 0; i < mass.length; ++i) this.mass[i] += 0.35 * (mass[i] - this.mass[i]);
    }
    if (this.skipped++ % this.stride !== 0) return;
    this.samples.push({
      at: this.seconds, position: view.position, start: view.start, live: view.live,
      speed: view.tokens_per_second || null, surprise: view.surprise > 0 ? view.surprise : null, mass,
    });
    if (this.samples.length > kSamples) {
      this.samples = this.samples.filter((_, i) => i % 2 === 0);
      this.stride *= 2;
    }
  }

  hasGhosts(now) {
    return this.ghosts.some((ghost) => now - ghost.born < kGhostLife);
  }
  static fade(ghost, now) {
    return Math.min(1, (now - ghost.born) / kGhostLife);
  }

  // What lives in a slot: {slot, kind: 'pinned' | 'live' | 'gone' | 'empty', position, cache, age, text}.
  slot(slot) {
    const { sinks, context, position, start } = this.view;
    const t = tokenIn(slot, sinks, context, position);
    if (t < 0) return { slot, kind: 'empty' };
    const cell = this.cells[slot];
    const text = cell && cell.position === t ? cell.text : null;
    const kind = slot < sinks ? 'pinned' : t >= start ? 'live' : 'gone';
    return { slot, kind, position: t, cache: cachePosition(t, sinks, start), age: position - 1 - t, text };
  }

  writeSlot() {
    const { sinks, context, position } = this.view;
    return this.view.write_slot ?? slotOf(position, sinks, context);
  }
}
