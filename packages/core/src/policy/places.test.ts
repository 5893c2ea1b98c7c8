import { describe, expect, test } from 'vitest';
import type { Analysers } from './facts.ts';
import { policy } from './policy.ts';
import type { Place, Touch } from './port.ts';
import type { PolicyRules } from './rules.ts';

/* Touches at other places than this machine, and the lists of devices and sessions. */

const PI: Place = { type: 'device', name: 'pi' };
const BUILD: Place = { type: 'ssh', name: 'build' };

/** The analysers of this machine, which must not be asked about another place. */
const HERE: Analysers = {
  path: (path) => {
    if (path.includes('there')) throw new Error('looked up on this machine');
    return { path: `/here/${path}` };
  },
  command: (command) => {
    if (command.includes('there')) throw new Error('analysed on this machine');
    return { programs: [{ name: command, args: [] }], touches: [], urls: [] };
  },
};

const KNOWN: Analysers = {
  ...HERE,
  place: ({ name }) => (name === 'pi' ? { folder: '/users/pi/work', home: '/users/pi' } : undefined),
};

async function judged(rules: PolicyRules, touches: readonly Touch[], analysers: Analysers = HERE): Promise<string> {
  const { verdict, rule } = await policy(rules, { folder: '/here', home: '/users/me', analysers }).explain({
    name: 'act',
    touches,
  });
  return `${verdict.type} by ${rule}`;
}

const EVERYTHING: PolicyRules = {
  autonomy: 3,
  paths: { read: ['**', '/**'], write: ['**', '/**'] },
  commands: { allow: ['ls', 'there'] },
  domains: { allow: ['*', 'localhost'] },
  devices: { allow: ['*', 'ssh:*'] },
  tools: { '*': 'allow' },
};

describe('a place of which nobody knows the facts', () => {
  test.each<[Touch, string]>([
    [{ type: 'read', path: 'there.txt', on: PI }, 'ask by paths'],
    [{ type: 'read', path: '/there/a', on: BUILD }, 'ask by paths'],
    [{ type: 'write', path: 'there.txt', on: PI }, 'ask by paths'],
    [{ type: 'command', command: 'there', on: PI }, 'ask by commands'],
    [{ type: 'command', command: 'ls', on: PI }, 'ask by commands'],
    [{ type: 'url', url: 'https://docs.example.com/', on: PI }, 'ask by domains'],
    [{ type: 'url', url: 'http://localhost:8080/', on: PI }, 'ask by domains'],
    [{ type: 'read', path: '/there/.env', on: PI }, 'deny by paths'],
    [{ type: 'read', path: '/proc/1/environ', on: PI }, 'deny by paths'],
  ])('is never judged by the lists alone: %j', async (touch, verdict) => {
    expect(await judged(EVERYTHING, [touch])).toBe(verdict);
    const elsewhere = await policy(EVERYTHING, { analysers: HERE }).explain({ name: 'act', touches: [touch] });
    expect(elsewhere.verdict).toMatchObject(verdict.startsWith('ask') ? { eachTime: true } : { type: 'deny' });
  });

  test('is judged by what denies its text', async () => {
    const denying: PolicyRules = { autonomy: 3, commands: { deny: ['reboot'] }, domains: { deny: ['bad.example'] } };
    expect(await judged(denying, [{ type: 'command', command: 'reboot now', on: PI }])).toBe('deny by commands');
    expect(await judged(denying, [{ type: 'url', url: 'https://bad.example/', on: PI }])).toBe('deny by domains');
    const home: PolicyRules = { autonomy: 3, paths: { deny: ['~/private/**'], read: ['~/**'] } };
    expect(await judged(home, [{ type: 'read', path: '/users/pi/private/a', on: PI }])).toBe('deny by paths');
    expect(await judged(home, [{ type: 'read', path: '/users/me/a', on: PI }])).toBe('ask by paths');
  });

  test('has the call denied if its facts cannot be found out', async () => {
    const failing: Analysers = { place: () => Promise.reject(new Error('offline')) };
    expect(await judged(EVERYTHING, [{ type: 'read', path: 'a', on: PI }], failing)).toBe('deny by facts');
    const malformed: Analysers = { place: () => ({ folder: 'work' }) };
    expect(await judged(EVERYTHING, [{ type: 'read', path: 'a', on: PI }], malformed)).toBe('deny by facts');
  });
});

