import {
  checkOptions,
  TreadleError,
  type HandoffAgent,
  type Ledger,
  type OptionNames,
  type Policy,
  type Principal,
  type Tool,
} from '@treadle/core';
import type { AgentRegistry } from '@treadle/core/named-agents';
import type { Skill } from '@treadle/core/skills';
import type { Logger } from 'pino';
import {
  agentModelName,
  agentNameIn,
  type InjectionCheck,
  type ServedModels,
  type ServerStore,
} from './engine/engine.ts';
import { OWN_LABEL, type ToolExecutor } from './engine/executors.ts';
import type { EveryRunOptions, NewRunOptions } from './engine/loop-options.ts';
import type { McpServersOptions } from './engine/mcp-servers.ts';
import type { WebhookOptions } from './engine/webhooks.ts';
import type { KeptLog } from './apis/logs/wire.ts';
import type { ServerMemory } from './engine/server-memory.ts';
import type { AgentWriter } from './apis/agents/routes.ts';
import { checkMcpNames, type McpOptions } from './apis/mcp/options.ts';
import type { ServerDevices } from './apis/devices/routes.ts';
import { checkedSchedules, type GivenSchedule } from './schedules/definition.ts';
import { checkTriggers, type TriggerOptions } from './schedules/triggers.ts';
import type { ApiKey } from './http/keys.ts';
import type { Metrics } from './http/metrics.ts';
import type { TestModel } from './server-routes.ts';

