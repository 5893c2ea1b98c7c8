import { homedir } from 'node:os';
import {
  messageOf,
  runLoop,
  type CallAnswered,
  type JudgedCall,
  type Policy,
  type ResultBlock,
  type Tool,
  type ToolContext,
  type ToolResult,
  type Verdict,
} from '@treadle/core';
import {
  checkRules,
  policy,
  type Analysers,
  type PolicyRules,
  type RateStore,
  type RulePolicy,
} from '@treadle/core/policy';
import {
  applyPatchTool,
  bashTool,
  editTool,
  gitBranchTool,
  gitCommitTool,
  gitDiffTool,
  gitLogTool,
  gitStatusTool,
  globTool,
  grepTool,
  local,
  pathFacts,
  policyCheck,
  readTool,
  toLegacyResult,
  urlFacts,
  writeTool,
  type Ops,
} from '@treadle/tools';
import { callingModel } from '@treadle/tools/calling-model';
import { generateToolSchemas, loadSkillDefinitions, packageTool, type PackagedTool } from '@treadle/tools/packages';
import { matchPattern } from '@treadle/tools/patterns';
import {
  DEFAULT_REQUIRED,
  engineProblem,
  findEngine,
  sandboxed,
  type EngineName,
  type SandboxOptions,
} from '@treadle/tools/sandbox';
import type { OfferedTool } from '../protocol/capabilities.ts';
import type { ReportErrorType } from '../protocol/report.ts';
import { operations } from './operations.ts';
import type { Described, Outcome, Runner, RunnerCall, ToolSettings } from './runner.ts';

/*
 * The tools of a device: built-in ones, and those of packages. A call is a run with one call, so it is validated, judged by the
 * device's own policy, confined and ended as every other call.
 */

const SETS: Readonly<Record<string, readonly string[]>> = {
  'read-only': ['read', 'glob', 'grep'],
  coding: [
    'read',
    'glob',
    'grep',
    'write',
    'edit',
    'apply_patch',
    'bash',
    'git_status',
    'git_diff',
    'git_log',
    'git_commit',
    'git_branch',
  ],
};

/** The built-in tools that need nothing of a conversation. */
export function builtInTools(ops: Ops, programs: Ops = ops): readonly Tool[] {
  return [
    readTool(ops),
    globTool(ops),
    grepTool(ops),
    writeTool(ops),
    editTool(ops),
    applyPatchTool(ops),
    bashTool(programs),
    gitStatusTool(programs),
    gitDiffTool(programs),
    gitLogTool(programs),
    gitCommitTool(programs),
    gitBranchTool(programs),
  ];
}

/** A tool that the device has, also if its capabilities do not suffice. */
interface DeviceTool {
  readonly tool: Tool;
  readonly missing: readonly string[];
  readonly offered: OfferedTool;
}

interface Loaded {
  readonly tools: ReadonlyMap<string, DeviceTool>;
  readonly described: Described;
  readonly ops: Ops;
  readonly judging: Policy;
}

/** Runs the tools in this process. */
export function inProcessRunner(settings: ToolSettings): Runner {
  let loading: Promise<Loaded> | undefined;
  const load = (): Promise<Loaded> => (loading ??= loadTools(settings));
  let host: ReturnType<typeof operations> | undefined;
  return {
    describe: async () => (await load()).described,
    async reload() {
      loading = undefined;
      return (await load()).described;
    },
    async call(call, onProgress) {
      try {
        return await callTool(call, await load(), onProgress);
      } catch (error) {
        return failure(`The tool '${call.tool}' failed: ${messageOf(error)}`);
      }
    },
    async operate(op, args) {
      const { ops, judging } = await load();
      host ??= operations(settings, ops, judging);
      return host.operate(op, args);
    },
    async close() {
      await host?.close();
    },
  };
}

