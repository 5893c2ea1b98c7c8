import { describe, expect, test } from 'vitest';
import { parseArguments } from './arguments.ts';
import { CommandError, defineCommand } from './command.ts';

const run = defineCommand({
  name: 'run',
  summary: 'Run',
  arguments: ['[task]'],
  flags: {
    model: { type: 'text', short: 'm', value: 'NAME', help: '' },
    'max-turns': { type: 'count', value: 'N', min: 1, help: '' },
    finish: { type: 'choice', choices: ['plain', 'confirm'], help: '' },
    ask: { type: 'choice', choices: ['always', 'never'], bare: 'always', help: '' },
    json: { type: 'switch', short: 'j', help: '' },
  },
  notes: [],
  examples: ['treadle'],
  run: async () => 0,
});
const pair = defineCommand({
  name: 'runs diff',
  summary: 'Diff',
  arguments: ['A', 'B'],
  flags: {},
  notes: [],
  examples: ['treadle'],
  run: async () => 0,
});
const bare = defineCommand({
  name: 'chat',
  summary: 'Chat',
  flags: {},
  notes: [],
  examples: ['treadle'],
  run: async () => 0,
});

test('parses all kinds of flags and the argument, in any order', () => {
  expect(parseArguments(run, ['--model', 'a', 'do it', '--max-turns=5', '--finish', 'confirm', '-j'])).toEqual({
    values: { model: 'a', 'max-turns': 5, finish: 'confirm', json: true },
    arguments: ['do it'],
  });
  expect(parseArguments(run, ['-ma'])).toEqual({ values: { model: 'a' }, arguments: [] });
  expect(parseArguments(run, ['-'])).toEqual({ values: {}, arguments: ['-'] });
  expect(parseArguments(run, ['--', '--json'])).toEqual({ values: {}, arguments: ['--json'] });
});

test.each([
  [['--ask'], 'always', undefined],
  [['--ask', 'task'], 'always', 'task'],
  [['--ask', 'never', 'task'], 'never', 'task'],
  [['--ask=never', 'task'], 'never', 'task'],
  [['task', '--ask'], 'always', 'task'],
  [['--ask', '--json'], 'always', undefined],
  [['--', '--ask'], undefined, '--ask'],
])('parses a flag with an optional value: %j', (args, ask, argument) => {
  expect(parseArguments(run, args)).toMatchObject({
    values: ask ? { ask } : {},
    arguments: argument === undefined ? [] : [argument],
  });
});

test('collects the values of a repeated flag', () => {
  const many = defineCommand({
    ...pair,
    flags: {
      tag: { type: 'text', value: 'T', many: true, help: '' },
      status: { type: 'choice', choices: ['a', 'b'], many: true, help: '' },
    },
  });
  expect(parseArguments(many, ['x', 'y', '--tag', '1', '--status=b', '--tag=2=3'])).toEqual({
    values: { tag: ['1', '2=3'], status: ['b'] },
    arguments: ['x', 'y'],
  });
  expect(() => parseArguments(many, ['x', 'y', '--status', 'c'])).toThrow('--status cannot be "c". It takes a or b.');
});

test('enforces the maximum of a number', () => {
  const port = defineCommand({ ...bare, flags: { port: { type: 'count', value: 'N', min: 0, max: 9, help: '' } } });
  for (const value of [0, 9])
    expect(parseArguments(port, [`--port=${value}`])).toMatchObject({ values: { port: value } });
  expect(() => parseArguments(port, ['--port', '10'])).toThrow(
    '--port cannot be "10". It takes a whole number from 0 to 9.',
  );
});

test('checks the number of arguments', () => {
  expect(parseArguments(pair, ['x', 'y'])).toEqual({ values: {}, arguments: ['x', 'y'] });
  expect(() => parseArguments(pair, ['x'])).toThrow('treadle runs diff needs B. Usage: treadle runs diff A B [flags]');
  expect(() => parseArguments(pair, ['x', 'y', 'z'])).toThrow('treadle runs diff takes 2 arguments, but also got "z".');
  const some = defineCommand({ ...pair, arguments: ['ID', '[FILE]'] });
  expect(parseArguments(some, ['x'])).toMatchObject({ arguments: ['x'] });
  expect(parseArguments(some, ['x', 'y'])).toMatchObject({ arguments: ['x', 'y'] });
  const several = defineCommand({ ...pair, arguments: ['ID…'] });
  expect(parseArguments(several, ['x', 'y', 'z'])).toMatchObject({ arguments: ['x', 'y', 'z'] });
  expect(() => parseArguments(several, [])).toThrow('needs ID. Usage: treadle runs diff ID… [flags]');
});

test('rejects an empty text as a required argument', () => {
  const several = defineCommand({ ...pair, arguments: ['ID…'] });
  const message = 'treadle runs diff got an empty text as ID. Usage: treadle runs diff ID… [flags]';
  for (const args of [[''], ['x', '', 'y']]) expect(() => parseArguments(several, args)).toThrow(message);
  expect(parseArguments(run, [''])).toMatchObject({ arguments: [''] });
});

test('returns help whatever the other arguments are', () => {
  expect(parseArguments(run, ['a', 'b', '--help'])).toBe('help');
  expect(parseArguments(bare, ['-h'])).toBe('help');
});

describe('errors name the problem and what is allowed', () => {
  test.each([
    [
      ['--modle', 'a'],
      'treadle run has no flag --modle. Did you mean "--model"? "treadle run --help" lists the flags.',
    ],
    [['-x'], 'treadle run has no flag -x. "treadle run --help" lists the flags.'],
    [['--__proto__'], 'treadle run has no flag --__proto__. "treadle run --help" lists the flags.'],
    [['--model'], '--model needs a value: NAME.'],
    [['--model='], '--model needs a value: NAME.'],
    [['--model', '--json'], '--model needs a value: NAME. If the value is --json, write --model=--json.'],
    [['--max-turns', 'many'], '--max-turns cannot be "many". It takes a whole number from 1.'],
    [['--max-turns', '0'], '--max-turns cannot be "0". It takes a whole number from 1.'],
    [['--max-turns', '-1'], '--max-turns cannot be "-1". It takes a whole number from 1.'],
    [['--max-turns', '1e3'], '--max-turns cannot be "1e3". It takes a whole number from 1.'],
    [['--finish', 'never'], '--finish cannot be "never". It takes plain or confirm.'],
    [['--ask=maybe'], '--ask cannot be "maybe". It takes always or never.'],
    [['--json=yes'], '--json takes no value, but got "yes".'],
    [['list', 'files'], 'treadle run takes one argument, but also got "files". Put text with spaces in quotes.'],
  ])('%j', (args, message) => {
    expect(() => parseArguments(run, args)).toThrow(new CommandError(message));
  });
  test('rejects an argument of a command without arguments', () => {
    expect(() => parseArguments(bare, ['x'])).toThrow('treadle chat takes no argument, but got "x".');
  });
});
