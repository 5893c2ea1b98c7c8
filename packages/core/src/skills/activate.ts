import type { Narrowing } from '../machine/narrowing.ts';
import type { UserMessage } from '../messages.ts';
import { didYouMean } from '../nearest.ts';
import { skillText } from './disclosure.ts';
import { skillSource, type Skill } from './skill.ts';
import { skillNarrowing } from './skill-narrowing.ts';

/** What an activation does to a run. */
export interface ActivatedSkills {
  readonly type: 'activated';
  /** Those that were named, after those that they depend on. */
  readonly skills: readonly Skill[];
  /** L1 of all of them. */
  readonly text: string;
  readonly narrow: readonly Narrowing[];
}

export type Activation = ActivatedSkills | { readonly type: 'refused'; readonly reason: string };

/**
 * Activates skills by name, with those that they depend on. Nothing is activated if one of them is refused. `by`: who names
 * them. A program may activate all that are not disabled, and dependencies may be activated by everybody. `task`: what the user
 * wrote.
 */
export function activateSkills(
  skills: readonly Skill[],
  names: readonly string[],
  { by, task = '' }: { readonly by: 'user' | 'model' | 'program'; readonly task?: string },
): Activation {
  const known = new Map(skills.map((skill) => [skill.name, skill]));
  const active = new Map<string, Skill>();
  const started = new Set<string>();
  const add = (name: string, neededBy: string | undefined): string | undefined => {
    if (started.has(name)) return undefined;
    started.add(name);
    const skill = known.get(name);
    if (!skill) {
      const missing = neededBy === undefined ? '' : `, which the skill "${neededBy}" depends on`;
      return `There is no skill ${JSON.stringify(name.slice(0, 100))}${missing}.${didYouMean(name, known.keys())}`;
    }
    if (skill.status === 'disabled') return `The skill "${name}" is disabled.`;
    if (neededBy === undefined && by !== 'program' && skill.invocation === otherThan(by)) {
      return `The skill "${name}" can be activated only by the ${skill.invocation}.`;
    }
    for (const dependency of skill.dependencies) {
      const refused = add(dependency, name);
      if (refused !== undefined) return refused;
    }
    active.set(name, skill);
    return undefined;
  };
  for (const name of names) {
    const reason = add(name, undefined);
    if (reason !== undefined) return { type: 'refused', reason };
  }
  const all = [...active.values()];
  return {
    type: 'activated',
    skills: all,
    text: all.map((skill) => skillText(skill, names.includes(skill.name) ? task : '')).join('\n\n---\n\n'),
    narrow: all.map(skillNarrowing),
  };
}

function otherThan(by: 'user' | 'model'): 'user' | 'model' {
  return by === 'user' ? 'model' : 'user';
}

/**
 * What a message of the user that names skills adds to its run: a text for the model, and narrowings. A skill with the execution
 * `fork` does not narrow the run itself: the model is asked to run it.
 */
export function requestedSkills(skills: readonly Skill[], names: readonly string[], task = ''): Activation {
  const isForked = (name: string): boolean => skills.find((one) => one.name === name)?.execution === 'fork';
  const forked = names.filter(isForked);
  const all = activateSkills(skills, names, { by: 'user', task });
  if (all.type === 'refused' || forked.length === 0) return all;
  const inline = activateSkills(
    skills,
    names.filter((name) => !isForked(name)),
    { by: 'user', task },
  ) as ActivatedSkills;
  const texts = forked.map((name) => `Run the skill "${name}": call the tool "skill" with its name and the task.`);
  return {
    ...inline,
    skills: all.skills,
    text: [...(inline.text === '' ? [] : [inline.text]), ...texts].join('\n\n'),
    narrow: [...inline.narrow, ...forked.map((name) => ({ source: skillSource(name) }))],
  };
}

/** A message of the user with the text of the skills that it names. */
export function withSkillText(message: UserMessage, text: string): UserMessage {
  // Some protocols join texts.
  return { ...message, content: [...message.content, { type: 'text', text: `\n\n${text}` }] };
}
