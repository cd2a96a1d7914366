// The page: joins the conversations that the browser keeps, one or two lanes, and the instruments.

import { deleteSession, modelInfo, whenLoading } from './api.js';
import { Conversations } from './conversations.js';
import { ask, askForKey, openSettings } from './dialogs.js';
import { byId, el } from './dom.js';
import { HeatMap } from './heatmap.js';
import { Lane } from './lane.js';
import { Sidebar } from './sidebar.js';
import { Store, loadSettings, remember, remembered, saveSettings } from './store.js';
import { copyThread, mend, newThread, truncate } from './thread.js';
import { TimeLine } from './timeline.js';
import { hello, wire } from './shell.js';

// The first line, cut between words.
function titleOf(text) {
  const line = text.trim().split('\n')[0];
  return line.length <= 64 ? line : `${line.slice(0, 64).replace(/\s+\S*$/, '')}…`;
}

class App {
  constructor() {
    this.settings = loadSettings();
    this.store = new Store((text) => this.complain(text));
    this.conversations = new Conversations(this.store);
    this.model = null;
    const owner = {
      changed: () => this.conversations.touch(),
      instruments: () => { this.heat?.request(); this.time?.request(); },
      showInstruments: () => this.showInstruments(true),
      finished: (reply) => this.finished(reply),
      say: (text) => this.say(text),
    };
    this.main = new Lane(byId('lane-main'), 'first lane', 'water', owner, this.actions(() => this.main));
    this.shadow = new Lane(byId('lane-shadow'), 'plain window', 'coral', owner, this.actions(() => this.shadow));
    byId('band').append(this.main.gauge, this.shadow.gauge);
    this.shadow.gauge.hidden = true;
    this.heat = new HeatMap(() => this.heatLanes());
    this.time = new TimeLine(() => this.lanes());
    byId('instruments').append(el('button', { type: 'button', class: 'button hide-instruments',
      onclick: () => this.showInstruments(false) }, 'Close'), this.heat.root, this.time.root);
    this.sidebar = new Sidebar({
      open: (id) => this.open(this.conversations.find(id)),
      remove: (id) => this.remove(id),
      rename: (id, title) => { this.conversations.rename(id, title); this.refresh(); },
      adopt: (session) => this.adopt(session),
      listed: () => this.list(),
    });
  }

  get current() { return this.conversations.current; }
  get running() { return this.main.running || this.shadow.running; }

  lanes() {
    const list = [this.main];
    if (this.current?.shadow) list.push(this.shadow);
    return list;
  }
  // The heat map shows one lane: that of the sinks, as the plain window has none.
  heatLanes() {
    return this.main.thread?.policy === 'window' && this.current?.shadow ? [this.shadow, this.main] : this.lanes();
  }

  async start() {
    await this.store.open();
    await this.conversations.load();
    wire(this);
    whenLoading((loading) => this.complain(loading ? 'The server is loading its model…' : ''));
    this.showCache(this.settings.cacheOpen);
    this.open(this.conversations.find(remembered('current')) || this.conversations.list[0] || this.conversations.create(this.settings));
    await this.connect();
    for (const lane of this.lanes()) {
      await mend(lane.thread);
      lane.show(lane.thread, this.greeting());
    }
    byId('app').dataset.ready = 'yes';
  }

  // Model and sessions; again after a key was entered.
  async connect() {
    try {
      this.model = await modelInfo();
    } catch (error) {
      if (error.status === 401) {
        if (await askForKey()) await this.connect();
        return;
      }
      this.complain(`The server does not answer: ${error.message}.`, () => this.connect());
      return;
    }
    this.complain('');
    this.refresh();
    await this.list();
  }
  async list() {
    await this.sidebar.refresh();
    this.refresh();
  }

  greeting() {
    return hello((text) => this.send(text));
  }

