// The live connection to one session's cache. Open only while somebody can see it: the server computes nothing
// for a cache that nobody watches.

import { events } from './api.js';

export class Feed {
  // `onView(view)` for every event; `onState(text)`: 'off', 'live', 'waiting' or why not.
  constructor(onView, onState) {
    this.onView = onView;
    this.onState = onState;
    this.session = '';
    this.visible = false;
    this.controller = null;
    this.timer = 0;
  }

  watch(session) {
    if (session === this.session) return;
    this.close();
    this.session = session;
    this.open();
  }

  show(visible) {
    if (visible === this.visible) return;
    this.visible = visible;
    if (visible) this.open();
    else this.close();
  }

  // The session may exist by now (a turn has begun, a key was entered): try at once.
  nudge() {
    if (!this.controller) this.open();
  }

  close() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.controller = null;
    this.onState('off');
  }

  async open() {
    clearTimeout(this.timer);
    if (!this.visible || !this.session || this.controller) return;
    const controller = new AbortController();
    this.controller = controller;
    let wait = 1500;
    try {
      const path = `/v1/sessions/${encodeURIComponent(this.session)}/cache`;
      await events('GET', path, undefined, controller.signal, (view) => {
        if (this.controller !== controller) return;
        this.onState('live');
        this.onView(view);
      });
    } catch (error) {
      if (this.controller !== controller) return;
      // Not there yet (404) is normal before the first turn; without a key, asking again is useless.
      if (error.status === 401) wait = 0;
      this.onState(error.status === 404 ? 'waiting' : error.message);
      if (error.status === 404) wait = 0;
    }
    if (this.controller !== controller) return;
    this.controller = null;
    if (wait && this.visible) this.timer = setTimeout(() => this.open(), wait);
  }
}
