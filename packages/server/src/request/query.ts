import { badRequest } from '../api-error.ts';

/** The parameters in the URL of a request. */
export type Query = Readonly<Record<string, string>>;

/** A parameter that is ignored would change what the client gets. */
export function checkedQuery(query: Query, known: readonly string[]): Query {
  const unknown = Object.keys(query).find((name) => !known.includes(name));
  if (unknown === undefined) return query;
  throw badRequest(`There is no parameter ${JSON.stringify(unknown)}. Use ${known.join(', ')}.`, unknown);
}

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

export function wholeNumber(
  query: Query,
  name: string,
  { least, most, standard }: { readonly least: number; readonly most: number; readonly standard: number },
): number {
  const text = query[name] ?? String(standard);
  const value = /^-?\d+$/.test(text) ? Number(text) : NaN;
  if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
  throw badRequest(`${name} must be a whole number from ${least} to ${most}.`, name);
}
