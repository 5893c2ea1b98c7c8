import { describe, expect, test } from 'vitest';
import { manualClock } from '../testing/index.ts';
import type { UrlFacts } from './facts.ts';
import { policy, type PolicyOptions } from './policy.ts';
import type { JudgedCall, Touch, Verdict } from './port.ts';
import { privatePaths } from './private.ts';
import { memoryRates } from './rate.ts';
import type { RuleContext } from './rule.ts';
import type { PolicyRules } from './rules.ts';

const FOLDER = '/project';

interface Case extends Partial<JudgedCall>, Pick<RuleContext, 'autonomy' | 'principal' | 'allowed' | 'written'> {
  readonly name?: string;
}

const callOf = ({ name = 'act', touches = [], ...rest }: Case): JudgedCall => ({
  id: 'c1',
  name,
  input: {},
  effect: 'once',
  client: false,
  touches,
  permissions: [],
  operation: undefined,
  ...rest,
});

/** The verdict of `judge`. Fails if `explain` has another. */
async function verdictOn(rules: PolicyRules, given: Case, options: PolicyOptions = {}): Promise<Verdict> {
  const { autonomy, principal, allowed, written, ...call } = given;
  const context = {
    ...(autonomy !== undefined && { autonomy }),
    ...(principal && { principal }),
    ...(allowed && { allowed }),
    ...(written && { written }),
  };
  const made = policy(rules, { folder: FOLDER, ...options });
  const { signal } = new AbortController();
  const [verdict] = await made.judge([callOf(call)], { ...context, runId: 'r', turn: 1, context: undefined, signal });
  const explained = await made.explain(callOf(call), context);
  expect(explained.verdict).toEqual(verdict);
  expect(explained.rule).toBe(verdict?.rule);
  return verdict!;
}

/** Such as `deny autonomy`. */
async function briefly(rules: PolicyRules, given: Case): Promise<string> {
  const { type, rule } = await verdictOn(rules, given);
  return `${type} ${rule}`;
}

const READ: Touch = { type: 'read', path: 'a.txt' };
const OUTSIDE: Touch = { type: 'read', path: '/etc/hosts' };
const WRITE: Touch = { type: 'write', path: 'a.txt' };
const COMMAND: Touch = { type: 'command', command: 'make all' };
const URL_TOUCH: Touch = { type: 'url', url: 'https://example.com/x' };
const SESSION: Touch = { type: 'session', session: 's1' };
const DEVICE: Touch = { type: 'device', device: 'd1' };
const UNKNOWN: Touch = { type: 'unknown' };

describe('the allowed set', () => {
  test('denies other tools, and says which may be called', async () => {
    const verdict = await verdictOn({}, { name: 'act', allowed: ['read', 'glob'] });
    expect(verdict).toEqual({
      type: 'deny',
      rule: 'allowed',
      reason: 'the run may not call "act". It may call "read", "glob".',
    });
    expect(await verdictOn({}, { allowed: [] })).toMatchObject({ reason: expect.stringContaining('no tool') });
  });
  test('allows its own tools', async () => {
    expect(await briefly({}, { allowed: ['act'] })).toBe('allow autonomy');
  });
});

