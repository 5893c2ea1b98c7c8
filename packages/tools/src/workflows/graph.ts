/*
 * The order of the steps of a workflow.
 *
 * 1. A cut divides steps so that each one after it needs all before it. Between two cuts is a block: its steps, and nothing else,
 *    have to be done before the next block. A block of one step needs no branches.
 * 2. A block of several steps is divided into chains: each step of a chain needs the one before it, which nothing else in the
 *    block needs. Chains are branches. They wait for the steps of other chains that they need, and for nothing else.
 */

/** What each step needs, by ids of the same level. */
export type Needs = ReadonlyMap<string, readonly string[]>;

/** The ids in an order in which each comes after what it needs, otherwise as given; or the ids of a cycle. */
export function ordered(
  needs: Needs,
):
  | { readonly type: 'order'; readonly ids: readonly string[] }
  | { readonly type: 'cycle'; readonly ids: readonly string[] } {
  const done = new Set<string>();
  const ids: string[] = [];
  const visit = (id: string, path: readonly string[]): readonly string[] | undefined => {
    if (done.has(id)) return undefined;
    const at = path.indexOf(id);
    if (at >= 0) return [...path.slice(at), id];
    for (const one of needs.get(id) ?? []) {
      const cycle = needs.has(one) ? visit(one, [...path, id]) : undefined;
      if (cycle) return cycle;
    }
    done.add(id);
    ids.push(id);
    return undefined;
  };
  for (const id of needs.keys()) {
    const cycle = visit(id, []);
    if (cycle) return { type: 'cycle', ids: cycle };
  }
  return { type: 'order', ids };
}

/** Everything that a step needs, also through other steps. */
export function allNeeds(needs: Needs, ids: readonly string[]): ReadonlyMap<string, ReadonlySet<string>> {
  const all = new Map<string, Set<string>>();
  for (const id of ids) {
    const found = new Set<string>();
    for (const one of needs.get(id) ?? []) {
      found.add(one);
      for (const further of all.get(one) ?? []) found.add(further);
    }
    all.set(id, found);
  }
  return all;
}

/** The chains of each block, in order. Without a cycle. */
export function blocksOf(needs: Needs): readonly (readonly (readonly string[])[])[] {
  const { ids } = ordered(needs);
  const all = allNeeds(needs, ids);
  /** How many of the first steps each step needs without a gap. */
  const first = ids.map((id) => {
    const needed = all.get(id)!;
    const gap = ids.findIndex((one) => !needed.has(one));
    return gap < 0 ? ids.length : gap;
  });
  const blocks: string[][] = [];
  let least = Infinity;
  let block: string[] = [];
  for (let at = ids.length - 1; at >= 0; at--) {
    block.unshift(ids[at]!);
    least = Math.min(least, first[at]!);
    if (least < at) continue;
    blocks.unshift(block);
    block = [];
    least = Infinity;
  }
  return blocks.map((one) => chainsOf(one, needs));
}

function chainsOf(ids: readonly string[], needs: Needs): readonly (readonly string[])[] {
  const inside = new Set(ids);
  const own = new Map(ids.map((id) => [id, (needs.get(id) ?? []).filter((one) => inside.has(one))]));
  const users = new Map<string, number>();
  for (const needed of own.values()) for (const one of needed) users.set(one, (users.get(one) ?? 0) + 1);
  const chains: string[][] = [];
  const chainOf = new Map<string, string[]>();
  for (const id of ids) {
    const needed = own.get(id)!;
    const [before] = needed;
    const chain = needed.length === 1 && users.get(before!) === 1 ? chainOf.get(before!)! : [];
    if (chain.length === 0) chains.push(chain);
    chain.push(id);
    chainOf.set(id, chain);
  }
  return chains;
}