describe('a place that is known', () => {
  const rules: PolicyRules = {
    autonomy: 2,
    paths: { write: ['src/**', '~/notes/**'] },
    commands: { allow: ['make all'] },
    devices: { allow: ['pi'] },
  };

  test.each<[Touch, string]>([
    [{ type: 'read', path: 'there.txt', on: PI }, 'allow by devices'],
    [{ type: 'read', path: '/here/a', on: PI }, 'ask by autonomy'],
    [{ type: 'read', path: '.env', on: PI }, 'deny by paths'],
    [{ type: 'write', path: 'src/a', on: PI }, 'allow by devices'],
    [{ type: 'write', path: '/users/pi/notes/a', on: PI }, 'allow by devices'],
    [{ type: 'write', path: '/here/src/a', on: PI }, 'ask by autonomy'],
    [{ type: 'write', path: '/users/me/notes/a', on: PI }, 'ask by autonomy'],
    [{ type: 'command', command: 'make all', on: PI }, 'allow by devices'],
    [{ type: 'command', command: 'make clean', on: PI }, 'ask by autonomy'],
  ])('is judged by its own folders: %j', async (touch, verdict) => {
    expect(await judged(rules, [touch], KNOWN)).toBe(verdict);
  });

  test('is asked about unless a list names it', async () => {
    const { devices: _, ...unlisted } = rules;
    const touch: Touch = { type: 'read', path: 'a', on: PI };
    expect(await judged(unlisted, [touch], KNOWN)).toBe('ask by autonomy');
    expect(await judged({ ...unlisted, autonomy: 1 }, [touch], KNOWN)).toBe('ask by autonomy');
    expect(await judged({ ...rules, autonomy: 1 }, [touch], KNOWN)).toBe('allow by devices');
    expect(await judged({ ...rules, autonomy: 0 }, [touch], KNOWN)).toBe('deny by autonomy');
    expect(await judged({ ...rules, devices: { deny: ['pi'] } }, [touch], KNOWN)).toBe('deny by devices');
  });
});

describe('devices and sessions', () => {
  const device = (name: string): Touch => ({ type: 'device', device: name });
  const session = (name: string): Touch => ({ type: 'session', session: name });

  test.each([1, 2] as const)('at level %d are asked about unless a list allows them', async (autonomy) => {
    expect(await judged({ autonomy }, [device('pi')])).toBe('ask by autonomy');
    expect(await judged({ autonomy }, [session('s')])).toBe('ask by autonomy');
    expect(await judged({ autonomy, devices: { allow: ['pi'] } }, [device('pi')])).toBe('allow by devices');
    expect(await judged({ autonomy, devices: { allow: ['pi'] } }, [device('Pi')])).toBe('ask by autonomy');
    expect(await judged({ autonomy, sessions: { allow: ['s'] } }, [session('s')])).toBe('allow by sessions');
    const listed: PolicyRules = { autonomy, devices: { allow: ['pi'] }, sessions: { allow: ['s'] } };
    expect(await judged(listed, [device('pi'), session('t')])).toBe('ask by autonomy');
    expect(await judged(listed, [device('pi'), device('other')])).toBe('ask by autonomy');
    expect(await judged(listed, [device('pi'), { type: 'unknown' }])).toBe('ask by autonomy');
  });

  test.each<[string, string]>([
    ['pi', 'allow by devices'],
    ['pi-2', 'ask by devices'],
    ['pi-20', 'deny by devices'],
    ['PI-20', 'deny by devices'],
    ['phone', 'ask by autonomy'],
    ['ssh:build', 'ask by autonomy'],
  ])('the most specific entry decides about %s', async (name, verdict) => {
    const devices = { allow: ['pi', 'pi-20', 'ssh:build'], ask: ['pi-*'], deny: ['pi-20'] };
    expect(await judged({ autonomy: 2, devices }, [device(name)])).toBe(verdict);
  });

  test('other places are named by their type', async () => {
    const on = (place: Place): Touch => ({ type: 'session', session: 's', on: place });
    const rules: PolicyRules = { autonomy: 2, devices: { allow: ['*', 'ssh:build'] }, sessions: { allow: ['*'] } };
    expect(await judged(rules, [on(BUILD)])).toBe('allow by sessions');
    expect(await judged(rules, [on({ type: 'ssh', name: 'prod' })])).toBe('ask by autonomy');
    expect(await judged(rules, [on({ type: 'container', name: 'build' })])).toBe('ask by autonomy');
    expect(await judged(rules, [on({ type: 'device', name: 'ssh:prod' })])).toBe('allow by sessions');
  });
});

test('writes at different places are different files', async () => {
  const rules: PolicyRules = { autonomy: 1, devices: { allow: ['*'] } };
  const written = Array.from({ length: 10 }, (_, index) => `${index}`);
  const reason = async (touches: readonly Touch[]): Promise<unknown> =>
    (await policy(rules).explain({ name: 'act', touches }, { written })).verdict;
  expect(await reason([{ type: 'write', path: '0' }])).toMatchObject({ type: 'ask' });
  expect(await reason([{ type: 'write', path: '0', on: PI }])).toMatchObject({ type: 'deny', rule: 'autonomy' });
});

test('an explanation shows places, amounts and promises', async () => {
  const { rules } = await policy({ autonomy: 2 }, { analysers: KNOWN }).explain({
    name: 'act',
    touches: [
      { type: 'write', path: 'src/a', lines: 1, on: PI },
      { type: 'url', url: 'https://a.example/', bytes: 12, on: PI },
      { type: 'command', command: 'make all', on: BUILD },
      { type: 'session', session: 's', on: PI },
    ],
    sandbox: ['network', 'root'],
  });
  const saw = Object.fromEntries(rules.map((one) => [one.rule, one.saw]));
  expect(saw).toMatchObject({
    autonomy:
      'level 2 (bounded); it would run "make all" on the ssh host "build", inside a sandbox that promises network, root',
    commands: '"make all on the ssh host \\"build\\""',
    paths: 'write "/users/pi/work/src/a" on the device "pi" (1 line)',
    domains: 'https to a.example port 443 (12 bytes) on the device "pi"',
    devices: 'the device "pi", the ssh host "build"',
    sessions: 'the session "s" on the device "pi"',
  });
});