describe('autonomy', () => {
  const allowing: PolicyRules = {
    paths: { write: ['**'] },
    commands: { allow: ['make'] },
    domains: { allow: ['example.com'] },
  };
  test.each<[string, Touch[], string, string, string, string]>([
    ['nothing', [], 'allow', 'allow', 'allow', 'allow'],
    ['a read inside the folder', [READ], 'allow', 'allow', 'allow', 'allow'],
    ['a read outside', [OUTSIDE], 'ask', 'ask', 'ask', 'allow'],
    ['a write', [WRITE], 'deny', 'ask', 'ask', 'allow'],
    ['a command', [COMMAND], 'deny', 'ask', 'ask', 'allow'],
    ['a request', [URL_TOUCH], 'deny', 'ask', 'ask', 'allow'],
    ['a session', [SESSION], 'deny', 'ask', 'ask', 'allow'],
    ['a device', [DEVICE], 'deny', 'ask', 'ask', 'allow'],
    ['unknown', [UNKNOWN], 'deny', 'ask', 'ask', 'allow'],
    ['a read and a write', [READ, WRITE], 'deny', 'ask', 'ask', 'allow'],
  ])('%s, by level', async (_, touches, ...expected) => {
    const levels = await Promise.all(([0, 1, 2, 3] as const).map((autonomy) => verdictOn({ autonomy }, { touches })));
    expect(levels.map(({ type }) => type)).toEqual(expected);
    for (const verdict of levels) if (verdict.type !== 'allow') expect(verdict.rule).toBe('autonomy');
  });
  test.each<[string, Touch[], string, string]>([
    ['a write', [WRITE], 'ask', 'allow'],
    ['a command', [COMMAND], 'ask', 'allow'],
    ['a request', [URL_TOUCH], 'ask', 'allow'],
    ['a read outside', [OUTSIDE], 'ask', 'ask'],
    ['a session', [SESSION], 'ask', 'ask'],
    ['a write inside and one outside', [WRITE, { type: 'write', path: '/tmp/x' }], 'ask', 'ask'],
  ])('%s that lists cover runs at level 2, and not at level 1', async (_, touches, at1, at2) => {
    expect((await verdictOn({ ...allowing, autonomy: 1 }, { touches })).type).toBe(at1);
    expect((await verdictOn({ ...allowing, autonomy: 2 }, { touches })).type).toBe(at2);
  });
  test('is level 1 by default, and narrowing lowers it but does not raise it', async () => {
    expect(await briefly({}, { touches: [WRITE] })).toBe('ask autonomy');
    expect(await briefly({ autonomy: 3 }, { touches: [WRITE], autonomy: 0 })).toBe('deny autonomy');
    expect(await briefly({ autonomy: 0 }, { touches: [WRITE], autonomy: 3 })).toBe('deny autonomy');
  });
  test('has no opinion on a call of the client that declares nothing', async () => {
    const given = callOf({ client: true });
    const made = policy({ autonomy: 0, permissions: { shell: false }, tools: { '*': 'deny' } });
    const explained = await made.explain({ ...given, touches: undefined, permissions: ['shell'] });
    expect(explained.verdict).toEqual({ type: 'allow' });
    expect(explained.rule).toBeUndefined();
    expect((await made.explain({ ...given, touches: [WRITE] })).verdict.type).toBe('deny');
    const named = await policy({ tools: { act: 'deny' } }).explain({ ...given, touches: undefined });
    expect(named.rule).toBe('tools');
  });
  test.each([
    [0, 0],
    [1, 10],
    [2, 30],
    [3, 50],
  ] as const)('limits the files that a run modifies: level %i, %i files', async (autonomy, files) => {
    const written = Array.from({ length: files }, (_, index) => `f${index}`);
    const rules: PolicyRules = { autonomy, paths: { write: ['**'] } };
    const another = await verdictOn(rules, { touches: [{ type: 'write', path: 'another' }], written });
    expect(another.type).toBe('deny');
    if (files === 0) return;
    const same = await verdictOn(rules, { touches: [{ type: 'write', path: 'f0' }], written });
    expect(same.type).not.toBe('deny');
    const last = await verdictOn(rules, { touches: [{ type: 'write', path: 'n' }], written: written.slice(1) });
    expect(last.type).not.toBe('deny');
  });
  test('counts the files of earlier calls of the turn', async () => {
    const made = policy({ autonomy: 1 }, { folder: FOLDER });
    const { signal } = new AbortController();
    const writes = Array.from({ length: 12 }, (_, index) =>
      callOf({ touches: [{ type: 'write', path: `f${index}` }] }),
    );
    const verdicts = await made.judge(writes, { runId: 'r', turn: 1, context: undefined, signal });
    expect(verdicts.map(({ type }) => type)).toEqual([...Array(10).fill('ask'), 'deny', 'deny']);
    expect(verdicts[10]).toMatchObject({ rule: 'rate' });
    const slow = policy({ autonomy: 1, rate: { second: 20 } }, { folder: FOLDER });
    const all = await slow.judge(writes, { runId: 'r', turn: 1, context: undefined, signal });
    expect(all.map(({ type, rule }) => `${type} ${rule}`)).toEqual([
      ...Array(10).fill('ask autonomy'),
      'deny autonomy',
      'deny autonomy',
    ]);
  });
  test('has limits for turns and calls by level', () => {
    const limits = ([0, 1, 2, 3] as const).map((autonomy) => policy({ autonomy }).limits());
    expect(limits).toMatchObject([
      { turns: 5, calls: 10 },
      { turns: 20, calls: 50 },
      { turns: 50, calls: 200 },
      { turns: 100, calls: 500 },
    ]);
    expect(policy({ autonomy: 3 }).limits(0)).toMatchObject({ turns: 5 });
  });
});

describe('scopes', () => {
  const principal = (...scopes: string[]) => ({ subject: 'ann', tenant: 'acme', scopes });
  test.each([
    ['tools:execute', ['tools:execute'], 'allow'],
    ['the scope of the tool', ['tools:execute:act'], 'allow'],
    ['the scope of another tool', ['tools:execute:read'], 'deny'],
    ['a scope that only starts like it', ['tools:execute:actor', 'tools:executes'], 'deny'],
    ['none', [], 'deny'],
  ])('%s', async (_, scopes, expected) => {
    expect((await verdictOn({}, { principal: principal(...scopes) })).type).toBe(expected);
  });
  test('are not checked without a principal', async () => {
    expect((await verdictOn({}, {})).type).toBe('allow');
  });
  test('say what may be called', async () => {
    expect(await verdictOn({}, { principal: principal('tools:execute:read') })).toEqual({
      type: 'deny',
      rule: 'scopes',
      reason: '"ann" has neither the scope "tools:execute" nor "tools:execute:act". It may call "read".',
    });
  });
});

describe('permissions', () => {
  test.each<[string, Case, PolicyRules['permissions'], string]>([
    ['all are held by default', { permissions: ['shell', 'network'] }, undefined, 'allow permissions'],
    ['one that is not named is held', { permissions: ['shell'] }, { network: false }, 'allow permissions'],
    ['one of two is missing', { permissions: ['shell', 'network'] }, { network: false }, 'deny permissions'],
    ['one of another name is held', { permissions: ['printer'] }, { network: false }, 'allow permissions'],
    ['a read needs file_read', { touches: [READ] }, { file_read: false }, 'deny permissions'],
    ['a write needs file_write', { touches: [WRITE] }, { file_write: false }, 'deny permissions'],
    ['a command needs shell', { touches: [COMMAND] }, { shell: false }, 'deny permissions'],
    ['a request needs network', { touches: [URL_TOUCH] }, { network: false }, 'deny permissions'],
    ['a session needs session', { touches: [SESSION] }, { session: false }, 'deny permissions'],
    ['git needs git', { touches: [{ type: 'command', command: 'git log' }] }, { git: false }, 'deny permissions'],
  ])('%s', async (_, given, permissions, expected) => {
    expect(await briefly({ autonomy: 3, ...(permissions && { permissions }) }, given)).toBe(
      expected === 'allow permissions' && given.touches ? 'allow autonomy' : expected,
    );
  });
});

