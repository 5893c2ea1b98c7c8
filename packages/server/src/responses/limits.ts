/** How much one request may hold. The size of the whole body is limited before it is parsed. */
export interface RequestLimits {
  readonly inputItems: number;
  /** Parts of one message or one output. */
  readonly parts: number;
  /** All texts, images and files of the input together, in characters. */
  readonly inputChars: number;
  readonly tools: number;
  /** One tool as JSON, with its schema. The schema of an answer may be as long. */
  readonly toolChars: number;
  /** How deep objects and lists may lie in each other. */
  readonly depth: number;
}

export const DEFAULT_LIMITS: RequestLimits = {
  inputItems: 10_000,
  parts: 1_000,
  inputChars: 33_554_432,
  tools: 256,
  toolChars: 131_072,
  depth: 64,
};

/** What the specification says of single texts, in characters. */
export const LONGEST = { text: 10_485_760, image: 20_971_520, file: 33_554_432, id: 256, name: 64 } as const;
