import type { Event } from '@treadle/core';

const KINDS = ['prepare', 'model', 'compact', 'validate', 'guard', 'judge', 'tool', 'verify', 'approval', 'client'];
const GARBAGE = [
  '',
  '0',
  '.',
  't1',
  't1.tool',
  't1.tool.',
  't1.tool.00',
  't1.tool.-1',
  't1.tool.1e9',
  '__proto__',
  'length',
];

/** Ids of every kind for the same call and turn and for the next ones, and strings that are not ids. */
export function idsNear(id: string): readonly string[] {
  const [turn, , index] = id.split('.');
  const next = `t${Number(turn?.slice(1)) + 1}`;
  return KINDS.flatMap((kind) => [
    `${turn}.${kind}.${index}`,
    `${turn}.${kind}.${Number(index) + 1}`,
    `${next}.${kind}.0`,
  ]).concat(GARBAGE);
}

/** One event of every type that has an effect id. */
export function eventsWithId(effect: string, at: number, digest: string): readonly Event[] {
  const usage = { inputTokens: 1, outputTokens: 1, cost: 1 };
  return [
    { type: 'tool-settled', at, effect, result: { type: 'result', content: [], isError: false } },
    { type: 'tool-settled', at, effect, result: { type: 'not-done' } },
    { type: 'tool-settled', at, effect, result: { type: 'unknown' } },
    { type: 'child-started', at, effect },
    { type: 'tool-parked', at, effect, on: 'elsewhere' },
    { type: 'tool-parked', at, effect, on: 'elsewhere', expiresAt: at + 5, wakeAt: at },
    { type: 'questions-asked', at, effect, questions: [{ key: '#0', question: { prompt: 'foreign' } }] },
    { type: 'question-answered', at, effect, question: 0, value: 'foreign' },
    { type: 'question-answered', at, effect, question: 1, value: 'foreign' },
    { type: 'deadline-passed', at, effect, question: 0 },
    { type: 'client-result-given', at, effect, content: [], isError: true },
    { type: 'approval-given', at, effect, digest, approved: true },
    { type: 'approval-given', at, effect, digest: '', approved: true },
    { type: 'deadline-passed', at, effect },
    { type: 'effect-lost', at, effect, cause: 'device' },
    { type: 'effect-lost', at, effect, cause: 'parked' },
    { type: 'budget-refused', at, effect, reason: 'foreign' },
    { type: 'call-rejudged', at, effect, verdict: { type: 'allow' } },
    { type: 'call-rejudged', at, effect },
    { type: 'budget-escalated', at, effect, reason: 'foreign' },
    { type: 'budget-escalated', at, effect, reason: 'foreign', question: { prompt: '?', choices: ['yes'] } },
    { type: 'calls-judged', at, effect, verdicts: [{ type: 'allow' }] },
    { type: 'guardrails-checked', at, effect, verdicts: [{ type: 'pass' }] },
    { type: 'turn-prepared', at, effect, decision: {} },
    { type: 'history-compacted', at, effect, result: { type: 'summary', summary: 'foreign', model: '', usage } },
    { type: 'output-checked', at, effect, result: { type: 'valid', value: 'foreign' } },
    { type: 'output-checked', at, effect, result: { type: 'invalid', problems: [], prompt: 'foreign' } },
    { type: 'model-failed', at, effect, error: { code: 'auth', message: '', retryable: false } },
    {
      type: 'model-failed',
      at,
      effect,
      error: { code: 'program-failed', message: '', retryable: false, endsWith: 'foreign' },
    },
    {
      type: 'model-replied',
      at,
      effect,
      content: [{ type: 'text', text: 'foreign' }],
      finish: 'stop',
      usage,
      model: '',
      checks: [],
    },
  ];
}