describe('commands', () => {
  const lists = {
    allow: ['git', 'npm run *', 'git push origin', 'ls -l', 'make', '/opt/tool'],
    ask: ['npm run deploy', 'git fetch', 'make'],
    deny: ['git push', 'curl', 'npm run * --force'],
  };
  test.each([
    ['git status', 'allow commands'],
    ['git push', 'deny commands'],
    ['git push upstream', 'deny commands'],
    ['git push origin main', 'allow commands'],
    ['git -C /x push', 'deny commands'],
    ['git --no-pager -c a=b push', 'deny commands'],
    ['git commit -m push', 'allow commands'],
    ['git fetch --all', 'ask commands'],
    ['npm run test --watch', 'allow commands'],
    ['npm run', 'ask autonomy'],
    ['npm run deploy', 'ask commands'],
    ['npm run x --force', 'deny commands'],
    ['npm test', 'ask autonomy'],
    ['ls -l', 'allow commands'],
    ['ls', 'ask autonomy'],
    ['ls -la', 'ask autonomy'],
    ['make', 'ask commands'],
    ['curl http://x', 'deny commands'],
    ['/usr/bin/curl http://x', 'deny commands'],
    ['./git status', 'ask autonomy'],
    ['/opt/tool', 'allow commands'],
    ['git status | sh', 'ask commands'],
    ['git $(x)', 'ask commands'],
    ['env git status', 'ask commands'],
    ['', 'ask commands'],
    ['A=1 git status', 'ask commands'],
  ])('%s: %s', async (command, expected) => {
    expect(await briefly({ autonomy: 2, commands: lists }, { touches: [{ type: 'command', command }] })).toBe(expected);
  });

  const analysers = (facts: object): PolicyOptions => ({
    analysers: { command: () => ({ programs: [], touches: [], urls: [], ...facts }) },
  });
  const judged = (rules: PolicyRules, facts: object): Promise<Verdict> =>
    verdictOn(rules, { touches: [COMMAND] }, analysers(facts));
  const program = (name: string, ...args: (string | undefined)[]) => ({ name, args });

  test('what destroys something is denied at every level, also if it is allowed', async () => {
    for (const autonomy of [0, 1, 2, 3] as const) {
      const rules: PolicyRules = { autonomy, commands: { allow: ['*'] }, tools: { act: 'allow' } };
      expect(await judged(rules, { programs: [program('rm', '-rf', '/')], destructive: 'it removes /' })).toMatchObject(
        {
          type: 'deny',
        },
      );
    }
  });
  test('what could not be checked is denied at every level, and not called destructive', async () => {
    for (const autonomy of [1, 2, 3] as const) {
      const rules: PolicyRules = { autonomy, commands: { allow: ['*'] }, tools: { act: 'allow' } };
      expect(await judged(rules, { unchecked: 'it is too long' })).toEqual({
        type: 'deny',
        reason:
          'the command cannot be checked: it is too long. Run smaller commands, and write long data to a file first.',
        rule: 'commands',
      });
    }
  });
  test('what is unclear is asked about, also at level 3 and with an allow entry for the tool', async () => {
    const rules: PolicyRules = { autonomy: 3, tools: { act: 'allow' } };
    expect(await judged(rules, { unclear: 'a computed name' })).toMatchObject({ type: 'ask', rule: 'commands' });
    expect(await judged({ autonomy: 0 }, { unclear: 'a computed name' })).toMatchObject({ type: 'deny' });
  });
  test('a denied program counts, also if the rest is unclear', async () => {
    const rules: PolicyRules = { autonomy: 3, commands: { deny: ['curl'] } };
    expect(await judged(rules, { programs: [program('curl')], unclear: 'x' })).toMatchObject({ type: 'deny' });
  });
  test('every program must be allowed', async () => {
    const rules: PolicyRules = { autonomy: 2, commands: { allow: ['cat', 'wc'] } };
    expect(await judged(rules, { programs: [program('cat', 'a'), program('wc')] })).toMatchObject({ type: 'allow' });
    expect(await judged(rules, { programs: [program('cat', 'a'), program('sh')] })).toMatchObject({
      type: 'ask',
      rule: 'autonomy',
    });
  });
  test('a computed argument is matched by "*" only, and may be what is denied', async () => {
    const allow: PolicyRules = { autonomy: 2, commands: { allow: ['git status', 'npm run *'] } };
    expect(await judged(allow, { programs: [program('npm', 'run', undefined)] })).toMatchObject({ type: 'allow' });
    expect(await judged(allow, { programs: [program('git', undefined)] })).toMatchObject({ rule: 'autonomy' });
    const deny: PolicyRules = { autonomy: 3, commands: { deny: ['git push'] } };
    expect(await judged(deny, { programs: [program('git', undefined)] })).toMatchObject({
      type: 'ask',
      rule: 'commands',
    });
    expect(await judged(deny, { programs: [program('git', 'log', undefined)] })).toMatchObject({ type: 'allow' });
  });
  test('what a command reads, writes and requests is judged by the other rules', async () => {
    const rules: PolicyRules = { autonomy: 2, commands: { allow: ['*'] }, paths: { write: ['out/**'] } };
    const touching = (touch: object): object => ({ programs: [program('x')], ...touch });
    const path = (type: string, name: string): object => touching({ touches: [{ type, path: name }] });
    expect(await judged(rules, path('read', 'a'))).toMatchObject({ type: 'allow' });
    expect(await judged(rules, path('read', '/etc/passwd'))).toMatchObject({ type: 'ask', rule: 'autonomy' });
    expect(await judged(rules, path('read', '.env'))).toMatchObject({ type: 'deny', rule: 'paths' });
    expect(await judged(rules, path('write', 'out/a'))).toMatchObject({ type: 'allow' });
    expect(await judged(rules, path('write', 'a'))).toMatchObject({ type: 'ask', rule: 'autonomy' });
    expect(await judged(rules, touching({ urls: ['http://127.0.0.1/'] }))).toMatchObject({ rule: 'domains' });
  });
});

