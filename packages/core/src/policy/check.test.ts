import fc from 'fast-check';
import { expect, test } from 'vitest';
import { checkRules } from './check.ts';
import { policy } from './policy.ts';
import type { PolicyRules } from './rules.ts';

test.each<[string, unknown, (string | number)[], string]>([
  ['no table', [], [], 'the policy is []. It must be a table of rules, as plain JSON.'],
  ['no JSON', { autonomy: new Date(0) }, [], 'the policy is {"autonomy":"1970-01-01T00:00:00.000Z"}. It must be'],
  ['an unknown key', { tool: {} }, ['tool'], 'tool is {}. It must be one of "autonomy", "tools"'],
  ['a level', { autonomy: '1' }, ['autonomy'], 'autonomy is "1". It must be one of 0, 1, 2, 3.'],
  ['a verdict', { tools: { 'a.b': 'no' } }, ['tools', 'a.b'], 'tools."a.b" is "no". It must be one of "allow"'],
  [
    'an entry',
    { tools: { 'a*': 'ask' } },
    ['tools', 'a*'],
    'the entry "a*" of tools is "ask". It must be an entry for',
  ],
  ['a permission', { permissions: { shell: 'no' } }, ['permissions', 'shell'], 'permissions.shell is "no"'],
  ['an unknown permission', { permissions: { sh: true } }, ['permissions', 'sh'], 'one of "file_read"'],
  [
    'a list',
    { commands: { allow: 'ls' } },
    ['commands', 'allow'],
    'commands.allow is "ls". It must be a list of texts.',
  ],
  [
    'an empty text',
    { commands: { ask: ['ls', ' '] } },
    ['commands', 'ask', 1],
    'commands.ask[1] is " ". It must be a text',
  ],
  [
    'a private glob',
    { private: { paths: ['{a'] } },
    ['private', 'paths', 0],
    'private.paths[0] is "{a". It must be a glob',
  ],
  [
    'only',
    { paths: { only: ['reads'] } },
    ['paths', 'only', 0],
    'paths.only[0] is "reads". It must be one of "read", "write".',
  ],
  ['a glob', { paths: { deny: ['{a'] } }, ['paths', 'deny', 0], 'paths.deny[0] is "{a". It must be a glob'],
  [
    'a URL',
    { domains: { allow: ['https://x'] } },
    ['domains', 'allow', 0],
    'domains.allow[0] is "https://x". It must be a host',
  ],
  ['a range', { domains: { allow: ['10.0.0.0/33'] } }, ['domains', 'allow', 0], 'domains.allow[0] is "10.0.0.0/33"'],
  [
    'a rate',
    { rate: { minute: -1 } },
    ['rate', 'minute'],
    'rate.minute is -1. It must be a whole number of at least 0.',
  ],
  [
    'approvals',
    { approvals: { required: 2, approvers: ['a', 'a'] } },
    ['approvals', 'required'],
    'approvals.required is 2',
  ],
  [
    'minutes',
    { approvals: { minutes: 0 } },
    ['approvals', 'minutes'],
    'approvals.minutes is 0. It must be a number above 0.',
  ],
  [
    'minutes without an end',
    { approvals: { minutes: Infinity } },
    ['approvals', 'minutes'],
    'approvals.minutes is Infinity. It must be a finite number.',
  ],
])('refuses %s', (_, rules, path, message) => {
  const { problems } = checkRules(rules);
  expect(problems).toHaveLength(1);
  expect(problems[0]!.path).toEqual(path);
  expect(problems[0]!.message).toContain(message);
});

test.each<[string, unknown, string]>([
  ['commands at level 0', { autonomy: 0, commands: { allow: ['ls'] } }, 'commands.allow never applies: at level 0'],
  [
    'writes without the permission',
    { permissions: { file_write: false }, paths: { write: ['a'] } },
    'paths.write never',
  ],
  ['a command that is also denied', { commands: { allow: ['ls'], deny: ['ls'] } }, '"ls" in commands never applies'],
  [
    'the same words',
    { commands: { allow: ['git  push'], ask: ['git push'] } },
    '"git  push" in commands never applies',
  ],
  ['the same host', { domains: { allow: ['A.b'], deny: ['a.b'] } }, '"A.b" in domains never applies'],
  ['shell syntax', { commands: { allow: ['ls | wc'] } }, 'it has shell syntax'],
  ['a glob with ..', { paths: { read: ['../x'] } }, '"../x" in paths.read never applies'],
  ['a glob that is also denied', { paths: { read: ['a'], deny: ['a'] } }, '"a" in paths.read never applies'],
  [
    'a glob that is always denied',
    { paths: { read: ['*.pem'] } },
    '"*.pem" in paths.read never applies: "**/*.pem" is always denied.',
  ],
  ['a folder that is always denied', { paths: { write: ['.git/**'] } }, '"**/.git/**" is always denied'],
  ['alternatives that are always denied', { paths: { read: ['{a,b}/*.PEM'] } }, '"**/*.pem" is always denied'],
  ['a host that is also denied', { domains: { allow: ['a.b'], deny: ['a.b'] } }, '"a.b" in domains never applies'],
  ['a burst above the minute', { rate: { second: 61 } }, 'rate.second never applies: rate.minute allows only 60 calls'],
])('warns about %s', (_, rules, message) => {
  const { problems, warnings } = checkRules(rules);
  expect(problems).toEqual([]);
  expect(warnings.map((one) => one.message).join('\n')).toContain(message);
});

test.each<PolicyRules['paths']>([
  { read: ['*.pem*'] },
  { read: ['a.pem'] },
  { read: ['.env*'] },
  { read: ['.env.e*'] },
  { read: ['.git/**'] },
  { read: ['{a.pem,b}*'] },
  { read: ['**'] },
])('does not warn about globs that a default denial covers only in part, or not: %j', (paths) => {
  expect(checkRules({ paths })).toEqual({ problems: [], warnings: [] });
});

test('accepts rules of every kind without a warning', () => {
  const rules = {
    autonomy: 2,
    tools: { 'git:push': 'ask', 'git:*': 'allow', mcp__x: 'deny', 'a:b:c': 'ask', '*': 'ask' },
    permissions: { shell: true, network: false, file_write: undefined },
    commands: { allow: ['git status', 'npm run *'], ask: ['git push'], deny: ['curl'] },
    paths: { read: ['**'], write: ['src/**', '~/x'], deny: ['{a,b}/**'] },
    rate: { minute: 0, second: 0 },
    approvals: { minutes: 0.5, required: 2, approvers: ['a', 'b'] },
  };
  expect(checkRules(rules)).toEqual({ problems: [], warnings: [] });
});

test('never throws, and policy() accepts what it accepts', () => {
  const keys = [
    'autonomy',
    'tools',
    'permissions',
    'commands',
    'paths',
    'private',
    'domains',
    'rate',
    'approvals',
    'x',
  ];
  const lists = fc.dictionary(fc.constantFrom('allow', 'ask', 'deny', 'read', 'write', 'minute'), fc.jsonValue());
  const values = fc.oneof(fc.jsonValue(), fc.constantFrom(0, 1, 2, 3), lists);
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom(...keys), values), (rules) => {
      const { problems } = checkRules(rules);
      if (problems.length === 0) policy(rules, { home: '/u' });
      else expect(() => policy(rules, { home: '/u' })).toThrow('malformed');
    }),
  );
});
