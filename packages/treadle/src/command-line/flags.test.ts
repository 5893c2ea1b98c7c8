import { expect, test } from 'vitest';
import { again, againThere } from './flags.ts';

const given = { model: 'm', 'base-url': 'http://localhost:1/v1', cwd: "it's here", store: 'sqlite:x.db' } as const;

test('a command to copy, with what is needed to find the same again', () => {
  expect(again(['runs', 'resume', 'run_1'], {})).toBe('treadle runs resume run_1');
  expect(again(['runs', 'resume', 'run_1'], given)).toBe(
    "treadle runs resume run_1 --model m --base-url http://localhost:1/v1 --store sqlite:x.db --cwd 'it'\\''s here'",
  );
  expect(again(['x', '--answer', 't1=a b'], {})).toBe("treadle x --answer 't1=a b'");
});

test('only where it is', () => {
  expect(againThere(['runs', 'list'], given)).toBe("treadle runs list --store sqlite:x.db --cwd 'it'\\''s here'");
});
