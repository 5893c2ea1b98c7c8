import { TreadleError, type Tool } from '@treadle/core';
import type { TreadleServerOptions } from './treadle-server.ts';

/** The least that each can be. */
const COUNTS = {
  requestsPerMinute: 1,
  maxConcurrentRuns: 1,
  maxConcurrentRunsPerTenant: 1,
  maxTurns: 1,
  maxDurationMs: 1,
  toolTimeoutMs: 1,
  errorLimit: 0,
  heartbeatMs: 1,
  maxBodyBytes: 1,
  retentionMs: 0,
} as const satisfies Partial<Record<keyof TreadleServerOptions, number>>;

/** Throws for options with which nothing could be served. */
export function checkOptions(options: TreadleServerOptions): void {
  const { models, tools = [], defaultTools = [] } = options;
  if (!models.models.get(models.default)) {
    throw wrong(
      `The default model "${models.default}" is none of the models: ${[...models.models.keys()].join(', ')}.`,
    );
  }
  for (const [name, least] of Object.entries(COUNTS)) {
    const given = options[name as keyof typeof COUNTS];
    if (given === undefined || (Number.isSafeInteger(given) && given >= least)) continue;
    throw wrong(`${name} must be a whole number from ${least}, and is ${String(given)}.`);
  }
  checkTools(tools, defaultTools);
}

function checkTools(tools: readonly Tool[], defaultTools: readonly string[]): void {
  const names = new Set(tools.map(({ name }) => name));
  for (const { name, execute } of tools) {
    if (execute) continue;
    throw new TreadleError('invalid-tool', `Tool "${name}" has no execute, and the server would have to run it.`);
  }
  if (names.size < tools.length) {
    throw new TreadleError('duplicate-tool', 'Two of the tools have the same name. Rename one.');
  }
  for (const name of defaultTools) {
    if (names.has(name)) continue;
    const known = [...names].join(', ') || 'none';
    throw wrong(`defaultTools names "${name}", which is none of the tools: ${known}.`);
  }
}

function wrong(message: string): TreadleError {
  return new TreadleError('invalid-options', message);
}
