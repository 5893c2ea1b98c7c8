import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { sep } from 'node:path';
import type { Permission } from '@treadle/core/policy';
import type { LoadedSkills } from '@treadle/tools/packages';
import { exactLine } from '../terminal/printable.ts';
import { packagePlaces, type ConfiguredPlace } from './skill-folders.ts';

const NONE: LoadedSkills = { tools: [], packages: [], problems: [] };

/** Loads the packages of tools. Most commands have none, and do not wait for what loads them. */
export async function loadPackages(place: ConfiguredPlace): Promise<LoadedSkills> {
  const places = packagePlaces(place).filter((one) => existsSync(one));
  if (places.length === 0) return NONE;
  const [{ filterToolsByCapabilities, loadSkillDefinitions }, { toolDefinitions }] = await Promise.all([
    import('@treadle/tools/packages'),
    import('../tools/command-tools.ts'),
  ]);
  const { package_binaries: allowed = [] } = place.loaded.config.orchestrator?.tools ?? {};
  const folder = await realpath(place.folder);
  const loaded = await loadSkillDefinitions(places, {
    taken: [...toolDefinitions().map(({ name }) => name), ...RESERVED],
    allowed,
    whyUntrusted: (own) => (own === folder || own.startsWith(folder + sep) ? UNTRUSTED : undefined),
  });
  const offered = filterToolsByCapabilities(loaded.tools, Object.keys(PERMISSIONS));
  const others = loaded.tools.filter((one) => !offered.includes(one));
  const problems = others.map(
    ({ name, permissions, package: { folder: own } }) =>
      `${own}: ${name} is not offered, because it needs a permission that does not exist: ${permissions.join(', ')}.`,
  );
  return { ...loaded, tools: offered, problems: [...loaded.problems, ...problems].map(exactLine) };
}

/** All there are. Each is held unless the configuration refuses it. */
const PERMISSIONS = { file_read: 0, file_write: 0, shell: 0, network: 0, git: 0, session: 0 } satisfies Record<
  Permission,
  0
>;

/** Tools that runs get besides those of the command. */
const RESERVED = ['read_result', 'tool_search', 'skill'];

/** What a model writes must not become a tool that nobody is asked about. */
const UNTRUSTED =
  'The package is not loaded, because it is in the working folder, where a run can change it. Move it to ~/.treadle/skills.';
