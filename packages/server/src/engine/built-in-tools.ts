import { tool, type Tool } from '@treadle/core';
import { z } from 'zod';

/*
 * Tools of OpenAI's API that the client executes, and whose calls are items of their own. Models get them as functions of the
 * same names. Unlike those of functions, their arguments are validated, because their items have fixed fields.
 */

/** As the client declares it, and as the response repeats it. */
export type BuiltInTool = ShellTool | { readonly type: 'local_shell' | 'apply_patch' };

interface ShellTool {
  readonly type: 'shell';
  readonly environment?: { readonly type: 'local'; readonly skills?: readonly LocalSkill[] };
}

interface LocalSkill {
  readonly name: string;
  readonly description: string;
  readonly path: string;
}

export type BuiltInName = BuiltInTool['type'];

const limit = z.int().positive().nullish();
const command = z.array(z.string()).min(1);

const SHELL: z.ZodType<BuiltInInputs['shell']> = z.object({
  commands: command.describe('Shell commands, executed in this order.'),
  timeout_ms: limit.describe('How long the commands may take, in milliseconds.'),
  max_output_length: limit.describe('How many characters of the output are returned.'),
});

const LOCAL_SHELL: z.ZodType<BuiltInInputs['local_shell']> = z.object({
  command: command.describe(
    'The program and its arguments. No shell reads them: for pipes call one, as in ["sh", "-c", "…"].',
  ),
  env: z.record(z.string(), z.string()).nullish().describe('Environment variables to set.'),
  timeout_ms: limit.describe('How long the command may take, in milliseconds.'),
  user: z.string().nullish().describe('The user to run the command as.'),
  working_directory: z.string().nullish().describe('The directory to run the command in.'),
});

const APPLY_PATCH: z.ZodType<BuiltInInputs['apply_patch']> = z
  .object({
    type: z.enum(['create_file', 'update_file', 'delete_file']),
    path: z.string().min(1).describe('The path of the file, relative to the root of the workspace.'),
    diff: z.string().nullish().describe('The unified diff to apply. Required, except for delete_file.'),
  })
  .refine(({ type, diff }) => type === 'delete_file' || diff != null, {
    path: ['diff'],
    message: 'it is required for create_file and update_file',
  });

const INPUTS = { shell: SHELL, local_shell: LOCAL_SHELL, apply_patch: APPLY_PATCH };

const DESCRIPTIONS: Readonly<Record<BuiltInName, string>> = {
  shell: 'Executes shell commands on the computer of the user, and returns the output and the exit code of each.',
  local_shell: 'Executes a command on the computer of the user, and returns its output.',
  apply_patch: 'Creates, updates or deletes a file of the workspace with a diff.',
};

export function isBuiltIn(type: unknown): type is BuiltInName {
  return typeof type === 'string' && Object.hasOwn(INPUTS, type);
}

/** For the model. The loop refuses calls with invalid arguments. */
export function builtInTool(builtIn: BuiltInTool): Tool {
  const { type: name } = builtIn;
  const skills = (builtIn.type === 'shell' && builtIn.environment?.skills) || [];
  const listed = skills.map((skill) => `- ${skill.name} (${skill.path}): ${skill.description}`);
  const about = listed.length === 0 ? [] : ['Skills, as directories with instructions:', ...listed];
  return tool({
    name,
    description: [DESCRIPTIONS[name], ...about].join('\n'),
    input: INPUTS[name] as z.ZodType,
    uncounted: true,
  });
}

/** The arguments of calls that were validated. */
export interface BuiltInInputs {
  readonly shell: {
    readonly commands: readonly string[];
    readonly timeout_ms?: number | null | undefined;
    readonly max_output_length?: number | null | undefined;
  };
  readonly local_shell: {
    readonly command: readonly string[];
    readonly env?: Readonly<Record<string, string>> | null | undefined;
    readonly timeout_ms?: number | null | undefined;
    readonly user?: string | null | undefined;
    readonly working_directory?: string | null | undefined;
  };
  readonly apply_patch: {
    readonly type: 'create_file' | 'update_file' | 'delete_file';
    readonly path: string;
    readonly diff?: string | null | undefined;
  };
}

/** Throws for arguments that are not valid. */
export function builtInInput<Name extends BuiltInName>(name: Name, json: string): BuiltInInputs[Name] {
  return INPUTS[name].parse(JSON.parse(json)) as BuiltInInputs[Name];
}
