import type { Effect, Event } from '@treadle/core';

/** Every type. A new one fails to compile here, and then fails the tests that require all of them. */
const EVENTS: Record<Event['type'], true> = {
  'run-started': true,
  'run-forked': true,
  'turn-prepared': true,
  'input-added': true,
  'tools-changed': true,
  'narrowing-lifted': true,
  'resource-opened': true,
  'resource-closed': true,
  'model-replied': true,
  'model-failed': true,
  'calls-judged': true,
  'policy-changed': true,
  'call-rejudged': true,
  'program-changed': true,
  'child-started': true,
  'tool-settled': true,
  'tool-parked': true,
  'questions-asked': true,
  'question-answered': true,
  'approval-given': true,
  'client-result-given': true,
  'output-checked': true,
  'guardrails-checked': true,
  'history-compacted': true,
  'effect-lost': true,
  'budget-escalated': true,
  'budget-refused': true,
  'deadline-passed': true,
  'cancel-requested': true,
};

const EFFECTS: Record<Effect['type'], true> = {
  'call-model': true,
  'prepare-turn': true,
  'compact-history': true,
  'validate-output': true,
  'judge-calls': true,
  'check-guardrails': true,
  'call-tool': true,
  'verify-tool': true,
  'ask-approval': true,
  'await-client': true,
};

export const EVENT_TYPES: readonly string[] = Object.keys(EVENTS).toSorted();
export const EFFECT_TYPES: readonly string[] = Object.keys(EFFECTS).toSorted();
