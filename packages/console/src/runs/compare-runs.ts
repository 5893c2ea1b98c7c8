import { diffRuns, firstDifference, type Difference, type Event, type JournalEntry } from '@treadle/core';

/** Two runs side by side. */
export interface Comparison {
  /** The number of first entries that are the same. */
  readonly same: number;
  /** What differs first. Undefined if the runs are the same. */
  readonly first:
    | { readonly a: number | undefined; readonly b: number | undefined; readonly difference: Difference | undefined }
    | undefined;
  /** The entries after those. */
  readonly pairs: readonly Pair[];
}

export interface Pair {
  readonly a: JournalEntry | undefined;
  readonly b: JournalEntry | undefined;
  readonly isSame: boolean;
}

/** How far an entry may have moved. */
const LOOKAHEAD = 12;

/**
 * Compares two runs. After the first difference, entries about the same effect are side by side: a fork has entries that
 * the original does not have.
 */
export function compareRuns(a: readonly JournalEntry[], b: readonly JournalEntry[]): Comparison {
  const { same } = diffRuns(a, b);
  const pairs: Pair[] = [];
  let [i, j] = [same, same];
  while (i < a.length || j < b.length) {
    const [left, right] = [a[i], b[j]];
    if (!left || !right || keyOf(left) === keyOf(right)) {
      pairs.push(pairOf(left, right));
      if (left) i++;
      if (right) j++;
      continue;
    }
    const inB = distance(b, j, keyOf(left));
    const inA = distance(a, i, keyOf(right));
    if (inB === undefined && inA === undefined) {
      pairs.push(pairOf(left, right));
      i++;
      j++;
    } else if (inB !== undefined && (inA === undefined || inB <= inA)) {
      pairs.push(pairOf(undefined, right));
      j++;
    } else {
      pairs.push(pairOf(left, undefined));
      i++;
    }
  }
  const different = pairs.find(({ isSame }) => !isSame);
  return { same, first: different && firstOf(different), pairs };
}

function firstOf({ a, b }: Pair): NonNullable<Comparison['first']> {
  const difference = a && b && a.event.type === b.event.type ? firstDifference(a.event, b.event) : undefined;
  return { a: a?.seq, b: b?.seq, difference };
}

function pairOf(a: JournalEntry | undefined, b: JournalEntry | undefined): Pair {
  return { a, b, isSame: a !== undefined && b !== undefined && firstDifference(a.event, b.event) === undefined };
}

function keyOf({ event }: JournalEntry): string {
  return `${event.type} ${'effect' in event ? event.effect : ''}`;
}

function distance(entries: readonly JournalEntry[], from: number, key: string): number | undefined {
  for (let at = from; at < Math.min(entries.length, from + LOOKAHEAD); at++)
    if (keyOf(entries[at]!) === key) return at - from;
  return undefined;
}

/** What to compare of an event, as text: what people read of it. */
export function comparedText(event: Event): string {
  switch (event.type) {
    case 'model-replied':
      return event.content
        .map((part) => (part.type === 'tool-call' ? `${part.name} ${pretty(part.arguments)}` : part.text))
        .join('\n');
    case 'tool-settled':
      return event.result.type === 'result' ? blocksText(event.result.content) : event.result.type;
    case 'client-result-given':
      return blocksText(event.content);
    case 'run-started': {
      const { instructions = '', input, model, tools, rules } = event;
      const said = input.map(({ role, content }) => `${role}: ${blocksText(content)}`);
      const { maxTurns, limits } = rules;
      return [
        `model: ${model}`,
        `limits: ${JSON.stringify({ turns: maxTurns, ...limits })}`,
        `tools: ${tools.map(({ name }) => name).join(', ')}`,
        instructions,
        ...said,
      ]
        .filter((text) => text !== '')
        .join('\n');
    }
    case 'run-forked': {
      const { model, instructions, tools } = event;
      return [
        ...(model === undefined ? [] : [`model: ${model}`]),
        ...(tools ? [`tools: ${tools.map(({ name }) => name).join(', ') || 'none'}`] : []),
        ...(instructions === undefined ? [] : [instructions]),
      ].join('\n');
    }
    default: {
      const { type: _, at: __, ...rest } = event as Event & { readonly effect?: string };
      return JSON.stringify(rest, null, 2);
    }
  }
}

function blocksText(content: readonly { readonly type: string; readonly text?: string }[]): string {
  return content.map((block) => block.text ?? `[${block.type}]`).join('\n');
}

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
