// The server's HTTP interface: requests, errors as one class, server-sent events over fetch (EventSource
// cannot send the key).

const kKey = 'ballast.key';

export function apiKey() {
  try { return sessionStorage.getItem(kKey) || ''; } catch { return ''; }
}
export function setApiKey(key) {
  try {
    if (key) sessionStorage.setItem(kKey, key);
    else sessionStorage.removeItem(kKey);
  } catch { /* storage forbidden: the key lasts for no time at all */ }
}

export class ApiError extends Error {
  constructor(status, message, { code = '', param = '', retryAfter = 0 } = {}) {
    super(message);
    this.status = status;  // 0: the server could not be reached, or broke off
    this.code = code;
    this.param = param;
    this.retryAfter = retryAfter;
  }
}

function fromBody(status, body, retryAfter) {
  const error = body && body.error;
  const message = (error && error.message) || `the server answered ${status}`;
  return new ApiError(status, message, { code: error?.code || '', param: error?.param || '', retryAfter });
}

const kLoadingPause = 1000;  // milliseconds
let onLoading = () => {};
// Calls back with true when a request begins to wait for the model, and with false when it no longer does.
export function whenLoading(callback) { onLoading = callback; }

function pause(signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, kLoadingPause);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(new DOMException('stopped', 'AbortError'));
    }, { once: true });
  });
}

// A server that has just begun answers 503 `loading`: whatever is asked waits for its model.
async function send(method, path, body, signal) {
  let waited = false;
  try {
    for (;;) {
      try {
        return await sendOnce(method, path, body, signal);
      } catch (error) {
        if (error.code !== 'loading') throw error;
        waited = true;
        onLoading(true);
        await pause(signal);
      }
    }
  } finally {
    if (waited) onLoading(false);
  }
}

async function sendOnce(method, path, body, signal) {
  const headers = {};
  const key = apiKey();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, cache: 'no-store', body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'the server cannot be reached');
  }
  if (!response.ok) {
    const retryAfter = Number(response.headers.get('Retry-After')) || 0;
    let parsed = null;
    try { parsed = await response.json(); } catch { /* not JSON: the status has to do */ }
    throw fromBody(response.status, parsed, retryAfter);
  }
  return response;
}

export async function json(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

// Calls onData(object) for every event until [DONE] or the end of the stream. Resolves to whether [DONE] came.
export async function events(method, path, body, signal, onData) {
  const response = await send(method, path, body, signal);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  let data = [];
  const line = (text) => {
    if (text === '') {
      const whole = data.join('\n');
      data = [];
      if (whole === '') return false;
      if (whole === '[DONE]') return true;
      const value = JSON.parse(whole);
      if (value.error) throw fromBody(Number(value.error.status) || 500, value, 0);
      onData(value);
    } else if (text.startsWith('data:')) {
      data.push(text.slice(text[5] === ' ' ? 6 : 5));
    }
    return false;
  };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return line('');
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split('\n');
      rest = lines.pop();
      for (const text of lines) {
        if (line(text.endsWith('\r') ? text.slice(0, -1) : text)) return true;
      }
    }
  } catch (error) {
    if (error.name === 'AbortError' || error instanceof ApiError) throw error;
    if (error instanceof SyntaxError) throw new ApiError(0, 'the server sent something that is not JSON');
    throw new ApiError(0, 'the connection broke off');
  } finally {
    reader.cancel().catch(() => {});
  }
}

export async function listSessions() {
  const answer = await json('GET', '/v1/sessions');
  if (Array.isArray(answer)) return answer;
  return answer?.data || answer?.sessions || [];
}
// null when the server does not hold it.
export async function getSession(id, signal) {
  try {
    return await json('GET', `/v1/sessions/${encodeURIComponent(id)}`, undefined, signal);
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
}
export async function deleteSession(id) {
  try {
    await json('DELETE', `/v1/sessions/${encodeURIComponent(id)}`);
  } catch (error) {
    if (error.status !== 404) throw error;
  }
}
export async function modelInfo() {
  const answer = await json('GET', '/v1/models');
  return answer?.data?.[0] || null;
}
