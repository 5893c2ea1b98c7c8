import type { ToolChoice } from '../model.ts';
import type { History } from './history.ts';
import type { ToolFacts } from './pinned.ts';
import type { Call } from './state.ts';

/** Something for the shell to do. Each settles by exactly one event that bears its id. */
export type Effect =
  | {
      readonly type: 'call-model';
      readonly id: string;
      readonly turn: number;
      readonly toolChoice: ToolChoice;
      readonly history: History;
      readonly tools: readonly ToolFacts[];
      readonly instructions: string | undefined;
      /** Absent: the run's own. */
      readonly model: string | undefined;
    }
  | { readonly type: 'prepare-turn'; readonly id: string; readonly turn: number; readonly history: History }
  /** Messages `from` up to `to`, which are whole turns, are to be summarised. */
  | {
      readonly type: 'compact-history';
      readonly id: string;
      readonly history: History;
      readonly from: number;
      readonly to: number;
    }
  /** `attempt`: of a typed agent, whose output the text is as JSON. */
  | { readonly type: 'validate-output'; readonly id: string; readonly text: string; readonly attempt?: number }
  | { readonly type: 'judge-calls'; readonly id: string; readonly calls: readonly Call[] }
  | { readonly type: 'call-tool'; readonly id: string; readonly call: Call }
  | { readonly type: 'verify-tool'; readonly id: string; readonly call: Call }
  | {
      readonly type: 'ask-approval';
      readonly id: string;
      readonly call: Call;
      readonly digest: string;
      readonly expiresAt: number;
      readonly reason?: string;
    }
  | { readonly type: 'await-client'; readonly id: string; readonly call: Call };