test.each([
  ['tool', [], 'allow commands'],
  ['tool', ['plan'], 'ask autonomy'],
  ['tool plan', ['plan', '-x'], 'allow commands'],
  ['tool *', ['plan'], 'allow commands'],
  ['* plan', ['plan'], 'ask autonomy'],
])('the entry "%s" for a program that is not known, with %j: %s', async (entry, args, verdict) => {
  const command = () => ({ programs: [{ name: 'tool', args, unknown: true as const }], touches: [], urls: [] });
  const rules: PolicyRules = { autonomy: 2, commands: { allow: [entry] } };
  const { type, rule } = await verdictOn(rules, { touches: [COMMAND] }, { analysers: { command } });
  expect(`${type} ${rule}`).toBe(verdict);
});

describe('paths', () => {
  const lists = {
    read: ['src/**', 'config/.env.test'],
    write: ['src/**', '/tmp/out'],
    deny: ['src/secret/**', '**/*.key'],
  };
  const on = (type: 'read' | 'write', path: string): Promise<string> =>
    briefly({ autonomy: 2, paths: lists }, { touches: [{ type, path }] });
  test.each([
    ['src/a', 'allow paths', 'allow paths'],
    ['src', 'allow paths', 'allow paths'],
    ['./src//b/', 'allow paths', 'allow paths'],
    ['/project/src/a', 'allow paths', 'allow paths'],
    ['srcs/a', 'ask autonomy', 'ask autonomy'],
    ['README', 'ask autonomy', 'ask autonomy'],
    ['src/../README', 'ask autonomy', 'ask autonomy'],
    ['../../../../etc/passwd', 'ask autonomy', 'ask autonomy'],
    ['/tmp/out', 'ask autonomy', 'allow paths'],
    ['src/secret/a', 'deny paths', 'deny paths'],
    ['SRC/Secret/a', 'deny paths', 'deny paths'],
    ['/elsewhere/x.key', 'deny paths', 'deny paths'],
    ['src/x.KEY', 'deny paths', 'deny paths'],
    ['config/.env.test', 'allow paths', 'deny paths'],
    ['src/.env', 'deny paths', 'deny paths'],
    ['src/.env.local', 'deny paths', 'deny paths'],
    ['src/.env.example', 'allow paths', 'allow paths'],
    ['src/.git/hooks/x', 'allow paths', 'deny paths'],
    ['src/.git', 'allow paths', 'deny paths'],
    ['src/.git/config', 'deny paths', 'deny paths'],
    ['src/.gitignore', 'allow paths', 'allow paths'],
    ['src/id_ed25519.pub', 'deny paths', 'deny paths'],
    ['src/a.pem', 'deny paths', 'deny paths'],
    ['/u/.aws/credentials', 'deny paths', 'deny paths'],
    ['.treadle/treadle.db', 'deny paths', 'deny paths'],
    ['.treadle/skills/review/SKILL.md', 'deny paths', 'deny paths'],
    ['treadle.toml', 'deny paths', 'deny paths'],
    ['/proc/123/environ', 'deny paths', 'deny paths'],
    ['/proc/self/task/7/mem', 'deny paths', 'deny paths'],
    ['~/x', 'deny paths', 'deny paths'],
    ['src/a\0b', 'deny paths', 'deny paths'],
    ['', 'deny paths', 'deny paths'],
  ])('%j: reads %s, writes %s', async (path, read, write) => {
    expect([await on('read', path), await on('write', path)]).toEqual([read, write]);
  });
  test('with "only", other paths are denied at every level', async () => {
    const only = (type: 'read' | 'write', path: string, which: readonly ('read' | 'write')[]): Promise<string> =>
      briefly({ autonomy: 3, paths: { ...lists, only: which } }, { touches: [{ type, path }] });
    expect(await only('read', 'src/a', ['read'])).toBe('allow paths');
    expect(await only('read', 'README', ['read'])).toBe('deny paths');
    expect(await only('read', '/etc/passwd', ['read'])).toBe('deny paths');
    expect(await only('write', 'README', ['read'])).toBe('allow permissions');
    expect(await only('write', 'README', ['read', 'write'])).toBe('deny paths');
    expect(await briefly({ paths: { only: ['write'] } }, { touches: [{ type: 'write', path: 'a' }] })).toBe(
      'deny paths',
    );
  });
  test('denials hold at level 3', async () => {
    expect(await briefly({ autonomy: 3 }, { touches: [{ type: 'read', path: '/x/.env' }] })).toBe('deny paths');
  });
  test('where a link leads is judged too', async () => {
    const options = (target: string): PolicyOptions => ({
      analysers: { path: (path) => ({ path: `/project/${path}`, target }) },
    });
    const leading = async (target: string): Promise<string> => {
      const rules: PolicyRules = { autonomy: 2, paths: lists };
      const { type, rule } = await verdictOn(rules, { touches: [{ type: 'read', path: 'src/a' }] }, options(target));
      return `${type} ${rule}`;
    };
    expect(await leading('/project/src/b')).toBe('allow paths');
    expect(await leading('/etc/hosts')).toBe('ask autonomy');
    expect(await leading('/project/src/secret/a')).toBe('deny paths');
  });
  test.each(['NFC', 'NFD'] as const)('globs in Unicode form %s match paths in each form', async (form) => {
    const rules: PolicyRules = {
      autonomy: 2,
      paths: { write: ['é/**'.normalize(form)], deny: ['**/ü'.normalize(form)] },
    };
    for (const other of ['NFC', 'NFD'] as const) {
      const on = (path: string): Promise<string> =>
        briefly(rules, { touches: [{ type: 'write', path: path.normalize(other) }] });
      expect([await on('é/a'), await on('é/ü')]).toEqual(['allow paths', 'deny paths']);
    }
  });
  test('globs below the home folder need one', async () => {
    const rules: PolicyRules = { autonomy: 2, paths: { read: ['~/notes/**'] } };
    expect(() => policy(rules)).toThrow('it starts with "~", and the policy was given no "home"');
    const touches: Touch[] = [{ type: 'read', path: '/u/notes/a' }];
    expect(await verdictOn(rules, { touches }, { home: '/u' })).toMatchObject({ type: 'allow' });
  });
  test('without a folder, absolute paths are outside, and relative ones may not leave', async () => {
    const made = policy({});
    const on = async (path: string) =>
      (await made.explain({ name: 'r', touches: [{ type: 'read', path }] })).verdict.type;
    expect([await on('a/b'), await on('/a/b'), await on('a/../../b')]).toEqual(['allow', 'ask', 'deny']);
  });
});

