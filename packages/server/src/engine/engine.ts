import type {
  HandoffAgent,
  Ledger,
  Model,
  NewRun,
  Policy,
  Principal,
  StartedByCall,
  StartedRun,
  StartingCall,
  Tool,
} from '@treadle/core';
import { churnSet, type ChurnMap } from '@treadle/core/churn';
import { didYouMean } from '@treadle/core/nearest';
import type { AgentBounds, AgentRegistry, NamedAgent } from '@treadle/core/named-agents';
import type { Skill } from '@treadle/core/skills';
import type { ResourceKeeper, Store } from '@treadle/store';
import type { Logger } from 'pino';
import { ApiError, shuttingDown } from '../api-error.ts';
import { countLimit, memoryLimit, type CountLimitOptions, type Memory } from '../http/limits.ts';
import type { Keys } from '../http/keys.ts';
import type { ServerMetrics } from '../http/metrics.ts';
import type { EveryRunOptions, NewRunOptions } from './loop-options.ts';
import type { ServerTools } from './executors.ts';
import type { ServerMemory } from './server-memory.ts';
import type { RunCaller } from './tools.ts';

/** What a server needs of a store. */
export type ServerStore = Omit<Store, 'budgets' | 'rates' | 'releaseRun'>;

/** The models that clients can name. */
export interface ServedModels {
  /** The name of the model for requests that do not name one. */
  readonly default: string;
  readonly models: ReadonlyMap<string, Model>;
  /** Further names of the models, such as those that a client cannot change. A name may end with `*`, for all that begin with it. */
  readonly aliases?: Readonly<Record<string, string>>;
}

/** Whether a model only follows the fixed rules of `demo()`. */
export function isDemo({ id }: Model): boolean {
  return id === 'demo';
}

/** The agents that clients can invoke by name, and choose as the model `agent/NAME`. */
export interface ServedAgents {
  readonly registry: AgentRegistry;
  /** The tools of the server, of which agents have some. */
  readonly tools: readonly Tool[];
  /** What their runs may use at most. */
  readonly bounds: AgentBounds;
  /** How many may be inside each other. */
  readonly maxDepth?: number;
  /** Default `off`. */
  readonly injection?: InjectionCheck;
}

/** What to do about inputs that look like an attempt to replace the instructions of an agent. */
export type InjectionCheck = 'off' | 'flag' | 'refuse';

const AGENT_PREFIX = 'agent/';

/** The name of a model that stands for an agent. */
export function agentModelName(agent: string): string {
  return AGENT_PREFIX + agent;
}

/** The agent that the name of a model stands for; undefined for a model. */
export function agentNameIn(model: string | undefined): string | undefined {
  return model?.startsWith(AGENT_PREFIX) ? model.slice(AGENT_PREFIX.length) : undefined;
}

type Answerers = Pick<Engine, 'models' | 'namedAgents'>;

/**
 * The name of a model that a client names, without aliases. An agent keeps its name. Throws a 404 for an unknown name, which names
 * those that these scopes allow.
 */
export function servedName(
  engine: Answerers,
  name: string = engine.models.default,
  scopes: readonly string[] = [],
): string {
  const { models, aliases = {} } = engine.models;
  const agent = agentNameIn(name);
  if (agent !== undefined) return agentModelName(agentNamed(engine, agent, scopes).name);
  if (models.get(name)) return name;
  const aliased = aliasOf(name, aliases);
  if (aliased !== undefined && models.get(aliased)) return aliased;
  throw modelNotFound(name, modelNames(engine, scopes));
}

/** The model of this name; of an agent, the one that it uses. Throws like `servedName`. */
export function modelNamed(engine: Answerers, name?: string, scopes: readonly string[] = []): Model {
  const { default: standard, models } = engine.models;
  const served = servedName(engine, name, scopes);
  const agent = agentNameIn(served);
  const own = agent === undefined ? served : (agentNamed(engine, agent).model ?? standard);
  const model = models.get(own);
  if (!model) throw modelNotFound(own, modelNames(engine, scopes), ` The agent "${agent}" uses it.`);
  return model;
}

/** What these scopes allow to choose as a model: models, and agents as `agent/NAME`. */
export function modelNames(engine: Answerers, scopes: readonly string[]): readonly string[] {
  const agents = agentNames(engine).filter((one) => mayInvoke(scopes, one));
  return [...(mayInvoke(scopes) ? engine.models.models.keys() : []), ...agents.map(agentModelName)];
}

