// What the browser keeps: conversations in IndexedDB (one record each), settings in localStorage. When the
// browser refuses (private mode, full disk), the page goes on in memory and says so once.

const kDefaults = {
  system: '', temperature: '', topP: '', maxTokens: '', policy: 'sinks', pinSystem: false, evict: 'token',
  cacheOpen: true,
};

export function loadSettings() {
  try {
    return { ...kDefaults, ...JSON.parse(localStorage.getItem('ballast.settings') || '{}') };
  } catch {
    return { ...kDefaults };
  }
}
export function saveSettings(settings) {
  try { localStorage.setItem('ballast.settings', JSON.stringify(settings)); } catch { /* kept until reload */ }
}
export function remembered(key) {
  try { return localStorage.getItem(`ballast.${key}`) || ''; } catch { return ''; }
}
export function remember(key, value) {
  try { localStorage.setItem(`ballast.${key}`, value); } catch { /* as above */ }
}

function asPromise(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export class Store {
  // `complain(text)` is called when something could not be kept.
  constructor(complain) {
    this.complain = complain;
    this.db = null;
    this.pending = new Map();  // id -> conversation waiting to be written
    this.timer = 0;
  }

  async open() {
    try {
      const request = indexedDB.open('ballast', 1);
      request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
      this.db = await asPromise(request);
      navigator.storage?.persist?.().catch(() => {});
    } catch {
      this.complain('This browser lets the page keep nothing: conversations last until the tab is closed.');
    }
  }

  objects(mode) {
    return this.db.transaction('conversations', mode).objectStore('conversations');
  }

  async all() {
    const list = this.db ? await asPromise(this.objects('readonly').getAll()) : [];
    for (const rescued of this.rescued()) {
      const at = list.findIndex((each) => each.id === rescued.id);
      if (at < 0) list.push(rescued);
      else if (list[at].updated <= rescued.updated) list[at] = rescued;
      else continue;
      this.save(rescued);
    }
    return list.sort((a, b) => b.updated - a.updated);
  }

  // Soon: a stream writes at most once a second.
  save(conversation) {
    this.pending.set(conversation.id, conversation);
    if (!this.timer) this.timer = setTimeout(() => this.flush(), 1000);
  }

  // The page is going away: IndexedDB may not get to finish, localStorage does.
  rescue() {
    const list = [...this.pending.values()];
    if (list.length) remember('rescue', JSON.stringify(list));
    this.flush();
  }
  rescued() {
    try {
      const list = JSON.parse(remembered('rescue') || '[]');
      localStorage.removeItem('ballast.rescue');
      return list;
    } catch {
      return [];
    }
  }

  async flush() {
    clearTimeout(this.timer);
    this.timer = 0;
    const list = [...this.pending.values()];
    this.pending.clear();
    if (!this.db || !list.length) return;
    try {
      const transaction = this.db.transaction('conversations', 'readwrite');
      for (const conversation of list) transaction.objectStore('conversations').put(conversation);
      await new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = transaction.onerror = () => reject(transaction.error);
      });
    } catch (error) {
      this.complain(error?.name === 'QuotaExceededError'
        ? 'The browser’s storage is full: the newest messages are not kept. Delete a conversation to make room.'
        : 'The browser could not keep the newest messages.');
    }
  }

  async remove(id) {
    this.pending.delete(id);
    if (this.db) await asPromise(this.objects('readwrite').delete(id));
  }
}
