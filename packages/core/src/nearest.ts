/** Pairs of letters that are compared, in about 50 ms. Folders may have many long names. */
const MAX_STEPS = 1_000_000;

/** The candidate that is most similar to the name, if one is similar enough. Of very many, only the first are compared. */
export function nearest(name: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Math.max(1, Math.floor(name.length / 3)) + 1;
  let steps = 0;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - name.length) >= least) continue;
    steps += name.length * candidate.length;
    if (steps > MAX_STEPS) break;
    const edits = distance(name.toLowerCase(), candidate.toLowerCase());
    if (edits < least) [best, least] = [candidate, edits];
  }
  return best;
}

/** ` Did you mean "x"?`, or an empty string. */
export function didYouMean(name: string, candidates: Iterable<string>): string {
  const meant = nearest(name, candidates);
  return meant === undefined ? '' : ` Did you mean "${meant}"?`;
}

/** The number of edits between two words. Swapping two letters is one edit. */
function distance(from: string, to: string): number {
  let before: number[] = [];
  let last = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let i = 1; i <= from.length; i++) {
    const row = [i];
    for (let j = 1; j <= to.length; j++) {
      const same = from[i - 1] === to[j - 1];
      let cost = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (same ? 0 : 1));
      if (i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1]) {
        cost = Math.min(cost, before[j - 2]! + 1);
      }
      row.push(cost);
    }
    [before, last] = [last, row];
  }
  return last[to.length]!;
}
