import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import type { Permission } from '@treadle/core/policy';
import type { LoadedSkills, SkillPackage } from '@treadle/tools/packages';
import { exactLine } from '../terminal/printable.ts';
import { packagePlaces, userSkillsFolder, type ConfiguredPlace } from './skill-folders.ts';

export interface CommandPackages extends LoadedSkills {
  /** Packages that the project brings, also if they are not trusted. */
  readonly ofProject: readonly SkillPackage[];
}

const NONE: CommandPackages = { tools: [], packages: [], problems: [], ofProject: [] };

/** Loads the packages of tools. Most commands have none, and do not wait for what loads them. */
export async function loadPackages(place: ConfiguredPlace): Promise<CommandPackages> {
  const places = packagePlaces(place).filter((one) => existsSync(one));
  if (places.length === 0) return NONE;
  const [{ filterToolsByCapabilities, loadSkillDefinitions }, { toolDefinitions }] = await Promise.all([
    import('@treadle/tools/packages'),
    import('../tools/command-tools.ts'),
  ]);
  const { package_binaries: allowed = [] } = place.loaded.config.orchestrator?.tools ?? {};
  const isPinned = await projectBorder(place);
  const options = { taken: [...toolDefinitions().map(({ name }) => name), ...RESERVED], allowed, isPinned };
  const all = await loadSkillDefinitions(places, options);
  const ofProject = all.packages.filter(({ digest }) => digest !== undefined);
  const distrust = ofProject.length === 0 ? undefined : await whyUntrusted(place, ofProject);
  // Again, because what is not trusted must not take the names of others.
  const loaded =
    distrust === undefined
      ? all
      : await loadSkillDefinitions(places, {
          ...options,
          whyUntrusted: (own) => (isPinned(own) ? distrust : undefined),
        });
  const offered = filterToolsByCapabilities(loaded.tools, Object.keys(PERMISSIONS));
  const others = loaded.tools.filter((one) => !offered.includes(one));
  const problems = others.map(
    ({ name, permissions, package: { folder: own } }) =>
      `${own}: ${name} is not offered, because it needs a permission that does not exist: ${permissions.join(', ')}.`,
  );
  return { ...loaded, ofProject, tools: offered, problems: [...loaded.problems, ...problems].map(exactLine) };
}

/** All there are. Each is held unless the configuration refuses it. */
const PERMISSIONS = { file_read: 0, file_write: 0, shell: 0, network: 0, git: 0, session: 0 } satisfies Record<
  Permission,
  0
>;

/** Tools that runs get besides those of the command. */
export const RESERVED: readonly string[] = ['read_result', 'tool_search', 'skill', 'agents_list'];

/** Whether a folder belongs to the project, where runs and other people can change it. */
async function projectBorder({ folder }: ConfiguredPlace): Promise<(path: string) => boolean> {
  const [{ isInside }, { projectFolders }] = await Promise.all([
    import('../skills/command-skills.ts'),
    import('../run/agents-md.ts'),
  ]);
  const [root] = await projectFolders(folder, homedir());
  const [project, work] = await Promise.all([realpath(root!), realpath(folder)]);
  const user = await realpath(userSkillsFolder()).catch(userSkillsFolder);
  return (path) => isInside(work, path) || (isInside(project, path) && !isInside(user, path));
}

/** What a model writes must not become a tool that nobody is asked about. */
async function whyUntrusted(place: ConfiguredPlace, ofProject: readonly SkillPackage[]): Promise<string | undefined> {
  const { findSkills } = await import('../skills/command-skills.ts');
  const { trusted, fingerprint } = await findSkills({ ...place, packages: { ofProject } });
  if (trusted) return undefined;
  return `The package is not loaded, because the project brings it, and is not trusted. Its fingerprint, for trusted_skills of [orchestrator.tools]: ${fingerprint}.`;
}