export interface TreadleServerOptions extends EveryRunOptions, NewRunOptions {
  readonly models: ServedModels;
  readonly store: ServerStore;
  /** Run on the server. Clients use them by the `server_label` "treadle". */
  readonly tools?: readonly Tool[];
  /** Other versions of `tools`. A run that is resumed keeps the version that it has recorded, by its `fingerprint`. */
  readonly otherVersions?: readonly Tool[];
  /** Run further kinds of tools on the server. */
  readonly executors?: readonly ToolExecutor[];
  /** Names of `tools` that are available to every request; default none. */
  readonly defaultTools?: readonly string[];
  /**
   * What every request tells the model, before the instructions of its conversation and its own: one text, or one for each model
   * by name, with `*` for the others. An agent, `agent/NAME`, without a text of its own has that of its model.
   */
  readonly instructions?: string | Readonly<Record<string, string>>;
  /** The MCP servers that requests may use: those that they name by their URL, and those that are configured here. */
  readonly mcpServers?: McpServersOptions;
  /**
   * Judges the calls of all runs, for the key that sent the request. A response whose call needs an approval fails, because
   * nobody can be asked, unless `waitForAnswers` is set. Functions of clients are judged if the policy is code, or if its
   * rules name them.
   */
  readonly policy?: Policy;
  /**
   * Judges the calls of conversations instead, if their client says that a person answers (`"approvals": "ask"`) and the server
   * has no keys. Default: `policy`.
   */
  readonly askingPolicy?: Policy;
  /**
   * Skills that messages of conversations activate with `/name`. For the model to activate them itself, `tools` and
   * `defaultTools` need `skillTool` of `@treadle/tools/skills` too.
   */
  readonly skills?: readonly Skill[];
  /**
   * The ledger of the budgets that the runs of a caller draw on, such as `budgets.ledger(names)` of the store; undefined: none.
   * Called when a run starts or is resumed. `subject` is the name of the key, empty without keys. Must not throw.
   */
  readonly ledger?: (caller: Principal) => Ledger | undefined;
  /**
   * The agents that tools made by `handoff` may hand a run over to. Whoever may call such a tool may use the tools of its agent.
   */
  readonly agents?: readonly HandoffAgent[];
  /**
   * Agents that clients invoke by name at `/v1/agents`, or choose as the model `agent/NAME`: `folderAgents` of
   * `@treadle/tools/agents`, or `agentRegistry` of `@treadle/core/named-agents`. They may use `tools`, under `policy`.
   */
  readonly namedAgents?: AgentRegistry & Partial<AgentWriter>;
  /**
   * Start workflows and agents of `namedAgents` at times. `key`: the name of the key of `keys` as which their runs are started; it
   * is required if there are keys. All servers with one store need the same ones.
   */
  readonly schedules?: readonly (GivenSchedule & { readonly key?: string | undefined })[];
  /** Events that start workflows and agents. All servers with one store need the same ones. */
  readonly triggers?: readonly TriggerOptions[];
  /** Settings of `namedAgents`. */
  readonly agentSettings?: AgentSettings;
  /** Finds out whether a model works: `POST /v1/server/test`. Default: models cannot be tested over HTTP. */
  readonly testModel?: TestModel;
  /**
   * A stored response whose calls need an approval, an answer to a question or a result from outside waits for it:
   * `POST /v1/runs/{id}/answers`. Default: it fails.
   */
  readonly waitForAnswers?: boolean;
  /**
   * The runs of responses with `store: false` are recorded, so that `/v1/runs` and the page show them. The responses themselves
   * are not: no client can fetch or continue them. Default: nothing is recorded.
   */
  readonly recordUnstored?: boolean;
  /** The model writes titles for conversations, after their first answer; default true. */
  readonly chatTitles?: boolean;
  /** The devices of `/v1/devices`: a link of `@treadle/edge`. For their tools, `executors` needs its `deviceExecutor` too. */
  readonly devices?: ServerDevices;
  /** What runs did is remembered: `serverMemory({ store })`, whose tools belong into `tools`. Default: it is not. */
  readonly memory?: ServerMemory;
  /** Settings of `/mcp`, where MCP clients call the tools and agents of the server. */
  readonly mcp?: McpOptions;
  /** Requests that tell another program when runs wait or have ended. */
  readonly webhooks?: WebhookOptions;
  /** Default 127.0.0.1. An address beyond loopback requires keys. */
  readonly host?: string;
  /** Default 3210; 0 for any free port. */
  readonly port?: number;
  readonly keys?: readonly ApiKey[];
  /** Origins of web pages that may use the server from a browser; default none. */
  readonly corsOrigins?: readonly string[];
  /** For each key that has no limit of its own, and for each address if there are no keys; default: no limit. */
  readonly requestsPerMinute?: number;
  /** Default 1,000. */
  readonly maxConcurrentRuns?: number;
  /** For one tenant; default: half of `maxConcurrentRuns` if the keys are of several tenants, else all. */
  readonly maxConcurrentRunsPerTenant?: number;
  /** Event streams of conversations, runs and MCP clients; default 4,000. One of several tenants gets at most half of them. */
  readonly maxOpenStreams?: number;
  /** All clients see the status `requires_action`; default: only those that request it. */
  readonly requiresAction?: boolean;
  /** Model calls of one response; default 10. */
  readonly maxTurns?: number;
  /** For one response; default 10 minutes. */
  readonly maxDurationMs?: number;
  /** For tools that have no timeout of their own; default one minute. */
  readonly toolTimeoutMs?: number;
  /** Consecutive turns with nothing but errors; default 3, 0 disables the limit. */
  readonly errorLimit?: number;
  /** The interval of heartbeats in a stream without events; default 15 seconds. */
  readonly heartbeatMs?: number;
  /**
   * How long a client may read nothing of a response; default 1 minute. One that reads less than 1,000 bytes a second is
   * disconnected after twice this time.
   */
  readonly sendTimeoutMs?: number;
  /** Default 16 MiB: room for images and files of 12 MB. */
  readonly maxBodyBytes?: number;
  /**
   * Of all requests and conversations in progress; default 192 MiB. One tenant gets at most half of it. The process needs up
   * to six times as much memory.
   */
  readonly maxBytesInProgress?: number;
  /** How long responses are stored after they ended or paused; default 30 days, 0 is forever. */
  readonly retentionMs?: number;
  readonly log?: Logger;
  /** The log, for `GET /v1/logs`. Default: it is not kept. */
  readonly keptLog?: KeptLog;
  /** What `/metrics` returns. The server adds its own metrics to it. Default: a registry of its own. */
  readonly metrics?: Metrics;
}

export interface AgentSettings {
  /** How many agents may call each other inside each other; default 10. */
  readonly maxDepth?: number;
  /** `PUT` and `DELETE` of `/v1/agents/{name}` change the definitions, for keys with the scope `agents:write`; default false. */
  readonly writable?: boolean;
  /**
   * What to do about inputs that look like an attempt to replace the instructions of an agent; default `off`. `flag`: the log says
   * so, and the run has the label `injection`. `refuse`: the request gets a 400. It finds simple attempts only.
   */
  readonly injection?: InjectionCheck;
}