describe('private paths', () => {
  const on = (path: string, rules: PolicyRules = {}, type: 'read' | 'write' = 'read'): Promise<string> =>
    briefly({ autonomy: 2, ...rules }, { touches: [{ type, path }] });

  test.each(
    '.npmrc .pypirc .pgpass a.key a.p12 prod.env terraform.tfstate secrets.yaml .ssh/config .aws/x .kube/x SRC/.NPMRC'.split(
      ' ',
    ),
  )('%s is asked about', async (path) => {
    expect(await on(path)).toBe('ask private');
    expect(await on(path, { paths: { read: ['**'] }, tools: { act: 'allow' } })).toBe('ask private');
    expect(await on(path, { autonomy: 0 })).toBe('ask private');
    expect(await on(path, { autonomy: 3 })).toBe('allow paths');
    expect(await on(path, { paths: { write: ['**'] } }, 'write')).toBe('allow paths');
  });

  test('are those that are named too, but not what is excepted or named exactly', async () => {
    expect(await on('customers/a', { private: { paths: ['customers/**'] } })).toBe('ask private');
    expect(await on('.npmrc', { private: { except: ['.npmrc'] } })).toBe('allow paths');
    expect(await on('sub/.npmrc', { private: { except: ['.npmrc'] } })).toBe('ask private');
    expect(await on('.npmrc', { paths: { read: ['**', '.npmrc'] } })).toBe('allow paths');
    expect(await on('.env.example')).toBe('allow paths');
    expect(await on('npmrc')).toBe('allow paths');
  });

  test('stay denied if a list denies them', async () => {
    expect(await on('.env')).toBe('deny paths');
    expect(await on('.env', { private: { except: ['.env'] } })).toBe('deny paths');
  });

  test('count by where a link leads', () => {
    const found = privatePaths({}, { folder: '/project' });
    expect(found({ path: '/project/a', target: '/project/.npmrc' })).toBe('**/.npmrc');
    expect(found({ path: '/project/a' })).toBeUndefined();
  });
});

describe('a folder that a run may read while something narrows it', () => {
  const folder = '/u/.treadle/skills/review';
  const readable = (narrowedBy: readonly string[]): readonly string[] =>
    narrowedBy.includes('skill:review') ? [folder] : [];
  const leading = (target?: string): PolicyOptions => ({
    readable,
    ...(target !== undefined && { analysers: { path: (path) => ({ path, target }) } }),
  });
  const on = async (path: string, rules: PolicyRules = {}, options = leading()): Promise<readonly string[]> => {
    const made = policy({ autonomy: 1, ...rules }, { folder: '/project', ...options });
    const touches: readonly Touch[] = [{ type: 'read', path }];
    const before = await made.explain({ name: 'read', touches }, { narrowedBy: ['skill:other'] });
    const meanwhile = await made.explain({ name: 'read', touches }, { narrowedBy: ['skill:review'] });
    return [before, meanwhile].map(({ verdict, rule }) => `${verdict.type} ${rule}`);
  };

  test.each([
    [folder, 'deny paths', 'allow paths'],
    [`${folder}/a/b.md`, 'deny paths', 'allow paths'],
    [`${folder}/../other/a.md`, 'deny paths', 'deny paths'],
    [`${folder}-2/a.md`, 'deny paths', 'deny paths'],
    ['/u/.treadle/skills', 'deny paths', 'deny paths'],
    // What is denied and private everywhere is so there, too.
    [`${folder}/.env`, 'deny paths', 'deny paths'],
    [`${folder}/server.key`, 'deny paths', 'ask private'],
    [`${folder}/.treadle/treadle.db`, 'deny paths', 'deny paths'],
  ])('%s: %s, then %s', async (path, before, meanwhile) => {
    expect(await on(path)).toEqual([before, meanwhile]);
  });

  test('is not left through a link, and is not entered by one from outside', async () => {
    expect(await on(`${folder}/a`, {}, leading('/etc/passwd'))).toEqual(['deny paths', 'deny paths']);
    expect(await on('/tmp/a', {}, leading(`${folder}/a`))).toEqual(['deny paths', 'deny paths']);
    expect(await on(`${folder}/a`, {}, leading(`${folder}/b`))).toEqual(['deny paths', 'allow paths']);
  });

  test('stays denied and private if the rules say so, and cannot be written', async () => {
    expect(await on(`${folder}/a`, { paths: { deny: ['**/.treadle/**'] } })).toEqual(['deny paths', 'deny paths']);
    expect(await on(`${folder}/a`, { private: { paths: [`${folder}/**`] } })).toEqual(['deny paths', 'ask private']);
    const made = policy({ autonomy: 3 }, { folder: '/project', readable });
    const touches: readonly Touch[] = [{ type: 'write', path: `${folder}/a` }];
    expect((await made.explain({ name: 'write', touches }, { narrowedBy: ['skill:review'] })).rule).toBe('paths');
  });

  test('exposes the run to nothing private, and is the same for rules that a run has recorded', async () => {
    const made = policy({}, { folder: '/project', readable });
    const touch: Touch = { type: 'read', path: `${folder}/a` };
    expect(await made.exposes(touch, { sandbox: [] })).toEqual(['private']);
    expect(await made.exposes(touch, { sandbox: [], narrowedBy: ['skill:review'] })).toEqual([]);
    const call = { name: 'read', touches: [touch] };
    const recorded = made.withRules({ autonomy: 0 });
    expect((await recorded.explain(call, { narrowedBy: ['skill:review'] })).verdict.type).toBe('allow');
  });
});

