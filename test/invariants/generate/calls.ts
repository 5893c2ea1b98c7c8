import type {
  CallCheck,
  ErrorFacts,
  Memory,
  ProviderData,
  RecordedVerdict,
  ResultBlock,
  SettledResult,
  Touch,
  Usage,
} from '@treadle/core';
import fc, { type Arbitrary } from 'fast-check';
import type { Fate, ScriptedCall, ScriptedQuestion } from '../world.ts';
import { mostly, optionally, rarely } from './chance.ts';
import { NAMES, narrowing } from './rules.ts';

/** In steps, so that limits are reached exactly. Some providers do not report tokens. */
export const usage: Arbitrary<Usage> = fc
  .tuple(mostly(20, 20, fc.constant(0)), fc.nat(2), fc.nat(1), optionally('cost', 93, fc.nat(3)))
  .map(([tokens, inputs, outputs, cost]) => ({
    inputTokens: tokens * inputs,
    outputTokens: tokens * outputs,
    ...cost,
  }));

const content: Arbitrary<readonly ResultBlock[]> = fc.constantFrom(
  [{ type: 'text', text: 'yes' }],
  [{ type: 'text', text: 'no' }],
  [{ type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'about:blank' } }],
  [],
);

const verified: Arbitrary<SettledResult> = fc.oneof(
  fc.constantFrom({ type: 'not-done' } as const, { type: 'unknown' } as const),
  fc.record({ type: fc.constant('result' as const), content, isError: fc.boolean() }),
);

const memory: Arbitrary<Memory> = fc
  .tuple(
    optionally(
      'run',
      70,
      mostly(
        null,
        55,
        fc.nat(3).map((seen) => ({ seen })),
      ),
    ),
    optionally(
      'attempt',
      70,
      fc.nat(3).map((tried) => ({ tried })),
    ),
  )
  .map(([run, attempt]) => ({ ...run, ...attempt }));

const facts: Arbitrary<ErrorFacts> = fc
  .tuple(
    optionally('errorType', 70, fc.constantFrom('timeout', 'not_found', 'permission_denied', 'execution_failed')),
    optionally('exitCode', 50, fc.constantFrom(0, 1, 127)),
    optionally('stderr', 30, fc.constant('no such file')),
  )
  .map((given) => Object.assign({}, ...given) as ErrorFacts)
  .map((made) => (made.stderr === undefined ? made : { ...made, httpStatus: 404, protocolCode: -32_602 }));

export const handoff: Arbitrary<NonNullable<Fate['handoff']>> = fc
  .tuple(
    fc.record({
      agent: fc.constantFrom('clerk', 'boss'),
      model: fc.constantFrom('small', 'large'),
      other: fc.boolean(),
    }),
    optionally('instructions', 70, fc.constantFrom('be a clerk', 'be a boss')),
  )
  .map((given) => Object.assign({}, ...given));

const question: Arbitrary<ScriptedQuestion> = fc
  .tuple(fc.record({ prompt: fc.constantFrom('which?', 'when?') }), optionally('ttlMs', 60, fc.constantFrom(2, 20)))
  .map((given) => Object.assign({}, ...given));

const fate: Arbitrary<Fate> = fc
  .tuple(
    fc.record({
      content,
      isError: mostly(false, 28, fc.constant(true)),
      child: rarely(10),
      parked: rarely(10),
      inside: fc.array(fc.constantFrom('approval', 'client', 'parked'), { maxLength: 2 }),
      asks: mostly(
        [],
        14,
        fc.array(fc.array(question, { minLength: 1, maxLength: 2 }), { minLength: 1, maxLength: 2 }),
      ),
      lost: mostly([], 15, fc.array(fc.constantFrom('restart', 'device'), { minLength: 1, maxLength: 2 })),
      verified,
      answer: mostly('given' as const, 30, fc.constantFrom('refused', 'expired', 'late', 'never')),
      forRun: fc.array(fc.boolean(), { maxLength: 3 }),
    }),
    optionally('usage', 15, usage),
    optionally('memory', 30, memory),
    optionally('narrow', 8, narrowing),
    optionally('facts', 50, facts),
    optionally('handoff', 7, handoff),
    optionally('ttl', 30, fc.nat(40)),
    optionally('wake', 30, fc.nat(40)),
    optionally('outside', 30, fc.constant(true)),
  )
  .map((given) => Object.assign({}, ...given));

export const touch: Arbitrary<Touch> = fc.constantFrom<Touch>(
  { type: 'read', path: '/a' },
  { type: 'write', path: '/a' },
  { type: 'write', path: '/b' },
  { type: 'write', path: '/a', lines: 3 },
  { type: 'write', path: '/a', on: { type: 'device', name: 'pi' } },
  { type: 'read', path: '/a', on: { type: 'ssh', name: 'build' } },
  { type: 'command', command: 'ls' },
  { type: 'unknown' },
);