/** The options that can change while the server runs. */
export type ReplaceableOptions = Pick<
  TreadleServerOptions,
  | 'models'
  | 'tools'
  | 'otherVersions'
  | 'executors'
  | 'defaultTools'
  | 'instructions'
  | 'mcpServers'
  | 'policy'
  | 'askingPolicy'
  | 'skills'
  | 'ledger'
  | 'agents'
  | 'namedAgents'
  | 'agentSettings'
  | 'schedules'
  | 'triggers'
  | 'testModel'
  | 'waitForAnswers'
  | 'recordUnstored'
  | 'mcp'
  | 'keys'
  | 'maxTurns'
  | 'maxDurationMs'
  | 'toolTimeoutMs'
  | 'errorLimit'
  | keyof EveryRunOptions
  | keyof NewRunOptions
>;

const REPLACEABLE: { readonly [Name in keyof Required<ReplaceableOptions>]: true } = {
  models: true,
  tools: true,
  otherVersions: true,
  executors: true,
  defaultTools: true,
  instructions: true,
  mcpServers: true,
  policy: true,
  askingPolicy: true,
  skills: true,
  ledger: true,
  agents: true,
  namedAgents: true,
  agentSettings: true,
  schedules: true,
  triggers: true,
  testModel: true,
  waitForAnswers: true,
  recordUnstored: true,
  mcp: true,
  keys: true,
  maxTurns: true,
  maxDurationMs: true,
  toolTimeoutMs: true,
  errorLimit: true,
  guardrails: true,
  resultFilters: true,
  exposes: true,
  verifyAnswer: true,
  audit: true,
  summariser: true,
  holdIdleMs: true,
  tracing: true,
  maxCallsPerTurn: true,
  crashLimit: true,
  repeatLimit: true,
  maxResultChars: true,
  narrow: true,
};

/** Those of the options that can change. */
export function replaceable(options: ReplaceableOptions): ReplaceableOptions {
  const names = Object.entries(options).filter(([name]) => Object.hasOwn(REPLACEABLE, name));
  return Object.fromEntries(names) as unknown as ReplaceableOptions;
}

export const NOTHING_REPLACED: Readonly<Record<string, undefined>> = Object.fromEntries(
  Object.keys(REPLACEABLE).map((name) => [name, undefined]),
);

/** The minimum of each numeric option. */
const MINIMUMS = {
  requestsPerMinute: 1,
  maxConcurrentRuns: 1,
  maxConcurrentRunsPerTenant: 1,
  maxOpenStreams: 1,
  maxTurns: 1,
  maxDurationMs: 1,
  toolTimeoutMs: 1,
  errorLimit: 0,
  holdIdleMs: 0,
  maxCallsPerTurn: 1,
  crashLimit: 0,
  repeatLimit: 0,
  maxResultChars: 1,
  heartbeatMs: 1,
  sendTimeoutMs: 1,
  maxBodyBytes: 1,
  maxBytesInProgress: 1,
  retentionMs: 0,
} as const satisfies Partial<Record<keyof TreadleServerOptions, number>>;

const NAMES: OptionNames<TreadleServerOptions> = {
  models: '',
  store: '',
  tools: 'array',
  otherVersions: 'array',
  executors: 'array',
  defaultTools: 'array',
  instructions: '',
  mcpServers: 'object',
  policy: '.judge',
  askingPolicy: '.judge',
  skills: 'array',
  ledger: 'function',
  agents: 'array',
  namedAgents: '.get',
  agentSettings: 'object',
  schedules: 'array',
  triggers: 'array',
  guardrails: 'object',
  verifyAnswer: 'function',
  audit: '.rejectedAnswer',
  resultFilters: 'array',
  exposes: 'function',
  summariser: '.reply',
  holdIdleMs: '',
  tracing: '.follow',
  maxCallsPerTurn: '',
  crashLimit: '',
  repeatLimit: '',
  maxResultChars: '',
  narrow: '',
  testModel: 'function',
  waitForAnswers: 'boolean',
  recordUnstored: 'boolean',
  chatTitles: 'boolean',
  devices: '.device',
  memory: '.attach',
  mcp: 'object',
  webhooks: 'object',
  host: 'string',
  port: '',
  keys: 'array',
  corsOrigins: 'array',
  requestsPerMinute: '',
  maxConcurrentRuns: '',
  maxConcurrentRunsPerTenant: '',
  maxOpenStreams: '',
  requiresAction: 'boolean',
  maxTurns: '',
  maxDurationMs: '',
  toolTimeoutMs: '',
  errorLimit: '',
  heartbeatMs: '',
  sendTimeoutMs: '',
  maxBodyBytes: '',
  maxBytesInProgress: '',
  retentionMs: '',
  log: '.info',
  keptLog: '.after',
  metrics: 'object',
};

