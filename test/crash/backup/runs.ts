import { textOf, tool, type Tool } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';

/** Calls `note` in three turns, and then answers. In a run with the input "wait" it calls `wait` first. */
export const MODEL = keyedModel({
  't1.model.0': ({ messages }) => {
    const waits = messages.some(({ role, content }) => role === 'user' && textOf(content) === 'wait');
    return { calls: [waits ? ['wait', {}] : ['note', { text: 'first' }]] };
  },
  't2.model.0': { calls: [['note', { text: 'x'.repeat(2_000) }]] },
  't3.model.0': { calls: [['note', { text: 'y'.repeat(60_000) }]] },
  't4.model.0': 'Done.',
});

const note = tool({
  name: 'note',
  description: 'Notes a text',
  effect: 'idempotent',
  execute: (input) => (input as { readonly text: string }).text,
});

/** Ends only when its process does. */
export const TOOLS: readonly Tool[] = [
  note,
  tool({ name: 'wait', description: 'Waits', effect: 'idempotent', execute: () => new Promise<string>(() => {}) }),
];

/** For a run that is resumed. */
export const TOOLS_WITHOUT_WAITING: readonly Tool[] = [
  note,
  tool({ name: 'wait', description: 'Waits', effect: 'idempotent', execute: () => 'waited' }),
];
