import type { ReasoningPart } from '@treadle/core';
import { isRecord, listOf, parsed } from '../json.ts';

/** The protocol in the name of the signer: `reasoning_details` come from OpenRouter. */
export const OPENROUTER = 'openrouter';

type Detail = Readonly<Record<string, unknown>>;

/** A detail while its pieces arrive. `text` and `summary` come in many pieces, which are joined once. */
interface OpenDetail {
  readonly fields: Record<string, unknown>;
  readonly text: string[];
  readonly summary: string[];
}

/** The `reasoning_details` of OpenRouter. They contain the signatures of the provider behind it. */
export interface OpenDetails {
  readonly all: OpenDetail[];
  readonly byKey: Map<string, OpenDetail>;
}

export function startDetails(): OpenDetails {
  return { all: [], byKey: new Map() };
}

/** Pieces of one detail have the same type and index. Without an index, they follow each other. */
export function readDetails(details: OpenDetails, chunk: readonly unknown[]): void {
  for (const piece of chunk) {
    if (!isDetail(piece)) continue;
    const detail = detailFor(details, piece);
    for (const [name, value] of Object.entries(piece)) {
      if ((name === 'text' || name === 'summary') && typeof value === 'string') detail[name].push(value);
      else if (value != null || !(name in detail.fields)) detail.fields[name] = value;
    }
  }
}

function detailFor({ all, byKey }: OpenDetails, piece: Detail): OpenDetail {
  const indexed = typeof piece['index'] === 'number';
  const key = `${String(piece['type'])} ${String(piece['index'])}`;
  const last = all.at(-1);
  const continuesLast = !indexed && last?.fields['type'] === piece['type'] && !('data' in piece);
  const found = indexed ? byKey.get(key) : continuesLast ? last : undefined;
  if (found !== undefined) return found;
  const detail: OpenDetail = { fields: {}, text: [], summary: [] };
  all.push(detail);
  if (indexed) byKey.set(key, detail);
  return detail;
}

/** The details as a signature, if they contain more than the text. */
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

/** The details that came with these parts, unchanged. */
export function detailsOf(parts: readonly ReasoningPart[], signer: string): readonly Detail[] {
  return parts.flatMap(({ signature, protocol }) =>
    protocol === signer && signature ? listOf(parsed(signature)).filter(isDetail) : [],
  );
}

function isDetail(value: unknown): value is Detail {
  return isRecord(value) && !Array.isArray(value);
}