describe('domains', () => {
  const lists = {
    allow: ['example.com', '*.example.org', '10.1.0.0/16', 'localhost:8080', '[fd00::1]:443', 'bücher.example'],
    ask: ['ask.example.org', '10.1.2.0/24'],
    deny: ['*.evil.example.org', 'example.com:8443', '8.8.8.8'],
  };
  test.each([
    ['https://example.com/a', 'allow domains'],
    ['https://EXAMPLE.com./a', 'allow domains'],
    ['https://example.com:8443/', 'deny domains'],
    ['https://a.example.com/', 'ask autonomy'],
    ['https://a.b.example.org/', 'allow domains'],
    ['https://example.org/', 'ask autonomy'],
    ['https://ask.example.org/', 'ask domains'],
    ['https://x.evil.example.org/', 'deny domains'],
    ['https://notexample.com/', 'ask autonomy'],
    ['https://xn--bcher-kva.example/', 'allow domains'],
    ['http://10.1.9.9/', 'allow domains'],
    ['http://10.1.2.3/', 'ask domains'],
    ['http://10.2.0.1/', 'deny domains'],
    ['http://0x0a.0x02.0.1/', 'deny domains'],
    ['http://localhost:8080/', 'allow domains'],
    ['http://localhost:8081/', 'deny domains'],
    ['http://a.localhost/', 'deny domains'],
    ['https://[fd00::1]/', 'allow domains'],
    ['https://[fd00::2]/', 'deny domains'],
    ['http://[::ffff:127.0.0.1]/', 'deny domains'],
    ['http://169.254.169.254/', 'deny domains'],
    ['http://2130706433/', 'deny domains'],
    ['https://8.8.8.8/', 'deny domains'],
    ['https://1.1.1.1/', 'ask autonomy'],
    ['https://user:pw@example.com/', 'deny domains'],
    ['file:///etc/passwd', 'deny domains'],
    ['ftp://example.com/', 'ask autonomy'],
    ['/relative', 'deny domains'],
  ])('%s: %s', async (url, expected) => {
    expect(await briefly({ autonomy: 2, domains: lists }, { touches: [{ type: 'url', url }] })).toBe(expected);
  });
  test('protocols other than those of the web need an entry with their port', async () => {
    const on = (url: string, entry: string): Promise<string> => {
      const facts: UrlFacts = { scheme: 'ssh', host: 'example.com', port: Number(url.split(':')[2] ?? 22) };
      return verdictOn(
        { autonomy: 2, domains: { allow: [entry] } },
        { touches: [{ type: 'url', url }] },
        { analysers: { url: () => facts } },
      ).then(({ type, rule }) => `${type} ${rule}`);
    };
    expect(await on('ssh://example.com', 'example.com')).toBe('ask autonomy');
    expect(await on('ssh://example.com', '*')).toBe('ask autonomy');
    expect(await on('ssh://example.com', 'example.com:22')).toBe('allow domains');
    expect(await on('ssh://example.com', '*.com:22')).toBe('allow domains');
    expect(await on('ssh://example.com', 'example.com:443')).toBe('ask autonomy');
    expect(await on('ssh://example.com:443', 'example.com:22')).toBe('ask autonomy');
  });
  test('"*" is every public host, and no other address', async () => {
    const rules: PolicyRules = { autonomy: 2, domains: { allow: ['*'] } };
    const on = (url: string): Promise<string> => briefly(rules, { touches: [{ type: 'url', url }] });
    expect(await on('https://anything.example/')).toBe('allow domains');
    expect(await on('http://127.0.0.1/')).toBe('deny domains');
    expect(await on('https://8.8.8.8/')).toBe('allow domains');
    expect(await on('https://[2606:4700::1111]/')).toBe('allow domains');
    expect(await on('https://münchen.de/')).toBe('allow domains');
    expect(await on('https://例え.テスト例/')).toBe('allow domains');
    expect(await on('https://local.example.com./')).toBe('allow domains');
  });
  test.each([
    'db',
    'db.',
    'host.docker.internal',
    'HOST.Docker.Internal.',
    'api.default.svc',
    'api.default.svc.cluster.local',
    'kubernetes.default',
    'api.kube-system',
    'printer.local',
    'ｐｒｉｎｔｅｒ.ｌｏｃａｌ',
    'printer。local',
    'router.lan',
    'nas.home.arpa',
    'wiki.corp',
    'mail.intranet',
    'x.private',
    'x.home',
    'x.test',
    'vault.service.consul',
    'a.b1',
  ])('the name %s is asked about at every level, unless an entry other than "*" lists it', async (host) => {
    const touches = [{ type: 'url', url: `http://${host}/` }] as const;
    const on = (domains: PolicyRules['domains'], autonomy: 1 | 2 | 3 = 3): Promise<string> =>
      briefly({ autonomy, tools: { '*': 'allow' }, ...(domains && { domains }) }, { touches });
    expect(await on(undefined)).toBe('ask domains');
    for (const level of [1, 2, 3] as const) expect(await on({ allow: ['*'] }, level)).toBe('ask domains');
    expect(await on({ allow: ['*'], deny: ['*'] })).toBe('deny domains');
    const entry = new URL(`http://${host}/`).hostname.replace(/\.$/, '');
    expect(await on({ allow: ['*', entry] })).toBe('allow tools');
  });
  test('a name is internal also if the analyser does not normalise it', async () => {
    const url = (): UrlFacts => ({ scheme: 'http', host: 'Host.Docker.INTERNAL.', port: 80, range: 'public' });
    const rules: PolicyRules = { autonomy: 3, domains: { allow: ['*'] } };
    expect(await verdictOn(rules, { touches: [URL_TOUCH] }, { analysers: { url } })).toMatchObject({ type: 'ask' });
  });
  test('an address is denied also if the analyser does not tell its range', async () => {
    const url = (): UrlFacts => ({ scheme: 'http', host: '10.0.0.1', port: 80 });
    const rules: PolicyRules = { autonomy: 3, domains: { allow: ['*'] } };
    expect(await verdictOn(rules, { touches: [URL_TOUCH] }, { analysers: { url } })).toMatchObject({ type: 'deny' });
  });
  test('addresses that are not public are denied at level 3', async () => {
    expect(await briefly({ autonomy: 3 }, { touches: [{ type: 'url', url: 'http://192.168.0.1/' }] })).toBe(
      'deny domains',
    );
  });
});

