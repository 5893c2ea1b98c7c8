import type { Clock } from '../../clock.ts';
import type { Blobs, Journal } from '../../journal/port.ts';
import type { Model, Settings } from '../../model.ts';
import type { Policy, Principal } from '../../policy/port.ts';
import type { Schema } from '../../tools/schema.ts';
import type { Tool } from '../../tools/tool.ts';
import type { Answer, Item, PrepareTurn } from '../options.ts';
import type { Effect } from '../effects.ts';
import type { Event } from '../events.ts';
import type { CheckedOutput } from '../finish/strategy.ts';
import type { AgentRules, Rules } from '../pinned.ts';
import type { State } from '../state.ts';

/** What effects are performed with: the code that a run was given, and what was pinned when it started. */
export interface Stage {
  readonly runId: string;
  readonly rules: Rules;
  readonly settings: Settings;
  readonly principal: Principal | undefined;
  readonly state: () => State;
  readonly model: Model;
  /** Others that a turn may be given to, by id. */
  readonly models: ReadonlyMap<string, Model>;
  readonly summariser: Model;
  readonly tools: ReadonlyMap<string, Tool>;
  readonly policy: Policy | undefined;
  readonly prepareTurn: PrepareTurn | undefined;
  readonly output: Schema | undefined;
  readonly agent: AgentCode | undefined;
  readonly context: unknown;
  readonly journal: Journal;
  readonly blobs: Blobs | undefined;
  readonly clock: Clock;
  /** Absent when nobody listens. */
  readonly emit: ((item: Item) => unknown) | undefined;
  /** Aborts when everything under way has to stop. */
  readonly signal: AbortSignal;
  /** Effects that were parked when the run was opened. */
  readonly parked: ReadonlySet<string>;
  readonly acceptChangedTools: boolean;
  /** Stops the run: something that it stands on cannot be relied on. */
  readonly fail: (error: unknown) => void;
  /** Answers for what children wait for, by the effect that is parked on them. */
  readonly nested: ReadonlyMap<string, readonly Answer[]>;
}

/** The code of a typed agent. */
export interface AgentCode {
  readonly rules: AgentRules;
  /** Holds an output against the schema and the validators. Never rejects. */
  readonly check: (proposed: Proposed) => Promise<CheckedOutput>;
}

/** An output that is to be checked. */
export interface Proposed {
  /** As JSON. */
  readonly text: string;
  readonly attempt: number;
  /** Those that the run was started with. */
  readonly rules: AgentRules;
  readonly signal: AbortSignal;
}

export type Done = (event: Event) => void;

export type EffectOf<Type extends Effect['type']> = Extract<Effect, { type: Type }>;
