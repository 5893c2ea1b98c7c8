import type { Contender, StepInput, Task } from '../contenders/contender.ts';
import { NOTE, words } from '../server/script.ts';

export type Check = 'chain' | 'parallel' | 'deltas' | 'in-process';

interface Target {
  readonly baseURL: string;
  readonly stream: boolean;
}

const CALLS = 4;
const DELTAS = 60;

/**
 * Checks that a contender works correctly before it is measured. Returns the problem, or undefined. A loop that loses calls
 * or text must not count as fast.
 */
export async function problemOf(contender: Contender, check: Check, target: Target): Promise<string | undefined> {
  try {
    if (check === 'chain') return await calls(contender, target, `chain:${CALLS}`);
    if (check === 'parallel') return await calls(contender, target, `parallel:${CALLS}`);
    if (check === 'in-process') return await inProcess(contender, target);
    return (await deltas(contender, target, 'burst')) ?? (await deltas(contender, target, 'split'));
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message.split('\n', 1)[0] || thrown.name : String(thrown);
  }
}

/** Checks that each call is executed once, in order and with its arguments, before the answer. */
async function calls(contender: Contender, { baseURL, stream }: Target, model: string): Promise<string | undefined> {
  const recorded = recorder();
  const text = await contender.prepare({ ...recorded.task, baseURL, stream, model })();
  return (
    problemOfCalls(recorded.inputs, CALLS) ??
    problemOfText(text, words(1)) ??
    (stream ? problemOfText(recorded.text(), words(1)) : undefined)
  );
}

async function deltas({ prepare }: Contender, { baseURL, stream }: Target, pace: string): Promise<string | undefined> {
  const recorded = recorder();
  const text = await prepare({ ...recorded.task, baseURL, stream, model: `text:${DELTAS}:0:${pace}` })();
  if (recorded.pieces.length !== DELTAS) return `${recorded.pieces.length} of ${DELTAS} deltas delivered (${pace})`;
  return problemOfText(recorded.text(), words(DELTAS)) ?? problemOfText(text, words(DELTAS));
}

async function inProcess({ prepareInProcess }: Contender, { stream }: Target): Promise<string | undefined> {
  const recorded = recorder();
  const text = await prepareInProcess!({ ...recorded.task, stream, turns: CALLS, deltas: 10 })();
  const least = 10 * (CALLS + 1);
  if (stream && recorded.pieces.length < least) return `${recorded.pieces.length} of ${least} deltas delivered`;
  return (
    problemOfCalls(recorded.inputs, CALLS) ?? (text.endsWith('done') ? undefined : `answered ${JSON.stringify(text)}`)
  );
}

interface Recorder {
  readonly task: Pick<Task, 'onDelta' | 'step' | 'maxTurns'>;
  readonly inputs: StepInput[];
  readonly pieces: string[];
  readonly text: () => string;
}

function recorder(): Recorder {
  const inputs: StepInput[] = [];
  const pieces: string[] = [];
  return {
    inputs,
    pieces,
    text: () => pieces.join(''),
    task: {
      maxTurns: 100,
      onDelta: (text) => void pieces.push(text),
      step(input) {
        inputs.push(input);
        return `step ${input.index} done`;
      },
    },
  };
}

function problemOfCalls(inputs: readonly StepInput[], count: number): string | undefined {
  const indexes = inputs.map(({ index }) => index).join(', ');
  if (inputs.length !== count) return `${inputs.length} of ${count} calls executed (${indexes || 'none'})`;
  if (inputs.some(({ index }, at) => index !== at)) return `calls executed as ${indexes}`;
  if (inputs.some(({ note }) => note !== NOTE)) return 'a call was executed with wrong arguments';
  return undefined;
}

function problemOfText(text: string, expected: string): string | undefined {
  return text === expected
    ? undefined
    : `text ${JSON.stringify(text.slice(0, 40))}, not ${JSON.stringify(expected.slice(0, 40))}`;
}
