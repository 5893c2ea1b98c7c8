/**
 * What a provider has issued in earlier replies and requires back. If a field is absent, only the form is validated.
 */
export interface Issued {
  /**
   * Anthropic: each signature with the thinking that it signs; for redacted thinking the data with an empty text. Google: `signedPart` of
   * each part with a signature.
   */
  readonly signatures?: Readonly<Record<string, string>>;
  /** Responses: the id of an item with the id of the reasoning item that led to it. */
  readonly reasoningOf?: Readonly<Record<string, string>>;
  /** Responses: the id of a reasoning item with its encrypted content. */
  readonly encrypted?: Readonly<Record<string, string>>;
}

export interface RuleOptions {
  readonly issued?: Issued;
  /** Whether to reject what only Treadle avoids: two user messages in a row, an empty reply. Default true. */
  readonly strict?: boolean;
  /** The model that the request is for, if the path contains it instead of the body. */
  readonly model?: string;
}

/** The problem of a body, with the message of the provider; undefined if there is none. */
export type Rules = (body: unknown, options?: RuleOptions) => string | undefined;

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The problem of the first item that has one. */
export function firstProblem<T>(
  items: Iterable<T>,
  problemOf: (item: T, index: number) => string | undefined,
): string | undefined {
  let index = 0;
  for (const item of items) {
    const problem = problemOf(item, index++);
    if (problem !== undefined) return problem;
  }
  return undefined;
}