  open(conversation) {
    if (!conversation) return;
    this.stop();
    this.conversations.current = conversation;
    remember('current', conversation.id);
    this.showShadow();
    this.main.show(conversation.main, this.greeting());
    this.refresh();
    this.closeDrawer();
  }
  fresh() {
    const empty = this.conversations.list.find((each) => each.main.messages.length === 0 && each.main.sent === 0);
    if (empty) Object.assign(empty.main, newThread(this.settings), { session: empty.main.session });
    this.open(empty || this.conversations.create(this.settings));
    byId('text').focus();
  }
  // A session that another client began: its text is not here, but its cache is.
  adopt(session) {
    const conversation = this.conversations.create(this.settings);
    Object.assign(conversation.main, { session: session.id, sent: 1, policy: session.policy || 'sinks', foreign: true });
    Object.assign(conversation.main.cache, { position: session.position, sinks: session.sinks, context: session.context,
      evicted: session.evicted_tokens });
    conversation.main.messages.push({ role: 'assistant', state: 'done', end: session.position, begin: 0,
      content: `*This session was begun elsewhere. The browser has no transcript of it; what the model still sees is in the strip above.*` });
    conversation.title = session.id;
    this.conversations.touch(conversation);
    this.open(conversation);
  }
  async remove(id) {
    const conversation = this.conversations.find(id);
    if (conversation === this.current) this.stop();
    for (const thread of [conversation.main, conversation.shadow]) {
      if (thread?.sent > 0) await deleteSession(thread.session).catch((error) => this.complain(`The server kept its session: ${error.message}.`));
    }
    await this.conversations.remove(id);
    if (!this.current) this.open(this.conversations.list[0] || this.conversations.create(this.settings));
    await this.list();
  }

  // Both lanes get what is typed.
  send(text) {
    if (this.running || !text.trim()) return;
    const { current } = this;
    if (!current.title) current.title = titleOf(text);
    for (const lane of this.lanes()) {
      lane.thread.messages.push({ role: 'user', content: text.trim() });
      lane.transcript.update(lane.thread.messages.length - 1);
      lane.transcript.toEnd(true);
      lane.run(this.settings);
    }
    this.conversations.touch(current, true);
    this.store.flush();
    this.refresh();
  }
  stop() {
    byId('keep-going').checked = false;
    for (const lane of [this.main, this.shadow]) lane.stop();
    this.refresh();
  }

  // Drops the messages from `index` on, and answers what is then the last one, or `text`.
  again(lane, index, text) {
    const { thread } = lane;
    if (lane.running) return;
    if (text === undefined && thread.messages[index - 1]?.role !== 'user') return;
    truncate(thread, index);
    if (text !== undefined) thread.messages.push({ role: 'user', content: text });
    lane.transcript.show(thread);
    lane.run(this.settings);
    this.refresh();
  }
  actions(lane) {
    return {
      regenerate: (index) => { if (!lane().thread.foreign) this.again(lane(), index); },
      edit: (index, text) => this.again(lane(), index, text),
      retry: (index) => {
        if (lane().thread.messages[index].error?.status === 401) this.unlock();
        else this.again(lane(), index);
      },
    };
  }

  finished(reply) {
    this.refresh();
    if (this.running) return;
    this.store.flush();
    if (reply.state === 'error' && reply.error.status === 401) this.unlock();
    const keep = byId('keep-going').checked;
    if (keep && reply.state === 'done' && !document.hidden) setTimeout(() => { if (byId('keep-going').checked) this.send('Go on.'); }, 400);
    else if (keep) byId('keep-going').checked = false;
    this.sidebar.refresh().then(() => this.refresh());
  }

  // The key was missing or wrong: asks for it, then sends again what was refused.
  async unlock() {
    if (!(await askForKey())) return;
    await this.connect();
    for (const lane of this.lanes()) {
      const last = lane.thread.messages.length - 1;
      if (lane.thread.messages[last]?.error?.status === 401) this.again(lane, last);
    }
  }

