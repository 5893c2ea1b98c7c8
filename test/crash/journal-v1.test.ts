import { readFileSync } from 'node:fs';
import { replay } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { finalOf, fixtures } from '../fixtures/journal-v1.ts';
import { EFFECT_TYPES, EVENT_TYPES } from './all-types.ts';

/*
 * Version 1 wrote these journals. Users have runs like them on disk, so every later version must replay them to the same
 * end. NEVER regenerate the fixtures to make this pass: fix the code, or convert old entries when they are read
 * (docs/journal.md). A new event gets a journal of its own.
 */
const FIXTURES = fixtures();

test('every event has a journal, and every journal an expected end', () => {
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

test('docs/journal.md names every event with its fields, and every effect', () => {
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
