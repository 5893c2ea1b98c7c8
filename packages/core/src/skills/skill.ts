import type { Autonomy } from '../machine/narrowing.ts';

/** Know-how in a folder with a file SKILL.md. Plain data: its texts have no hidden characters, and their lengths are limited. */
export interface Skill {
  readonly name: string;
  /** One line: what it is for, and when to use it. */
  readonly description: string;
  /** SKILL.md below its front matter. */
  readonly text: string;
  /** The folder, as an absolute path. */
  readonly folder: string;
  /** Its other files, relative to the folder. */
  readonly files: readonly string[];
  readonly license?: string;
  readonly compatibility?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Entries such as `read`, `Read` or `Bash(git:*)`. Absent: all tools. */
  readonly allowedTools?: readonly string[];
  /** Entries of the same form. */
  readonly disallowedTools?: readonly string[];
  readonly autonomy?: Autonomy;
  /** Entries of the same form: calls that people have to approve. */
  readonly approvals?: readonly string[];
  /** Who may activate it. */
  readonly invocation: 'user' | 'model' | 'both';
  /** `fork`: it runs as a child run, and its answer is the result. */
  readonly execution: 'inline' | 'fork';
  /** Arguments for calls that lack them, by tool and name. */
  readonly defaults?: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** Skills that are activated together with it. */
  readonly dependencies: readonly string[];
  /** `disabled`: it is never activated. `deprecated` and `experimental` are told to the model. */
  readonly status: 'active' | 'experimental' | 'deprecated' | 'disabled';
}

/** What a narrowing of a skill has as its source. */
export function skillSource(name: string): string {
  return `skill:${name}`;
}

/** The folders of those skills that narrow a run, for `readable` of a policy and of a sandbox. */
export function skillFolders(
  skills: readonly Pick<Skill, 'name' | 'folder'>[],
): (narrowedBy: readonly string[]) => readonly string[] {
  const bySource = new Map(skills.map(({ name, folder }) => [skillSource(name), folder]));
  return (narrowedBy) => narrowedBy.flatMap((source) => bySource.get(source) ?? []);
}
