// Shows one answer in the panel, and writes down what a person would see: the bars as they are painted, the table, the header.

import { createTheme } from '@grafana/data';
import { FlameGraph } from '@grafana/flamegraph';
import { createElement } from 'react';
import { createRoot } from 'react-dom/client';

import { frame } from './frame.js';

// A bar is a rectangle, and the text that is painted upon it.
let painted = [];
const { rect, fillText, clearRect } = CanvasRenderingContext2D.prototype;
let corner = null;
CanvasRenderingContext2D.prototype.rect = function (x, y, width, height) {
  corner = { x, y, width };
  return rect.call(this, x, y, width, height);
};
CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
  painted.push({ text, ...corner });
  return fillText.call(this, text, ...at);
};
CanvasRenderingContext2D.prototype.clearRect = function (...area) {
  painted = [];
  return clearRect.call(this, ...area);
};

function pixels(canvas) {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 3; at < data.length; at += 4) count += data[at] > 0;
  return count;
}

function seen() {
  const canvas = document.querySelector('[data-testid="flameGraph"] canvas, canvas[data-testid="flameGraph"]');
  const rows = [...document.querySelectorAll('[data-testid="topTable"] [role="row"]')];
  const cells = (row) => [...row.querySelectorAll('[role="cell"], [role="columnheader"]')].map((cell) => cell.innerText.trim());
  return {
    bars: painted,
    table: rows.map(cells),
    text: document.querySelector('#panel').innerText,
    pixels: canvas?.width && canvas.height ? pixels(canvas) : 0,
  };
}

function tell(what) {
  const place = document.createElement('script');
  place.id = 'seen';
  place.type = 'application/json';
  // Nothing in it may end the element.
  place.textContent = JSON.stringify(what).replaceAll('<', '\\u003c');
  document.body.append(place);
}

// What is seen is told when it has stopped changing.
function watch(before, looks) {
  const now = seen();
  const text = JSON.stringify(now);
  if (looks > 200) return tell({ ...now, error: 'it does not come to rest' });
  if (now.bars.length > 0 && now.table.length > 1 && text === before) return tell(now);
  setTimeout(() => watch(text, looks + 1), 100);
}

window.addEventListener('error', (event) => tell({ error: String(event.error?.stack ?? event.message) }));
const { graph, unit, isDiff } = JSON.parse(document.querySelector('#answer').textContent);
const data = frame(graph, unit, isDiff);
createRoot(document.querySelector('#panel')).render(
  createElement(FlameGraph, { data, getTheme: () => createTheme(), disableCollapsing: true, showAnalyzeWithAssistant: false }),
);
watch('', 0);