/** `known`: the models that the caller may use. */
export function modelNotFound(name: string, known: readonly string[], why = ''): ApiError {
  const message = `This server has no model ${JSON.stringify(name)}.${why} Its models: ${known.join(', ')}.`;
  return new ApiError(404, 'invalid_request_error', message, { param: 'model', code: 'model_not_found' });
}

/** The longest beginning counts. */
function aliasOf(name: string, aliases: NonNullable<ServedModels['aliases']>): string | undefined {
  if (Object.hasOwn(aliases, name)) return aliases[name];
  const matching = Object.keys(aliases).filter((one) => one.endsWith('*') && name.startsWith(one.slice(0, -1)));
  const [longest] = matching.toSorted((a, b) => b.length - a.length);
  return longest === undefined ? undefined : aliases[longest];
}

/** The agent of this name, also by `__default__`. Throws a 404, with the nearest name of those that these scopes allow. */
export function agentNamed(
  engine: Pick<Engine, 'namedAgents'>,
  name: string,
  scopes: readonly string[] = [],
): NamedAgent {
  const agent = engine.namedAgents?.registry.get(name);
  if (agent) return agent;
  const names = agentNames(engine).filter((one) => mayInvoke(scopes, one));
  const known = names.length === 0 ? 'It has none' : `Its agents: ${names.slice(0, 50).join(', ')}`;
  const message = `This server has no agent ${JSON.stringify(name.slice(0, 100))}.${didYouMean(name, names)} ${known}.`;
  throw new ApiError(404, 'not_found_error', message, { code: 'agent_not_found' });
}

function agentNames({ namedAgents }: Pick<Engine, 'namedAgents'>): readonly string[] {
  return namedAgents?.registry.list().map(({ name }) => name) ?? [];
}

const INVOKE = 'agents:invoke';

/**
 * Whether a key may use an agent, or a model if none is given. A key with scopes for single agents may use only those, and no
 * models, unless it has the general scope too.
 */
export function mayInvoke(scopes: readonly string[], agent?: string): boolean {
  if (scopes.includes(INVOKE) || !scopes.some((scope) => scope.startsWith(`${INVOKE}:`))) return true;
  return agent !== undefined && scopes.includes(`${INVOKE}:${agent}`);
}

export interface RunLimits {
  readonly maxTurns: number;
  readonly maxDurationMs: number;
  readonly toolTimeoutMs: number;
  /** Consecutive turns with nothing but errors. */
  readonly errorLimit: number;
}

/** What both APIs run on. */
export interface Engine {
  readonly models: ServedModels;
  readonly serverTools: ServerTools;
  readonly store: ServerStore;
  readonly limits: RunLimits;
  /** What a model is told in every request, before anything else: the first of these names decides that has a text. Absent: nothing. */
  readonly instructionsFor?: (names: readonly string[]) => string | undefined;
  readonly policy?: Policy;
  /** The ledger of the budgets that a caller's runs draw on. Absent, or undefined: there are none. */
  readonly ledgerFor?: (caller: Principal) => Ledger | undefined;
  /** The agents that runs may be handed over to. */
  readonly agents?: readonly HandoffAgent[];
  /** Agents that clients can invoke by name. Absent: there are none. */
  readonly namedAgents?: ServedAgents;
  /** Further options of every run, and of every new one. */
  readonly everyRun?: EveryRunOptions;
  readonly newRun?: NewRunOptions;
  /** Skills that messages of conversations can activate. Absent: none. */
  readonly skills?: readonly Skill[];
  /** Judges the calls of conversations with a person who answers approvals, without keys. Absent: `policy`. */
  readonly askingPolicy?: Policy;
  /** The keys of clients. A run goes on only as long as the key that started it is valid. Absent: there are none. */
  readonly keys?: Pick<Keys, 'whyRevoked' | 'onReplaced'>;
  /** Stored responses wait for approvals, answers and results from outside; default: they fail. */
  readonly waits?: boolean;
  /** The runs of responses with `store: false` are recorded; default: they are held in memory. */
  readonly recordsUnstored?: boolean;
  /** Keeps what tools hold between the runs of a conversation. Absent: it is closed with each run. */
  readonly kept?: ResourceKeeper;
  /** Starts runs that outlive the calls of tools. Absent: tools cannot start any. */
  readonly startRun?: StartRunFor;
  /** Cancels a run of a caller. Resolves when its end is stored. */
  readonly stopRun?: (runId: string, caller: Principal) => Promise<void>;
  readonly runs: ActiveRuns;
  /** The runs that this process drives, by id. `addDriven` adds and removes them. */
  readonly driven: ChurnMap<string, RunControls>;
  readonly log: Logger;
  /** Absent: nothing is remembered. */
  readonly memory?: ServerMemory;
  /** Absent: nothing is counted. */
  readonly metrics?: ServerMetrics;
}

