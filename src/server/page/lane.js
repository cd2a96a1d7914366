// A lane: one thread on screen. Its transcript, its gauge (numbers and strip) and its live feed.

import { CacheState } from './cache_state.js';
import { el, number } from './dom.js';
import { Feed } from './feed.js';
import { Strip } from './strip.js';
import { answer } from './thread.js';
import { Transcript } from './transcript.js';

const kNames = { sinks: 'pinned sinks', window: 'plain window', dense: 'dense', recompute: 'recompute' };

export class Lane {
  // owner: {changed(), instruments(), showInstruments(), finished(reply), say(text)}; actions as in Transcript.
  constructor(root, name, colour, owner, actions) {
    this.owner = owner;
    this.colour = colour;
    this.thread = null;
    this.controller = null;
    this.state = new CacheState();
    this.transcript = new Transcript(root, actions);
    this.strip = new Strip(this.state, name);
    this.numbers = el('dl', { class: 'numbers' });
    this.policy = el('strong', { class: 'policy' });
    this.link = el('span', { class: 'link-state' });
    this.health = el('span', { class: 'health', role: 'status', 'aria-live': 'polite' });
    const more = el('button', { type: 'button', class: 'link show-instruments', onclick: () => owner.showInstruments() }, 'Heat map, charts');
    this.gauge = el('div', { class: 'gauge' },
      el('div', { class: 'gauge-head' }, this.policy, this.health, this.numbers, this.link, more), this.strip.root);
    this.fields = {};
    for (const [key, label] of [['position', 'position'], ['live', 'in view'], ['evicted', 'evicted'], ['speed', 'tokens/s']]) {
      this.fields[key] = el('dd', {}, '–');
      this.numbers.append(el('div', { class: `n-${key}` }, el('dt', {}, label), this.fields[key]));
    }
    this.feed = new Feed((view) => this.apply(view), (text) => this.linked(text));
  }

  show(thread, empty) {
    if (this.thread !== thread) this.state.reset();
    this.thread = thread;
    this.gauge.dataset.policy = thread.policy;
    this.policy.textContent = kNames[thread.policy] || thread.policy;
    this.transcript.show(thread, empty);
    this.listen();
    this.repaint();
  }

  // A session that the server cannot know yet is not asked for.
  listen() {
    const known = this.thread.sent > 0 || this.controller;
    if (this.feed.session !== this.thread.session) this.state.reset();
    this.feed.watch(known ? this.thread.session : '');
  }

  apply(view) {
    this.state.apply(view, performance.now());
    this.transcript.dim(view);
    this.repaint();
  }

  linked(text) {
    const words = { off: '', live: '', waiting: '' }[text];
    this.link.textContent = words === undefined ? `cache not shown: ${text}` : words;
    this.gauge.classList.toggle('is-live', text === 'live');
  }

  repaint() {
    const { view } = this.state;
    const { fields } = this;
    const cache = this.thread?.cache;
    const set = (node, text) => { if (node.textContent !== text) node.textContent = text; };
    if (view) {
      set(fields.position, number(view.position));
      set(fields.live, `${number(view.live)} of ${number(view.context)}`);
      set(fields.evicted, number(view.evicted_tokens));
      set(fields.speed, this.controller && view.tokens_per_second ? view.tokens_per_second.toFixed(1) : '–');
    } else {
      set(fields.position, cache?.position ? number(cache.position) : '–');
      set(fields.live, cache?.context ? `${number(Math.min(cache.position, cache.context))} of ${number(cache.context)}` : '–');
      set(fields.evicted, cache?.position ? number(cache.evicted) : '–');
      set(fields.speed, '–');
    }
    this.showHealth(view?.health);
    this.strip.request();
    this.owner.instruments();
  }

  // Nothing while all is well: what the monitor cries, or that the session was rescued.
  showHealth(health) {
    const unwell = health && health.state !== 'ok';
    const often = health?.rescues > 1 ? ` ${health.rescues} times` : '';
    const text = unwell ? `${health.state}: ${health.reason}` : health?.rescues > 0 ? `rescued${often}` : '';
    if (this.health.textContent !== text) this.health.textContent = text;
    this.health.dataset.state = unwell ? health.state : 'rescued';
    this.health.title = unwell ? `Since position ${number(health.since)}` : text ? 'Its newest text was encoded again behind fresh sinks' : '';
  }

  get running() {
    return this.controller !== null;
  }
  stop() {
    this.controller?.abort();
  }

  // Answers the thread's last message.
  async run(settings) {
    const { thread } = this;
    this.controller = new AbortController();
    const { signal } = this.controller;
    let painting = 0;
    let spoken = 0;
    const index = thread.messages.length;
    const paint = () => {
      painting = 0;
      if (this.thread === thread) this.transcript.update(index);
    };
    let subscribed = false;
    const reply = await answer(thread, settings, signal, (partial) => {
      this.owner.changed();
      if (!painting) painting = requestAnimationFrame(paint);
      // The session exists from the first chunk on.
      if (!subscribed && partial.content !== '' && this.thread === thread) {
        subscribed = true;
        this.listen();
        this.feed.nudge();
      }
      const sentence = /[.!?\n](?=\s|$)/g;
      sentence.lastIndex = spoken;
      for (let match; (match = sentence.exec(partial.content));) {
        if (partial.state === 'streaming') this.owner.say(partial.content.slice(spoken, match.index + 1));
        spoken = match.index + 1;
      }
    });
    cancelAnimationFrame(painting);
    this.controller = null;
    if (this.thread === thread) {
      if (index > 0) this.transcript.update(index - 1);
      paint();
      this.transcript.dim(this.feed.session === thread.session ? this.state.view : null);
      this.listen();
      if (reply.state !== 'error') this.feed.nudge();
      this.repaint();
    }
    this.owner.changed();
    this.owner.finished(reply);
    return reply;
  }
}
