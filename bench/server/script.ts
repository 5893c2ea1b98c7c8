/**
 * The reply of the server, selected by the model name: `chain:20` calls a tool until 20 results are in the history,
 * `parallel:8` makes 8 calls at once and then answers, `text:1000` answers with a text in 1,000 deltas. A delay in
 * milliseconds and the pace of the stream may follow: `chain:5:50`, `text:100:0:20`, `text:100:0:split`.
 */
export type Script =
  | { readonly type: 'calls'; readonly first: number; readonly count: number }
  | { readonly type: 'text'; readonly deltas: number };

export interface Scripted {
  readonly script: Script;
  readonly delayMs: number;
  /** All events at once, one event per this many milliseconds, or split inside events and characters. */
  readonly pace: number | 'burst' | 'split';
  readonly stream: boolean;
}

/** Reads as little of a request as possible, so that the cost of the server does not affect the measurement. */
export function scriptOf(body: Buffer, resultMark: string): Scripted {
  const [kind, size = '1', delay = '0', pace = 'burst'] = after(body, '"model":"').split(':');
  const results = kind === 'text' ? 0 : count(body, resultMark);
  return {
    script: next(kind!, Number(size), results),
    delayMs: Number(delay),
    pace: pace === 'burst' || pace === 'split' ? pace : Number(pace),
    stream: body.includes('"stream":true'),
  };
}

const ANSWER: Script = { type: 'text', deltas: 1 };

function next(kind: string, n: number, results: number): Script {
  switch (kind) {
    case 'chain':
      return results < n ? { type: 'calls', first: results, count: 1 } : ANSWER;
    case 'parallel':
      return results < n ? { type: 'calls', first: 0, count: n } : ANSWER;
    case 'text':
      return { type: 'text', deltas: n };
    default:
      throw new Error(`Unknown script: ${kind}`);
  }
}

function after(body: Buffer, mark: string): string {
  const at = body.indexOf(mark);
  if (at === -1) throw new Error('The request has no model');
  const from = at + mark.length;
  return body.toString('latin1', from, body.indexOf('"', from));
}

function count(body: Buffer, mark: string): number {
  let found = 0;
  for (let at = body.indexOf(mark); at !== -1; at = body.indexOf(mark, at + mark.length)) found++;
  return found;
}

export const NOTE = 'the quick brown fox jumps over the lazy dog';

/** The arguments of a call, the same in every protocol. */
export function callArguments(index: number): string {
  return JSON.stringify({ index, note: NOTE });
}

/** Differs between the replies of a run: some clients treat replies with the same id as one. */
export function replyId(script: Script): string {
  return `B9MBs8CjcvOU2jLn4n${String(script.type === 'calls' ? script.first : 9_999_999).padStart(7, '0')}`;
}

/** Pieces of the size that providers send. */
export function pieces(text: string): readonly string[] {
  return text.match(/[^]{1,12}/g) ?? [];
}

/** Differs from its neighbours and contains a multi-byte character. */
export function word(n: number): string {
  return `wörd${n % 10} `;
}

export function words(count: number): string {
  return Array.from({ length: count }, (_, n) => word(n)).join('');
}

export const TOOL = 'step';
