/** Something that can be found by keywords. */
export interface Searchable {
  readonly name: string;
  readonly description: string;
  /** More words, which count less. */
  readonly words?: string;
}

/** A search of these items: the best matches, best first, and how many match. */
export type KeywordSearch<T> = (
  query: string,
  limit: number,
) => { readonly found: readonly T[]; readonly total: number };

interface IndexedItem<T> {
  readonly item: T;
  readonly name: string;
  /** How much a match of this word counts: more in the name than in the description. */
  readonly words: ReadonlyMap<string, number>;
}

/** Indexes items. Rare words count more, and an item whose name is the query comes first. */
export function keywordSearch<T>(items: readonly T[], textsOf: (item: T) => Searchable): KeywordSearch<T> {
  /** In how many items a word occurs. */
  const counts = new Map<string, number>();
  const entries = items.map((item): IndexedItem<T> => {
    const { name, description, words: more = '' } = textsOf(item);
    const words = new Map<string, number>();
    const add = (text: string, weight: number): void => {
      for (const word of wordsOf(text)) words.set(word, Math.max(weight, words.get(word) ?? 0));
    };
    add(more, 1);
    add(description, 2);
    add(name, 4);
    for (const word of words.keys()) counts.set(word, (counts.get(word) ?? 0) + 1);
    return { item, name, words };
  });
  return (query, limit) => {
    const wanted = new Set(wordsOf(query));
    const exact = query.trim().toLowerCase();
    const scored = entries.flatMap(({ item, name, words }, position) => {
      let score = name.toLowerCase() === exact ? Infinity : 0;
      for (const word of wanted) {
        const weight = words.get(word);
        if (weight !== undefined) score += weight * Math.log(1 + entries.length / counts.get(word)!);
      }
      return score > 0 ? [{ item, score, position }] : [];
    });
    scored.sort((a, b) => (a.score === b.score ? a.position - b.position : b.score > a.score ? 1 : -1));
    return { found: scored.slice(0, limit).map(({ item }) => item), total: scored.length };
  };
}

/** The words in lower case, without the ends that plurals and forms of verbs have. */
function wordsOf(text: string): readonly string[] {
  const parts =
    text
      .replaceAll(/(\p{Ll}|\d)(?=\p{Lu})/gu, '$1 ')
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? [];
  return parts.map((part) => (part.length > 4 ? part.replace(/(ies|es|s|ing|ed|y|e)$/, '') : part));
}
