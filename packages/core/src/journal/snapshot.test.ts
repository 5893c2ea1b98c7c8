import { expect, test } from 'vitest';
import { appendMessage, emptyHistory, messagesOf } from '../machine/history.ts';
import { NEW } from '../machine/step.ts';
import { userText } from '../messages.ts';
import type { Snapshot } from './port.ts';
import { restoredState, snapshotOf } from './snapshot.ts';

type Fields = Record<string, unknown>;

const state = { ...NEW, runId: 'r', turn: 2, history: appendMessage(emptyHistory(), userText('hello')) };

function stored(change: (fields: Fields) => unknown = () => {}): Snapshot {
  const snapshot = JSON.parse(JSON.stringify(snapshotOf(state, 7))) as { seq: number; state: Fields };
  change(snapshot.state);
  return snapshot;
}

test('restores a state that was stored as JSON', () => {
  const restored = restoredState(stored())!;
  expect({ ...restored, history: undefined }).toEqual({ ...state, history: undefined });
  expect(messagesOf(restored.history)).toEqual([userText('hello')]);
});

test.for<readonly [string, (fields: Fields) => unknown]>([
  ['an older edition', (fields) => (fields['edition'] = 2)],
  ['a version without one of the fields', (fields) => (fields['fields'] = `${fields['fields']}`.replace(' turn', ''))],
  ['a version with another field', (fields) => (fields['fields'] += ' zeal')],
  ['a version that did not store its fields', (fields) => delete fields['fields']],
])('does not restore a snapshot of %s, so that the run is replayed', ([, change]) => {
  expect(restoredState(stored(change))).toBeUndefined();
});
