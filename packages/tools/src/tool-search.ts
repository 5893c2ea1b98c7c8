import { tool, type Tool } from '@treadle/core';

export interface ToolSearchOptions {
  /** All tools that can be found, or a function that returns those that there are now. */
  readonly tools: readonly Tool[] | (() => readonly Tool[]);
  /** What the tools are about, such as `of the MCP servers github and jira`. It becomes a part of the description. */
  readonly about?: string;
}

/** With more tools than this, a model gets `tool_search` in their place. */
export const MAX_OFFERED_TOOLS = 40;

const DEFAULT_MATCHES = 5;
const MAX_MATCHES = 20;
const MAX_LINE = 120;

/**
 * A tool that finds others by keywords. Those that it finds can be called from the next turn on. So the model gets the schemas
 * of the tools that it needs, and not of a thousand.
 *
 * To resume a run, pass all tools together with this one: only those that the run has found are offered.
 */
export function toolSearchTool({ tools, about }: ToolSearchOptions): Tool {
  const current = typeof tools === 'function' ? tools : () => tools;
  let indexed: readonly Tool[] | undefined;
  let index: ToolIndex | undefined;
  return tool({
    name: 'tool_search',
    description:
      `Finds more tools${about === undefined ? '' : ` ${about}`}. They are not listed here. Search by keywords for what you ` +
      'want to do, such as "create issue". The tools that are found can be called from your next turn on.',
    input: {
      type: 'object',
      properties: {
        query: { type: 'string', minLength: 1, maxLength: 500, description: 'Keywords, or the name of a tool' },
        limit: {
          type: 'integer',
          minimum: 1,
          maximum: MAX_MATCHES,
          description: `How many tools to add at most; default ${DEFAULT_MATCHES}`,
        },
      },
      required: ['query'],
      additionalProperties: false,
    },
    effect: 'pure',
    touches: () => [],
    unnarrowed: true,
    async execute(input, { offer }) {
      const { query, limit = DEFAULT_MATCHES } = input as { readonly query: string; readonly limit?: number };
      const all = current();
      if (all !== indexed) [indexed, index] = [all, indexOf(all)];
      const { found, total } = search(index!, query, limit);
      if (found.length === 0) {
        return `None of ${all.length} tools matches. Search with other words, and describe what the tool should do.`;
      }
      await offer(found);
      const more =
        total > found.length ? ` ${total - found.length} more match: use more specific words to find them.` : '';
      return `${found.map(lineOf).join('\n')}\nYou can call these tools from your next turn on.${more}`;
    },
  });
}

/** The tools themselves if they are few, or else a tool that finds them. */
export function searchableTools(options: ToolSearchOptions & { readonly tools: readonly Tool[] }): readonly Tool[] {
  return options.tools.length > MAX_OFFERED_TOOLS ? [toolSearchTool(options)] : options.tools;
}

function lineOf({ name, description }: Tool): string {
  const line = description.replaceAll(/\s+/g, ' ').trim();
  return `${name}: ${line.length > MAX_LINE ? `${line.slice(0, MAX_LINE - 1).toWellFormed()}…` : line}`;
}

interface ToolIndex {
  readonly entries: readonly IndexedTool[];
  /** In how many tools a word occurs. */
  readonly counts: ReadonlyMap<string, number>;
}

interface IndexedTool {
  readonly tool: Tool;
  /** How much a match of this word counts: more in the name than in the description. */
  readonly words: ReadonlyMap<string, number>;
}

function indexOf(tools: readonly Tool[]): ToolIndex {
  const counts = new Map<string, number>();
  const entries = tools.map((one): IndexedTool => {
    const words = new Map<string, number>();
    const add = (text: string, weight: number): void => {
      for (const word of wordsOf(text)) words.set(word, Math.max(weight, words.get(word) ?? 0));
    };
    add(Object.keys(one.parameters['properties'] ?? {}).join(' '), 1);
    add(one.description, 2);
    add(one.name, 4);
    for (const word of words.keys()) counts.set(word, (counts.get(word) ?? 0) + 1);
    return { tool: one, words };
  });
  return { entries, counts };
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

/** The best matches, best first. Rare words count more. A tool whose name is the query comes first. */
function search(
  { entries, counts }: ToolIndex,
  query: string,
  limit: number,
): { readonly found: readonly Tool[]; readonly total: number } {
  const wanted = new Set(wordsOf(query));
  const exact = query.trim().toLowerCase();
  const scored = entries.flatMap(({ tool: one, words }, position) => {
    let score = one.name.toLowerCase() === exact ? Infinity : 0;
    for (const word of wanted) {
      const weight = words.get(word);
      if (weight !== undefined) score += weight * Math.log(1 + entries.length / counts.get(word)!);
    }
    return score > 0 ? [{ one, score, position }] : [];
  });
  scored.sort((a, b) => (a.score === b.score ? a.position - b.position : b.score > a.score ? 1 : -1));
  return { found: scored.slice(0, limit).map(({ one }) => one), total: scored.length };
}
