/**
 * `list.map(to)` for hot paths. Once V8 has optimised a function, `map` returns an array of another elements kind, which
 * deoptimises the code that was compiled for the first kind. Here the kind is always the same.
 */
export function mapped<From, To>(list: readonly From[], to: (item: From, index: number) => To): readonly To[] {
  const made = list.slice() as unknown[];
  for (let index = 0; index < made.length; index++) made[index] = to(list[index]!, index);
  return made as To[];
}
