import { skillFolders } from '@treadle/core/skills';
import type { LoadedSkill } from '@treadle/tools/skills';
import type { CommandContext } from '../config/context.ts';
import { loadPackages } from '../config/packages.ts';
import { exactLine } from '../terminal/printable.ts';
import { plural } from '../terminal/quantities.ts';
import { findSkills, problemText } from './command-skills.ts';
import { rememberTrust } from './trust.ts';

/** Problems that the user is told of. */
const MAX_PROBLEMS = 10;

/** The skills that runs use. */
export interface CommandSkills {
  readonly skills: readonly LoadedSkill[];
  /** With what runs may read of the skills, and with the packages of the project, if they are trusted. */
  readonly context: CommandContext;
  /** What to tell the user. */
  readonly notices: readonly string[];
  /** Why a skill of the project is not used; undefined if there is no such skill, or it is used. */
  whyUntrusted(name: string): string | undefined;
}

/**
 * The skills that may be used. `trust`: the flag, which trusts those of the project for now. `ask`: asks the user about them,
 * if there is a terminal; a yes is remembered.
 */
export async function openSkills(
  context: CommandContext,
  { trust, ask }: { readonly trust: boolean; readonly ask?: (question: string) => Promise<boolean> },
): Promise<CommandSkills> {
  const found = await findSkills(context);
  const shown = found.problems.slice(0, MAX_PROBLEMS).map((problem) => `A skill is not used: ${problemText(problem)}`);
  const more = found.problems.length - shown.length;
  const notices = more > 0 ? [...shown, `${plural(more, 'more problem')} with skills: treadle skills check`] : shown;
  const ofProject = found.skills.filter(({ from }) => from === 'project');
  const readable = skillFolders(found.skills);
  const whyUntrusted = (): undefined => undefined;
  if (found.trusted) return { skills: found.skills, context: { ...context, readable }, notices, whyUntrusted };
  const withProject = async (): Promise<CommandSkills> => {
    const now = { ...context, readable, trusted: found.fingerprint! };
    return { skills: found.skills, context: { ...now, packages: await loadPackages(now) }, notices, whyUntrusted };
  };
  if (trust) return withProject();
  const packages = context.packages.ofProject;
  const names = [...ofProject, ...packages].map(({ name }) => exactLine(name)).join(', ');
  const count = [
    ...(ofProject.length > 0 ? [plural(ofProject.length, 'skill')] : []),
    ...(packages.length > 0 ? [`${plural(packages.length, 'package')} of tools`] : []),
  ].join(' and ');
  const question = `The project ${exactLine(found.project)} brings ${count}: ${names}.\nSkills tell the model what to do, and tools run programs. Use them, also next time? [y/N] `;
  if (await ask?.(question)) {
    await rememberTrust(found.project, found.fingerprint!);
    return withProject();
  }
  const remedy = ` Use them with --trust-skills, or with trusted_skills = ["${found.fingerprint}"] in [orchestrator.tools].`;
  const own = found.skills.filter(({ from }) => from !== 'project');
  return {
    skills: own,
    context: { ...context, readable: skillFolders(own) },
    notices: [...notices, `${count} of the project are not trusted, and not used: ${names}.${ask ? '' : remedy}`],
    whyUntrusted: (name) =>
      ofProject.some((one) => one.name === name)
        ? `The skill "${name}" is not used, because the skills of the project are not trusted.${remedy}`
        : undefined,
  };
}
