import type {
  AgentRules,
  AgentState,
  AssistantPart,
  Call,
  CallCheck,
  CancelPhase,
  Effect,
  Event,
  History,
  Journal,
  JournalEntry,
  Lease,
  Limit,
  Limits,
  Message,
  Next,
  Outcome,
  Phase,
  Rules,
  Settling,
  Slot,
  Snapshot,
  State,
  ToolCall,
  ToolFacts,
  ToolMessage,
  Verdict,
  Waiting,
} from '@treadle/core';

/**
 * The functions of the core that faults replace, by their address (see `declarationOf`), with the part of their types
 * that faults need. Renaming a function of the core means renaming it here and where a fault names it.
 */
export interface CoreFunctions {
  // Which events apply.
  readonly fits: (state: State, event: Event) => boolean;
  readonly isLive: (state: State) => boolean;
  readonly activeMsAt: (state: State, at: number) => number;

  // What an event changes.
  readonly apply: (state: State, event: Event) => Next;
  readonly timed: (state: State, event: Event) => State;
  readonly prepared: (state: State, event: EventOf<'turn-prepared'>) => Next;
  readonly summarised: (state: State, event: EventOf<'history-compacted'>) => Next;
  readonly 'reply:failed': (state: State, event: EventOf<'model-failed'>) => Next;
  readonly 'reply:checked': (state: State, event: EventOf<'output-checked'>) => Next;
  readonly answered: (state: State, content: readonly AssistantPart[]) => Next;
  readonly unheard: (state: State, move: Move) => State;
  readonly answeredBy: (result: CheckedOutput, slot: Slot, state: State) => Slot;
  readonly called: (state: State, calls: readonly ToolCall[], checks: readonly CallCheck[]) => Next;
  readonly judged: (state: State, event: EventOf<'calls-judged'>) => Next;
  readonly underVerdict: (state: State, slot: Slot, verdict: Verdict | undefined, at: number) => Slot;
  readonly changed: (state: State, effect: string, event: SlotEvent) => Next;
  readonly charged: (state: State, event: SlotEvent) => State;
  readonly moved: (state: State, slot: Slot, event: SlotEvent) => Slot;
  readonly 'slots:lost': (state: State, effect: string) => Next;
  readonly cancelPhase: (state: State) => CancelPhase;

  // How a turn starts, continues and ends.
  readonly startTurn: (state: State) => Next;
  readonly meetLimit: (state: State, limit: Limit) => Next;
  readonly askModel: (state: State) => Next;
  readonly end: (state: State, outcome: Outcome) => Next;
  readonly advance: (state: State, slots: readonly Slot[]) => Next;
  readonly resultsOf: (slots: readonly SettledSlot[]) => ToolMessage;
  readonly breakOff: (state: State, outcome: Outcome, why: string) => Next;
  readonly errorsAfter: (errors: number, slots: readonly SettledSlot[]) => number;

  // Which calls run, and when.
  readonly plan: (state: State, calls: readonly ToolCall[], checks: readonly CallCheck[]) => readonly Slot[];
  readonly claimed: (state: State, call: Call, check: CallCheck, claim: Claim) => Slot;
  readonly refusalOf: (state: State, candidate: Candidate) => [string, Settling] | undefined;
  readonly isAllowed: (state: State, name: string) => boolean;
  readonly isRepeated: (state: State, call: Call) => boolean;
  readonly admitted: (slots: readonly Slot[]) => number;
  readonly schedule: (
    slots: readonly Slot[],
    rules: Rules,
  ) => { readonly slots: readonly Slot[]; readonly effects: readonly Effect[] };
  readonly sharesResource: (call: Call, slots: readonly Slot[]) => boolean;
  readonly shareOf: (state: State, part: number) => Limits;

  // Effects.
  readonly singleEffect: (state: State, phase: Phase) => Effect;
  readonly modelEffect: (state: State, id: string) => EffectOf<'call-model'>;
  readonly choiceOf: (state: State) => State['choice'];
  readonly parkedWaiting: (effect: string, slot: Extract<Slot, { type: 'parked' }>) => readonly Waiting[];
  readonly isPaused: (state: State) => boolean;
  readonly slotIndexOf: (slots: readonly Slot[], effect: string) => number;

  // Finish strategies, the sentences that the loop writes, and attempts of a typed agent.
  readonly finishOf: (rules: Rules) => FinishStrategy;
  readonly wordingOf: (rules: Rules) => Wording;
  readonly nextAttempt: (rules: AgentRules, last: AgentState | undefined, turn: number) => AgentState;
  readonly turnsUsed: (state: State) => number;

  // The history.
  readonly append: (history: History, message: Message) => History;
  readonly acceptablePart: (
    history: History,
    part: AssistantPart,
    inReply: Set<string>,
    turn: number,
  ) => AssistantPart | undefined;
  readonly has: (history: History, id: string) => boolean;
  readonly 'history:copied': (history: History) => Pick<History, 'items' | 'ids'>;
  readonly cutOf: (state: State) => number | undefined;
  readonly isCrowded: (state: State) => boolean;
  readonly compacted: (state: State, to: number, summary: string) => State;
  readonly tokensIn: (message: Message) => number;

  // The journal and the driver.
  readonly snapshotOf: (state: State, seq: number) => Snapshot;
  readonly restored: (snapshot: Snapshot) => State | undefined;
  readonly readEntries: (
    journal: Journal,
    runId: string,
  ) => Promise<{ readonly start: { readonly seq: number }; readonly entries: readonly JournalEntry[] }>;
  readonly begunEffects: (state: State) => readonly string[];
  readonly watchDeadline: (...driver: readonly unknown[]) => () => void;
  readonly shell: (options: DriverOptions) => Driver;
  readonly performer: (...manualScheduler: readonly unknown[]) => Performer;
}

export type EventOf<Type extends Event['type']> = Extract<Event, { type: Type }>;
export type EffectOf<Type extends Effect['type']> = Extract<Effect, { type: Type }>;
export type SlotEvent = EventOf<
  'tool-settled' | 'tool-parked' | 'approval-given' | 'client-result-given' | 'deadline-passed'
>;
export type CheckedOutput = EventOf<'output-checked'>['result'];
export type SettledSlot = Extract<Slot, { type: 'settled' }>;

interface Candidate {
  readonly call: Call;
  readonly check: CallCheck;
  readonly facts: ToolFacts | undefined;
  readonly admitted: number;
  readonly repeating: boolean;
}

export type Claim =
  | { readonly type: 'run' | 'hold' }
  | { readonly type: 'answer'; readonly text: string; readonly isError: boolean };

export interface Move {
  readonly type: string;
}

export interface FinishStrategy {
  readonly onText: (state: State) => Move;
  readonly claim?: (state: State, calls: readonly ToolCall[]) => (index: number) => Claim | undefined;
  readonly onResults?: (state: State, slots: readonly Slot[]) => Move;
  readonly onChecked?: (state: State, result: CheckedOutput) => Move;
}

type Wording = Readonly<Record<string, string | ((...values: readonly unknown[]) => string)>>;

export interface DriverOptions {
  readonly seq: number;
  readonly runId: string;
  readonly journal: Journal;
  readonly lease: Lease | undefined;
  readonly performer: Performer;
}

export interface Driver {
  readonly feed: (event: Event) => boolean;
  readonly begin: (events: readonly Event[]) => void;
  readonly detach: () => void;
  readonly state: () => State;
  readonly done: Promise<State>;
}

interface Performer {
  readonly perform: (effect: Effect, done: (event: Event) => boolean) => void;
  readonly abort: (reason?: unknown) => void;
}