/** Starts a run for a call of a run of a caller, at most once for a key. */
export type StartRunFor = (
  run: Omit<NewRun, 'id'>,
  /** `memory`: the label of the run with this name. */
  call: Omit<StartingCall, 'principal'> & { readonly caller: RunCaller; readonly memory?: string | undefined },
) => Promise<StartedByCall>;

/** What can be done with a run that this process drives. */
export interface RunControls extends Pick<StartedRun, 'send' | 'answer' | 'liftNarrowing'> {
  cancel(): void;
  detach(): Promise<void>;
  /** For a run that is resumed with answers, or to lift a narrowing: resolves when that is durable. Not if answers are rejected. */
  readonly answered?: Promise<void>;
}

/** A run that this process drives. */
export interface ActiveRun {
  /** Detaches from the run; cancels it if it is not stored. */
  detach(): void;
  readonly finished: Promise<unknown>;
}

/** The runs of all APIs that this process drives, and the limit on their number. */
export interface ActiveRuns {
  /** Reserves capacity for a run. Throws a 429 if there is none. */
  reserve(tenant: string): Capacity;
  /** The same for a run that is only cancelled: it is not counted, but its bytes are. */
  reserveBytes(tenant: string): Capacity;
  /** How many runs have reserved capacity. */
  readonly reserved: number;
  /** Adds a run, until it has finished. After `detachAll` it is detached at once. */
  add(run: ActiveRun): void;
  /** Detaches from every run; resolves when no run is driven any more. From then on there is no capacity. */
  detachAll(): Promise<void>;
}

/** The capacity for one run. */
export interface Capacity {
  /** Counts the bytes of the run's conversation. Throws a 429 or a 503 if they are too many. */
  hold(bytes: number): void;
  /** Nothing is held any more. It may be called several times. */
  release(): void;
}

/** The most runs: on the whole server, and of one tenant. */
export interface ActiveRunsOptions extends Omit<CountLimitOptions, 'tooMany'> {
  /** Default: no limit. */
  readonly memory?: Memory;
}

const RETRY_SECONDS = 2;

export function activeRuns({ memory = memoryLimit({ max: Infinity }), ...limits }: ActiveRunsOptions): ActiveRuns {
  const reserved = countLimit({
    ...limits,
    tooMany: (own) =>
      tooManyRuns(
        own === undefined
          ? 'The server has reached its limit of concurrent runs. Retry in a moment.'
          : `You have ${own} runs in progress, which is your limit. Retry when one has ended.`,
      ),
  });
  const active = churnSet<ActiveRun>();
  let isClosed = false;

  function capacityFor(tenant: string, free: () => void): Capacity {
    const { hold, release } = memory.holder(tenant);
    return {
      hold,
      release() {
        release();
        free();
      },
    };
  }

  return {
    reserve(tenant) {
      if (isClosed) throw shuttingDown();
      return capacityFor(tenant, reserved.take(tenant));
    },
    reserveBytes: (tenant) => capacityFor(tenant, () => {}),
    get reserved() {
      return reserved.count;
    },
    add(run) {
      const remove = active.add(run);
      run.finished.then(remove, remove);
      // Its request was being planned when the server began to shut down.
      if (isClosed) run.detach();
    },
    async detachAll() {
      isClosed = true;
      const all = [...active];
      for (const run of all) run.detach();
      await Promise.allSettled(all.map(({ finished }) => finished));
    },
  };
}

function tooManyRuns(message: string): ApiError {
  return new ApiError(429, 'rate_limit_error', message, {
    code: 'too_many_runs',
    headers: { 'Retry-After': String(RETRY_SECONDS) },
  });
}
