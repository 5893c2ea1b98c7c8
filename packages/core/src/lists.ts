/* Lists on hot paths, which usually have one item. */

/**
 * `list.map(to)`. Once V8 has optimised a function, `map` returns an array of another elements kind, which deoptimises the
 * code that was compiled for the first kind. Here the kind is always the same.
 */
export function mapped<From, To>(list: readonly From[], to: (item: From, index: number) => To): readonly To[] {
  if (list.length === 1) return [to(list[0]!, 0)];
  const made = list.slice() as unknown[];
  for (let index = 0; index < made.length; index++) made[index] = to(list[index]!, index);
  return made as To[];
}

/** Adds an item to a list that may not exist yet. An array literal of one item allocates less than an array that grows. */
export function added<Item>(list: Item[] | undefined, item: Item): Item[] {
  if (!list) return [item];
  list.push(item);
  return list;
}
