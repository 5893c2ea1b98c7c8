import type { Contender, StepInput, Task } from '../contenders/contender.ts';
import { NOTE, words } from '../server/script.ts';

export type Check = 'chain' | 'parallel' | 'deltas' | 'in-process';

interface Place {
  readonly baseURL: string;
  readonly stream: boolean;
}

const CALLS = 4;
const DELTAS = 60;

/**
 * Whether a contender does what it is about to be measured at: undefined, or what is wrong. A loop that loses a call or
 * a word is not fast.
 */
export async function wrong(contender: Contender, check: Check, place: Place): Promise<string | undefined> {
  try {
    if (check === 'chain') return await calls(contender, place, `chain:${CALLS}`);
    if (check === 'parallel') return await calls(contender, place, `parallel:${CALLS}`);
    if (check === 'in-process') return await inProcess(contender, place);
    return (await deltas(contender, place, 'burst')) ?? (await deltas(contender, place, 'split'));
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message.split('\n', 1)[0] || thrown.name : String(thrown);
  }
}

/** Each call once, with its own arguments and in order, and then the answer. */
async function calls(contender: Contender, { baseURL, stream }: Place, model: string): Promise<string | undefined> {
  const heard = listener();
  const text = await contender.prepare({ ...heard.task, baseURL, stream, model })();
  return (
    wrongCalls(heard.inputs, CALLS) ??
    wrongText(text, words(1)) ??
    (stream ? wrongText(heard.text(), words(1)) : undefined)
  );
}

async function deltas({ prepare }: Contender, { baseURL, stream }: Place, pace: string): Promise<string | undefined> {
  const heard = listener();
  const text = await prepare({ ...heard.task, baseURL, stream, model: `text:${DELTAS}:0:${pace}` })();
  if (heard.pieces.length !== DELTAS) return `${heard.pieces.length} of ${DELTAS} deltas delivered (${pace})`;
  return wrongText(heard.text(), words(DELTAS)) ?? wrongText(text, words(DELTAS));
}

async function inProcess({ prepareInProcess }: Contender, { stream }: Place): Promise<string | undefined> {
  const heard = listener();
  const text = await prepareInProcess!({ ...heard.task, stream, turns: CALLS, deltas: 10 })();
  const least = 10 * (CALLS + 1);
  if (stream && heard.pieces.length < least) return `${heard.pieces.length} of ${least} deltas delivered`;
  return wrongCalls(heard.inputs, CALLS) ?? (text.endsWith('done') ? undefined : `answered ${JSON.stringify(text)}`);
}

interface Listener {
  readonly task: Pick<Task, 'onDelta' | 'step' | 'maxTurns'>;
  readonly inputs: StepInput[];
  readonly pieces: string[];
  readonly text: () => string;
}

function listener(): Listener {
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

function wrongCalls(inputs: readonly StepInput[], count: number): string | undefined {
  const indexes = inputs.map(({ index }) => index).join(', ');
  if (inputs.length !== count) return `${inputs.length} of ${count} calls executed (${indexes || 'none'})`;
  if (inputs.some(({ index }, at) => index !== at)) return `calls executed as ${indexes}`;
  if (inputs.some(({ note }) => note !== NOTE)) return 'a call was executed with other arguments';
  return undefined;
}

function wrongText(text: string, expected: string): string | undefined {
  return text === expected
    ? undefined
    : `text ${JSON.stringify(text.slice(0, 40))}, not ${JSON.stringify(expected.slice(0, 40))}`;
}
