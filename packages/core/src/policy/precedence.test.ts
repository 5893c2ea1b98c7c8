import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Analysers } from './facts.ts';
import { gatherFacts, textAnalysers } from './gather.ts';
import { compileRules, evaluate, policy } from './policy.ts';
import type { JudgeContext, JudgedCall } from './port.ts';
import { ALLOWED, type Rule, type RuleName } from './rule.ts';
import type { PolicyRules } from './rules.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

/*
 * The order of the rules and what wins, against a reference that knows nothing of the code: each rule is configured so that its
 * opinion is known in advance, and the table below decides.
 */

type Opinion = 'none' | 'allow' | 'ask' | 'deny';

interface World {
  readonly level: 0 | 1 | 2 | 3;
  readonly allowed: Opinion;
  readonly rate: Opinion;
  readonly scopes: Opinion;
  readonly permissions: Opinion;
  readonly commands: Opinion;
  readonly paths: Opinion;
  /** Asks only below level 3. */
  readonly private: Opinion;
  readonly domains: Opinion;
  readonly devices: Opinion;
  readonly sessions: Opinion;
  /** What the rule about what the run has seen says, which knows no `allow`. */
  readonly exposure: Opinion;
  readonly tools: Opinion;
  /** The form of the entry for the tool. */
  readonly entry: 'act:go' | 'act:*' | 'act' | '*';
}

const opinion = (...all: Opinion[]): fc.Arbitrary<Opinion> => fc.constantFrom(...all);

const worlds: fc.Arbitrary<World> = fc.record({
  level: fc.constantFrom(0, 1, 2, 3),
  // Mostly without an opinion, so that later rules are reached.
  allowed: opinion('none', 'none', 'allow', 'allow', 'deny'),
  rate: opinion('allow', 'allow', 'allow', 'deny'),
  scopes: opinion('none', 'none', 'allow', 'allow', 'deny'),
  permissions: opinion('allow', 'allow', 'allow', 'deny'),
  commands: opinion('none', 'allow', 'allow', 'ask', 'deny'),
  paths: opinion('none', 'allow', 'allow', 'allow', 'deny'),
  private: opinion('none', 'none', 'ask'),
  domains: opinion('none', 'allow', 'allow', 'ask', 'deny'),
  devices: opinion('none', 'allow', 'allow', 'allow', 'ask', 'deny'),
  sessions: opinion('none', 'allow', 'allow', 'allow', 'ask', 'deny'),
  exposure: opinion('none', 'none', 'none', 'ask', 'deny'),
  tools: opinion('none', 'allow', 'allow', 'ask', 'deny'),
  entry: fc.constantFrom('act:go', 'act:*', 'act', '*'),
});

/** Weaker entries say something else, and must not matter. */
function entriesOf({ tools, entry }: World): NonNullable<PolicyRules['tools']> {
  const other = tools === 'deny' ? 'allow' : 'deny';
  if (tools === 'none') return { 'other:go': other, other };
  const weaker = ['act:go', 'act:*', 'act', '*'].slice(['act:go', 'act:*', 'act', '*'].indexOf(entry) + 1);
  return { ...Object.fromEntries(weaker.map((one) => [one, other])), [entry]: tools };
}

function listsOf(wanted: Opinion, exact: string, wide: string): { readonly [list: string]: readonly string[] } {
  if (wanted === 'none') return {};
  const other = wanted === 'deny' ? 'allow' : 'deny';
  return { [wanted]: [exact], [other]: [wide] };
}

function rulesOf(world: World): PolicyRules {
  const { level, permissions, commands, paths, domains, devices, sessions, rate } = world;
  return {
    autonomy: level,
    rate: { second: rate === 'deny' ? 0 : 1000, minute: rate === 'deny' ? 0 : 1000 },
    permissions: { network: permissions !== 'deny', git: false },
    commands: listsOf(commands, 'make all', 'make'),
    paths: paths === 'none' ? {} : { write: ['**'], ...(paths === 'deny' && { deny: ['out/**'] }) },
    ...(world.private === 'ask' && { private: { paths: ['docs/**'] } }),
    domains: listsOf(domains, 'a.example.com', '*.example.com'),
    devices: listsOf(devices, 'ssh:build', 'ssh:*'),
    sessions: listsOf(sessions, 'main', 'm*'),
    ...(world.exposure === 'deny' && { exposure: 'strict' as const }),
    tools: entriesOf(world),
  };
}

const CALL: JudgedCall = {
  id: 'c',
  name: 'act',
  input: {},
  effect: 'once',
  client: false,
  touches: [
    { type: 'write', path: 'out/a' },
    { type: 'read', path: 'docs/a' },
    { type: 'command', command: 'make all now' },
    { type: 'url', url: 'https://a.example.com/', on: { type: 'ssh', name: 'build' } },
    { type: 'session', session: 'main' },
  ],
  permissions: [],
  operation: 'go',
};

/** What is known about the place that the call uses. */
const KNOWN: Analysers = { place: () => ({ folder: '/b' }) };

