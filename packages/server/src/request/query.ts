import { badRequest } from '../api-error.ts';

/** The parameters in the URL of a request. */
export type Query = Readonly<Record<string, string>>;

/** A parameter that is ignored would change what the client gets. */
export function checkedQuery(query: Query, known: readonly string[]): Query {
  const unknown = Object.keys(query).find((name) => !known.includes(name));
  if (unknown === undefined) return query;
  throw badRequest(`There is no parameter ${JSON.stringify(unknown)}. Use ${known.join(', ')}.`, unknown);
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
