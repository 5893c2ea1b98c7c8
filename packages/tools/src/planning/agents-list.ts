import { tool, type Tool } from '@treadle/core';
import { agentLine } from '@treadle/core/named-agents';
import { keywordSearch } from '../keyword-search.ts';
import type { CallableAgents } from './task.ts';

const MAX_LISTED = 50;

/** A tool that lists the agents that `task` can call. */
export function agentsListTool(agents: Pick<CallableAgents, 'list'>): Tool {
  return tool({
    name: 'agents_list',
    description:
      'List the agents that can do a task for you, with what they are for and what they take. Call one with the tool "task".',
    input: {
      type: 'object',
      properties: { query: { type: 'string', maxLength: 500, description: 'Keywords; leave it out to list all' } },
      additionalProperties: false,
    },
    effect: 'pure',
    touches: () => [],
    execute({ query }, { principal }) {
      const all = agents.list(principal);
      const words = typeof query === 'string' ? query.trim() : '';
      const found = words === '' ? all : keywordSearch(all, (agent) => agent)(words, MAX_LISTED).found;
      if (found.length === 0) return all.length === 0 ? 'There are no agents.' : 'No agent matches. Use other words.';
      const lines = found.slice(0, MAX_LISTED).map(agentLine);
      const more = found.length - lines.length;
      return [...lines, ...(more > 0 ? [`There are ${more} more: give keywords.`] : [])].join('\n');
    },
  });
}