describe('tool entries', () => {
  const tools = { 'git:push': 'deny', 'git:*': 'ask', git: 'allow', '*': 'deny', read: 'ask' } as const;
  test.each([
    ['git', 'push', 'deny'],
    ['git', 'log', 'ask'],
    ['git', undefined, 'allow'],
    ['read', 'x', 'ask'],
    ['other', undefined, 'deny'],
    ['toString', undefined, 'deny'],
  ])('%s:%s is %s', async (name, operation, expected) => {
    expect((await verdictOn({ tools }, { name, operation })).type).toBe(expected);
  });
  test('a denial names what may be called', async () => {
    const { reason } = (await verdictOn({ tools }, { name: 'git', operation: 'push' })) as { reason: string };
    expect(reason).toBe('the entry "git:push" denies it. Of this tool, "git:*" may be called.');
  });
  test('an allow satisfies an ask of the autonomy rule, and of no other rule', async () => {
    const allow: PolicyRules = { tools: { act: 'allow' }, commands: { ask: ['make'] } };
    expect(await briefly(allow, { touches: [WRITE] })).toBe('allow tools');
    expect(await briefly(allow, { touches: [UNKNOWN] })).toBe('allow tools');
    expect(await briefly(allow, { touches: [COMMAND] })).toBe('ask commands');
    expect(await briefly({ ...allow, autonomy: 0 }, { touches: [WRITE] })).toBe('deny autonomy');
  });
});

