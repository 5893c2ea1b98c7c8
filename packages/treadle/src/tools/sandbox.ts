import { dirname } from 'node:path';
import type { RulePolicy } from '@treadle/core/policy';
import { local, type Ops } from '@treadle/tools';
import type * as SandboxPackage from '@treadle/tools/sandbox';
import type { Engine, EngineName, ProbeResult, PromiseName, SandboxOptions } from '@treadle/tools/sandbox';
import { CommandError } from '../command-line/command.ts';
import type { CommandContext } from '../config/context.ts';
import { commandPolicy, rulesOf } from '../policy/command-policy.ts';
import { agentFolders } from '../config/agents.ts';
import { hooksModule } from '../config/hooks.ts';
import { packagePlaces } from '../config/skill-folders.ts';

/** Tools that start programs, by their names in `sandboxing`. */
export const SANDBOXED_TOOLS = ['bash', 'git'] as const;
export type SandboxedTool = (typeof SANDBOXED_TOOLS)[number];

export type EngineChoice = EngineName | 'auto' | 'none';

/** Where the programs of tools run. */
export interface Sandbox {
  /** What the user is told before anything runs. */
  readonly notice: string;
  /** The programs of a tool. */
  opsFor(ops: Ops, tool: SandboxedTool): Ops;
  /** The programs of a package's tool, which may ask for an engine. Undefined if that one does not work here. */
  packageOps(ops: Ops, wanted: string | undefined): Ops | undefined;
  /** The programs of an MCP server, in its folder. Undefined if there is no sandbox. */
  serverOps(folder: string, reads: readonly string[]): Ops | undefined;
}

/** Without a sandbox. */
export const NO_SANDBOX: Sandbox = {
  notice: '',
  opsFor: (ops) => ops,
  packageOps: (ops) => ops,
  serverOps: () => undefined,
};

export const WITHOUT_WALLS =
  'Commands run with all your rights: they can read and change every file of yours, and use the network';

const NOT_INSTALLED: Readonly<Record<Exclude<EngineChoice, 'none'>, string>> = {
  auto: process.platform === 'linux' ? 'None is installed: install bubblewrap.' : 'There is none for this system.',
  bubblewrap: 'It is not installed, or this is not Linux.',
  firejail: 'It is not installed, or this is not Linux.',
  podman: 'It is not installed, or this is not Linux.',
  seatbelt: 'It is a part of macOS.',
};

function loadSandboxPackage(): Promise<typeof SandboxPackage> {
  return import('@treadle/tools/sandbox');
}

interface Found {
  readonly engine: Engine;
  readonly probe: ProbeResult;
}

/** Finds the engines that the configuration wants. Throws if one that it names does not work. */
export async function chooseSandbox(context: CommandContext): Promise<Sandbox> {
  const { loaded } = context;
  const tools = loaded.config.orchestrator?.tools ?? {};
  const wanted: EngineChoice = tools.enable_sandboxing === false ? 'none' : (tools.sandbox_engine ?? 'auto');
  const byTool = tools.enable_sandboxing === false ? {} : (tools.sandboxing ?? {});
  const main = await findWanted(context, wanted, 'sandbox_engine');
  const own = new Map<string, Found | undefined>();
  for (const [tool, name] of Object.entries(byTool)) {
    own.set(tool, (await findWanted(context, name, `sandboxing.${tool}`)).found);
  }
  const asked = await enginesOfPackages(context, main.found);
  const options = sandboxOptions(context);
  const { sandboxed } = await loadSandboxPackage();
  /** A folder that cannot be confined, such as the home folder, is reported at the start. */
  const problem = main.found && problemOf(() => sandboxed(local(context.folder), main.found!.engine, options));
  const made = new Map<string, Ops>();
  const wrap = (ops: Ops, found: Found | undefined, key: string): Ops => {
    if (!found || problem !== undefined) return ops;
    const known = made.get(key);
    if (known) return known;
    const confined = sandboxed(ops, found.engine, { ...options, promises: found.probe.kept });
    made.set(key, confined);
    return confined;
  };
  const withProblem = problem === undefined ? main.notice : `No sandbox: ${problem} ${WITHOUT_WALLS}.`;
  return {
    notice: [withProblem, ...asked.notices].join('\n'),
    opsFor: (ops, tool) => {
      const found = own.has(tool) ? own.get(tool) : main.found;
      return wrap(ops, found, found?.engine.name ?? '');
    },
    packageOps(ops, wanted) {
      if (wanted === 'none') return ops;
      if (wanted === undefined) return wrap(ops, main.found, main.found?.engine.name ?? '');
      const found = asked.engines.get(wanted);
      return found && problem === undefined ? wrap(ops, found, wanted) : undefined;
    },
    serverOps(folder, reads) {
      if (!main.found || problem !== undefined) return undefined;
      const expose = [...(options.expose ?? []), ...reads];
      return sandboxed(local(folder), main.found.engine, { ...options, expose, promises: main.found.probe.kept });
    },
  };
}

