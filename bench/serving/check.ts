import { words } from '../server/script.ts';
import { ask, type Ask } from './client.ts';
import type { OpenFront } from './front.ts';

export type FrontCheck = 'stream' | 'whole' | 'tools';

const DELTAS = 60;
const CALLS = 4;
const STREAMS = [`text:${DELTAS}`, `text:${DELTAS}:0:split`];
const CHAIN = `chain:${CALLS}`;

/** The models that the checks ask for. */
export const CHECK_SCRIPTS: readonly string[] = [...STREAMS, CHAIN];

/** Asks for the tools that the server runs. */
export const OWN_TOOLS: readonly object[] = [{ type: 'mcp', server_label: 'treadle' }];

/** What the one tool of the server answers. */
export function stepDone(index: number): string {
  return `step ${index} done, and all is well so far`;
}

/** Whether a front does what it is about to be measured at: undefined, or what is wrong. */
export async function wrongFront(front: OpenFront, check: FrontCheck): Promise<string | undefined> {
  try {
    if (check === 'whole') return wrongText(textOf(await whole(front, { model: STREAMS[0]! })), words(DELTAS));
    if (check === 'tools') return await wrongTools(front);
    for (const model of STREAMS) {
      const what = wrongEvents(await streamed(front, { model }), words(DELTAS));
      if (what !== undefined) return `${what} (${model})`;
    }
    return undefined;
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message.split('\n', 1)[0] || thrown.name : String(thrown);
  }
}

interface Response {
  readonly status: string;
  readonly output: readonly {
    readonly type: string;
    readonly output?: string;
    readonly content?: readonly { readonly text: string }[];
  }[];
}

interface Event {
  readonly type: string;
  readonly sequence_number: number;
  readonly delta?: string;
  readonly response?: Response;
}

async function whole(front: OpenFront, request: Omit<Ask, 'stream'>): Promise<Response> {
  const { body } = await ask(front, { ...request, stream: false }).answer;
  return JSON.parse(body.toString()) as Response;
}

async function streamed(front: OpenFront, request: Omit<Ask, 'stream'>): Promise<Event[]> {
  const { body } = await ask(front, { ...request, stream: true }).answer;
  return body
    .toString()
    .split('\n\n')
    .filter((frame) => frame.includes('data: {'))
    .map((frame) => JSON.parse(frame.slice(frame.indexOf('data: ') + 6)) as Event);
}

/** One life, numbered without gaps, with all of the text in its pieces and at its end. */
function wrongEvents(events: readonly Event[], expected: string): string | undefined {
  const [first, last] = [events[0], events.at(-1)];
  if (first?.type !== 'response.created' || last?.type !== 'response.completed')
    return `from ${first?.type} to ${last?.type}`;
  const gap = events.findIndex(({ sequence_number: number }, at) => number !== at);
  if (gap !== -1) return `event ${gap} is numbered ${events[gap]!.sequence_number}`;
  const pieces = events.filter(({ type }) => type === 'response.output_text.delta');
  if (pieces.length !== DELTAS && expected === words(DELTAS)) return `${pieces.length} of ${DELTAS} deltas delivered`;
  return wrongText(pieces.map(({ delta }) => delta).join(''), expected) ?? wrongText(textOf(last.response!), expected);
}

/** Each call executed once and in order, and then the answer, streamed and not. */
async function wrongTools(front: OpenFront): Promise<string | undefined> {
  const request = { model: CHAIN, tools: OWN_TOOLS };
  const events = await streamed(front, request);
  return (
    wrongCalls(await whole(front, request)) ?? wrongEvents(events, words(1)) ?? wrongCalls(events.at(-1)!.response!)
  );
}

function wrongCalls({ output }: Response): string | undefined {
  const results = output.filter(({ type }) => type === 'mcp_call').map((item) => item.output);
  if (results.length !== CALLS) return `${results.length} of ${CALLS} calls executed`;
  const other = results.findIndex((result, index) => result !== stepDone(index));
  return other === -1 ? undefined : `call ${other} gave ${JSON.stringify(results[other])}`;
}

function textOf({ output }: Response): string {
  return output.flatMap(({ content = [] }) => content.map(({ text }) => text)).join('');
}

function wrongText(text: string, expected: string): string | undefined {
  return text === expected
    ? undefined
    : `text ${JSON.stringify(text.slice(0, 40))}, not ${JSON.stringify(expected.slice(0, 40))}`;
}
