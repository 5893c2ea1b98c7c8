import { systemClock, type Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { SettledResult } from '../loop/events.ts';
import type { JsonSchema } from '../model.ts';
import type { Principal } from '../policy/port.ts';
import { execute } from './execute.ts';
import { Broken, errorResult, Parked } from './result.ts';
import { validate } from './schema.ts';
import { duplicateTool, type Tool } from './tool.ts';

/** Tools by name, from wherever they come, with what was loaded about them from files. */
export interface Registry {
  /** `source` says in errors where the tool is from. Throws `duplicate-tool`, naming both, if the name is taken. */
  register(tool: Tool, source: string): void;
  /** What a file says of a tool; it goes before what the tool says of itself, whichever comes first. */
  define(entry: RegistryEntry, source: string): void;
  /** False: there was none. Its definition stays. */
  unregister(name: string): boolean;
  get(name: string): Tool | undefined;
  /** In the order in which they were registered; ready for `runLoop`. */
  list(): readonly Tool[];
  /** As OpenAI's API takes them. */
  describe(): readonly FunctionDescription[];
  /** Validates the input and runs the tool. Everything that goes wrong is an error result. */
  execute(name: string, input: unknown, options?: ExecuteOptions): Promise<SettledResult>;
}

/** Facts about a tool that were loaded from elsewhere. `parameters` replaces the tool's own schema. */
export interface RegistryEntry {
  readonly name: string;
  readonly description?: string;
  readonly parameters?: JsonSchema;
  readonly timeoutMs?: number;
}

export interface FunctionDescription {
  readonly type: 'function';
  readonly function: { readonly name: string; readonly description: string; readonly parameters: JsonSchema };
}

export interface ExecuteOptions {
  readonly signal?: AbortSignal;
  readonly key?: string;
  readonly report?: (progress: unknown) => void;
  readonly context?: unknown;
  readonly principal?: Principal;
  readonly timeoutMs?: number;
  readonly clock?: Clock;
}

interface Sourced<T> {
  readonly value: T;
  readonly source: string;
}

export function registry(): Registry {
  const tools = new Map<string, Sourced<Tool>>();
  const entries = new Map<string, Sourced<RegistryEntry>>();

  function get(name: string): Tool | undefined {
    const tool = tools.get(name)?.value;
    return tool && merged(tool, entries.get(name)?.value);
  }

  function list(): readonly Tool[] {
    return [...tools.keys()].map((name) => get(name)!);
  }

  return {
    register: (tool, source) => add(tools, 'tools', { value: tool, source }),
    define: (entry, source) => add(entries, 'definitions of a tool', { value: entry, source }),
    unregister: (name) => tools.delete(name),
    get,
    list,
    describe: () =>
      list().map(({ name, description, parameters }) => ({
        type: 'function',
        function: { name, description, parameters },
      })),
    async execute(name, input, options = {}) {
      const tool = get(name);
      if (!tool) return errorResult(missing(name, entries.get(name), [...tools.keys()]));
      if (!tool.execute) return errorResult(`The tool "${name}" is executed by the client, not here.`);
      const validated = await validate(tool.input, input);
      if (validated.type === 'invalid') {
        return errorResult(
          `The tool "${name}" was not called. Its arguments are not valid: ${validated.problems.join('; ')}.`,
        );
      }
      const { key = name, report = ignore, context, principal, clock = systemClock, signal } = options;
      if (signal?.aborted) return errorResult(`The tool "${name}" was not called: that was called off before.`);
      const timeoutMs = options.timeoutMs ?? tool.timeoutMs ?? 60_000;
      const running = execute({ tool, input: validated.value, key, timeoutMs, clock, report, context, principal });
      const abort = (): void => running.abort();
      signal?.addEventListener('abort', abort, { once: true });
      const result = await running.result;
      signal?.removeEventListener('abort', abort);
      if (result instanceof Broken) return errorResult(`The tool "${name}" failed: ${messageOf(result.error)}`);
      if (!(result instanceof Parked)) return result;
      return errorResult(`The tool "${name}" goes on elsewhere (${result.on}), which only a run can wait for.`);
    },
  };
}

function add<T extends { readonly name: string }>(to: Map<string, Sourced<T>>, what: string, added: Sourced<T>): void {
  const { name } = added.value;
  const there = to.get(name);
  if (there) throw duplicateTool(name, what, there.source, added.source);
  to.set(name, added);
}

function merged(tool: Tool, entry: RegistryEntry | undefined): Tool {
  if (!entry) return tool;
  const { parameters, description, timeoutMs } = entry;
  return {
    ...tool,
    ...(description !== undefined && { description }),
    ...(parameters && { parameters, input: parameters }),
    ...(timeoutMs !== undefined && { timeoutMs }),
  };
}

function missing(name: string, entry: Sourced<RegistryEntry> | undefined, available: readonly string[]): string {
  if (entry) return `The tool "${name}" is defined in ${entry.source}, but no code for it is registered.`;
  return `There is no tool "${name}". Available tools: ${available.join(', ') || 'none'}.`;
}

function ignore(): void {}
