// A thread: one stream on the server and the transcript that the browser keeps of it. A conversation has one,
// and a second one while it is compared with a plain window.
//
// `sent` counts the messages that the server's session already holds: a turn sends only the rest. When the
// server has lost the session, or holds another text (edit, regenerate), the whole history is streamed again.

import { ApiError, deleteSession, events, getSession } from './api.js';

export function newId(prefix) {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return prefix + [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newThread(settings) {
  return {
    session: newId('page-'), sent: 0, system: settings.system, policy: settings.policy,
    pinSystem: settings.pinSystem, evict: settings.evict, messages: [],
    cache: { position: 0, sinks: 0, context: 0, evicted: 0 },
  };
}

export function copyThread(thread, policy) {
  const copy = structuredClone(thread);
  const empty = { position: 0, sinks: 0, context: 0, evicted: 0 };
  return { ...copy, session: newId('page-'), sent: 0, policy, cache: empty };
}

// The server must read the history anew, into a new session: the old one holds text that is no longer ours.
export function restart(thread) {
  const old = thread.session;
  if (thread.sent > 0) deleteSession(old).catch(() => {});
  thread.session = newId('page-');
  thread.sent = 0;
  thread.cache = { ...thread.cache, position: 0, evicted: 0 };
}

export function truncate(thread, count) {
  thread.messages.length = count;
  if (thread.sent > count) restart(thread);
}

// First stream position of the window, as far as the last answer told.
export function startOf(cache) {
  return cache.evicted > 0 ? cache.sinks + cache.evicted : 0;
}

function toSend(thread) {
  const list = thread.messages.slice(thread.sent, -1)
    .filter((message) => message.content !== '' || message.role === 'user')
    .map(({ role, content }) => ({ role, content }));
  if (thread.sent === 0 && thread.system) list.unshift({ role: 'system', content: thread.system });
  return list;
}

function bodyFor(thread, settings) {
  const body = {
    messages: toSend(thread), session: thread.session, policy: thread.policy, stream: true,
    stream_options: { include_usage: true }, evict: thread.evict, pin_system: thread.pinSystem && thread.policy === 'sinks',
  };
  if (settings.temperature !== '') body.temperature = Number(settings.temperature);
  if (settings.topP !== '') body.top_p = Number(settings.topP);
  if (settings.maxTokens !== '') body.max_tokens = Number(settings.maxTokens);
  return body;
}

// A session that vanished (restart, LRU) or went back in time would answer as if the talk had just begun.
async function checkSession(thread, signal) {
  if (thread.sent === 0) return;
  const info = await getSession(thread.session, signal);
  if (!info) {
    thread.sent = 0;
  } else if (info.position < thread.cache.position) {
    restart(thread);
  }
}

function takeUsage(thread, reply, usage, before) {
  const ballast = usage.ballast;
  if (!ballast) return;
  const question = thread.messages[thread.messages.length - 2];
  thread.cache = {
    position: ballast.position, sinks: ballast.sinks, context: ballast.context, evicted: ballast.evicted_tokens,
  };
  reply.end = ballast.position;
  reply.begin = Math.max(0, ballast.position - (usage.completion_tokens || 0));
  question.begin = before ?? 0;
  question.end = reply.begin;
  reply.warnings = ballast.warnings || [];
}

// Where the text stands that came before message `index`: null when no answer told.
function endBefore(thread, index) {
  for (let i = index - 1; i >= 0; --i) {
    if (thread.messages[i].end !== undefined) return thread.messages[i].end;
  }
  return 0;
}

// After a stop no usage comes, so the server is asked where the stream stands.
async function settleAfterStop(thread, reply, sentBefore, positionBefore) {
  try {
    const info = await getSession(thread.session);
    if (!info || info.position <= positionBefore) {
      thread.sent = info ? sentBefore : 0;
      return;
    }
    thread.sent = thread.messages.length;
    thread.cache = {
      position: info.position, sinks: info.sinks, context: info.context, evicted: info.evicted_tokens,
    };
    reply.end = info.position;
  } catch { /* the next turn's check finds out */ }
}

// Answers the last message. `changed(reply)` is called as text arrives. Resolves to the reply, whose state is
// 'done', 'stopped' or 'error'; never rejects.
export async function answer(thread, settings, signal, changed) {
  const reply = { role: 'assistant', content: '', state: 'streaming' };
  const before = endBefore(thread, thread.messages.length - 1);
  thread.messages.push(reply);
  changed(reply);
  let begun = false;
  let sentBefore = thread.sent;
  let positionBefore = thread.cache.position;
  try {
    await checkSession(thread, signal);
    sentBefore = thread.sent;
    positionBefore = sentBefore === 0 ? 0 : thread.cache.position;
    const done = await events('POST', '/v1/chat/completions', bodyFor(thread, settings), signal, (chunk) => {
      begun = true;
      const choice = chunk.choices?.[0];
      if (choice?.delta?.content) reply.content += choice.delta.content;
      if (choice?.finish_reason) reply.finish = choice.finish_reason;
      if (chunk.usage) takeUsage(thread, reply, chunk.usage, before);
      changed(reply);
    });
    if (!done && !reply.finish) throw new ApiError(0, 'the connection broke off before the reply was complete');
    thread.sent = thread.messages.length;
    reply.state = 'done';
  } catch (error) {
    if (error.name === 'AbortError') {
      reply.state = 'stopped';
      await settleAfterStop(thread, reply, sentBefore, positionBefore);
    } else {
      reply.state = 'error';
      reply.error = { status: error.status ?? 0, message: error.message, retryAfter: error.retryAfter || 0 };
      if (begun) restart(thread);
    }
  }
  changed(reply);
  return reply;
}

// A reply that was running when the page went away: the server stopped there, too.
export async function mend(thread) {
  const last = thread.messages[thread.messages.length - 1];
  if (last?.state !== 'streaming') return;
  last.state = 'stopped';
  last.cut = true;
  await settleAfterStop(thread, last, thread.sent, thread.sent === 0 ? 0 : thread.cache.position);
}