  // The same conversation under a plain window, in a session of its own that reads the whole history.
  async compare() {
    const { current } = this;
    if (this.running) return;
    if (current.shadow) {
      const { shadow } = current;
      current.shadow = null;
      this.shadow.stop();
      this.showShadow();
      this.main.repaint();
      if (shadow.sent > 0) deleteSession(shadow.session).catch(() => {}).then(() => this.list());
    } else if (current.main.foreign) {
      await ask({ title: 'Nothing to compare', text: 'The browser has no transcript of this session, so it cannot be sent again.', yes: 'Good' });
    } else {
      current.shadow = copyThread(current.main, current.main.policy === 'window' ? 'sinks' : 'window');
      const { messages } = current.shadow;
      const last = messages.findLastIndex((message) => message.role === 'user');
      if (last >= 0) truncate(current.shadow, last + 1);
      this.showShadow();
      if (last >= 0) this.shadow.run(this.settings);
    }
    this.conversations.touch(current);
    this.refresh();
  }
  showShadow() {
    const shadow = this.current?.shadow;
    byId('lane-shadow').hidden = !shadow;
    this.shadow.gauge.hidden = !shadow;
    byId('lanes').classList.toggle('two', Boolean(shadow));
    byId('band').classList.toggle('two', Boolean(shadow));
    byId('instruments').classList.toggle('two', Boolean(shadow));
    if (shadow) this.shadow.show(shadow, el('p', { class: 'hello note' }, 'What you send goes to both.'));
    else this.shadow.feed.watch('');
    // Two streams are compared at the same token, not at the same second.
    this.time.axis = shadow ? 'position' : 'at';
    this.watch();
  }

  showCache(open) {
    this.settings.cacheOpen = open;
    saveSettings(this.settings);
    byId('app').dataset.cache = open ? 'open' : 'closed';
    byId('toggle-cache').setAttribute('aria-pressed', String(open));
    this.watch();
  }
  showInstruments(open) {
    byId('app').dataset.instruments = open ? 'open' : 'closed';
    this.heat.request();
    this.time.request();
  }
  // Feeds run only while the panel can be seen; `seen` is kept by the shell's observer.
  watch() {
    const visible = this.settings.cacheOpen && this.seen && !document.hidden;
    this.main.feed.show(visible);
    this.shadow.feed.show(visible && Boolean(this.current?.shadow));
  }

  configure() {
    openSettings(this.settings, (settings) => {
      this.settings = settings;
      saveSettings(settings);
      const { main } = this.current;
      if (main.messages.length === 0) {
        Object.assign(main, newThread(settings));
        this.main.show(main, this.greeting());
      }
      this.connect();
    });
  }

  refresh() {
    const { current } = this;
    if (!current) return;
    this.sidebar.render(this.conversations.list, current);
    const title = current.title || 'New conversation';
    byId('title').textContent = title;
    document.title = `${title} · Ballast`;
    byId('facts').textContent = this.model?.id || '';
    const other = current.main.policy === 'window' ? 'pinned sinks' : 'a plain window';
    byId('compare').querySelector('.long').textContent = current.shadow ? 'End the comparison' : `Compare with ${other}`;
    byId('compare').querySelector('.short').textContent = current.shadow ? 'End' : 'Compare';
    byId('compare').setAttribute('aria-label', byId('compare').querySelector('.long').textContent);
    byId('compare').setAttribute('aria-pressed', String(Boolean(current.shadow)));
    byId('send').classList.toggle('stop', this.running);
    byId('send').setAttribute('aria-label', this.running ? 'Stop' : 'Send');
    byId('status').textContent = this.running ? 'writing…' : '';
  }

  complain(text, again) {
    const banner = byId('banner');
    banner.hidden = !text;
    banner.replaceChildren(el('span', {}, text));
    if (again) banner.append(el('button', { type: 'button', class: 'button', onclick: again }, 'Try again'));
    else if (text) banner.append(el('button', { type: 'button', class: 'link', onclick: () => this.complain('') }, 'Close'));
  }
  // For screen readers: whole sentences, the last few kept.
  say(text) {
    const live = byId('live');
    live.append(el('p', {}, text));
    while (live.childNodes.length > 8) live.firstChild.remove();
  }
  closeDrawer() {
    byId('app').classList.remove('drawer');
    byId('shade').hidden = true;
    byId('burger').setAttribute('aria-expanded', 'false');
  }
}

const app = new App();
app.start();