async function loadTools(settings: ToolSettings): Promise<Loaded> {
  const { folder, capabilities, offer, timeoutMs } = settings;
  const rules = rulesOf(settings);
  const home = homedir();
  const judging = policy(rules, {
    folder,
    home,
    analysers: analysersOf(folder, rules),
    ...(rules.rate === undefined && { rates: UNCOUNTED }),
  });
  const ops = local(folder, { check: hiding(policyCheck(judging, folder), settings) });
  const names = new Set(offer.flatMap((word) => SETS[word] ?? [word]));
  const taken = builtInTools(ops).map(({ name }) => name);
  const unknown = offer.filter(
    (word) => word !== 'packages' && word !== 'none' && !SETS[word] && !taken.includes(word),
  );
  if (unknown.length > 0) {
    throw new Error(
      `[tools] offer names ${unknown.join(', ')}. It takes ${[...Object.keys(SETS), 'packages'].join(', ')} and the ` +
        `built-in tools ${taken.join(', ')}.`,
    );
  }
  const offeredNames = taken.filter((name) => names.has(name));
  const loaded = offer.includes('packages')
    ? await loadSkillDefinitions(settings.skills, { taken: offeredNames })
    : { tools: [], packages: [], problems: [] };
  const walls = await openSandbox(settings, ops, judging, loaded.tools);
  const programs = walls.main;
  const builtIn = builtInTools(ops, programs).filter(({ name }) => names.has(name));
  const packaged = loaded.tools.flatMap((definition) => {
    const where = walls.of(definition.sandboxing);
    return where ? [{ definition, tool: packageTool(definition, where) }] : [];
  });
  const all: readonly DeviceTool[] = [
    ...builtIn.map((tool) => deviceTool(tool, capabilities, { builtin: true, timeout_ms: timeoutMs })),
    ...packaged.map(({ definition, tool }) => deviceTool(tool, capabilities, packagedFacts(definition))),
  ];
  const exec = capabilities.includes('shell');
  const { sandbox } = programs.exec;
  return {
    tools: new Map(all.map((one) => [one.tool.name, one])),
    ops: programs,
    judging: settings.onAsk === 'allow' ? withoutAsking(judging) : denyingAsks(judging),
    described: {
      capabilities,
      platform: `${process.platform}-${process.arch}`,
      folder,
      home,
      tools: all.filter(({ missing }) => missing.length === 0).map(({ offered }) => offered),
      skills: loaded.packages.map(({ name, version }) => ({ name, version })),
      ...(settings.ops &&
        capabilities.includes('file_read') && {
          ops: {
            exec,
            ...(sandbox && { sandbox: { engine: sandbox.engine, promises: [...sandbox.promises] } }),
          },
        }),
      notices: [...loaded.problems, ...walls.notices],
    },
  };
}

/** The orchestrator counts the calls of each caller. The device cannot tell callers apart, and its queue limits what it takes. */
const UNCOUNTED: RateStore = { add: () => [] };

/** A permission that the device does not have is refused, whatever the rules say. */
function rulesOf({ rules, capabilities }: ToolSettings): PolicyRules {
  const { problems } = checkRules(rules);
  if (problems.length > 0) throw new Error(`[policy] ${problems.map(({ message }) => message).join('; ')}`);
  const own = rules as PolicyRules;
  const held = Object.fromEntries(PERMISSIONS.map((name) => [name, capabilities.includes(name)]));
  const refused = Object.entries(own.permissions ?? {}).filter(([, isHeld]) => isHeld === false);
  return { ...own, permissions: { ...held, ...Object.fromEntries(refused) } };
}

const PERMISSIONS = ['file_read', 'file_write', 'shell', 'network', 'git', 'session'] as const;

function analysersOf(folder: string, { private: own }: PolicyRules): Analysers {
  const home = homedir();
  let analyse: Analysers['command'];
  return {
    command: async (command) => {
      const { commandAnalyser } = await import('@treadle/tools/commands');
      analyse ??= commandAnalyser({ folder, ...(own?.paths && { private: own.paths }) });
      return analyse(command);
    },
    path: (path) => pathFacts(path, { folder, home }),
    url: urlFacts,
  };
}

type PathCheck = ReturnType<typeof policyCheck>;

/** The files of the agent itself are not for tools. */
function hiding(check: PathCheck, { hide }: ToolSettings): PathCheck {
  const isHidden = (path: string): boolean => hide.some((one) => path === one || path.startsWith(`${one}/`));
  return async (facts, use) =>
    isHidden(facts.path) || (facts.target !== undefined && isHidden(facts.target))
      ? `${JSON.stringify(facts.path)} belongs to the device's agent. Use other files.`
      : check(facts, use);
}

