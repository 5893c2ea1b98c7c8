/**
 * What `list.map(to)` gives, for what is done in every turn. `map` gives another kind of array once V8 has compiled it,
 * and then all that was compiled for the kind before is thrown away and compiled anew; here it is one kind from the
 * beginning.
 */
export function mapped<From, To>(list: readonly From[], to: (item: From, index: number) => To): readonly To[] {
  const made = list.slice() as unknown[];
  for (let index = 0; index < made.length; index++) made[index] = to(list[index]!, index);
  return made as To[];
}