function contextOf({ allowed, scopes, exposure }: World): JudgeContext {
  return {
    runId: 'r',
    turn: 1,
    context: undefined,
    signal: new AbortController().signal,
    exposure: { outside: { what: 'a page' }, ...(exposure !== 'none' && { private: { what: 'a key' } }) },
    ...(allowed !== 'none' && { allowed: allowed === 'allow' ? ['act', 'x'] : ['x'] }),
    ...(scopes !== 'none' && {
      principal: {
        subject: 's',
        tenant: 't',
        scopes: scopes === 'allow' ? ['tools:execute:act'] : ['tools:execute:x'],
      },
    }),
  };
}

/** What the issue of the verdict is, by the table. */
function expected(world: World): string {
  const lists = [world.commands, world.paths, world.domains, world.devices, world.sessions];
  const covered = lists.every((one) => one === 'allow');
  const autonomy: Opinion = (['deny', 'ask', covered ? 'allow' : 'ask', 'allow'] as const)[world.level];
  const { allowed, rate, scopes, permissions, commands, paths, domains, devices, sessions, tools } = world;
  const asked: Opinion = world.level === 3 ? 'none' : world.private;
  const { exposure } = world;
  const judged = { commands, paths, private: asked, domains, devices, sessions, exposure };
  const table = Object.entries({ allowed, rate, autonomy, scopes, permissions, ...judged, tools });
  const denying = table.find(([, one]) => one === 'deny');
  if (denying) return `deny by ${denying[0]}`;
  const asking = table.filter(([rule, one]) => one === 'ask' && !(rule === 'autonomy' && tools === 'allow'));
  const other = asking.find(([rule]) => rule !== 'autonomy');
  if (other) return `ask by ${other[0]}`;
  if (asking.length > 0) return 'ask by autonomy';
  return `allow by ${table.findLast(([, one]) => one === 'allow')![0]}`;
}

test('the first denial, then the strictest verdict decides, with the one exception', async () => {
  const seen = new Map<string, number>();
  await fc.assert(
    fc.asyncProperty(worlds, async (world) => {
      const made = policy(rulesOf(world), { clock: { now: () => 0 }, analysers: KNOWN });
      const [verdict] = await made.judge([CALL], contextOf(world));
      const wanted = expected(world);
      seen.set(wanted, (seen.get(wanted) ?? 0) + 1);
      expect(`${verdict!.type} by ${verdict!.rule}`).toBe(wanted);
      const rate = { second: 0, minute: 0 };
      const explained = await made.explain(CALL, { ...contextOf(world), rate });
      expect(explained.verdict).toEqual(verdict);
      const opinions = Object.fromEntries(explained.rules.map(({ rule, verdict: one }) => [rule, one]));
      expect(opinions).toMatchObject({ commands: world.commands, paths: world.paths, tools: world.tools });
    }),
    { numRuns: 2_000 * CASES },
  );
  const lists = ['commands', 'domains', 'devices', 'sessions', 'tools'];
  for (const rule of ['allowed', 'rate', 'autonomy', 'scopes', 'permissions', 'paths', ...lists])
    expect([rule, seen.has(`deny by ${rule}`)]).toEqual([rule, true]);
  expect([seen.has('deny by exposure'), seen.has('ask by exposure')]).toEqual([true, true]);
  for (const rule of ['autonomy', 'private', ...lists]) expect(seen.has(`ask by ${rule}`)).toBe(true);
  for (const rule of ['sessions', 'tools']) expect(seen.has(`allow by ${rule}`)).toBe(true);
});

test('a rule that is added at any place leaves the one exception to the entries for tools', async () => {
  const facts = await gatherFacts(CALL, { ...textAnalysers(undefined), ...KNOWN });
  const added = (opinion: ReturnType<Rule['judge']>): Rule => ({
    name: 'added' as RuleName,
    judge: () => opinion,
    saw: () => 'nothing',
  });
  const verdictWith = (tools: PolicyRules['tools'], rule: Rule, place: number): string => {
    const rules = compileRules({ autonomy: 1, ...(tools && { tools }) }, {}).toSpliced(place, 0, rule);
    const { verdict } = evaluate(rules, facts, {});
    return verdict.type === 'ask' ? `ask by ${verdict.rule}` : verdict.type;
  };
  const places = compileRules({}, {}).length + 1;
  for (let place = 0; place < places; place++) {
    const seen = [
      verdictWith(undefined, added(ALLOWED), place),
      verdictWith({ act: 'ask' }, added(ALLOWED), place),
      verdictWith({ act: 'allow' }, added(ALLOWED), place),
      verdictWith({ act: 'allow' }, added(undefined), place),
      verdictWith({ act: 'allow' }, added({ type: 'ask', reason: 'r' }), place),
      verdictWith({ act: 'allow' }, added({ type: 'deny', reason: 'r' }), place),
    ];
    const wanted = ['ask by autonomy', 'ask by tools', 'allow', 'allow', 'ask by added', 'deny'];
    expect({ place, seen }).toEqual({ place, seen: wanted });
  }
});
