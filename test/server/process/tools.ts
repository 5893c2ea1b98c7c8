import { tool, type Tool } from '@treadle/core';

/** The tools that the server of the tests runs itself. `held` is told when a call of `hold` waits. */
export function serverTools(held: (tag: string) => void): {
  readonly tools: readonly Tool[];
  readonly release: (tag: string) => void;
} {
  const waiting = new Map<string, () => void>();
  const released = new Set<string>();
  const text = { type: 'string' } as const;
  const tools = [
    tool({
      name: 'add',
      description: 'The sum of two numbers',
      input: {
        type: 'object',
        properties: { a: { type: 'number' }, b: { type: 'number' } },
        required: ['a', 'b'],
        additionalProperties: false,
      },
      effect: 'pure',
      execute: (input) => String(Number(input['a']) + Number(input['b'])),
    }),
    tool({
      name: 'fail',
      description: 'Always fails',
      input: { type: 'object', properties: { why: text } },
      effect: 'pure',
      execute(input) {
        throw new Error(String(input['why'] ?? 'it always does'));
      },
    }),
    tool({
      name: 'big',
      description: 'A text of that many characters',
      input: { type: 'object', properties: { length: { type: 'number' } }, required: ['length'] },
      effect: 'pure',
      execute: (input) => 'x'.repeat(Number(input['length'])),
    }),
    tool({
      name: 'hold',
      description: 'Waits until the test lets it go on',
      input: { type: 'object', properties: { tag: text }, required: ['tag'] },
      effect: 'idempotent',
      execute: async (input, { signal }) => {
        const tag = String(input['tag']);
        held(tag);
        await new Promise<void>((resolve, reject) => {
          if (released.delete(tag)) return resolve();
          waiting.set(tag, resolve);
          signal.addEventListener(
            'abort',
            () => {
              waiting.delete(tag);
              reject(signal.reason as Error);
            },
            { once: true },
          );
        });
        return `released ${tag}`;
      },
    }),
  ];
  return {
    tools,
    release(tag) {
      const go = waiting.get(tag);
      if (go) go();
      else released.add(tag);
      waiting.delete(tag);
    },
  };
}
