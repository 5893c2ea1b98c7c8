import { agentTool, tool, type JsonSchema, type Model, type Tool } from '@treadle/core';
import { activateSkills, modelSkills, skillLine, skillSource, type Activation, type Skill } from '@treadle/core/skills';
import { keywordSearch, type KeywordSearch } from '../keyword-search.ts';
import { ToolError } from '../tool-error.ts';

export interface SkillToolOptions {
  /** The skills, or a function that returns those that there are now. */
  readonly skills: readonly Skill[] | (() => readonly Skill[]);
  /** For skills with the execution `fork`: what their runs use. Absent: such skills are refused. */
  readonly fork?: { readonly model: Model; readonly tools: readonly Tool[]; readonly instructions?: string };
}

const MAX_MATCHES = 10;

const INPUT = {
  type: 'object',
  properties: {
    skill_name: {
      type: 'string',
      minLength: 1,
      maxLength: 500,
      description: 'The name of the skill; for the action "search", keywords for what it should do',
    },
    action: {
      type: 'string',
      enum: ['activate', 'search'],
      description: '"activate" (default) returns what the skill says; "search" finds skills that are not listed',
    },
    task: {
      type: 'string',
      maxLength: 100_000,
      description: 'Only for a skill that runs on its own: what it should do, with everything it has to know',
    },
  },
  required: ['skill_name'],
  additionalProperties: false,
} as const satisfies JsonSchema;

interface SkillInput {
  readonly skill_name: string;
  readonly action?: 'activate' | 'search';
  readonly task?: string;
}

const DESCRIPTION =
  'Activates a skill: know-how for a kind of task. Use it before a task that a skill fits. From the next turn on, only ' +
  'the tools that the skill allows can be called. A skill stays active.';

/**
 * A tool that activates skills and finds them by keywords. The result of an activation is the text of the skill, and narrows
 * the run. A skill with the execution `fork` runs as a child run instead, and its answer is the result.
 */
export function skillTool({ skills, fork }: SkillToolOptions): Tool {
  const current = typeof skills === 'function' ? skills : () => skills;
  const find = skillSearch();
  const definition = {
    name: 'skill',
    description: DESCRIPTION,
    input: INPUT,
    touches: () => [],
  };
  if (!fork) {
    return tool({
      ...definition,
      effect: 'pure',
      unnarrowed: true,
      execute: (input) => {
        const { skill_name: name, action, task } = input as unknown as SkillInput;
        if (action === 'search') return find(current(), name);
        return activatedResult(activateSkills(current(), [name], { by: 'model', ...(task !== undefined && { task }) }));
      },
    });
  }
  const { model, tools, instructions } = fork;
  const child = { ...definition, model, tools, prompt: promptOf };
  return {
    ...agentTool(child),
    unnarrowed: true,
    execute(input, context) {
      const { skill_name: name, action, task } = input as SkillInput;
      if (action === 'search') return find(current(), name);
      const all = current();
      const isForked = all.find((one) => one.name === name)?.execution === 'fork';
      // The user has activated it, and the model runs it.
      const isAsked = isForked && context.narrowedBy?.includes(skillSource(name));
      const by = isAsked ? 'user' : 'model';
      const activation = activateSkills(all, [name], { by, ...(task !== undefined && { task }) });
      if (activation.type === 'refused' || !isForked) return activatedResult(activation);
      const { text, narrow } = activation;
      const told = instructions === undefined ? text : `${instructions}\n\n${text}`;
      return agentTool({ ...child, instructions: told, narrow }).execute!(input, context);
    },
  };
}

function promptOf({ task }: Record<string, unknown>): string {
  return typeof task === 'string' && task.trim() !== '' ? task : 'Do what the skill says.';
}

function activatedResult(activation: Activation): {
  content: string;
  narrow: Extract<Activation, { text: string }>['narrow'];
} {
  if (activation.type === 'refused') throw new ToolError(activation.reason, 'not_found');
  if (activation.skills.at(-1)!.execution === 'fork') {
    throw new ToolError('The skill runs on its own, which is not possible here.', 'not_found');
  }
  return { content: activation.text, narrow: activation.narrow };
}

/** Finds skills that the model may activate. They are indexed when they are searched for the first time. */
function skillSearch(): (skills: readonly Skill[], query: string) => string {
  let indexed: readonly Skill[] | undefined;
  let search: KeywordSearch<Skill> | undefined;
  return (skills, query) => {
    if (skills !== indexed) [indexed, search] = [skills, keywordSearch(modelSkills(skills), (skill) => skill)];
    const { found, total } = search!(query, MAX_MATCHES);
    if (found.length === 0) return 'No skill matches. Search with other words, or do without a skill.';
    const more = total > found.length ? `\n${total - found.length} more match: use more specific words.` : '';
    return `${found.map(skillLine).join('\n')}${more}`;
  };
}
