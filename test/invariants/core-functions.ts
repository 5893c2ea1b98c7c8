import type {
  AskedQuestion,
  AgentRules,
  AgentState,
  Amounts,
  Ask,
  AssistantPart,
  Autonomy,
  Call,
  CallCheck,
  Cause,
  CancelPhase,
  Clock,
  Effect,
  ErrorFacts,
  ErrorType,
  Event,
  Exposure,
  Grant,
  Handoff,
  History,
  Journal,
  JournalEntry,
  Lease,
  Limit,
  Limits,
  Memory,
  Message,
  Model,
  Narrowing,
  Next,
  Outcome,
  Phase,
  Policy,
  Question,
  RecordedVerdict,
  Rules,
  Settling,
  Slot,
  Snapshot,
  State,
  ToolCall,
  ToolFacts,
  ToolMessage,
  ToolResult,
  Touch,
  Usage,
  Verdict,
  Waiting,
} from '@treadle/core';
import type { Budget, Reservation } from '@treadle/core/budgets';

/**
 * The functions of the core that faults replace, by their address (see `declarationOf`), with the part of their types
 * that faults need. Renaming a function of the core means renaming it here and where a fault names it.
 */
export interface CoreFunctions {
  // Which events apply.
  readonly fits: (state: State, event: Event) => boolean;
  readonly isLive: (state: State) => boolean;
  readonly activeMsAt: (state: State, moment: Pick<Event, 'at' | 'elapsedMs'>) => number;

  // What an event changes.
  readonly applyEvent: (state: State, event: Event) => Next;
  readonly withTime: (state: State, event: Event) => State;
  readonly onRunStarted: (event: EventOf<'run-started'>) => Next;
  readonly onToolsChanged: (state: State, event: EventOf<'tools-changed'>) => Next;
  readonly onTurnPrepared: (state: State, event: EventOf<'turn-prepared'>) => Next;
  readonly onHistoryCompacted: (state: State, event: EventOf<'history-compacted'>) => Next;
  readonly onModelFailed: (state: State, event: EventOf<'model-failed'>) => Next;
  readonly acceptAnswer: (state: State, answer: Outcome) => Next;
  readonly onGuardrailsChecked: (state: State, event: EventOf<'guardrails-checked'>) => Next;
  readonly onOutputChecked: (state: State, event: EventOf<'output-checked'>) => Next;
  readonly onTextReply: (state: State, content: readonly AssistantPart[]) => Next;
  readonly recordEmptyReply: (state: State, move: Move) => State;
  readonly settleHeldCall: (call: Call, result: CheckedOutput, state: State) => Slot;
  readonly onCallsReply: (state: State, calls: readonly ToolCall[], checks: readonly CallCheck[]) => Next;
  readonly onCallsJudged: (state: State, event: EventOf<'calls-judged'>) => Next;
  readonly applyVerdict: (state: State, slot: Slot, verdict: RecordedVerdict | undefined, at: number) => Slot;
  readonly onPolicyChanged: (state: State, event: EventOf<'policy-changed'>) => Next;
  readonly stricterAsk: (state: State, slot: AskingSlot, verdict: RecordedVerdict | undefined, at: number) => Slot;
  readonly onCallRejudged: (state: State, event: EventOf<'call-rejudged'>) => Next;
  readonly boundAgain: (
    tools: State['tools'],
    slot: AskingSlot,
    call: Call,
    touches: readonly Touch[] | undefined,
  ) => AskingSlot;
  readonly whereBound: (call: Call, touches: readonly Touch[] | undefined) => string;
  readonly ruledCall: (call: Call, verdict: RecordedVerdict | undefined) => Call;
  readonly touchKey: (touch: Touch) => string;
  readonly arePromised: (counted: readonly string[] | undefined, promised: readonly string[] | undefined) => boolean;
  readonly approvalProblem: (
    ask: Ask,
    answer: Pick<EventOf<'approval-given'>, 'digest' | 'approved' | 'by'>,
  ) => unknown;
  readonly isApproved: (ask: Ask, approval: Pick<EventOf<'approval-given'>, 'by'>) => boolean;
  readonly withGrant: (state: State, event: EventOf<'approval-given'>) => State;
  readonly isGranted: (state: State, call: Call, ask: RecordedVerdict) => boolean;
  readonly withWritten: (written: State['written'], touches: readonly Touch[] | undefined) => State['written'];
  readonly writtenAfter: (
    state: State,
    slots: readonly Slot[],
    verdicts: readonly (RecordedVerdict | undefined)[],
  ) => State['written'];
  readonly definitionOf: (state: State, name: string) => string;
  readonly hasEnoughApprovers: (grant: Grant, ask: RecordedVerdict) => boolean;
  readonly mustBeJudged: (state: State, slots: readonly Slot[]) => boolean;
  readonly isJudged: (state: State) => boolean;
  readonly policiesAfter: (state: State, rules: unknown) => readonly unknown[];
  readonly isUnstarted: (slot: Slot) => boolean;
  readonly onCallEvent: (state: State, effect: string, event: SlotEvent) => Next;
  readonly chargeCall: (state: State, event: SlotEvent) => State;
  readonly withHandoff: (state: State, handoff: Handoff, effect: string) => State;
  readonly takeOver: (state: Mutable<State>, handoff: NonNullable<State['handoff']>) => void;
  readonly forkedAgent: (event: EventOf<'run-forked'>) => Partial<Handoff>;
  readonly withMemory: (state: State, changes: Memory) => State;
  readonly slotAfter: (state: State, slot: Slot, event: SlotEvent) => Slot;
  readonly parkedSlot: (slot: Slot, event: EventOf<'tool-parked'>) => ParkedSlot;
  readonly parkedAgain: (slot: Slot, at: number) => ParkedSlot | undefined;
  readonly unlessExpired: (rules: Rules, slot: Slot, at: number) => Slot;
  readonly clientSlot: (call: Call, at: number) => Slot;
  readonly retriesIn: (phase: State['phase']) => number;
  readonly retryTime: (state: State, error: unknown, at: number) => number | undefined;
  readonly isAskedAgain: (slot: Slot) => boolean;
  readonly isAnswerable: (slot: Slot, at: number) => boolean;
  readonly verifyParked: (slot: Slot) => Slot;
  readonly onEffectLost: (state: State, effect: string) => Next;
  readonly deathsAfter: (state: State, event: Event) => State['deaths'];
  readonly isCrashLoop: (state: State, effect: string) => boolean;
  readonly cancelPhaseOf: (state: State) => CancelPhase;

