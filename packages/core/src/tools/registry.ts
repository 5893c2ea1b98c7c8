import { systemClock, type Clock } from '../platform.ts';
import { messageOf } from '../errors.ts';
import type { SettledResult } from '../machine/events.ts';
import type { JsonSchema } from '../model.ts';
import type { Principal } from '../policy/port.ts';
import { argumentsProblem, executeTool } from './execute.ts';
import { Broken, errorResult, Parked } from './result.ts';
import type { PatternMatcher } from './json-schema.ts';
import { validate } from './schema.ts';
import { duplicateTool, timeoutOf, type Tool } from './tool.ts';

/** Tools by name, from any source, with definitions that were loaded from files. */
export interface Registry {
  /** Throws `duplicate-tool` if the name is taken; the message names both sources. */
  register(tool: Tool, source: string): void;
  /** Adds the definition of a tool from a file. It overrides the tool, whether it is added before or after it. */
  define(entry: RegistryEntry, source: string): void;
  /** Returns false if there is no such tool. The definition from a file stays. */
  unregister(name: string): boolean;
  get(name: string): Tool | undefined;
  /** In the order of registration, as `runLoop` takes them. */
  list(): readonly Tool[];
  /** In the format of OpenAI's API. */
  describe(): readonly FunctionDescription[];
  /** Validates the input and runs the tool. Every failure is an error result. */
  execute(name: string, input: unknown, options?: ExecuteOptions): Promise<SettledResult>;
}

/** The definition of a tool from a file. `parameters` replaces the schema of the tool. */
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
  /** Matches the patterns of JSON Schemas; default: regular expressions of JavaScript. */
  readonly matchPattern?: PatternMatcher;
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
    return tool && overridden(tool, entries.get(name)?.value);
  }

  function list(): readonly Tool[] {
    return [...tools.keys()].map((name) => get(name)!);
  }

  return {
    register: (tool, source) => addNamed(tools, 'tools', { value: tool, source }),
    define: (entry, source) => addNamed(entries, 'definitions of a tool', { value: entry, source }),
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
      if (!tool) {
        return errorResult(missingTool(name, entries.get(name), [...tools.keys()]), { errorType: 'not_found' });
      }
      if (!tool.execute) return errorResult(`The tool "${name}" is executed by the client, not here.`);
      const validated = await validate(tool.input, input, options.matchPattern);
      if (validated.type === 'invalid') {
        return errorResult(`The tool "${name}" was not called. ${argumentsProblem(tool, validated.problems)}`, {
          errorType: 'invalid_params',
        });
      }
      const { key = name, report = ignore, context, principal, clock = systemClock, signal, matchPattern } = options;
      if (signal?.aborted) return errorResult(`The tool "${name}" was not called: the signal is already aborted.`);
      const timeoutMs = options.timeoutMs ?? timeoutOf(tool, validated.value) ?? 60_000;
      const running = executeTool({
        tool,
        input: validated.value,
        key,
        matchPattern,
        timeoutMs,
        clock,
        report,
        context,
        principal,
      });
      const abort = (): void => running.abort();
      signal?.addEventListener('abort', abort, { once: true });
      const result = await running.result;
      signal?.removeEventListener('abort', abort);
      if (result instanceof Broken) return errorResult(`The tool "${name}" failed: ${messageOf(result.error)}`);
      if (!(result instanceof Parked)) return result;
      return errorResult(`The tool "${name}" continues elsewhere (${result.on}); only a run can wait for it.`);
    },
  };
}

function addNamed<T extends { readonly name: string }>(
  to: Map<string, Sourced<T>>,
  what: string,
  added: Sourced<T>,
): void {
  const { name } = added.value;
  const existing = to.get(name);
  if (existing) throw duplicateTool(name, what, existing.source, added.source);
  to.set(name, added);
}

function overridden(tool: Tool, entry: RegistryEntry | undefined): Tool {
  if (!entry) return tool;
  const { parameters, description, timeoutMs } = entry;
  return {
    ...tool,
    ...(description !== undefined && { description }),
    ...(parameters && { parameters, input: parameters }),
    ...(timeoutMs !== undefined && { timeoutMs }),
  };
}

function missingTool(name: string, entry: Sourced<RegistryEntry> | undefined, available: readonly string[]): string {
  if (entry) return `The tool "${name}" is defined in ${entry.source}, but no code for it is registered.`;
  return `There is no tool "${name}". Available tools: ${available.join(', ') || 'none'}.`;
}

function ignore(): void {}