interface Walls {
  /** Where programs run. */
  readonly main: Ops;
  /** The programs of a tool that asks for an engine. Undefined: that does not work here. */
  of(wanted: string | undefined): Ops | undefined;
  readonly notices: readonly string[];
}

async function openSandbox(
  { sandboxing, rules, hide }: ToolSettings,
  ops: Ops,
  judging: RulePolicy,
  packaged: readonly PackagedTool[],
): Promise<Walls> {
  const { sandbox = {}, private: own } = rules as PolicyRules;
  const required = (sandbox.require as typeof DEFAULT_REQUIRED | undefined) ?? DEFAULT_REQUIRED;
  const options: SandboxOptions = {
    ...(own && { private: own }),
    expose: [...(sandbox.expose ?? []), ...new Set(packaged.map((one) => one.package.folder))],
    hide: [...hide],
    ...(sandbox.network === true && { hosts: allowedHosts(judging) }),
  };
  const notices: string[] = [];
  const confined = async (wanted: string): Promise<Ops | undefined> => {
    const { found, tried } = await findEngine(required, ...(wanted === 'auto' ? [] : [[wanted as EngineName]]));
    notices.push(...tried.flatMap((probe) => engineProblem(probe, required) ?? []));
    return found && sandboxed(ops, found.engine, { ...options, promises: found.probe.kept });
  };
  const main = sandboxing === 'none' ? undefined : await confined(sandboxing);
  if (!main && !['none', 'auto'].includes(sandboxing)) {
    throw new Error(`[tools] sandboxing is "${sandboxing}", which does not work on this device.`);
  }
  const why = sandboxing === 'none' ? 'as the configuration says' : 'because none works here';
  if (!main) notices.push(`There is no sandbox, ${why}: programs run with all rights of the agent.`);
  const asked = new Map<string, Ops | undefined>([['none', ops]]);
  for (const wanted of new Set(packaged.flatMap((one) => one.sandboxing ?? []))) {
    if (asked.has(wanted)) continue;
    asked.set(wanted, await confined(wanted));
    if (asked.get(wanted)) continue;
    notices.push(`Tools that ask for the sandbox ${wanted} are not offered, because it does not work here.`);
  }
  return { main: main ?? ops, of: (wanted) => (wanted === undefined ? (main ?? ops) : asked.get(wanted)), notices };
}

/** A host has to be named by [policy.domains], and none of its addresses may be denied. */
function allowedHosts(judging: RulePolicy): NonNullable<SandboxOptions['hosts']> {
  return async (url, resolvedFrom) => {
    const { rules } = await judging.explain({ name: 'bash', touches: [{ type: 'url', url }] });
    const found = rules.find(({ rule }) => rule === 'domains');
    const isAllowed = resolvedFrom === undefined ? found?.verdict === 'allow' : found?.verdict !== 'deny';
    return isAllowed ? undefined : (found?.reason ?? 'it is not in domains.allow of the policy');
  };
}

function deviceTool(tool: Tool, capabilities: readonly string[], facts: Partial<OfferedTool>): DeviceTool {
  const { name, description, parameters, effect, permissions = [], fingerprint, sandbox } = tool;
  const promises = sandbox && promisesOf(sandbox);
  return {
    tool,
    missing: permissions.filter((one) => !capabilities.includes(one)),
    offered: {
      name,
      description,
      parameters,
      effect,
      permissions,
      ...(fingerprint !== undefined && { fingerprint }),
      ...(promises && promises.length > 0 && { sandbox: promises }),
      ...facts,
    },
  };
}

/** As far as they do not depend on the call. */
function promisesOf(sandbox: NonNullable<Tool['sandbox']>): readonly string[] {
  try {
    return sandbox({});
  } catch {
    return [];
  }
}

function packagedFacts(definition: PackagedTool): Partial<OfferedTool> {
  const [schema] = generateToolSchemas([definition], definition.permissions);
  return {
    timeout_ms: definition.timeoutMs,
    ...(definition.touches && { touches: definition.touches }),
    evoclaw: schema!.evoclaw,
  };
}

/** The orchestrator has asked, or its policy allows it. What the rules deny stays denied. */
function withoutAsking(judging: RulePolicy): Policy {
  return verdictsOf(judging, () => ({ type: 'allow', rule: 'device' }));
}

