/** Longer commands are refused, because analysing them could take long. */
export const MAX_COMMAND_LENGTH = 65_536;

/** How long calls of a kind of tool may take: without `timeout_ms`, and at most. */
export const TIMEOUTS = {
  files: { defaultMs: 5_000, maxMs: 30_000 },
  web: { defaultMs: 30_000, maxMs: 120_000 },
  execution: { defaultMs: 30_000, maxMs: 300_000 },
  git: { defaultMs: 60_000, maxMs: 300_000 },
  other: { defaultMs: 10_000, maxMs: 60_000 },
} as const;

export type ToolKind = keyof typeof TIMEOUTS;

/** The schema of the argument `timeout_ms`. */
export function timeoutParameter(kind: ToolKind): {
  readonly type: 'integer';
  readonly minimum: 1;
  readonly maximum: number;
  readonly description: string;
} {
  const { defaultMs, maxMs } = TIMEOUTS[kind];
  return { type: 'integer', minimum: 1, maximum: maxMs, description: `Time limit in ms; default ${defaultMs}` };
}

/** The time limit of a call, for `timeoutMs` of a tool. */
export function timeoutFor(kind: ToolKind): (input: { readonly timeout_ms?: number }) => number {
  const { defaultMs, maxMs } = TIMEOUTS[kind];
  return ({ timeout_ms: asked = defaultMs }) => Math.min(asked, maxMs);
}
