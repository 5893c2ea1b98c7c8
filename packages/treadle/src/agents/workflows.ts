import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { FolderAgents } from '@treadle/tools/agents';
import type { PlannedStep, WorkflowAgent } from '@treadle/tools/workflows';
import {
  CommandError,
  defineCommand,
  EXIT,
  type Command,
  type CommandGroup,
  type Flags,
} from '../command-line/command.ts';
import { KEY_NOTE, LOCATION_FLAGS } from '../command-line/flags.ts';
import { readProblem } from '../command-line/named-file.ts';
import { workflowFolders } from '../config/agents.ts';
import { resolveContext } from '../config/context.ts';
import type { Io } from '../terminal/io.ts';
import { alignColumns, exactLine, oneLine } from '../terminal/printable.ts';
import { inputsOf } from './agent-inputs.ts';
import { checkedInputs, isBroken, missingParts, printJson, runCommand as runAgent, stemOf } from './agents.ts';
import { findAgent, openAgents, problemText } from './command-agents.ts';

const PLACE_FLAGS = { config: LOCATION_FLAGS.config, cwd: LOCATION_FLAGS.cwd } as const;
const JSON_FLAG = { json: { type: 'switch', help: 'Print JSON' } } as const;

const WHERE =
  'Workflows are files in the folders of path in [workflows]; default: workflows in the working folder, and\n' +
  '~/.treadle/workflows. A file is YAML or JSON.';

/** The workflow of this name. Throws with the nearest one. */
async function findWorkflow(registry: FolderAgents | undefined, name: string): Promise<WorkflowAgent> {
  const agent = await findAgent(registry, name);
  if (agent.workflow) return agent as WorkflowAgent;
  throw new CommandError(`"${exactLine(name)}" is an agent, and not a workflow. Use "treadle agents".`);
}

function workflowsIn(registry: FolderAgents | undefined): readonly WorkflowAgent[] {
  return (registry?.list() ?? []).filter(({ workflow }) => workflow) as readonly WorkflowAgent[];
}

const listCommand: Command = defineCommand({
  name: 'workflow list',
  summary: 'List the workflows, and files that do not load',
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: [WHERE],
  examples: ['treadle workflow list', 'treadle workflow list --json'],
  async run({ values }, io) {
    const context = await resolveContext(values, io);
    const registry = await openAgents(context);
    const workflows = workflowsIn(registry);
    const problems = problemsOf(registry, workflowFolders(context));
    const { inputSchema } = await import('@treadle/core/named-agents');
    if (values.json) {
      const listed = workflows.map((one) => ({ ...one, file: registry!.fileOf(one.name) }));
      return printJson(io, { workflows: listed, problems });
    }
    const rows = workflows.map((one) => [
      one.name,
      oneLine(Object.keys(inputsOf(inputSchema(one))).join(', ') || '-', 40),
      String(one.workflow.steps.length),
      oneLine(one.description, 200),
    ]);
    const table = rows.length === 0 ? [] : alignColumns([['NAME', 'INPUTS', 'STEPS', 'DESCRIPTION'], ...rows]);
    const width = io.stdout.columns ?? 120;
    for (const row of table) io.stdout.write(`${row.join('  ').slice(0, width).trimEnd()}\n`);
    if (rows.length === 0) io.stdout.write('There are no workflows. "treadle workflow new NAME" writes one.\n');
    for (const problem of problems) io.stderr.write(`Not used: ${problemText(problem)}\n`);
    return EXIT.completed;
  },
});

function problemsOf(
  registry: FolderAgents | undefined,
  folders: readonly string[],
): ReturnType<FolderAgents['problems']> {
  return registry?.problems().filter(({ file }) => folders.includes(file) || folders.includes(dirname(file))) ?? [];
}

