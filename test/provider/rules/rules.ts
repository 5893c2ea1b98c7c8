/**
 * What a provider remembers of its own earlier replies, since it demands some of it back. Absent where nothing is known:
 * then only the form is checked.
 */
export interface Given {
  /** Anthropic: each signature with the thinking that it signs; for redacted thinking the data with an empty text. */
  readonly signatures?: Readonly<Record<string, string>>;
  /** Responses: the id of an item with the id of the reasoning item that led to it. */
  readonly reasoningOf?: Readonly<Record<string, string>>;
  /** Responses: the id of a reasoning item with its encrypted content. */
  readonly encrypted?: Readonly<Record<string, string>>;
}

export interface RuleOptions {
  readonly given?: Given;
  /** Also what is ours to avoid though the provider takes it: two user messages in a row, an empty reply. Default true. */
  readonly strict?: boolean;
}

/** A body's problem in the provider's words, or nothing. */
export type Rules = (body: unknown, options?: RuleOptions) => string | undefined;

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The first problem among many things. */
export function first<T>(
  items: Iterable<T>,
  problem: (item: T, index: number) => string | undefined,
): string | undefined {
  let index = 0;
  for (const item of items) {
    const found = problem(item, index++);
    if (found !== undefined) return found;
  }
  return undefined;
}