  // How a turn starts, continues and ends.
  readonly startTurn: (state: State) => Next;
  readonly landInput: (state: State) => State;
  readonly reachLimit: (state: State, limit: Limit) => Next;
  readonly askModel: (state: State) => Next;
  readonly endRun: (state: State, outcome: Outcome) => Next;
  readonly advanceCalls: (state: State, slots: readonly Slot[]) => Next;
  readonly resultsMessage: (slots: readonly SettledSlot[], rules: Rules) => ToolMessage;
  readonly refusedSlot: (call: Call, text: string, how: Settling, errorType: ErrorType) => SettledSlot;
  readonly withErrorFacts: (result: ToolResult, facts: ErrorFacts) => ToolResult;
  readonly endMidTurn: (state: State, outcome: Outcome, why: string) => Next;
  readonly errorsAfter: (errors: number, slots: readonly SettledSlot[]) => number;

  // Which calls run, and when.
  readonly planCalls: (state: State, calls: readonly ToolCall[], checks: readonly CallCheck[]) => readonly Slot[];
  readonly claimCall: (state: State, call: Call, check: CallCheck, claim: Claim) => Slot;
  readonly refusalFor: (state: State, candidate: Candidate) => [string, Settling, ErrorType] | undefined;
  readonly isToolAllowed: (state: State, name: string) => boolean;
  readonly isWithinNarrowing: (state: State, name: string) => boolean;
  readonly withNarrowing: (had: Narrowings, given: Narrowing | Narrowings) => Narrowings;
  readonly withoutNarrowing: (had: Narrowings, source: string | undefined) => Narrowings;
  readonly isNarrowedBy: (state: State, source: string | undefined) => boolean;
  readonly isNarrowingJudged: (narrowed: NonNullable<Narrowings>) => boolean;
  readonly lets: (narrowing: Narrowing, name: string) => boolean;
  readonly lowestAutonomy: (narrowings: Narrowing | Narrowings) => Autonomy | undefined;
  readonly narrowedChoice: (state: State, choice: State['choice']) => State['choice'];
  readonly offeredTools: (state: State) => readonly ToolFacts[];
  readonly isRepeatedCall: (state: State, call: Call) => boolean;
  readonly countQueued: (slots: readonly Slot[]) => number;
  readonly scheduleCalls: (
    slots: readonly Slot[],
    rules: Rules,
    at: number,
  ) => { readonly slots: readonly Slot[]; readonly effects: readonly Effect[] };
  readonly waitsForResource: (call: Call, slots: readonly Slot[]) => boolean;
  readonly memoryResources: (remembers: unknown, input: unknown) => readonly string[];
  readonly memoryKeysOf: (check: CallCheck) => readonly string[];
  readonly shareOfLimits: (state: State, part: number) => Limits;
  readonly timeLeft: (state: State) => Limits;

