import type { ServedSkill } from '@treadle/server/wire';
import type { JSX } from 'preact';
import { serverInfo } from '../api/server-info.ts';

const MAX_SHOWN = 8;

/** The skills that a message may be about to name: it is a slash and the beginning of a name. */
export function matchingSkills(text: string): readonly ServedSkill[] {
  const [, start] = /^\/([a-z0-9-]*)$/.exec(text) ?? [];
  if (start === undefined) return [];
  const { skills = [] } = serverInfo.value ?? {};
  return skills.filter(({ name }) => name.startsWith(start)).slice(0, MAX_SHOWN);
}

export function SkillChoices({
  skills,
  onChoose,
}: {
  readonly skills: readonly ServedSkill[];
  readonly onChoose: (skill: ServedSkill) => void;
}): JSX.Element {
  return (
    <ul class="skill-choices" aria-label="Skills">
      {skills.map((skill) => (
        <li key={skill.name}>
          <button type="button" onClick={() => onChoose(skill)}>
            <strong>/{skill.name}</strong> <span>{skill.description}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}
