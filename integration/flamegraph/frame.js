// What a data source makes of an answer: bars of levels become rows of nested sets, which the panel takes.

import { FieldType } from '@grafana/data';

// Bars are written one after the other in each level: the gap before it, its width, its self value, its name. Of two graphs
// laid over each other each bar has the first three of either.
const SINGLE = { step: 4, sides: [0], name: 3 };
const DOUBLE = { step: 7, sides: [0, 3], name: 6 };

function bars(level, form) {
  const values = (level.values ?? []).map(Number);
  const ends = form.sides.map(() => 0);
  const found = [];
  for (let at = 0; at < values.length; at += form.step) {
    const sides = form.sides.map((side, which) => {
      const start = ends[which] + values[at + side];
      ends[which] = start + values[at + side + 1];
      return { start, total: values[at + side + 1], self: values[at + side + 2] };
    });
    found.push({ sides, name: values[at + form.name], below: [] });
  }
  return found;
}

const start = (bar) => bar.sides.reduce((sum, side) => sum + side.start, 0);
const end = (bar) => bar.sides.reduce((sum, side) => sum + side.start + side.total, 0);

// Bars of a level stand below the one that they lie within.
function tree(graph, form) {
  const levels = graph.levels.map((level) => bars(level, form));
  for (let depth = 1; depth < levels.length; depth++) {
    let above = 0;
    for (const bar of levels[depth]) {
      while (end(levels[depth - 1][above]) < end(bar)) above++;
      if (start(levels[depth - 1][above]) > start(bar)) throw new Error(`a bar of level ${depth} stands on none`);
      levels[depth - 1][above].below.push(bar);
    }
  }
  if (levels[0].length !== 1) throw new Error(`${levels[0].length} bars are the root`);
  return levels[0][0];
}

// The frame of a flame graph, or of two laid over each other.
export function frame(graph, unit, isDiff) {
  const form = isDiff ? DOUBLE : SINGLE;
  const rows = { label: [], level: [], value: [], self: [], valueRight: [], selfRight: [] };
  const walk = (bar, level) => {
    const [left, right] = bar.sides;
    rows.label.push(bar.name);
    rows.level.push(level);
    rows.value.push(left.total);
    rows.self.push(left.self);
    rows.valueRight.push(right?.total);
    rows.selfRight.push(right?.self);
    bar.below.forEach((inner) => walk(inner, level + 1));
  };
  walk(tree(graph, form), 0);
  const field = (name, config) => ({ name, type: FieldType.number, values: rows[name], config });
  const fields = [
    field('level', {}),
    field('value', { unit }),
    field('self', { unit }),
    { name: 'label', type: FieldType.enum, values: rows.label, config: { type: { enum: { text: graph.names } } } },
  ];
  if (isDiff) fields.push(field('valueRight', { unit }), field('selfRight', { unit }));
  return { fields, length: rows.level.length, meta: { preferredVisualisationType: 'flamegraph' } };
}
