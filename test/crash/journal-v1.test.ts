import { readFileSync } from 'node:fs';
import { replay } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { finalOf, fixtures } from '../fixtures/journal-v1.ts';
import { EFFECT_TYPES, EVENT_TYPES } from './kinds.ts';

/*
 * These journals were written once, by version 1. Somebody has runs like them on his disk, so every later version has
 * to replay them to the same end. NEVER write the fixtures anew to make this pass: mend the code, or bring old entries
 * up to date when they are read (docs/journal.md). An event that is new gets a journal of its own beside them.
 */
const FIXTURES = fixtures();

test('there is a journal for every event, and what each of them comes to', () => {
  expect(FIXTURES.filter(({ final }) => !final)).toEqual([]);
  const types = FIXTURES.flatMap(({ entries }) => entries.map(({ event }) => event.type));
  expect([...new Set<string>(types)].toSorted()).toEqual(EVENT_TYPES);
});

describe('a journal of version 1 replays without divergence', () => {
  test.each(FIXTURES.map((fixture) => [fixture.name, fixture] as const))('%s', (_, { entries, final }) => {
    const replayed = replay(entries);
    expect(replayed).toMatchObject({ type: 'replayed' });
    expect(finalOf(replayed.state)).toEqual(final);
  });
});

test('the page about the journal names every event, and every field that events have', () => {
  const page = readFileSync(new URL('../../docs/journal.md', import.meta.url), 'utf8');
  const rows = new Map(
    page.split('\n').flatMap((line) => (line.startsWith('| `') ? [[line.split('`')[1]!, line]] : [])),
  );
  for (const { event } of FIXTURES.flatMap(({ entries }) => entries)) {
    for (const field of Object.keys(event)) {
      if (field === 'type' || field === 'at') continue;
      expect(rows.get(event.type), `${event.type} has ${field}`).toContain(`\`${field}\``);
    }
  }
  for (const type of EVENT_TYPES) expect([...rows.keys()]).toContain(type);
  for (const type of EFFECT_TYPES) expect(page).toContain(`\`${type}\``);
});