/** The engines that tools of packages ask for. One that does not work is left out, and its tools with it. */
async function enginesOfPackages(
  context: CommandContext,
  main: Found | undefined,
): Promise<{ readonly engines: ReadonlyMap<string, Found>; readonly notices: readonly string[] }> {
  const engines = new Map<string, Found>();
  const notices: string[] = [];
  const { DEFAULT_REQUIRED, findEngine } = await loadSandboxPackage();
  const isOff = context.loaded.config.orchestrator?.tools?.enable_sandboxing === false;
  const askedFor = Map.groupBy(context.packages.tools, ({ sandboxing = 'none' }) => sandboxing);
  for (const [name, tools] of askedFor) {
    if (name === 'none') continue;
    const required = requiredPromises(context, DEFAULT_REQUIRED);
    const found =
      main?.engine.name === name ? main : isOff ? undefined : (await findEngine(required, [name as EngineName])).found;
    if (found) engines.set(name, found);
    else {
      const names = tools.map((one) => one.name).join(', ');
      notices.push(`Not offered, because the sandbox ${name} that they ask for does not work here: ${names}.`);
    }
  }
  return { engines, notices };
}

function problemOf(open: () => unknown): string | undefined {
  try {
    open();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** The promises that an engine has to keep. */
export function requiredPromises({ loaded }: CommandContext, defaults: readonly PromiseName[]): readonly PromiseName[] {
  return (rulesOf(loaded.config).sandbox?.require as readonly PromiseName[] | undefined) ?? defaults;
}

async function findWanted(
  context: CommandContext,
  wanted: EngineChoice,
  key: string,
): Promise<{ readonly found?: Found; readonly notice: string }> {
  if (wanted === 'none') return { notice: `No sandbox, as ${context.loaded.file} says. ${WITHOUT_WALLS}.` };
  const { DEFAULT_REQUIRED, engineProblem, findEngine } = await loadSandboxPackage();
  const required = requiredPromises(context, DEFAULT_REQUIRED);
  const { found, tried } = await findEngine(required, ...(wanted === 'auto' ? [] : [[wanted]]));
  const problems = tried.flatMap((probe) => engineProblem(probe, required) ?? []);
  // An engine that is installed and was passed over is reported too.
  if (found) return { found, notice: [foundText(found, required), ...problems].join('\n') };
  const why = problems.join(' ') || NOT_INSTALLED[wanted];
  if (wanted !== 'auto') {
    throw new CommandError(
      `${context.loaded.file}: orchestrator.tools.${key} is "${wanted}", which cannot be used here. ${why} ` +
        'Use "auto", or "none" for no sandbox.',
    );
  }
  return { notice: `No sandbox works here. ${why} ${WITHOUT_WALLS}. See: treadle doctor` };
}

function foundText({ probe: { engine, kept, broken } }: Found, required: readonly PromiseName[]): string {
  const missing = broken.map(({ promise }) => promise).filter((promise) => !required.includes(promise));
  const without = missing.length === 0 ? '' : `, without: ${missing.join(', ')}`;
  return `Sandbox: ${engine}, ${kept.length} promises kept${without}`;
}

function sandboxOptions(context: CommandContext): SandboxOptions {
  const { loaded, store } = context;
  const { sandbox = {}, private: own } = rulesOf(loaded.config);
  return {
    ...(own && { private: own }),
    ...(sandbox.expose && { expose: sandbox.expose }),
    ...(context.readable && { readable: context.readable }),
    // A program that is compared before it runs must not change after that.
    protect: [
      ...[loaded.path, hooksModule(loaded)].filter((path) => path !== undefined),
      ...packagePlaces(context),
      ...context.packages.ofProject.map((own) => own.folder),
      ...agentFolders(context),
    ],
    ...(store.type !== 'memory' && {
      hide: [store.file, `${store.file}-wal`, `${store.file}-shm`, `${store.file}.secrets`],
    }),
    ...(sandbox.network === true && { hosts: allowedHosts(commandPolicy(context, 'policy')) }),
  };
}

/** A host has to be named by [policy.domains], and none of its addresses may be denied. */
function allowedHosts(policy: Pick<RulePolicy, 'explain'>): NonNullable<SandboxOptions['hosts']> {
  return async (url, resolvedFrom) => {
    const { rules } = await policy.explain({ name: 'bash', touches: [{ type: 'url', url }] });
    const found = rules.find(({ rule }) => rule === 'domains');
    const isAllowed = resolvedFrom === undefined ? found?.verdict === 'allow' : found?.verdict !== 'deny';
    return isAllowed ? undefined : (found?.reason ?? 'it is not in domains.allow of the policy');
  };
}

/** What the program of an MCP server needs to read: itself, and files that its arguments name. */
export function serverFiles(command: string, args: readonly string[]): readonly string[] {
  return [command, ...args].filter((path) => path.startsWith('/')).map((path) => dirname(path));
}
