/** Something that runs the agentic loop. Each is a module that exports `contender`. */
export interface Contender {
  /** Against a model behind HTTP. What can be made once for many runs is made here. */
  readonly prepare: (task: Task) => Run;
  /** With a model in the same process, where it can be given one. */
  readonly prepareInProcess?: (task: InProcessTask) => Run;
}

/** Runs a task to its end, executing every call, and resolves with the final answer. */
export type Run = () => Promise<string>;

interface Work {
  readonly stream: boolean;
  /** Hears each piece of text as it arrives; only of a stream. */
  readonly onDelta: (text: string) => void;
  /** What the one tool does. */
  readonly step: (input: StepInput) => string | Promise<string>;
  readonly maxTurns: number;
}

export interface Task extends Work {
  /** Up to the protocol's own path: `http://127.0.0.1:1234/v1`. */
  readonly baseURL: string;
  /** The script that the server follows, such as `chain:20`. */
  readonly model: string;
}

/** The model calls the tool `turns` times, one call a turn, and then answers; of a stream each reply has `deltas` words. */
export interface InProcessTask extends Work {
  readonly turns: number;
  readonly deltas: number;
}

export interface StepInput {
  readonly index: number;
  readonly note: string;
}

export const TOOL_NAME = 'step';
export const TOOL_DESCRIPTION = 'Takes one step';
export const PROMPT = 'Take the steps one after the other.';
export const PARAMETERS = {
  type: 'object',
  properties: { index: { type: 'number' }, note: { type: 'string' } },
  required: ['index', 'note'],
  additionalProperties: false,
} as const;