/** Names that users of the library expect, with the names here. */
const ELSEWHERE = { model: 'models', journal: 'store' };

/** Throws for options that cannot work. */
export function checkServerOptions(options: TreadleServerOptions): void {
  checkOptions('treadleServer', options, { names: NAMES, elsewhere: ELSEWHERE });
  const { models, store, tools = [], defaultTools = [] } = options;
  if (!(models?.models instanceof Map)) {
    throw invalidOption("There are no models. Pass { default: 'main', models: new Map([['main', model]]) } as models.");
  }
  if (typeof store?.requests !== 'object') throw invalidOption('There is no store. Pass sqliteStore(path) as store.');
  if (!models.models.get(models.default)) {
    const known = [...models.models.keys()].join(', ');
    throw invalidOption(`The default model "${models.default}" is not one of the models: ${known}.`);
  }
  for (const [alias, name] of Object.entries(models.aliases ?? {})) {
    if (models.models.has(name)) continue;
    const known = [...models.models.keys()].join(', ');
    throw invalidOption(`models.aliases maps "${alias}" to "${name}", which is not one of the models: ${known}.`);
  }
  for (const [name, minimum] of Object.entries(MINIMUMS)) {
    const value = options[name as keyof typeof MINIMUMS];
    if (value === undefined || (Number.isSafeInteger(value) && value >= minimum)) continue;
    throw invalidOption(`${name} must be a whole number of at least ${minimum}, not ${String(value)}.`);
  }
  const names = new Set(tools.map(({ name }) => name));
  for (const { name, execute } of tools) {
    if (execute) continue;
    throw new TreadleError('invalid-tool', `Tool "${name}" has no execute function, so the server cannot run it.`);
  }
  if (names.size < tools.length) {
    throw new TreadleError('duplicate-tool', 'Two of the tools have the same name. Rename one.');
  }
  checkServers(options.mcpServers ?? {});
  for (const name of defaultTools) {
    if (names.has(name)) continue;
    const known = [...names].join(', ') || 'none';
    throw invalidOption(`defaultTools contains "${name}", which is not one of the tools: ${known}.`);
  }
  if (options.mcp?.agents) checkMcpNames(tools, options.mcp.agents);
  checkInstructions(options);
  checkSchedules(options);
}

function checkSchedules({ schedules = [], triggers = [], keys = [] }: TreadleServerOptions): void {
  checkedSchedules(schedules);
  checkTriggers(triggers);
  const starters = [
    ...schedules.map((one) => ['schedule', one] as const),
    ...triggers.map((one) => ['trigger', one] as const),
  ];
  for (const [kind, { name, key }] of starters) {
    if (key === undefined ? keys.length === 0 : keys.some((one) => one.name === key)) continue;
    const names = keys.map((one) => one.name).join(', ') || 'none';
    const why = key === undefined ? 'has no key' : `names the key "${key}", which does not exist`;
    throw invalidOption(
      `The ${kind} "${name}" ${why}. Set "key" to the name of the key as which it starts runs: ${names}.`,
    );
  }
}

function checkInstructions({ instructions = {}, models: { models }, ...options }: TreadleServerOptions): void {
  if (typeof instructions === 'string') return;
  const agents = options.namedAgents?.list().map(({ name }) => agentModelName(name)) ?? [];
  const known = ['*', ...models.keys(), ...agents];
  for (const [name, text] of Object.entries(instructions)) {
    // An agent that clients can write may come later.
    const canCome = agentNameIn(name) !== undefined && options.agentSettings?.writable;
    if (!known.includes(name) && !canCome) {
      const names = known.slice(1).join(', ');
      throw invalidOption(
        `instructions names "${name}", which is not one of the models: ${names}. "*" is for the others.`,
      );
    }
    if (typeof text !== 'string') throw invalidOption(`The instructions for "${name}" are not a text.`);
  }
}

function checkServers({ servers = [], defaults = [] }: McpServersOptions): void {
  const labels = new Set(servers.map(({ name }) => name));
  if (labels.has(OWN_LABEL)) throw invalidOption(`No MCP server may have the name "${OWN_LABEL}". Rename it.`);
  if (labels.size < servers.length) throw invalidOption('Two of the MCP servers have the same name. Rename one.');
  const unknown = defaults.find((label) => !labels.has(label));
  if (unknown === undefined) return;
  throw invalidOption(`mcpServers.defaults contains "${unknown}", which is not one of the MCP servers.`);
}

function invalidOption(message: string): TreadleError {
  return new TreadleError('invalid-options', message);
}
