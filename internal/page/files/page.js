'use strict';
// Replaces the parts of the page that ordergate sends. A part in which somebody is (by the keyboard, or
// with selected text) waits until they have left it.
const live = document.getElementById('live');
const waiting = new Map();
let source, retry;

function inUse(part) {
  const selection = getSelection();
  return part.contains(document.activeElement) || (!selection.isCollapsed && part.contains(selection.anchorNode));
}

function show() {
  for (const [id, html] of waiting) {
    const part = document.getElementById(id);
    if (part && inUse(part)) continue;
    if (part) part.innerHTML = html;
    waiting.delete(id);
  }
}

function say(text) {
  if (live.textContent !== text) live.textContent = text;
}

function connect() {
  clearTimeout(retry);
  if (source) source.close();
  source = new EventSource('/page/events?since=' + document.body.dataset.at);
  source.onopen = () => say('Live');
  source.onmessage = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) waiting.set(id, html);
    show();
  };
  source.onerror = () => {
    say('Not live since ' + new Date().toISOString().slice(11, 19) + ': ordergate does not answer, or the page has to be reloaded');
    if (source.readyState === EventSource.CLOSED) retry = setTimeout(connect, 5000);
  };
}

document.addEventListener('focusout', () => setTimeout(show));
document.addEventListener('selectionchange', show);
document.addEventListener('visibilitychange', () => {
  if (document.hidden) source.close();
  else connect();
});
connect();
