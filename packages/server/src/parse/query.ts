import { badRequest } from '../api-error.ts';
import type { Parameter, Parameters } from '../http/routes.ts';

/** The parameters in the URL of a request. */
export type Query = Readonly<Record<string, string>>;

/** `known`: the query of the route. A parameter that is ignored would change what the client gets. */
export function checkedQuery(query: Query, known: Parameters): Query {
  const unknown = Object.keys(query).find((name) => !Object.hasOwn(known, name));
  if (unknown === undefined) return query;
  const names = Object.keys(known).join(', ');
  throw badRequest(`There is no parameter ${JSON.stringify(unknown)}. Use ${names}.`, unknown);
}

/** A parameter that `wholeNumber` reads. */
export interface NumberParameter extends Parameter {
  readonly schema: {
    readonly type: 'integer';
    readonly minimum: number;
    readonly maximum?: number;
    /** Absent: the minimum. */
    readonly default?: number;
  };
}

export function wholeNumber(query: Query, name: string, { schema }: NumberParameter): number {
  const { minimum, maximum = Number.MAX_SAFE_INTEGER, default: standard = minimum } = schema;
  const text = query[name] ?? String(standard);
  const value = /^-?\d+$/.test(text) ? Number(text) : NaN;
  if (Number.isSafeInteger(value) && value >= minimum && value <= maximum) return value;
  throw badRequest(`${name} must be a whole number from ${minimum} to ${maximum}.`, name);
}

/** The size of a page. */
export const LIMIT: NumberParameter = {
  description: 'The most entries of the page.',
  schema: { type: 'integer', minimum: 1, maximum: 100, default: 20 },
};

export const TIME: Parameter = {
  description: 'Milliseconds since 1970, or a date such as 2026-11-15T12:00:00Z.',
  schema: { type: 'string' },
};

/** What `TIME` describes. */
export function timeOf(text: string, name: string): number {
  // `Date.parse` finds a date in many texts.
  const time = /^\d+$/.test(text) ? Number(text) : /^\d{4}-/.test(text) ? Date.parse(text) : NaN;
  if (Number.isSafeInteger(time)) return time;
  throw badRequest(`${name} must be a time: milliseconds since 1970, or a date such as 2026-11-15T12:00:00Z.`, name);
}

export const CURSOR: Parameter = { description: '`next_cursor` of the page before.', schema: { type: 'string' } };

/** What `pageQuery` reads. */
export const PAGE: Parameters = {
  limit: LIMIT,
  after: { description: 'The id of the last item of the page before.', schema: { type: 'string' } },
  order: { description: 'By time.', schema: { type: 'string', enum: ['asc', 'desc'], default: 'desc' } },
};

/** The page of a list that a client asks for. */
export interface PageQuery {
  readonly order: 'asc' | 'desc';
  /** The id of the last item of the page before. */
  readonly after?: string;
  readonly limit: number;
}

/** By default the newest 20 items, newest first. */
export function pageQuery({ order = 'desc', after, limit = '20' }: Query): PageQuery {
  if (order !== 'asc' && order !== 'desc') throw badRequest('order must be "asc" or "desc".', 'order');
  const size = Number(limit);
  if (!Number.isInteger(size) || size < 1 || size > 100) throw badRequest('limit must be from 1 to 100.', 'limit');
  return { order, ...(after !== undefined && { after }), limit: size };
}

export function unknownCursor(after: string): Error {
  return badRequest(`There is no item ${JSON.stringify(after)}.`, 'after');
}

/** A page as the clients of OpenAI expect it. */
export function itemPage(data: readonly { readonly id: string }[], hasMore: boolean): object {
  return {
    object: 'list',
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: hasMore,
  };
}
