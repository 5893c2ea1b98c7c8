/** An implementation of the agentic loop. Each is a module that exports `contender`. */
export interface Contender {
  /** For a model behind HTTP. Creates everything that many runs can share. */
  readonly prepare: (task: Task) => Run;
  /** For a model in the same process, if the contender supports one. */
  readonly prepareInProcess?: (task: InProcessTask) => Run;
}

/** Runs a task to its end, executing every call, and resolves with the final answer. */
export type Run = () => Promise<string>;

interface Work {
  readonly stream: boolean;
  /** Called with each piece of text of a stream. */
  readonly onDelta: (text: string) => void;
  /** Executes the only tool. */
  readonly step: (input: StepInput) => string | Promise<string>;
  readonly maxTurns: number;
}

export interface Task extends Work {
  /** Without the path of the protocol: `http://127.0.0.1:1234/v1`. */
  readonly baseURL: string;
  /** The script that the server follows, such as `chain:20`. */
  readonly model: string;
}

/** The model calls the tool `turns` times, once per turn, and then answers. A streamed reply has `deltas` pieces. */
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