const runCommand: Command = {
  ...runAgent,
  name: 'workflow run',
  summary: 'Run a workflow, and print its outputs',
  flags: {
    'dry-run': { type: 'switch', help: 'Print what would be done, and do nothing' },
    ...without(runAgent.flags, ['single', 'no-confirm', 'max-turns', 'model']),
  },
  notes: [
    'INPUTS is a JSON object, a file with one after an @, or "-" for standard input. A flag for each input sets one of them.',
    'The run is stored. "treadle runs resume" continues one that was interrupted or waits, by the definition that it was started\n' +
      'with; "treadle runs fork" repeats it from an entry with another input or result. Exit codes are those of "treadle run".',
    KEY_NOTE,
  ],
  examples: [
    'treadle workflow run publish \'{"topic": "tides"}\'',
    'treadle workflow run publish \'{"topic": "tides"}\' --dry-run',
    'treadle workflow run publish @inputs.json --json',
  ],
  async run(parsed, io) {
    const {
      values,
      arguments: [name, ...words],
    } = parsed;
    const place = values as { readonly config?: string; readonly cwd?: string };
    const workflow = await findWorkflow(await openAgents(await resolveContext(place, io)), name!);
    if (!values['dry-run']) return runAgent.run(parsed, io);
    const inputs = await checkedInputs(workflow, { values, words }, io);
    if (inputs === undefined) return EXIT.cancelled;
    const { dryRun, flowOf } = await import('@treadle/tools/workflows');
    const steps = await dryRun(flowOf(workflow), inputs);
    if (values.json) return printJson(io, { workflow: workflow.name, inputs, steps });
    for (const line of steps.flatMap((step) => planLines(step, ''))) io.stdout.write(`${line}\n`);
    return EXIT.completed;
  },
};

function without(flags: Flags, names: readonly string[]): Flags {
  return Object.fromEntries(Object.entries(flags).filter(([name]) => !names.includes(name)));
}

const TAKEN = {
  yes: '',
  no: ', not taken',
  if: ', if its condition holds',
  on_error: ', if a step fails',
  undo: ', to undo a step',
} as const;

function planLines({ id, action, calls, taken, values, steps = [] }: PlannedStep, indent: string): readonly string[] {
  const what = calls === undefined ? action : `${action} ${calls}`;
  const given = taken === 'no' ? [] : Object.entries(values).map(([key, value]) => `${key}: ${JSON.stringify(value)}`);
  return [
    exactLine(`${indent}${id}: ${what}${TAKEN[taken]}`),
    ...given.map((line) => `${indent}  ${exactLine(line)}`),
    ...steps.flatMap((step) => planLines(step, `${indent}  `)),
  ];
}

const checkCommand: Command = defineCommand({
  name: 'workflow check',
  summary: 'Check the definitions of workflows, and what they name',
  arguments: ['[NAME]'],
  flags: { ...JSON_FLAG, ...PLACE_FLAGS },
  notes: [
    'Checks the files: keys, expressions, cycles, and outputs that nothing gives. Then whether tools, agents and other workflows\n' +
      'are there, and take the inputs that they get.',
    'Exit codes:\n  0  there are no problems\n  1  a file does not load, or names something that is not there',
  ],
  examples: ['treadle workflow check', 'treadle workflow check publish --json'],
  async run({ values, arguments: [name] }, io) {
    const context = await resolveContext(values, io);
    const registry = await openAgents(context);
    if (name !== undefined && !isBroken(registry, name)) await findWorkflow(registry, name);
    const isMeant = (one: { readonly file: string }): boolean => name === undefined || stemOf(one.file) === name;
    const broken = problemsOf(registry, workflowFolders(context)).filter(isMeant);
    const workflows = workflowsIn(registry).filter((one) => name === undefined || one.name === name);
    const lacking = workflows.length === 0 ? [] : await missingParts(workflows, registry!, values, io);
    const problems = [...broken, ...lacking];
    if (values.json) {
      printJson(io, { ok: problems.length === 0, workflows: workflows.map((one) => one.name), problems });
    } else {
      for (const one of problems) io.stdout.write(`Problem: ${problemText(one)}\n`);
      const count = workflows.length === 1 ? '1 workflow is' : `${workflows.length} workflows are`;
      if (problems.length === 0) io.stdout.write(`${count} fine.\n`);
    }
    return problems.length === 0 ? EXIT.completed : EXIT.failed;
  },
});

