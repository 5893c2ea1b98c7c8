import { words } from '../server/script.ts';
import { ask, type Ask } from './client.ts';
import type { OpenFront } from './front.ts';

export type FrontCheck = 'stream' | 'whole' | 'tools';

const DELTAS = 60;
const CALLS = 4;
const STREAMS = [`text:${DELTAS}`, `text:${DELTAS}:0:split`];
const CHAIN = `chain:${CALLS}`;

/** The model names that the checks use. */
export const CHECK_SCRIPTS: readonly string[] = [...STREAMS, CHAIN];

/** Requests the tools of the server. */
export const OWN_TOOLS: readonly object[] = [{ type: 'mcp', server_label: 'treadle' }];

/** The result of the only tool of the server. */
export function stepDone(index: number): string {
  return `step ${index} done, and all is well so far`;
}

/** Checks a front before it is measured. Returns the problem, or undefined. */
export async function problemOfFront(front: OpenFront, check: FrontCheck): Promise<string | undefined> {
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

/** Checks that events are numbered without gaps, start and end once, and contain the whole text in deltas and at the end. */
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

/** Checks that each call is executed once and in order before the answer, with and without streaming. */
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
