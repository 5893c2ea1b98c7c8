import { expect, test } from 'vitest';
import { followUpCommand, locationOf } from './flags.ts';

const values = { model: 'm', 'base-url': 'http://localhost:1/v1', cwd: "it's here", store: 'sqlite:x.db' } as const;

test('a follow-up command repeats the flags that find the store and the model, quoted for a shell', () => {
  expect(followUpCommand(['runs', 'resume', 'run_1'], {})).toBe('treadle runs resume run_1');
  expect(followUpCommand(['runs', 'resume', 'run_1'], values)).toBe(
    "treadle runs resume run_1 --model m --base-url http://localhost:1/v1 --store sqlite:x.db --cwd 'it'\\''s here'",
  );
  expect(followUpCommand(['x', '--answer', 't1=a b'], {})).toBe("treadle x --answer 't1=a b'");
});

test('locationOf leaves out the model', () => {
  expect(followUpCommand(['runs', 'list'], locationOf(values))).toBe(
    "treadle runs list --store sqlite:x.db --cwd 'it'\\''s here'",
  );
});