  // Questions of tools.
  readonly askingQuestions: (slot: Slot, event: EventOf<'questions-asked'>) => Slot;
  readonly withQuestionSettled: (
    slot: Extract<Slot, { type: 'questioning' }>,
    event: EventOf<'question-answered' | 'deadline-passed'>,
  ) => Slot;
  readonly settledQuestion: (
    asked: AskedQuestion,
    event: EventOf<'question-answered' | 'deadline-passed'>,
  ) => AskedQuestion;
  readonly resourcesAfter: (state: State, event: EventOf<'resource-opened' | 'resource-closed'>) => State['resources'];
  readonly askedIn: (slot: Slot) => object | undefined;

  // Effects.
  readonly phaseEffect: (state: State, phase: Phase) => Effect;
  readonly modelEffect: (state: State, id: string) => EffectOf<'call-model'>;
  readonly toolChoiceOf: (state: State) => State['choice'];
  readonly parkedWaiting: (effect: string, slot: Extract<Slot, { type: 'parked' }>) => readonly Waiting[];
  readonly isPaused: (state: State) => boolean;
  readonly slotFor: (state: State, effect: string) => Slot | undefined;

  // Finish strategies, the sentences that the loop writes, and attempts of a typed agent.
  readonly finishOf: (rules: Rules) => FinishStrategy;
  readonly wordingOf: (rules: Rules) => Wording;
  readonly nextAttempt: (rules: AgentRules, last: AgentState | undefined, turn: number) => AgentState;
  readonly turnsUsed: (state: State) => number;

  // The history.
  readonly appendMessage: (history: History, message: Message) => History;
  readonly acceptablePart: (
    history: History,
    part: AssistantPart,
    inReply: Set<string> | undefined,
    turn: number,
  ) => AssistantPart | undefined;
  readonly hasCallId: (history: History, id: string) => boolean;
  readonly copyView: (history: History) => Pick<History, 'items' | 'ids'>;
  readonly compactionEnd: (state: State) => number | undefined;
  readonly isOverThreshold: (state: State) => boolean;
  readonly compactHistory: (state: State, to: number, summary: string) => State;
  readonly estimateTokens: (message: Message) => number;

  // The policy, in the driver.
  readonly stricterVerdict: (a: Verdict | undefined, b: Verdict | undefined) => Verdict | undefined;
  readonly askingPolicy: (names: readonly string[], source: string) => Policy;
  readonly mustApprove: (tool: unknown, recorded: true | undefined, input: unknown) => boolean;
  readonly policyChange: (judging: unknown, at: number) => Promise<Event | undefined>;

