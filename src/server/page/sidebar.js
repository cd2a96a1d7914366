// The list of conversations, and of sessions that only the server knows.

import { deleteSession, listSessions } from './api.js';
import { byId, el, number } from './dom.js';
import { ask } from './dialogs.js';

export class Sidebar {
  // actions: {open(id), remove(id), rename(id, title), adopt(session)}
  constructor(actions) {
    this.actions = actions;
    this.server = new Map();  // id -> session, as last listed
  }

  render(conversations, current) {
    byId('list').replaceChildren(...conversations.map((each) => this.item(each, each.id === current?.id)));
    const known = new Set(conversations.flatMap((each) => [each.main.session, each.shadow?.session]));
    const rest = [...this.server.values()].filter((session) => !known.has(session.id));
    byId('elsewhere').hidden = rest.length === 0;
    byId('elsewhere-list').replaceChildren(...rest.map((session) => this.foreign(session)));
  }

  item(conversation, current) {
    const { position } = conversation.main.cache;
    const open = el('button', { type: 'button', class: 'item', 'aria-current': current ? 'true' : null,
      onclick: () => this.actions.open(conversation.id) },
    el('span', { class: 'item-title' }, conversation.title || 'New conversation'),
    el('span', { class: 'item-note' }, position ? `${number(position)} tokens` : 'empty', conversation.shadow ? ' · compared' : ''));
    const rename = el('button', { type: 'button', class: 'link', 'aria-label': `Rename ${conversation.title}`, onclick: async () => {
      const title = await ask({ title: 'Rename', yes: 'Rename', input: { value: conversation.title } });
      if (title) this.actions.rename(conversation.id, title);
    } }, 'Rename');
    const remove = el('button', { type: 'button', class: 'link', 'aria-label': `Delete ${conversation.title}`, onclick: async () => {
      const sure = await ask({ title: 'Delete this conversation?', yes: 'Delete',
        text: 'From this browser, and its session from the server. It cannot be brought back.' });
      if (sure !== null) this.actions.remove(conversation.id);
    } }, 'Delete');
    return el('li', { class: current ? 'current' : '' }, open, el('span', { class: 'item-tools' }, rename, remove));
  }

  foreign(session) {
    const note = `${number(session.position || 0)} tokens · ${session.state || 'idle'}`;
    const open = el('button', { type: 'button', class: 'item', onclick: () => this.actions.adopt(session) },
      el('span', { class: 'item-title mono' }, session.id), el('span', { class: 'item-note' }, note));
    const remove = el('button', { type: 'button', class: 'link', 'aria-label': `Delete session ${session.id}`, onclick: async () => {
      const sure = await ask({ title: 'Delete this session?', yes: 'Delete', text: `${session.id} is deleted from the server.` });
      if (sure === null) return;
      await deleteSession(session.id).catch(() => {});
      this.actions.listed();
    } }, 'Delete');
    return el('li', {}, open, el('span', { class: 'item-tools' }, remove));
  }

  // Asks the server; silent when it does not answer, as the chat itself will say so.
  async refresh() {
    try {
      this.server = new Map((await listSessions()).map((session) => [session.id, session]));
    } catch {
      this.server = new Map();
    }
  }
}
