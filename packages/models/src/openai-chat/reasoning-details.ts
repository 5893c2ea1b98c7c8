import type { ReasoningPart } from '@treadle/core';
import { isRecord, listOf, parsed } from '../json.ts';

/** The protocol in the name under which signatures are kept: `reasoning_details` are OpenRouter's. */
export const OPENROUTER = 'openrouter';

type Detail = Readonly<Record<string, unknown>>;

/** A detail while its pieces arrive: `text` and `summary` come in many, joined once. */
interface OpenDetail {
  readonly fields: Record<string, unknown>;
  readonly text: string[];
  readonly summary: string[];
}

/** OpenRouter's `reasoning_details`, which hold the proofs of whichever provider reasoned. */
export interface OpenDetails {
  readonly all: OpenDetail[];
  readonly byKey: Map<string, OpenDetail>;
}

export function openDetails(): OpenDetails {
  return { all: [], byKey: new Map() };
}

/** Pieces of one detail have the same type and index; without an index, they follow each other. */
export function takeDetails(details: OpenDetails, chunk: readonly unknown[]): void {
  for (const piece of chunk) {
    if (!isDetail(piece)) continue;
    const detail = openFor(details, piece);
    for (const [name, value] of Object.entries(piece)) {
      if ((name === 'text' || name === 'summary') && typeof value === 'string') detail[name].push(value);
      else if (value != null || !(name in detail.fields)) detail.fields[name] = value;
    }
  }
}

function openFor({ all, byKey }: OpenDetails, piece: Detail): OpenDetail {
  const indexed = typeof piece['index'] === 'number';
  const key = `${String(piece['type'])} ${String(piece['index'])}`;
  const last = all.at(-1);
  const goesOn = !indexed && last?.fields['type'] === piece['type'] && !('data' in piece);
  const before = indexed ? byKey.get(key) : goesOn ? last : undefined;
  if (before !== undefined) return before;
  const detail: OpenDetail = { fields: {}, text: [], summary: [] };
  all.push(detail);
  if (indexed) byKey.set(key, detail);
  return detail;
}

/** The details as a signature, if there is something in them that the text alone does not tell. */
export function signatureOf({ all }: OpenDetails): string | undefined {
  if (!all.some(({ fields }) => fields['signature'] || fields['data'])) return undefined;
  return JSON.stringify(
    all.map(({ fields, text, summary }) => ({
      ...fields,
      ...(text.length > 0 && { text: text.join('') }),
      ...(summary.length > 0 && { summary: summary.join('') }),
    })),
  );
}

/** The details that came with these parts, as they came. */
export function detailsOf(parts: readonly ReasoningPart[], signer: string): readonly Detail[] {
  return parts.flatMap(({ signature, protocol }) =>
    protocol === signer && signature ? listOf(parsed(signature)).filter(isDetail) : [],
  );
}

function isDetail(value: unknown): value is Detail {
  return isRecord(value) && !Array.isArray(value);
}
