import type { Event, RecordedVerdict } from '@treadle/core';
import type { CallDecision } from './wire.ts';

/** What is known about the decision on a call. */
export interface Judged {
  readonly rule: string | null;
  /** How many people have to approve. Absent: nobody is asked. */
  readonly required?: number;
  readonly by: readonly string[];
  readonly approvals: number;
}

/**
 * Who decided about the calls of a turn, from the verdicts and approvals in the journal.
 *
 * 1. A call has a decision if people were asked about it, or if the policy denied it. Other calls have none.
 * 2. A later decision replaces an earlier one: other rules may deny a call that was approved and has not started.
 */
export interface CallDecisions {
  /** The decisions that follow from an event. `open`: the positions of the calls without a result. */
  add(event: Event, open: () => readonly number[]): readonly Decided[];
  /** The call runs. Returns a decision if people had been asked, and what they allowed before has answered it. */
  started(index: number): CallDecision | undefined;
}

/** The position of a call in its reply, and the decision on it. */
type Decided = readonly [index: number, decision: CallDecision];

const NONE: readonly Decided[] = [];

/** `judged`: the calls of the turn so far, by their positions in the reply. */
export function callDecisions(judged: Map<number, Judged> = new Map()): CallDecisions {
  function decide(index: number, approved: boolean, source: CallDecision['source'], reason?: string): CallDecision {
    const { rule = null, by = [] } = judged.get(index) ?? {};
    judged.delete(index);
    return { approved, source, by, rule, reason: reason ?? null };
  }

  function judge(index: number, verdict: RecordedVerdict | undefined): readonly Decided[] {
    if (verdict?.type === 'allow') return NONE;
    const before = judged.get(index);
    const rule = verdict?.rule ?? before?.rule ?? null;
    const required = verdict?.type === 'ask' && { required: Math.max(verdict.required ?? 1, before?.required ?? 1) };
    judged.set(index, { rule, by: before?.by ?? [], approvals: before?.approvals ?? 0, ...required });
    return verdict?.type === 'ask' ? NONE : [[index, decide(index, false, 'policy', verdict?.reason)]];
  }

  return {
    add(event, open) {
      switch (event.type) {
        case 'model-replied':
          judged.clear();
          return NONE;
        case 'calls-judged':
          // Only calls that can run are judged, in order. A missing verdict is a denial.
          return open().flatMap((index, position) => judge(index, event.verdicts[position]));
        case 'policy-changed':
          return Object.entries(event.verdicts ?? {}).flatMap(([effect, verdict]) => judge(indexIn(effect), verdict));
        case 'call-rejudged': {
          const index = indexIn(event.effect);
          const one = judged.get(index);
          // People are asked again.
          if (one) judged.set(index, { ...one, by: [], approvals: 0 });
          return judge(index, event.verdict);
        }
        case 'approval-given': {
          const index = indexIn(event.effect);
          const one = judged.get(index);
          if (!one) return NONE;
          const { approved, by, reason } = event;
          const approvals = one.approvals + 1;
          judged.set(index, { ...one, by: by === undefined ? one.by : [...one.by, by], approvals });
          if (approved && approvals < (one.required ?? 1)) return NONE;
          return [[index, decide(index, approved, 'person', reason)]];
        }
        case 'deadline-passed': {
          const index = event.effect?.includes('.approval.') ? indexIn(event.effect) : -1;
          return judged.has(index) ? [[index, decide(index, false, 'deadline')]] : NONE;
        }
        default:
          return NONE;
      }
    },
    started: (index) => (judged.has(index) ? decide(index, true, 'person') : undefined),
  };
}

/** The position of the call of an effect: the last part of its id. */
function indexIn(effect: string): number {
  return Number(effect.slice(effect.lastIndexOf('.') + 1));
}