describe('rates', () => {
  const context = (subject?: string, tenant = 'acme') => ({
    runId: 'r',
    turn: 1,
    context: undefined,
    signal: new AbortController().signal,
    ...(subject !== undefined && { principal: { subject, tenant, scopes: ['tools:execute'] } }),
  });
  const harmless = (count: number): JudgedCall[] => Array.from({ length: count }, () => callOf({}));
  const types = (verdicts: readonly Verdict[]): string =>
    verdicts.map(({ type, rule }) => (type === 'allow' ? '+' : rule === 'rate' ? '-' : '?')).join('');

  test('a burst is limited per second, a run of calls per minute, and both recover as the clock moves', async () => {
    let now = 1_000_000;
    const made = policy({ rate: { second: 3, minute: 5 } }, { clock: { now: () => now } });
    const judge = async (count: number): Promise<string> => types(await made.judge(harmless(count), context()));
    expect(await judge(4)).toBe('+++-');
    now += 999;
    expect(await judge(1)).toBe('-');
    now += 1;
    expect(await judge(1)).toBe('-'); // the minute: 5 calls, with those that were denied
    now += 59_000;
    expect(await judge(1)).toBe('+'); // the four of the first second are a minute old
    expect(await judge(3)).toBe('++-');
  });
  test('the defaults are 10 in a second and 60 in a minute', async () => {
    let now = 0;
    const made = policy({}, { clock: { now: () => now } });
    expect(types(await made.judge(harmless(11), context()))).toBe(`${'+'.repeat(10)}-`);
    for (let second = 1; second <= 4; second++) {
      now += 1000;
      expect(types(await made.judge(harmless(10), context()))).toBe('+'.repeat(10));
    }
    now += 1000;
    expect(types(await made.judge(harmless(10), context()))).toBe('+++++++++-');
  });
  test('subjects of different tenants are counted apart, also if they have the same name', async () => {
    const made = policy({ rate: { second: 2 } }, { clock: { now: () => 0 } });
    expect(types(await made.judge(harmless(3), context('ann', 'acme')))).toBe('++-');
    expect(types(await made.judge(harmless(3), context('ann', 'blue')))).toBe('++-');
    expect(types(await made.judge(harmless(3), context('bob', 'acme')))).toBe('++-');
    expect(types(await made.judge(harmless(3), context()))).toBe('++-');
  });
  test('policies with one store share the rates, and one that recorded rules made does not count', async () => {
    const rates = memoryRates();
    const clock = { now: (): number => 0 };
    const [one, two] = [
      policy({ rate: { second: 2 } }, { rates, clock }),
      policy({ rate: { second: 2 } }, { rates, clock }),
    ];
    expect(types(await one.judge(harmless(1), context()))).toBe('+');
    expect(types(await one.withRules({ rate: { second: 0 } }).judge(harmless(5), context()))).toBe('+++++');
    expect(types(await two.judge(harmless(2), context()))).toBe('+-');
  });
  test('a denied call counts, and 0 denies all', async () => {
    const made = policy({ rate: { second: 2 }, tools: { act: 'deny' } }, { clock: { now: () => 0 } });
    expect(types(await made.judge(harmless(3), context()))).toBe('??-');
    expect(types(await policy({ rate: { minute: 0 } }).judge(harmless(1), context()))).toBe('-');
  });
  test('calls of a program wait for configured rates, and the defaults are not for them', async () => {
    const clock = manualClock();
    const made = policy({ rate: { second: 2, minute: 4 }, autonomy: 3 }, { clock });
    const acts = (count: number): JudgedCall[] =>
      Array.from({ length: count }, () => callOf({ touches: [{ type: 'unknown' }] }));
    const of = { ...context(), program: true } as const;
    const started = clock.now();
    const waited = Promise.resolve(made.judge([...acts(3), ...harmless(5), ...acts(2)], of));
    for (const seconds of [1, 59]) await clock.advance(seconds * 1_000);
    expect(types(await waited)).toBe('+'.repeat(10));
    expect(clock.now() - started).toBe(60_000);
    expect(types(await made.judge(acts(2), context()))).toBe('+-');

    expect(types(await policy({ autonomy: 3 }, { clock }).judge(acts(200), of))).toBe('+'.repeat(200));
    const aborted = { ...of, signal: AbortSignal.abort() };
    expect(types(await made.judge(acts(1), aborted))).toBe('-');
    expect(types(await policy({ rate: { minute: 0 }, autonomy: 3 }).judge(acts(1), of))).toBe('-');
    expect(made.limits(0, { program: true })).toEqual({});
  });
  test('a clock that was set back does not lock a subject out', async () => {
    let now = 1_000_000;
    const made = policy({ rate: { second: 1, minute: 1 } }, { clock: { now: () => now } });
    await made.judge(harmless(1), context());
    now = 0;
    expect(types(await made.judge(harmless(1), context()))).toBe('+');
  });
  test('calls of processes whose clocks differ by less than a minute count', async () => {
    let now = 70_000;
    const made = policy({ rate: { second: 3, minute: 3 } }, { clock: { now: () => now } });
    for (const [time, expected] of [
      [70_000, '+'],
      [69_999, '+'],
      [11_000, '+'],
      [70_001, '-'],
      [131_500, '+'],
    ] as const) {
      now = time;
      expect(types(await made.judge(harmless(1), context()))).toBe(expected);
    }
  });
  test('many subjects do not fill the memory', async () => {
    const rates = memoryRates();
    for (let subject = 0; subject < 5000; subject++) await rates.add(`s${subject}`, subject * 1000, 1, 60);
    expect(await rates.add('s0', 5_000_000, 1, 60)).toEqual([]);
  });
});

describe('facts', () => {
  test('an analyser that throws, rejects or returns something else denies the call', async () => {
    for (const path of [
      () => {
        throw new Error('no disk');
      },
      () => Promise.reject(new Error('no disk')),
      () => undefined as never,
      () => ({ path: 7 }) as never,
    ]) {
      const verdict = await verdictOn({ autonomy: 3 }, { touches: [READ] }, { analysers: { path } });
      expect(verdict).toMatchObject({
        type: 'deny',
        rule: 'facts',
        reason: expect.stringContaining('could not be found out'),
      });
    }
  });
  test('a malformed touch denies the call', async () => {
    for (const touch of [null, {}, { type: 'read' }, { type: 'write', path: 7 }, 'read']) {
      expect(await verdictOn({ autonomy: 3 }, { touches: [touch as never] })).toMatchObject({
        type: 'deny',
        rule: 'facts',
      });
    }
  });
});

describe('approvals', () => {
  test('apply to every ask', async () => {
    const approvals = { minutes: 5, required: 2, approvers: ['ann', 'bob'] };
    expect(await verdictOn({ approvals }, { touches: [WRITE] })).toMatchObject({
      type: 'ask',
      ttlMs: 300_000,
      required: 2,
      approvers: ['ann', 'bob'],
    });
  });
  test('a grant for the run does not answer an ask of another rule than autonomy', async () => {
    expect(await verdictOn({}, { touches: [WRITE] })).not.toHaveProperty('eachTime');
    expect(await verdictOn({ tools: { act: 'ask' } }, { touches: [WRITE] })).toMatchObject({
      rule: 'tools',
      eachTime: true,
    });
  });
});

test('malformed rules are refused with the key, what was found and what would be right', () => {
  expect(() => policy({ autonomy: 4 } as never)).toThrow(
    'The rules of the policy are malformed: autonomy is 4. It must be one of 0, 1, 2, 3.',
  );
  expect(() => policy({}).withRules({ tools: { a: 'maybe' } })).toThrow('tools.a is "maybe"');
});
