import { tool, type Tool } from '@treadle/core';
import { keywordSearch, type KeywordSearch } from './keyword-search.ts';

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
  let search: KeywordSearch<Tool> | undefined;
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
      if (all !== indexed) [indexed, search] = [all, keywordSearch(all, searchableTexts)];
      const { found, total } = search!(query, limit);
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

function searchableTexts({ name, description, parameters }: Tool): {
  name: string;
  description: string;
  words: string;
} {
  return { name, description, words: Object.keys(parameters['properties'] ?? {}).join(' ') };
}