function denyingAsks(judging: RulePolicy): Policy {
  return verdictsOf(judging, ({ reason }) => ({
    type: 'deny',
    reason: `the device asks about it, and nobody is there${reason === undefined ? '' : `: ${reason}`}`,
    rule: 'device',
  }));
}

function verdictsOf(judging: RulePolicy, onAsk: (asked: Verdict & { type: 'ask' }) => Verdict): Policy {
  return {
    async judge(calls: readonly JudgedCall[], context) {
      const verdicts = await judging.judge(calls, context);
      return verdicts.map((verdict) => (verdict.type === 'ask' ? onAsk(verdict) : verdict));
    },
  };
}

/** Longer results are cut. They are served in parts from 1 MB on. */
const MAX_RESULT_CHARS = 32 * 1024 * 1024;

async function callTool(
  { tool: name, parameters, key, timeoutMs, signal }: RunnerCall,
  { tools, judging }: Loaded,
  onProgress: (progress: unknown) => void,
): Promise<Outcome> {
  const found = tools.get(name);
  if (!found) {
    const available = [...tools.values()].filter(({ missing }) => missing.length === 0).map(({ tool }) => tool.name);
    return failure(`There is no tool '${name}'. Available tools: ${available.join(', ') || 'none'}.`, 'not_found');
  }
  if (found.missing.length > 0) {
    const requires = found.tool.permissions ?? [];
    return { ...failure(`Permission denied (requires: ${requires.join(', ')}).`, 'permission_denied'), requires };
  }
  let answered: CallAnswered | undefined;
  await runLoop({
    model: callingModel(name, JSON.stringify(parameters)),
    tools: [underKey(found.tool, key, timeoutMs)],
    policy: judging,
    input: 'One call.',
    maxTurns: 1,
    maxResultChars: MAX_RESULT_CHARS,
    toolTimeoutMs: timeoutMs,
    canAnswer: false,
    matchPattern,
    signal,
    onItem(item) {
      if (item.type === 'tool-report') onProgress(item.progress);
      else if (item.type === 'call-answered') answered = item;
    },
  });
  if (answered) return outcomeOf(answered.result, found.tool, signal.aborted);
  return signal.aborted ? failure('The call was cancelled.', 'cancelled') : failure('The call has no result.');
}

/** The same tool under the id of the request, and at most for the time that is left. */
function underKey(tool: Tool, key: string, timeoutMs: number): Tool {
  const { timeoutMs: own = timeoutMs, execute } = tool;
  return {
    ...tool,
    timeoutMs: typeof own === 'number' ? Math.min(own, timeoutMs) : (input) => Math.min(own(input), timeoutMs),
    execute: (input, context) => execute!(input, withKey(context, key)),
  };
}

function withKey(context: ToolContext, key: string): ToolContext {
  return new Proxy(context, {
    get: (target, name) => (name === 'key' ? key : Reflect.get(target, name, target)),
  });
}

const ERROR_TYPES: Readonly<Record<string, ReportErrorType>> = {
  timeout: 'timeout',
  not_found: 'not_found',
  permission_denied: 'permission_denied',
  invalid_params: 'invalid_params',
  denied: 'permission_denied',
};

function outcomeOf(result: ToolResult, tool: Tool, isCancelled: boolean): Outcome {
  const { content, isError, errorType, exitCode, stderr } = result;
  const facts = { ...(exitCode !== undefined && { exit_code: exitCode }), ...(stderr !== undefined && { stderr }) };
  if (!isError) {
    const plain = toLegacyResult(result, { tool: tool.name }) as { readonly result: string };
    const media = content.some(({ type }) => type === 'image' || type === 'file');
    return { status: 'success', result: plain.result, stderr: '', exit_code: 0, ...facts, ...(media && { content }) };
  }
  const text = content.map(blockText).join('\n');
  const type = isCancelled ? 'cancelled' : (ERROR_TYPES[errorType ?? ''] ?? 'execution_failed');
  const requires = type === 'permission_denied' && { requires: tool.permissions ?? [] };
  return { ...failure(text, type), ...facts, ...requires };
}

function blockText(block: ResultBlock): string {
  return 'text' in block ? block.text : `[${block.type}: ${block.mediaType}]`;
}

function failure(error: string, type: ReportErrorType = 'execution_failed'): Outcome {
  return { status: 'error', error, error_type: type };
}
