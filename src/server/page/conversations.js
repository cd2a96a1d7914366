// The conversations of this browser: the list in memory, kept through the store.

import { newId, newThread } from './thread.js';

export class Conversations {
  constructor(store) {
    this.store = store;
    this.list = [];  // newest first
    this.current = null;
  }

  async load() {
    this.list = await this.store.all();
    addEventListener('pagehide', () => this.store.rescue());
    document.addEventListener('visibilitychange', () => { if (document.hidden) this.store.flush(); });
  }

  create(settings) {
    const now = Date.now();
    const conversation = { id: newId('c-'), title: '', created: now, updated: now, main: newThread(settings), shadow: null };
    this.list.unshift(conversation);
    return conversation;
  }
  find(id) {
    return this.list.find((each) => each.id === id);
  }

  // Something changed in it; `up`: it becomes the newest. Empty ones are not kept.
  touch(conversation = this.current, up = false) {
    if (!conversation || conversation.main.messages.length === 0) return;
    conversation.updated = Date.now();
    if (up) this.list.sort((a, b) => (b === conversation) - (a === conversation));
    this.store.save(conversation);
  }
  rename(id, title) {
    const conversation = this.find(id);
    conversation.title = title.slice(0, 120);
    this.touch(conversation);
  }
  async remove(id) {
    this.list = this.list.filter((each) => each.id !== id);
    if (this.current?.id === id) this.current = null;
    await this.store.remove(id);
  }
}