const sandbox = fc.constantFrom(['network'], ['root'], ['network', 'root']);

const ask: Arbitrary<RecordedVerdict> = fc
  .tuple(
    optionally('ttlMs', 70, fc.nat(60)),
    optionally('reason', 30, fc.constant('may I?')),
    optionally('required', 30, fc.constantFrom(1, 2, 2, 3)),
    optionally('approvers', 25, fc.subarray(['ann', 'bob', 'cid', 'eve'])),
    optionally('shown', 10, fc.constant({ diff: '+1' })),
    optionally('eachTime', 15, fc.constant(true as const)),
  )
  .map((given) => Object.assign({ type: 'ask' as const }, ...given));

const verdict: Arbitrary<RecordedVerdict> = fc
  .tuple(
    fc.oneof(
      { weight: 6, arbitrary: fc.constant({ type: 'allow' as const }) },
      { weight: 1, arbitrary: fc.constant({ type: 'deny' as const, reason: 'no' }) },
      { weight: 4, arbitrary: ask },
    ),
    optionally('rule', 20, fc.constant('paths')),
    optionally('touches', 40, fc.array(touch, { maxLength: 2 })),
    optionally('sandbox', 20, sandbox),
  )
  .map((given) => Object.assign({}, ...given));

const provider: Arbitrary<ProviderData> = fc.constantFrom<ProviderData>(
  { protocol: 'a@host', data: { signature: 'x' } },
  { protocol: 'b@host', data: ['y', null] },
);

export const call: Arbitrary<ScriptedCall> = fc
  .tuple(
    fc.record({
      type: fc.constant('call' as const),
      id: fc.constantFrom('a', 'b', 'c', 'd', 'e', 'f', '', 'call_t2_0', 'call_t3_1'),
      name: mostly('read', 50, fc.constantFrom(...NAMES, ...NAMES, 'nothing', 'no such')),
      arguments: mostly('{}', 50, fc.constantFrom('{"a":1}', '{"a":2}', '{"a":')),
      copies: mostly(1, 1, mostly(1, 30, fc.constant(130))),
      check: fc
        .tuple(
          optionally('problem', 6, fc.constant('It is wrong.')),
          optionally('arguments', 8, fc.constant('{"a":1}')),
          optionally('resources', 40, fc.subarray(['x', 'y', 'z'])),
        )
        .map((found): CallCheck => Object.assign({}, ...found))
        .map((found) => (found.problem && found.resources ? { ...found, errorType: 'not_found' as const } : found)),
      verdict,
      fate,
    }),
    optionally('rejudged', 85, verdict),
    optionally('provider', 15, provider),
  )
  .map((given) => Object.assign({}, ...given));

/** A call that is parked, or executed by the client, often with a deadline. */
export const parkedCall: Arbitrary<ScriptedCall> = fc
  .tuple(
    call,
    fc.constantFrom('read', 'read', 'read', 'write', 'edit'),
    fc.record({
      ttl: fc.constantFrom(undefined, 0, 2, 5, 20, 60, 60),
      lost: mostly<Fate['lost'], Fate['lost']>(
        [],
        70,
        fc.array(fc.constantFrom('parked', 'parked', 'parked', 'device'), { minLength: 1, maxLength: 2 }),
      ),
      answer: mostly('given' as const, 55, fc.constantFrom('expired', 'expired', 'late', 'late', 'never')),
      outside: fc.boolean(),
      verifyParks: rarely(50),
      verified: mostly<Fate['verified'], Fate['verified']>({ type: 'not-done' }, 30, verified),
      inside: mostly<Fate['inside'], Fate['inside']>([], 15, fc.constant(['client'])),
    }),
  )
  .map(([some, name, { ttl, ...fated }]) => {
    const { ttl: _, ...plain } = some.fate;
    return {
      ...some,
      name,
      check: {},
      copies: 1,
      fate: { ...plain, ...fated, ...(ttl !== undefined && { ttl }), child: false, parked: true },
    };
  });

/** A call that people have to approve, and mostly do, often for the rest of the run. */
export const askedCall: Arbitrary<ScriptedCall> = fc
  .tuple(
    call,
    ask,
    optionally('touches', 60, fc.array(touch, { maxLength: 1 })),
    optionally('sandbox', 12, sandbox),
    rarely(30),
  )
  .map(([some, asked, touched, walled, other]) => ({
    ...some,
    name: other ? 'write' : 'read',
    check: {},
    copies: 1,
    verdict: Object.assign({}, asked, touched, walled),
    fate: { ...some.fate, answer: 'given', forRun: [!other, true, true] },
  }));