const graphCommand: Command = defineCommand({
  name: 'workflow graph',
  summary: 'Draw a workflow as Mermaid or SVG',
  arguments: ['NAME'],
  flags: {
    format: { type: 'choice', choices: ['mermaid', 'svg'], help: 'Default: mermaid' },
    ...PLACE_FLAGS,
  },
  notes: [WHERE],
  examples: ['treadle workflow graph publish', 'treadle workflow graph publish --format svg > publish.svg'],
  async run({ values, arguments: [name] }, io) {
    const workflow = await findWorkflow(await openAgents(await resolveContext(values, io)), name!);
    const { flowOf, mermaidText, svgPicture } = await import('@treadle/tools/workflows');
    const flow = flowOf(workflow);
    io.stdout.write(values.format === 'svg' ? svgPicture(flow) : mermaidText(flow));
    return EXIT.completed;
  },
});

const newCommand: Command = defineCommand({
  name: 'workflow new',
  summary: 'Write the file of a workflow to start from',
  arguments: ['NAME'],
  flags: { ...PLACE_FLAGS },
  notes: [WHERE],
  examples: ['treadle workflow new publish'],
  async run({ values, arguments: [name] }, io) {
    const context = await resolveContext(values, io);
    const { isAgentName } = await import('@treadle/core/named-agents');
    if (!isAgentName(name!)) {
      throw new CommandError(
        `${JSON.stringify(name)} cannot be the name of a workflow. Use up to 50 lower-case letters, digits, and single hyphens or underscores, and not "validate".`,
      );
    }
    const [folder] = workflowFolders(context);
    if (folder === undefined) throw new CommandError('path in [workflows] names no folder. Add one.');
    const taken = (await openAgents(context))?.fileOf(name!);
    if (taken !== undefined) throw new CommandError(`"${name}" exists: ${taken}.`);
    const file = join(folder, `${name}.yaml`);
    await written(file, templateOf(name!), io);
    io.stderr.write(`Try it: treadle workflow run ${name} --pattern "*.md" --dry-run\n`);
    return EXIT.completed;
  },
});

async function written(file: string, text: string, io: Io): Promise<void> {
  try {
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, text, { flag: 'wx' });
  } catch (error) {
    const isThere = (error as NodeJS.ErrnoException).code === 'EEXIST';
    throw new CommandError(isThere ? `${file} exists already.` : `${file} cannot be written: ${readProblem(error)}.`);
  }
  io.stdout.write(`${file}\n`);
}

function templateOf(name: string): string {
  return `name: ${name}
description: What this workflow is for. Agents decide by this line whether to call it.
inputs:
  pattern: { type: string, required: true, description: Which files are meant }
steps:
  - id: files
    action: run_tool
    tool: glob
    inputs: { pattern: "\${{ inputs.pattern }}" }
    retry: 2
  - id: ok
    action: wait_approval
    message: "Go on with these files? \${{ steps.files.output }}"
    timeout: 1d
  - id: report
    action: transform
    depends_on: ok
    inputs: { files: "\${{ steps.files.output }}" }
outputs:
  report: \${{ steps.report.output }}
`;
}

export const workflowGroup: CommandGroup = {
  name: 'workflow',
  summary: 'List, run, check, draw and write workflows that are defined in files',
  commands: [listCommand, runCommand, checkCommand, graphCommand, newCommand],
  notes: [
    'A workflow is a definition in a file: inputs, steps and outputs. Its run is stored like every other: it is resumed after a\n' +
      'crash, waits for approvals, and can be forked. Workflows also run over HTTP and MCP, and agents can call them.',
  ],
};