  // The journal and the driver.
  readonly pinnedBy: (event: Event) => object | undefined;
  readonly pinnedDigest: (event: Event) => number | undefined;
  readonly snapshotOf: (state: State, seq: number) => Snapshot;
  readonly restoredState: (snapshot: Snapshot) => State | undefined;
  readonly readEntries: (
    journal: Journal,
    runId: string,
  ) => Promise<{ readonly start: { readonly seq: number }; readonly entries: readonly JournalEntry[] }>;
  readonly recordedQuestion: (run: unknown, effect: string, key: string, question: Question) => unknown;
  readonly startedEffects: (state: State) => readonly string[];
  readonly hasDeadline: (rules: Rules) => boolean;
  readonly watchDeadline: (...driver: readonly unknown[]) => () => void;
  readonly startShell: (context: RunContext, emit?: unknown) => Shell;
  readonly performEffect: (context: RunContext, effect: Effect, settle: (event: Event) => unknown) => void;
  readonly abortEffects: (context: RunContext, reason?: unknown) => void;

  // What results expose, and their filters.
  readonly withExposure: (had: Exposure | undefined, seen: Exposure | undefined) => Exposure | undefined;
  readonly isEarlier: (one: Cause, other: Cause | undefined) => boolean;
  readonly needsExamining: (options: object, tool: unknown) => unknown;
  readonly recordedAnswer: (state: State, event: Event, examine: unknown) => Event | Promise<Event>;
  readonly exposureOf: (run: unknown, source: unknown) => Exposure | undefined;
  readonly decisionOf: (...filtering: readonly unknown[]) => Promise<{ readonly note?: string } | undefined>;
  readonly refusedResult: <R>(result: R, call: Call, reason: string) => R;
  readonly judgeChecked: (described: unknown, judging: { readonly state: State }) => unknown;

  // Budgets.
  readonly performWithinBudget: Spend;
  readonly reserveAndPerform: Spend;
  readonly mostUsedByModel: (context: RunContext, model: unknown, inputTokens: number) => object;
  readonly amountsOf: (usage: Usage) => Amounts;
  readonly isUnused: (...failure: readonly unknown[]) => boolean;
  readonly refusalOf: (name: string, budget: Budget | undefined, amounts: Amounts) => string | undefined;
  readonly approvalDigest: (tools: readonly ToolFacts[], call: Call, lack?: string) => string;
  readonly escalatedSlot: (state: State, slot: Slot, event: Event) => Extract<Slot, { type: 'asking' }>;
  readonly raisedPhase: (phase: RaisingPhase, event: Event) => RaisingPhase['of'] | undefined;
  readonly fitsEscalation: (phase: Phase, slot: Slot | undefined, event: Event) => boolean;
  readonly chargeOf: (reservation: Reservation, used: Amounts) => Amounts;
}

type Narrowings = State['narrowed'];

type RaisingPhase = Extract<Phase, { type: 'raising' }>;

type Mutable<T> = { -readonly [Field in keyof T]: T[Field] };

export type EventOf<Type extends Event['type']> = Extract<Event, { type: Type }>;
export type EffectOf<Type extends Effect['type']> = Extract<Effect, { type: Type }>;
export type SlotEvent = EventOf<
  | 'child-started'
  | 'tool-settled'
  | 'tool-parked'
  | 'questions-asked'
  | 'question-answered'
  | 'approval-given'
  | 'client-result-given'
  | 'deadline-passed'
>;
export type CheckedOutput = EventOf<'output-checked'>['result'];
export type ParkedSlot = Extract<Slot, { type: 'parked' }>;
export type AskingSlot = Extract<Slot, { type: 'asking' }>;
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

type Perform = (context: RunContext, effect: Effect, settle: (event: Event) => unknown) => void;
type Spend = (context: RunContext, effect: Effect, settle: (event: Event) => unknown, perform: Perform) => void;

export interface RunContext {
  readonly clock: Clock;
  readonly runId: string;
  readonly options: { readonly durableItems?: boolean; readonly model: Model };
  readonly opening: { readonly seq: number; readonly rules: Rules; readonly settings: object };
  readonly controller: AbortController;
  readonly journal: Journal;
  readonly lease: Lease | undefined;
}

export interface Shell {
  readonly feed: (event: Event) => boolean;
  readonly begin: (events: readonly Event[], early: readonly (() => void)[]) => void;
  readonly record: (event: Event) => Promise<boolean>;
  readonly detach: () => void;
  readonly state: () => State;
  readonly done: Promise<State>;
}
