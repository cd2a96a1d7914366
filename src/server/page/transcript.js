// One thread's messages. Streaming touches only the message that grows; the water line marks how much of the
// talk has left the window.

import { button, copy, el } from './dom.js';
import { visibility } from './law.js';
import { render } from './markdown.js';
import { startOf } from './thread.js';

const kNotes = {
  gone: 'The model no longer sees this.',
  pinned: 'Pinned: the model sees this for ever.',
};

export class Transcript {
  // actions: {regenerate(index), edit(index, text), retry(index), prompt(text)}
  constructor(root, actions) {
    this.actions = actions;
    this.list = el('div', { class: 'messages', role: 'log', 'aria-live': 'off', 'aria-label': 'Messages' });
    this.scroller = el('div', { class: 'scroller', tabindex: '-1' }, this.list);
    this.newest = el('button', { type: 'button', class: 'button to-newest', hidden: true,
      onclick: () => this.toEnd(true) }, 'To the newest');
    this.waterLine = el('div', { class: 'water-line', role: 'separator' },
      el('span', {}, 'above this line: out of the window'));
    root.replaceChildren(this.scroller, this.newest);
    this.scroller.addEventListener('scroll', () => this.atScroll(), { passive: true });
    this.follow = true;
    this.items = [];
    this.thread = null;
  }

  atScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.follow = scrollHeight - scrollTop - clientHeight < 60;
    this.newest.hidden = this.follow;
  }
  toEnd(force = false) {
    if (force) this.follow = true;
    if (this.follow) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  show(thread, empty) {
    const same = this.thread === thread;
    this.thread = thread;
    this.items = [];
    this.list.replaceChildren();
    if (thread.messages.length === 0 && empty) this.list.append(empty);
    if (thread.system && thread.messages.length) {
      this.list.append(el('details', { class: 'system-note' }, el('summary', {}, 'System prompt'),
        el('p', {}, thread.system)));
    }
    thread.messages.forEach((_, index) => this.add(index));
    this.dim();
    if (!same) this.follow = true;
    this.toEnd();
  }

  add(index) {
    const message = this.thread.messages[index];
    const body = el('div', { class: 'body' });
    const foot = el('div', { class: 'foot' });
    const node = el('article', { class: `message ${message.role}`,
      'aria-label': message.role === 'user' ? 'You' : 'Model' }, body, foot);
    this.items[index] = { node, body, foot, seen: '' };
    this.list.append(node);
    this.fill(index);
  }

  // The message changed: its text, its state, or what of it is in view.
  update(index) {
    if (!this.items[index]) {
      this.list.querySelector('.hello')?.remove();
      this.add(index);
    } else {
      this.fill(index);
    }
    this.toEnd();
  }

  fill(index) {
    const message = this.thread.messages[index];
    const { node, body, foot } = this.items[index];
    const running = message.state === 'streaming';
    node.classList.toggle('running', running);
    if (message.role === 'user') body.textContent = message.content;
    else render(body, message.content, running);
    if (running && message.content === '') body.replaceChildren(el('p', { class: 'reading' }, 'reading…'));
    if (running && message.content === '') body.blockSources = [];
    if (running === (node.dataset.running === 'yes') && foot.childNodes.length && running) return;
    node.dataset.running = running ? 'yes' : 'no';
    foot.replaceChildren(...this.footer(message, index));
  }

  footer(message, index) {
    if (message.state === 'streaming') return [el('span', { class: 'fate' })];
    const parts = [];
    if (message.state === 'stopped') parts.push(el('span', { class: 'flag' }, message.cut ? 'cut off by a reload' : 'stopped'));
    if (message.finish === 'length') parts.push(el('span', { class: 'flag' }, 'reached the token limit'));
    for (const text of message.warnings || []) parts.push(el('p', { class: 'warning' }, text));
    if (message.state === 'error') parts.push(this.failure(message, index));
    parts.push(el('span', { class: 'fate' }));
    const tools = el('span', { class: 'tools' });
    tools.append(button('Copy', async (event) => {
      const done = await copy(message.content);
      event.target.textContent = done ? 'Copied' : 'Not copied';
      setTimeout(() => { event.target.textContent = 'Copy'; }, 1500);
    }, 'link'));
    if (message.role === 'user') tools.append(button('Edit', () => this.edit(index), 'link'));
    else tools.append(button('Regenerate', () => this.actions.regenerate(index), 'link'));
    parts.push(tools);
    return parts;
  }

  failure(message, index) {
    const { status, message: text, retryAfter } = message.error;
    const say = { 401: 'The server wants a key', 503: 'The server is busy', 0: 'No connection' }[status] || 'It did not work';
    const again = button('Try again', () => this.actions.retry(index), 'button');
    if (retryAfter > 0) {
      let left = Math.min(600, Math.ceil(retryAfter));
      const tick = () => {
        again.textContent = left > 0 ? `Try again (${left} s)` : 'Try again';
        if (left-- > 0 && again.isConnected !== false) setTimeout(tick, 1000);
      };
      tick();
    }
    return el('div', { class: 'failure', role: 'alert' }, el('p', {}, el('strong', {}, `${say}: `), text), again);
  }

  edit(index) {
    const { node, body } = this.items[index];
    if (node.querySelector('textarea')) return;
    const area = el('textarea', { 'aria-label': 'Edit your message', rows: '3' });
    area.value = this.thread.messages[index].content;
    const close = () => this.fill(index);
    const save = () => {
      if (area.value.trim()) this.actions.edit(index, area.value.trim());
      else close();
    };
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); save(); }
      if (event.key === 'Escape') { event.stopPropagation(); close(); }
    });
    body.replaceChildren(area, el('div', { class: 'edit-row' }, button('Send again', save, 'button primary'),
      button('Cancel', close), el('span', { class: 'note' }, 'what follows this message is dropped')));
    area.focus();
  }

  // Dims what has left the window. `view`: the live cache when somebody watches; else the last answer's count.
  dim(view) {
    const { thread } = this;
    if (!thread) return;
    const sinks = view ? view.sinks : thread.cache.sinks;
    const start = view ? (view.evicted_tokens > 0 ? view.start : 0) : startOf(thread.cache);
    let begin = 0;
    let lineBefore = null;
    thread.messages.forEach((message, index) => {
      const item = this.items[index];
      if (!item) return;
      const from = message.begin ?? begin;
      const seen = visibility(from, message.end, sinks, start);
      if (message.end !== undefined) begin = message.end;
      const share = seen === 'partly' ? Math.round((100 * (message.end - start)) / Math.max(1, message.end - from)) : 0;
      const text = seen === 'partly' ? `Partly gone: the model sees the last ${share}%.` : kNotes[seen] || '';
      const fate = item.foot.querySelector('.fate');
      if (fate && fate.textContent !== text) fate.textContent = text;
      if (item.seen !== seen) {
        item.seen = seen;
        item.node.dataset.seen = seen;
      }
      if (seen === 'gone') lineBefore = index + 1;
    });
    this.placeLine(lineBefore);
  }

  placeLine(index) {
    const before = index === null ? null : this.items[index]?.node || null;
    if (index === null) this.waterLine.remove();
    else if (!this.waterLine.isConnected || this.waterLine.nextSibling !== before) this.list.insertBefore(this.waterLine, before);
  }
}
